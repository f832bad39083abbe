//! The libraries of the model and of the monitor, for the loader of another program.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use mlx5_model::trace::BUILD;

use crate::outcome::{Error, Result};

const NAME: &str = "libmlx5_model.so";
/// The library of the model that is linked into this command.
static OWN: &[u8] = mlx5_model_library::bytes!();

const MONITOR_NAME: &str = "libmlx5_monitor.so";
/// The library of the monitor that is part of this command.
static MONITOR: &[u8] = mlx5_model_library::bytes!(mlx5_monitor);

/// Returns the path for LD_PRELOAD of a copy of the monitor's library in `folder`.
pub(super) fn preload_monitor(folder: &Path) -> Result<PathBuf> {
    let library = folder.join(MONITOR_NAME);
    write(&library, MONITOR).map_err(|error| Error::File {
        what: format!("cannot write the monitor, {}", library.display()),
        error,
    })?;
    loadable(library, "folder with TMPDIR")
}

/// Returns the path for LD_PRELOAD: that of the requested library, else that of a copy of this
/// command's own in `folder`. The model must be of the build that is linked into this command:
/// another would write a stream that this command cannot read.
pub(super) fn preload(named: Option<&Path>, folder: &Path) -> Result<PathBuf> {
    let library = match named {
        Some(library) => {
            is_of_this_build(library)?;
            std::path::absolute(library).unwrap_or_else(|_| library.to_owned())
        }
        None => {
            let library = folder.join(NAME);
            write(&library, OWN).map_err(|error| Error::File {
                what: format!("cannot write the model, {}", library.display()),
                error,
            })?;
            library
        }
    };
    loadable(library, if named.is_some() { "path" } else { "folder with TMPDIR" })
}

/// Returns the path, if LD_PRELOAD can name it.
fn loadable(library: PathBuf, other: &str) -> Result<PathBuf> {
    // Both separate paths in LD_PRELOAD, and nothing quotes them.
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Error::Told(format!(
            "{} has a blank or a colon, and the loader takes neither: name another {other}",
            library.display()
        )));
    }
    Ok(library)
}

/// Writes a library of this command.
fn write(library: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(library, bytes)?;
    let path = CString::new(library.as_os_str().as_bytes())?;
    // SAFETY: a zeroed statvfs is a valid value, which the call fills; the path ends with a zero.
    let (result, system) = unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut system), system)
    };
    if result == 0 && system.f_flag & libc::ST_NOEXEC != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "its file system is mounted noexec; name a folder of another with TMPDIR",
        ));
    }
    Ok(())
}

/// Checks that a library has the mark of this build.
fn is_of_this_build(library: &Path) -> Result<()> {
    let bytes = fs::read(library).map_err(|_| {
        Error::Told(format!(
            "{} cannot be read: --library and MLX5_MODEL_LIBRARY name the model, {NAME}",
            library.display()
        ))
    })?;
    let (mark, length) = (BUILD.as_ptr().cast(), BUILD.len());
    // SAFETY: both byte ranges have the given lengths, and the call does not keep the pointers.
    let found = unsafe { libc::memmem(bytes.as_ptr().cast(), bytes.len(), mark, length) };
    if found.is_null() {
        return Err(Error::Told(format!(
            "{} is of another build than this command, and would behave otherwise: leave out \
             --library and MLX5_MODEL_LIBRARY, and the command uses its own",
            library.display()
        )));
    }
    Ok(())
}
