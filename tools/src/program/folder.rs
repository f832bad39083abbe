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
    lock: File,
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
        // Another user, or a process in another namespace, may have taken a name.
        for attempt in 0..100 {
            let path = place.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            if let Some(folder) = Folder::at(path)? {
                return Ok(folder);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Makes and locks this one; `None` if the name is taken, or another process has found the new folder
    /// before it was locked, and clears it.
    fn at(path: PathBuf) -> io::Result<Option<Folder>> {
        let made = DirBuilder::new().mode(0o700).create(&path);
        if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            return Ok(None);
        }
        made?;
        let lock = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lock => lock?,
        };
        let is_kept = lock_alone(&lock)? && is_at(&lock, &path)?;
        Ok(is_kept.then(|| Folder { path, lock }))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the folder. A folder that cannot be deleted does no harm.
    pub(crate) fn delete(&self) {
        if matches!(is_at(&self.lock, &self.path), Ok(true)) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Locks a folder. Gives false if another process has locked it.
fn lock_alone(folder: &File) -> io::Result<bool> {
    // SAFETY: the call takes no memory.
    if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// Whether a path still names this folder, and not one that was made after it was deleted.
fn is_at(folder: &File, path: &Path) -> io::Result<bool> {
    let opened = folder.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
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
            let Ok(folder) = File::open(entry.path()) else { continue };
            clear_one(&folder, &entry.path());
        }
    }
}

/// Removes a folder if no process has it locked. One that cannot be removed does no harm.
fn clear_one(folder: &File, path: &Path) {
    // Since it was opened, its process may have deleted it, and another taken the name.
    if matches!(lock_alone(folder), Ok(true)) && matches!(is_at(folder, path), Ok(true)) {
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_taken_again_is_left_alone() {
        let place = std::env::temp_dir().join(format!("mlx5-folder-again-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let first = Folder::within(&place).unwrap();
        let opened = File::open(first.path()).unwrap();
        first.delete();
        let second = Folder::within(&place).unwrap();
        assert_eq!(second.path(), first.path());

        drop(first);
        assert!(second.path().exists());
        clear_one(&opened, second.path());
        assert!(second.path().exists());

        drop(second);
        fs::remove_dir(&place).unwrap();
    }

    #[test]
    fn programs_that_start_at_once_leave_each_other_their_folders() {
        let place = std::env::temp_dir().join(format!("mlx5-folders-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let start = || {
            for _ in 0..500 {
                let folder = Folder::within(&place).unwrap();
                fs::write(folder.path().join("library"), "of the model").unwrap();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(start);
            }
        });
        // All were deleted.
        fs::remove_dir(&place).unwrap();
    }
}
