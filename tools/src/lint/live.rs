//! A program that is checked: it runs on the model to its end, and each of its processes leaves a
//! recording.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::BufReader;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use mlx5_model::trace::{ReadError, Reader};

use super::recording;
use super::report::Report;
use crate::outcome::{Error, Result};
use crate::trace::library;

/// A folder for recordings, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("mlx5-lint-{}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Folder(path)),
            Err(error) => Err(Error::File {
                what: format!("cannot make {} for recordings", path.display()),
                error,
            }),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind at worst.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program, and goes over what it posted. How it ended is said on standard error, if not well.
pub(super) fn lint(
    words: &[OsString],
    named: Option<&Path>,
    strict: bool,
    report: &mut Report,
) -> Result<()> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let folder = Folder::new()?;
    let mut preload = OsString::from(library::find(named)?);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let status = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env("MLX5_MODEL", "always")
        .env("MLX5_MODEL_TRACE", folder.0.join("%p"))
        .env("MLX5_MODEL_TRACE_DETAIL", "story")
        // What the program prints is not the report.
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| Error::File {
            what: format!("cannot run {}", program.to_string_lossy()),
            error,
        })?;
    if !status.success() {
        eprintln!("mlx5: the program ended with {status}");
    }
    let failed = |error| Error::File {
        what: format!("cannot read the recordings in {}", folder.0.display()),
        error,
    };
    let mut processes = Vec::new();
    for entry in fs::read_dir(&folder.0).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        processes.extend(number.map(|number| (number, path)));
    }
    processes.sort();
    if processes.is_empty() {
        return Err(Error::Told(
            "the program opened no device of the model; one that is linked statically, or has \
             privileges of its own (setuid), cannot be looked at"
                .to_owned(),
        ));
    }
    let several = processes.len() > 1;
    for (process, path) in processes {
        let file = File::open(&path).map_err(failed)?;
        match Reader::new(BufReader::new(file)) {
            Ok(reader) => {
                recording::lint(reader, several.then_some(process), strict, report)?;
            }
            // One that was killed before it wrote anything.
            Err(ReadError::NoTrace | ReadError::Cut(_)) => {}
            Err(error) => return Err(Error::Told(error.to_string())),
        }
    }
    Ok(())
}
