//! Finds the model's library for a program.

use std::fs;
use std::path::{Path, PathBuf};

use mlx5_model::trace::BUILD;

use crate::outcome::{Error, Result};

const NAME: &str = "libmlx5_model.so";
/// Folders of the library, relative to this command's: cargo's for dependencies, cargo's for this
/// command, and those of packages.
const FOLDERS: [&str; 5] = ["deps", ".", "../deps", "../lib", "../lib64"];
const CURE: &str = "build it with `cargo build -p mlx5-tools`, or name one with --library";

/// Returns the requested library, else one beside this command. It must be of the same build as the
/// model linked into this command: an older copy would write a stream that this command cannot
/// read.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(library) = named {
        return match is_of_this_build(library) {
            Some(true) => Ok(library.to_owned()),
            Some(false) => Err(stale(library)),
            None => Err(Error::Told(format!(
                "{} cannot be read: --library and MLX5_MODEL_LIBRARY name the model, {NAME}",
                library.display()
            ))),
        };
    }
    let command = std::env::current_exe().map_err(|error| Error::File {
        what: "cannot tell where this command lies".into(),
        error,
    })?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let mut other = None;
    for place in FOLDERS {
        let library = folder.join(place).join(NAME);
        match is_of_this_build(&library) {
            Some(true) => return Ok(library.canonicalize().unwrap_or(library)),
            Some(false) => other = other.or(Some(library)),
            None => {}
        }
    }
    Err(match other {
        Some(library) => stale(&library),
        None => {
            Error::Told(format!("the model, {NAME}, is not beside {}: {CURE}", command.display()))
        }
    })
}

fn stale(library: &Path) -> Error {
    Error::Told(format!(
        "{} is of another build than this command, and would behave otherwise: {CURE}",
        library.display()
    ))
}

/// Returns whether a library has the mark of this build; `None` where there is no library.
fn is_of_this_build(library: &Path) -> Option<bool> {
    let bytes = fs::read(library).ok()?;
    let (mark, length) = (BUILD.as_ptr().cast(), BUILD.len());
    // SAFETY: both byte ranges have the given lengths, and the call does not keep the pointers.
    let found = unsafe { libc::memmem(bytes.as_ptr().cast(), bytes.len(), mark, length) };
    Some(!found.is_null())
}
