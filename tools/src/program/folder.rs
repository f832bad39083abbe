//! A folder for the processes of one program: the model's library, and what they report to.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::outcome::{Error, Result};

/// A folder that only this user can enter. Deleted when dropped.
pub(crate) struct Folder {
    path: PathBuf,
    /// The folder's lock, held as long as this process lives.
    _lock: File,
}

/// The prefix of such folders' names.
const PREFIX: &str = "mlx5-trace-";

impl Folder {
    /// Makes a folder in the one for temporary files.
    ///
    /// # Errors
    /// Fails if that folder cannot be written to.
    pub(crate) fn new() -> Result<Folder> {
        let place = std::env::temp_dir();
        Folder::within(&place).map_err(|error| Error::File {
            what: format!(
                "cannot make a folder in {}, where the program's processes find the model \
                 (TMPDIR names it)",
                place.display()
            ),
            error,
        })
    }

    fn within(place: &Path) -> io::Result<Folder> {
        clear(place);
        let mut last = io::ErrorKind::AlreadyExists.into();
        // Another user, or a process in another namespace, may have taken a name.
        for attempt in 0..100 {
            let path = place.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match Folder::at(path) {
                Ok(folder) => return Ok(folder),
                // Another process removed the folder before it was locked.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                    ) && place.is_dir() =>
                {
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn at(path: PathBuf) -> io::Result<Folder> {
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        lock_alone(&lock)?;
        Ok(Folder { path, _lock: lock })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the folder. A folder that cannot be deleted does no harm.
    pub(crate) fn delete(&self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Locks a folder, if no process has locked it.
fn lock_alone(folder: &File) -> io::Result<()> {
    // SAFETY: the call takes no memory.
    match unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes folders of this user whose process was killed.
fn clear(place: &Path) {
    // SAFETY: the call takes no memory.
    let user = unsafe { libc::geteuid() };
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Metadata of the entry itself: links are not followed.
        let is_own = || entry.metadata().is_ok_and(|made| made.is_dir() && made.uid() == user);
        if is_folder && is_own() {
            let left =
                File::open(entry.path()).and_then(|folder| lock_alone(&folder).map(|()| folder));
            if let Ok(_locked) = left {
                // A folder that cannot be removed does no harm.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}
