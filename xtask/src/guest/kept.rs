//! Files that a scenario has the host keep. They come line by line through the guest's serial port.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;

/// Before a line of a file: the file's name follows, a blank, and the line.
const KEEP: &str = "@keep ";

/// Bytes of all files of a run.
const MOST: usize = 4 << 20;

/// The files, by name.
#[derive(Debug, Default)]
pub struct Kept {
    files: BTreeMap<String, String>,
    bytes: usize,
}

impl Kept {
    /// Takes a line, if it is one of a file.
    ///
    /// # Errors
    /// The name is none of a file in a folder, or the files are too long.
    pub fn take(&mut self, line: &str) -> Result<bool> {
        let Some(rest) = line.strip_prefix(KEEP) else { return Ok(false) };
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(format!(
                "the guest names a file {name:?}: letters, digits and -_. are allowed"
            ));
        }
        self.bytes += text.len() + 1;
        if self.bytes > MOST {
            return Err(format!("the guest's files have more than {MOST} bytes"));
        }
        let file = self.files.entry(name.to_owned()).or_default();
        file.push_str(text);
        file.push('\n');
        Ok(true)
    }

    /// Writes the files to a folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result {
        for (name, text) in &self.files {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            println!("kept {}", path.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file_are_kept_and_others_are_not() {
        let mut kept = Kept::default();
        assert_eq!(kept.take("@keep a.json {"), Ok(true));
        assert_eq!(kept.take("text"), Ok(false));
        assert_eq!(kept.take("@keep a.json   \"b\": 1"), Ok(true));
        assert_eq!(kept.take("@keep a.json"), Ok(true));
        assert_eq!(kept.files["a.json"], "{\n  \"b\": 1\n\n");
    }

    #[test]
    fn names_with_a_folder_and_too_many_bytes_are_refused() {
        let mut kept = Kept::default();
        for name in ["../a", "/a", ".a", "", "a/b"] {
            assert!(kept.take(&format!("@keep {name} x")).is_err(), "{name:?}");
        }
        let line = format!("@keep a {}", "x".repeat(MOST / 2));
        kept.take(&line).unwrap();
        assert!(kept.take(&line).unwrap_err().contains("bytes"));
    }
}
