//! The check of the feature `rdma-sys`.

use std::process::Command;

use crate::Result;
use crate::build;
use crate::libclang::{self, ForRdmaSys};

/// Builds the workspace with the feature, holds its types to those of a build without it (the unit
/// tests of mlx5-sys), and runs tests of the driver, also beside libmlx5's data path.
///
/// # Errors
/// - There is no libclang that rdma-sys can be built with.
/// - A build or test fails; the messages are printed before.
pub fn check() -> Result {
    let libclang = libclang::for_rdma_sys().ok_or_else(|| {
        format!(
            "rdma-sys 0.3.0 needs libclang 15 or older, and this machine has none: install one of \
             {}, where the distribution has it",
            libclang::PACKAGES_FOR_RDMA_SYS.join(", ")
        )
    })?;
    let target = build::target_directory()?.join("rdma-sys");
    let cargo = |subcommand: &str, arguments: &[&str]| -> Command {
        let mut command = build::cargo(subcommand);
        command.args(arguments).args(["--features", "rdma-sys"]);
        if let ForRdmaSys::At(library) = &libclang {
            // Build scripts run again where the variable differs, so this build has its own folder.
            command.env("LIBCLANG_PATH", library).arg("--target-dir").arg(&target);
        }
        command
    };
    build::run("cargo build", &mut cargo("build", &["--workspace"]))?;
    let mut test = cargo("test", &["--package", "mlx5-sys", "--package", "mlx5", "--lib"]);
    test.args(["--features", "mlx5/cm"]);
    for name in ["verbs_shape", "rc_traffic", "twin"] {
        test.args(["--test", name]);
    }
    build::run("cargo test", &mut test)
}
