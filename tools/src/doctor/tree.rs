//! `/sys`, `/proc`, `/dev` and `/etc`: those of this machine, or a copy of another's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// No file of sysfs or procfs that is read here is longer.
const LONGEST: u64 = 1 << 20;

/// The files that the checks read. Paths are given without a leading `/`.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Creates a tree under this folder; `/` is the machine's own.
    pub fn new(root: &Path) -> Tree {
        Tree { root: root.to_path_buf() }
    }

    /// Returns whether the files are those of the running machine.
    pub fn is_own(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the full path of a file.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the path for display: with the leading `/`, whatever the root is.
    pub fn shown(path: &str) -> String {
        format!("/{path}")
    }

    /// Reads the text of a file, trimmed; `None` if the file cannot be read. Never blocks, and
    /// never reads more than a mebibyte.
    pub fn read(&self, path: &str) -> Option<String> {
        self.text(path).ok()
    }

    /// Reads the text of a file, trimmed, or returns the error.
    pub fn text(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).trim().to_owned())
    }

    /// Reads the bytes of a file.
    pub fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        // A copied tree may have a pipe in place of a file.
        let file: File =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.path(path))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the number in a file: decimal, or hexadecimal after `0x`.
    pub fn number(&self, path: &str) -> Option<i64> {
        number(&self.read(path)?)
    }

    /// Returns whether the path exists.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Lists the names in a folder, sorted with numbers as numbers; empty if it cannot be read.
    pub fn list(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_by_key(|name| {
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            (
                name[..name.len() - digits.len()].to_owned(),
                digits.parse().unwrap_or(0u64),
                name.clone(),
            )
        });
        names
    }

    /// Returns the last part of a symbolic link's target, which is how sysfs names drivers and
    /// groups.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Returns the folder above the one that a path leads to, with its links followed.
    pub fn parent(&self, path: &str) -> Option<String> {
        let real = fs::canonicalize(self.path(path)).ok()?;
        let root = fs::canonicalize(&self.root).ok()?;
        let above = real.parent()?.strip_prefix(root).ok()?;
        Some(above.to_str()?.to_owned())
    }
}

/// Parses a decimal number, or a hexadecimal one after `0x`; words may follow it.
pub fn number(text: &str) -> Option<i64> {
    let word = text.split_whitespace().next()?;
    match word.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Parses a list in the kernel's form, `0-3,8,10-11`. Numbers that no machine reaches are left out.
pub fn cpus(list: &str) -> Vec<u32> {
    const MOST: u32 = 1 << 16;
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            all.extend(first..=last.min(MOST));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpus("0-2,7,9-10\n"), [0, 1, 2, 7, 9, 10]);
        assert!(cpus("").is_empty());
        assert_eq!(cpus("x-3,5"), [5]);
        assert_eq!(cpus("0-4294967295").len(), (1 << 16) + 1);
    }

    #[test]
    fn numbers_may_be_hexadecimal_and_have_words_behind() {
        assert_eq!(number("0x15b3"), Some(0x15b3));
        assert_eq!(number("4: ACTIVE"), None);
        assert_eq!(number("-1"), Some(-1));
        assert_eq!(number("512 kB"), Some(512));
    }

    #[test]
    fn a_tree_never_waits_for_a_pipe() {
        let folder = std::env::temp_dir().join(format!("mlx5-tree-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = std::ffi::CString::new(folder.join("pipe").to_str().unwrap()).unwrap();
        // SAFETY: `path` is a valid C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let tree = Tree::new(&folder);
        assert!(tree.read("pipe").is_none() && tree.read("nothing").is_none());
        fs::write(folder.join("cpu10"), "7\n").unwrap();
        fs::write(folder.join("cpu9"), "").unwrap();
        assert_eq!(tree.list(""), ["cpu9", "cpu10", "pipe"]);
        assert_eq!(tree.number("cpu10"), Some(7));
        fs::remove_dir_all(&folder).unwrap();
    }
}
