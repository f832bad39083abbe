//! Initramfs archives: cpio's `newc` format, which the kernel unpacks.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::Result;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;
/// The name of the last entry.
const TRAILER: &str = "TRAILER!!!";

/// Files by their path in the guest, without a leading slash.
#[derive(Default)]
pub struct Archive {
    entries: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Archive {
    /// Adds a file, and the folders above it. A later file replaces one of the same path.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.insert(path, PROGRAM, content.into());
    }

    /// Adds a copy of a file of this machine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn copy(&mut self, path: &str, from: &Path) -> Result {
        let content =
            fs::read(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
        self.file(path, content);
        Ok(())
    }

    /// Adds the files below a folder of this machine. Symbolic links are followed, but for those with
    /// an absolute path, which means the guest's file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn tree(&mut self, path: &str, from: &Path) -> Result {
        let entries = fs::read_dir(from)
            .map_err(|error| format!("cannot read {}: {error}", from.display()))?;
        for entry in entries.flatten() {
            let path = format!("{path}/{}", entry.file_name().to_string_lossy());
            match fs::read_link(entry.path()) {
                Ok(target) if target.is_absolute() => {
                    self.symlink(&path, &target.to_string_lossy())
                }
                _ if entry.path().is_dir() => self.tree(&path, &entry.path())?,
                _ => self.copy(&path, &entry.path())?,
            }
        }
        Ok(())
    }

    pub fn symlink(&mut self, path: &str, to: &str) {
        self.insert(path, SYMLINK, to.into());
    }

    pub fn folder(&mut self, path: &str) {
        self.insert(path, DIRECTORY, Vec::new());
    }

    fn insert(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        for (end, _) in path.match_indices('/') {
            let folder = (DIRECTORY, Vec::new());
            self.entries.entry(path[..end].to_owned()).or_insert(folder);
        }
        self.entries.insert(path.to_owned(), (mode, content));
    }

    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result {
        let written = fs::File::create(file).and_then(|file| {
            let mut output = io::BufWriter::new(file);
            self.write_to(&mut output)?;
            output.flush()
        });
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))
    }

    /// The order is that of the paths, so a folder comes before what is in it.
    fn write_to(&self, output: &mut impl Write) -> io::Result<()> {
        let mut number = 0;
        for (path, (mode, content)) in &self.entries {
            number += 1;
            entry(output, number, path, *mode, content)?;
        }
        entry(output, 0, TRAILER, 0, &[])
    }
}

/// Writes one entry: thirteen hexadecimal numbers, the name, the content, each padded to 4 bytes.
fn entry(
    output: &mut impl Write,
    number: u32,
    name: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    let too_large = |_| io::Error::other(format!("{name} has more than 4 GiB"));
    let size = u32::try_from(content.len()).map_err(too_large)?;
    let name_size = u32::try_from(name.len() + 1).map_err(too_large)?;
    let links = 1 + u32::from(mode == DIRECTORY);
    write!(output, "070701")?;
    for field in [number, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0] {
        write!(output, "{field:08X}")?;
    }
    const HEADER: usize = 6 + 13 * 8;
    output.write_all(name.as_bytes())?;
    output.write_all(&[0; 4][..1 + padding(HEADER + name.len() + 1)])?;
    output.write_all(content)?;
    output.write_all(&[0; 4][..padding(content.len())])
}

fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_padded_to_four_bytes() {
        let mut bytes = Vec::new();
        entry(&mut bytes, 1, "a", PROGRAM, b"hello").unwrap();
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[110..120], b"a\0hello\0\0\0");
        assert_eq!(bytes.len(), 120);
    }

    #[test]
    fn absolute_links_of_a_tree_stay_links() {
        let folder = std::env::temp_dir().join(format!("mlx5-tree-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(folder.join("inner/file"), "text").unwrap();
        std::os::unix::fs::symlink("inner", folder.join("near")).unwrap();
        std::os::unix::fs::symlink("/not/there", folder.join("far")).unwrap();
        let mut archive = Archive::default();
        archive.tree("t", &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(archive.entries["t/far"], (SYMLINK, b"/not/there".to_vec()));
        assert_eq!(archive.entries["t/near/file"], (PROGRAM, b"text".to_vec()));
    }

    #[test]
    fn folders_come_before_their_files_and_once() {
        let mut archive = Archive::default();
        archive.file("b/c/file", "text");
        archive.symlink("b/link", "c/file");
        archive.folder("b");
        let paths: Vec<&String> = archive.entries.keys().collect();
        assert_eq!(paths, ["b", "b/c", "b/c/file", "b/link"]);
    }
}
