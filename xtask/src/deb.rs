//! `cargo xtask deb`: Debian packages of the command `mlx5`, and of the C interface.
//!
//! The files are put in place here and packed by `dpkg-deb`. cargo-deb does the same from a table in
//! `Cargo.toml`, but is a program of some two hundred crates that has to be installed first.

mod check;
mod stage;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::build;
use crate::c_library;
use crate::roots::Wanted;
use crate::setup::{self, For};
use stage::Stage;

const USAGE: &str = "usage: cargo xtask deb [--check [--keyring FILE] [SUITE ...]]";

/// The file of completions in the package, by the name of the shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/mlx5"),
    ("zsh", "usr/share/zsh/vendor-completions/_mlx5"),
    ("fish", "usr/share/fish/vendor_completions.d/mlx5.fish"),
];

/// The maintainer, as Debian's tools take it from the environment. The default address
/// has the domain that is reserved for examples.
fn maintainer() -> String {
    let variable = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let name = variable("DEBFULLNAME", "the mlx5 authors");
    format!("{name} <{}>", variable("DEBEMAIL", "mlx5@example.com"))
}

/// What a package says of itself.
struct Package {
    name: &'static str,
    section: &'static str,
    summary: &'static str,
    /// A line with a point is empty.
    description: &'static [&'static str],
    /// Packages besides those of the libraries that its executables are linked with.
    depends: &'static str,
    /// Its executables and libraries.
    executables: &'static [&'static str],
}

/// The command, with the model.
const TOOLS: Package = Package {
    name: "mlx5-tools",
    section: "net",
    summary: "bring-up, measurement and diagnosis of ConnectX devices",
    description: &[
        "The command mlx5 brings up, measures and explains NVIDIA ConnectX devices: it",
        "describes devices, checks what prevents the first message, measures latency",
        "and bandwidth, decodes errors in logs, traces programs, checks their requests",
        "and shows the device's state of their queues.",
        ".",
        "It contains the model, a software ConnectX, on which unmodified verbs programs",
        "run without a device. Programs can preload the model by themselves, too, from",
        "/usr/lib/mlx5/libmlx5_model.so.",
    ],
    // The command opens them at run time, which no tool finds in its files.
    depends: "ibverbs-providers (>= 39), libibverbs1 (>= 39)",
    executables: &["usr/bin/mlx5", "usr/lib/mlx5/libmlx5_model.so"],
};

/// Headers and libraries for C and C++.
const DEV: Package = Package {
    name: "mlx5-dev",
    section: "libdevel",
    summary: "data path for ConnectX devices without libibverbs, for C and C++",
    description: &[
        "A program makes its queue pairs and completion queues by libibverbs, takes",
        "their queues over by libmlx5direct, and posts and polls without libibverbs.",
        ".",
        "This package has the library, shared and static, headers for C, C++, GPUs and",
        "inline calls, and the files by which pkg-config and CMake find them. The",
        "package mlx5-tools has a software ConnectX, on which programs run without a",
        "device.",
    ],
    depends: "ibverbs-providers (>= 39), libibverbs-dev (>= 39)",
    executables: &["usr/lib/libmlx5direct.so"],
};

/// `cargo xtask deb [--check [--keyring FILE] [SUITE ...]]`.
pub fn command(arguments: &[String]) -> Result {
    match arguments {
        [] => make().map(|_| ()),
        [flag, wanted @ ..] if flag == "--check" => {
            let wanted = Wanted::read(wanted)?;
            check::run(&make()?, &wanted)
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// Paths of the packages.
struct Made {
    tools: PathBuf,
    dev: PathBuf,
}

fn make() -> Result<Made> {
    setup::ready(For::Building)?;
    let folder = build::target_directory()?.join("debian");
    let _ = fs::remove_dir_all(&folder);
    let tools = Stage::new(&folder, &TOOLS);
    fill_tools(&tools)?;
    let dev = Stage::new(&folder, &DEV);
    c_library::install(&dev.root().join("usr"))?;
    let shared = format!("usr/lib/{}", c_library::shared_file()?);
    dev.share(&shared, ("libmlx5direct", c_library::INTERFACE))?;
    Ok(Made { tools: tools.pack()?, dev: dev.pack()? })
}

/// Builds the command, and puts all of its package in place.
fn fill_tools(stage: &Stage) -> Result {
    let mut cargo = build::cargo("build");
    cargo.args(["--release", "--locked", "--package", TOOLS.name]);
    build::run("cargo build", &mut cargo)?;
    let release = build::target_directory()?.join("release");
    stage.strip(&release.join("mlx5"), "usr/bin/mlx5", 0o755)?;
    stage.strip(&release.join("deps/libmlx5_model.so"), "usr/lib/mlx5/libmlx5_model.so", 0o644)?;
    // Manual pages and completions, which the command writes.
    let command = stage.root().join("usr/bin/mlx5");
    let pages = stage.root().with_file_name("man");
    fs::create_dir_all(&pages).map_err(|error| format!("{}: {error}", pages.display()))?;
    build::run("mlx5 man", Command::new(&command).arg("man").arg(&pages))?;
    for page in stage::files(&pages)? {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        stage.compressed(&format!("usr/share/man/man1/{name}.gz"), &stage::read(&page)?)?;
    }
    for (shell, file) in COMPLETIONS {
        let script = stage::output(Command::new(&command).args(["completions", shell]))?;
        stage.write(file, script.as_bytes())?;
    }
    Ok(())
}

/// The file `copyright` of the package, with the text of the MIT license.
fn copyright(mit: &str) -> String {
    let body = mit.lines().skip_while(|line| !line.starts_with("Permission"));
    let lines = body.map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    let owner = mit.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: mlx5\n\nFiles: *\nCopyright: {}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{}\n\nLicense: Apache-2.0\n On Debian systems, the text of the Apache \
         License 2.0 is in\n /usr/share/common-licenses/Apache-2.0.\n",
        owner.unwrap_or("the mlx5 authors"),
        lines.collect::<Vec<_>>().join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copyright_has_the_license_without_empty_lines() {
        let text = copyright("MIT License\n\nCopyright (c) 2025 x\n\nPermission is\n\nTHE END\n");
        assert!(text.contains("Copyright: 2025 x\n"), "{text}");
        assert!(text.contains("License: Expat\n Permission is\n .\n THE END\n\n"), "{text}");
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert_eq!(command(&["--install".to_owned()]).unwrap_err(), USAGE);
    }
}
