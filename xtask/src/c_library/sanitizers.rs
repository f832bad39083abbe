//! The programs of the tests under the sanitizers for addresses, leaks and undefined behaviour.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{direct, ring, write};
use crate::Result;
use crate::build;
use crate::preload;

/// Scenarios of `ring.c`. The last needs a port of Ethernet.
const RING: [&str; 7] = ["inline", "pointers", "prepared", "full", "failure", "engine", "packets"];

/// Scenarios of `direct.c`. The last needs a port of Ethernet.
const DIRECT: [&str; 11] =
    ["rc", "uc", "ud", "dc", "xrc", "srq", "failure", "misuse", "leftovers", "events", "packets"];

/// Compiles the programs with sanitizers, and runs all their scenarios on the model.
///
/// # Errors
/// A program does not compile, or a sanitizer stops it.
pub(super) fn check(folder: &Path, root: &Path) -> Result {
    let leaks = folder.join("leaks.txt");
    // A process has one model, which ends with it.
    write(&leaks, "leak:libmlx5_model\n")?;
    for (source, scenarios) in [(ring(), &RING[..]), (direct(), &DIRECT)] {
        let program = compile(folder, root, &source)?;
        for scenario in scenarios {
            let mut command = preload::on_model(&program)?;
            command.arg(scenario).env("LD_LIBRARY_PATH", root.join("lib"));
            command.env("MLX5_MODEL_LINK", "roce");
            // The model is preloaded, so the sanitizer is not the first library.
            command.env("ASAN_OPTIONS", "verify_asan_link_order=0");
            command.env(
                "LSAN_OPTIONS",
                format!("suppressions={}:print_suppressions=0", leaks.display()),
            );
            build::run(&format!("{} {scenario}", program.display()), &mut command)?;
        }
    }
    Ok(())
}

/// Compiles a program by gcc, and returns its path.
fn compile(folder: &Path, root: &Path, source: &Path) -> Result<PathBuf> {
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let program = folder.join(format!("{name}-sanitized"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fno-omit-frame-pointer"]);
    command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]).arg(source);
    command.arg("-I").arg(root.join("include")).arg("-L").arg(root.join("lib"));
    command.args(["-lmlx5direct", "-lmlx5", "-libverbs", "-o"]).arg(&program);
    build::run("cc", &mut command)?;
    Ok(program)
}
