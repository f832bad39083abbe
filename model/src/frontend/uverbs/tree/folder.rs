//! The folder tree that stands for sysfs: its place, and its protection against other users.
//!
//! Each user has one private folder (mode 0700) for all its processes. The model creates every file
//! in it with `O_EXCL`, does not follow links, and never uses a folder of another owner or mode. So
//! other users of the machine can neither replace the tree nor choose where the model writes. If
//! another user has taken the folder's usual name, a folder with a random name replaces it.
//!
//! A tree is written as a draft and renamed when it is complete. The writer holds a lock on its
//! draft, so a later start recognizes a draft whose writer was killed, and removes it.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::private::{Private, check, files, system};

/// An entry of the tree.
pub(super) enum Entry {
    /// A file with these bytes.
    File(Vec<u8>),
    /// A symbolic link to this target.
    Link(String),
    /// A file that its owner may not open.
    Forbidden,
}

impl Entry {
    /// A file of one attribute: the text and a newline.
    pub fn text(text: &str) -> Self {
        Self::File(format!("{text}\n").into_bytes())
    }
}

/// Prefix of the names of drafts.
const DRAFT: &str = "draft-";
/// How many random names are tried.
const ATTEMPTS: u32 = 16;

/// Returns this user's folder of trees, and in it the name of the tree with these entries, by relative path.
/// Writes the tree if no process of this user has, or if files of it were removed.
///
/// # Errors
/// If no place can be used: each place with its reason.
pub(super) fn settle(entries: &[(String, Entry)]) -> io::Result<(PathBuf, u64)> {
    let mut reasons = Vec::new();
    for base in bases() {
        match private(&base).and_then(|folder| Ok((settle_in(&folder, entries)?, folder))) {
            Ok((name, folder)) => return Ok((folder, name)),
            Err(error) => reasons.push(format!("{}: {error}", base.display())),
        }
    }
    reasons.push("set XDG_RUNTIME_DIR or TMPDIR to a folder of this user".into());
    Err(io::Error::other(reasons.join("; ")))
}

/// Does what [`settle`] does in a user's folder of trees.
///
/// # Errors
/// If the tree cannot be written there.
pub(super) fn settle_in(folder: &Path, entries: &[(String, Entry)]) -> io::Result<u64> {
    let name = sum(entries);
    tree(folder, &file_name(name), entries)?;
    Ok(name)
}

/// Returns the file name of a tree.
pub(super) fn file_name(name: u64) -> String {
    format!("{name:016x}")
}

/// Hash of all entries (FNV-1a).
fn sum(entries: &[(String, Entry)]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0]) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (path, entry) in entries {
        add(path.as_bytes());
        match entry {
            Entry::File(bytes) => add(bytes),
            Entry::Link(target) => add(target.as_bytes()),
            Entry::Forbidden => add(b"forbidden"),
        }
    }
    sum
}

/// Places to look at, best first.
fn bases() -> Vec<PathBuf> {
    // The XDG specification has relative paths ignored.
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut bases: Vec<PathBuf> = runtime.into_iter().filter(|path| path.is_absolute()).collect();
    for base in [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/dev/shm")] {
        if !bases.contains(&base) {
            bases.push(base);
        }
    }
    bases
}

fn user() -> u32 {
    system::user()
}

/// Returns this user's private folder in `base`, and makes it if necessary.
fn private(base: &Path) -> io::Result<PathBuf> {
    // Programs may change their working directory later.
    let base = files::absolute(base)?;
    let about = files::about(&base)?;
    let denied = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    if about.st_uid != 0 && about.st_uid != user() && is_mapped(about.st_uid) {
        return Err(denied("belongs to another user"));
    }
    // Without the sticky bit others could rename the folder and put theirs in its place.
    if about.st_mode & 0o022 != 0 && about.st_mode & libc::S_ISVTX == 0 {
        return Err(denied("others can write to it and its sticky bit is not set"));
    }
    let usual = base.join(format!("mlx5-model-{}", user()));
    match make(&usual) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| usual),
    }
    if is_private(&usual) {
        return Ok(usual);
    }
    let prefix = format!("mlx5-model-{}.", user());
    let mut others: Vec<PathBuf> = files::names(&base)?
        .into_iter()
        .filter(|name| name.as_bytes().starts_with(prefix.as_bytes()))
        .map(|name| base.join(name))
        .filter(|path| is_private(path))
        .collect();
    others.sort();
    match others.into_iter().next() {
        Some(folder) => Ok(folder),
        None => make_random(&base, &prefix),
    }
}

/// Whether a path is a folder, and no link to one, that only this user can enter.
fn is_private(path: &Path) -> bool {
    files::about_link(path).is_ok_and(|found| {
        let is_folder = files::is(&found, libc::S_IFDIR);
        is_folder && found.st_uid == user() && found.st_mode & 0o077 == 0
    })
}

/// Whether a user number is that of a user. In a user namespace the kernel shows one number for all
/// users that the namespace does not have, among them the machine's root.
fn is_mapped(user: u32) -> bool {
    let Ok(map) = files::text("/proc/self/uid_map") else { return true };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>());
        let (Some(Ok(first)), _, Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return true;
        };
        (first..first.saturating_add(count)).contains(&u64::from(user))
    })
}

fn make(path: &Path) -> io::Result<()> {
    files::make_folder(path, 0o700)
}

/// Makes a folder with an unguessable name.
fn make_random(base: &Path, prefix: &str) -> io::Result<PathBuf> {
    for _ in 0..ATTEMPTS {
        let mut random = [0; 8];
        // SAFETY: the call writes to `random`, whose length it is given.
        let got = unsafe { system::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        if got != random.len() as isize {
            return Err(io::Error::last_os_error());
        }
        let path = base.join(format!("{prefix}{:016x}", u64::from_ne_bytes(random)));
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Completes a tree in a private folder.
fn tree(folder: &Path, name: &str, entries: &[(String, Entry)]) -> io::Result<()> {
    sweep(folder);
    let root = folder.join(name);
    if is_complete(&root, entries) {
        return Ok(());
    }
    let draft = Draft::new(folder)?;
    draft.fill(entries)?;
    if files::rename(&draft.path, &root).is_ok() {
        return Ok(());
    }
    // Another process was faster, or the tree there has lost files.
    if !is_complete(&root, entries) {
        draft.replace(&root)?;
    }
    Ok(())
}

/// Whether a tree is complete. Only this user can change a file in place.
fn is_complete(root: &Path, entries: &[(String, Entry)]) -> bool {
    entries.iter().all(|(path, entry)| {
        let path = root.join(path);
        match entry {
            Entry::File(bytes) => {
                is_file(&path).is_some_and(|found| found.st_size as usize == bytes.len())
            }
            Entry::Link(target) => {
                files::target(path).is_ok_and(|found| found == Path::new(target))
            }
            Entry::Forbidden => is_file(&path).is_some(),
        }
    })
}

/// Returns what the kernel knows of a regular file; `None` for anything else.
fn is_file(path: &Path) -> Option<libc::stat> {
    files::about_link(path).ok().filter(|found| files::is(found, libc::S_IFREG))
}

/// Takes the lock on a folder, unless another process has it.
fn lock(path: &Path) -> io::Result<Private> {
    let folder = files::open(path, libc::O_DIRECTORY | libc::O_NOFOLLOW, 0).map(Private::aside)?;
    // SAFETY: `flock` passes no memory.
    check(unsafe { system::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })?;
    Ok(folder)
}

/// Removes drafts whose writers are gone. What cannot be removed stays, and harms nothing.
fn sweep(folder: &Path) {
    let is_draft = |name: &OsStr| name.as_bytes().starts_with(DRAFT.as_bytes());
    for name in files::names(folder).into_iter().flatten().filter(|name| is_draft(name)) {
        let path = folder.join(name);
        let removed = lock(&path).and_then(|_held| files::remove(&path));
        if let Err(error) = removed {
            tracing::debug!(path = %path.display(), %error, "a draft stays");
        }
    }
}

/// A tree that is being written. Removed when it is dropped, unless it was renamed.
struct Draft {
    path: PathBuf,
    _lock: Private,
}

impl Draft {
    fn new(folder: &Path) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let path = make_random(folder, DRAFT)?;
            // Another start may have taken it for one that was left, before it was locked.
            match lock(&path) {
                Ok(held) if held.about()?.st_nlink > 0 => return Ok(Self { path, _lock: held }),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "a new draft was swept away"),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn fill(&self, entries: &[(String, Entry)]) -> io::Result<()> {
        let create = |path: &Path, mode: u32| {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
            files::open(path, flags, mode).map(Private::aside)
        };
        for (path, entry) in entries {
            let path = self.path.join(path);
            if let Some(parent) = path.parent() {
                files::make_folders(parent, 0o700)?;
            }
            match entry {
                Entry::File(bytes) => (&*create(&path, 0o600)?).write_all(bytes)?,
                Entry::Link(target) => files::link(target, &path)?,
                Entry::Forbidden => drop(create(&path, 0o000)?),
            }
        }
        Ok(())
    }

    /// Puts the draft in the place of the existing folder, which is removed with the draft.
    fn replace(&self, root: &Path) -> io::Result<()> {
        if files::exchange(&self.path, root).is_ok() {
            return Ok(());
        }
        // File systems without the exchange.
        let aside = self.path.with_extension("old");
        files::rename(root, &aside)?;
        files::rename(&self.path, root)?;
        files::remove(&aside)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It does not exist if it was renamed. If it cannot be removed, a later start tries again.
        if let Err(error) = files::remove(&self.path) {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(path = %self.path.display(), %error, "a draft stays");
            }
        }
    }
}
