//! Files and folders, by system calls that no preloaded library can intercept.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use libc::{AT_FDCWD, c_int, mode_t, stat};

use super::{OwnFd, check, system};

fn name(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Opens a file. It is closed across exec.
pub(crate) fn open(path: impl AsRef<Path>, flags: c_int, mode: mode_t) -> io::Result<OwnFd> {
    let path = name(path.as_ref())?;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is a C string. The call returns a new descriptor, which nothing else owns.
    unsafe { OwnFd::new(system::openat(AT_FDCWD, path.as_ptr(), flags, mode)) }
}

/// Returns the content of a file of text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let file = open(path, libc::O_RDONLY, 0)?;
    let mut content = String::new();
    (&file).read_to_string(&mut content)?;
    Ok(content)
}

/// Returns what the kernel knows of a file, at the end of links.
pub(crate) fn about(path: impl AsRef<Path>) -> io::Result<stat> {
    about_at(path.as_ref(), 0)
}

/// Returns what the kernel knows of a file, which may be a link.
pub(crate) fn about_link(path: impl AsRef<Path>) -> io::Result<stat> {
    about_at(path.as_ref(), libc::AT_SYMLINK_NOFOLLOW)
}

fn about_at(path: &Path, flags: c_int) -> io::Result<stat> {
    let path = name(path)?;
    // SAFETY: integers, for which zeros are values.
    let mut about: stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and the call writes one `stat`.
    check(unsafe { system::newfstatat(AT_FDCWD, path.as_ptr(), &mut about, flags) })?;
    Ok(about)
}

/// Returns whether what was asked about is of a kind: `S_IFREG`, `S_IFDIR`, `S_IFCHR`.
pub(crate) fn is(about: &stat, kind: mode_t) -> bool {
    about.st_mode & libc::S_IFMT == kind
}

/// Returns the target of a link.
pub(crate) fn target(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = name(path.as_ref())?;
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    let to = target.as_mut_ptr().cast();
    // SAFETY: the path is a C string, and the call writes at most the length of `target`.
    let length = unsafe { system::readlinkat(AT_FDCWD, path.as_ptr(), to, target.len()) };
    target.truncate(usize::try_from(length).map_err(|_| io::Error::last_os_error())?);
    Ok(PathBuf::from(OsString::from_vec(target)))
}

/// Returns the path without links, from the root on.
pub(crate) fn absolute(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let file = open(path, libc::O_PATH, 0)?;
    target(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the names in a folder.
pub(crate) fn names(folder: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    names_in(&open(folder, libc::O_RDONLY | libc::O_DIRECTORY, 0)?)
}

/// Returns the names in an open folder.
pub(crate) fn names_in(folder: &OwnFd) -> io::Result<Vec<OsString>> {
    /// Places of the length and of the name in a `struct linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    // The kernel aligns the entries to eight bytes.
    let mut entries = vec![0u8; 32 << 10];
    let mut names = Vec::new();
    loop {
        let (to, size) = (entries.as_mut_ptr().cast(), entries.len());
        // SAFETY: the call writes at most the length of `entries`.
        let got = unsafe { system::getdents64(folder.as_raw_fd(), to, size) };
        let mut rest = &entries[..usize::try_from(got).map_err(|_| io::Error::last_os_error())?];
        if rest.is_empty() {
            return Ok(names);
        }
        while let Some(length) = rest.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
            let Some(entry) = rest.get(..length).filter(|entry| entry.len() > NAME) else { break };
            let name = entry[NAME..].split(|byte| *byte == 0).next().unwrap_or_default();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
            rest = &rest[length..];
        }
    }
}

/// Makes a folder.
pub(crate) fn make_folder(path: impl AsRef<Path>, mode: mode_t) -> io::Result<()> {
    let path = name(path.as_ref())?;
    // SAFETY: the path is a C string.
    check(unsafe { system::mkdirat(AT_FDCWD, path.as_ptr(), mode) }).map(drop)
}

/// Makes a folder and the ones above it, if they do not exist.
pub(crate) fn make_folders(path: &Path, mode: mode_t) -> io::Result<()> {
    match make_folder(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) => {
                make_folders(parent, mode)?;
                make_folder(path, mode)
            }
            None => Err(error),
        },
        made => made,
    }
}

/// Makes a symbolic link.
pub(crate) fn link(target: &str, path: &Path) -> io::Result<()> {
    let (target, path) = (CString::new(target)?, name(path)?);
    // SAFETY: both are C strings.
    check(unsafe { system::symlinkat(target.as_ptr(), AT_FDCWD, path.as_ptr()) }).map(drop)
}

/// Renames a file or folder; what has the new name is replaced.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    rename_as(from, to, 0)
}

/// Exchanges the names of two files or folders.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    rename_as(one, other, libc::RENAME_EXCHANGE)
}

fn rename_as(from: &Path, to: &Path, flags: libc::c_uint) -> io::Result<()> {
    let (from, to) = (name(from)?, name(to)?);
    // SAFETY: both are C strings.
    let renamed =
        unsafe { system::renameat2(AT_FDCWD, from.as_ptr(), AT_FDCWD, to.as_ptr(), flags) };
    check(renamed).map(drop)
}

/// Removes a folder with all that is in it. Links are removed, not followed.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    for entry in names(folder)? {
        let path = folder.join(entry);
        if is(&about_link(&path)?, libc::S_IFDIR) {
            remove(&path)?;
        } else {
            unlink(&path, 0)?;
        }
    }
    unlink(folder, libc::AT_REMOVEDIR)
}

fn unlink(path: &Path, flags: c_int) -> io::Result<()> {
    let path = name(path)?;
    // SAFETY: the path is a C string.
    check(unsafe { system::unlinkat(AT_FDCWD, path.as_ptr(), flags) }).map(drop)
}

impl OwnFd {
    /// Returns what the kernel knows of the file.
    pub fn about(&self) -> io::Result<stat> {
        // SAFETY: integers, for which zeros are values.
        let mut about: stat = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes one `stat`.
        check(unsafe { system::fstat(self.as_raw_fd(), &mut about) })?;
        Ok(about)
    }
}

impl Read for &OwnFd {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the call writes at most the length of `to`.
        let got = unsafe { system::read(self.as_raw_fd(), to.as_mut_ptr().cast(), to.len()) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }
}

impl Write for &OwnFd {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        // SAFETY: the call reads `from`, whose length it is given.
        let put = unsafe { system::write(self.as_raw_fd(), from.as_ptr().cast(), from.len()) };
        usize::try_from(put).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
