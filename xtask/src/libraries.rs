//! The shared libraries beside test executables, which must stay the same while these run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::executables::Executable;

/// Shared libraries, each as one build made it. Those of procedural macros are left out: rustc alone loads
/// them, and clippy builds its own.
pub struct Libraries(BTreeMap<PathBuf, Made>);

/// Inode, seconds and nanoseconds: two builds of one file differ in them.
type Made = (u64, i64, i64);

impl Libraries {
    /// Those in the folders of these executables.
    ///
    /// # Errors
    /// A folder or file cannot be read.
    pub fn beside(executables: &[Executable]) -> Result<Libraries> {
        let folders: BTreeSet<&Path> =
            executables.iter().filter_map(|executable| executable.path.parent()).collect();
        let mut libraries = BTreeMap::new();
        for folder in folders {
            let in_folder = |error| format!("cannot read {}: {error}", folder.display());
            for entry in fs::read_dir(folder).map_err(in_folder)? {
                let path = entry.map_err(in_folder)?.path();
                if path.extension().is_some_and(|extension| extension == "so") && !is_macro(&path) {
                    let made = made(&path)?;
                    libraries.insert(path, made);
                }
            }
        }
        Ok(Libraries(libraries))
    }

    /// Checks that all are the files that they were.
    ///
    /// # Errors
    /// One is not.
    pub fn require_unchanged(&self) -> Result {
        for (path, before) in &self.0 {
            if made(path)? != *before {
                return Err(format!(
                    "{} was built again while tests ran that load it: by a check that builds with other \
                     features and without `build::cargo_into`, or by a cargo beside this one",
                    path.display()
                ));
            }
        }
        Ok(())
    }
}

/// Whether a library is that of a procedural macro: cargo puts a hash behind its name.
fn is_macro(library: &Path) -> bool {
    let stem = library.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit_once('-').is_some_and(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn made(path: &Path) -> Result<Made> {
    let file = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((file.ino(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executables::Kind;

    #[test]
    fn a_library_that_was_built_again_is_an_error() {
        let folder = std::env::temp_dir().join(format!("mlx5-libraries-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let library = folder.join("libmlx5_model.so");
        fs::write(&library, "of the tests").unwrap();
        let of_macro = folder.join("libmlx5_model_library-ce46fdfafcb963af.so");
        fs::write(&of_macro, "of an older build").unwrap();
        let executable = Executable {
            name: "model/forks".to_owned(),
            path: folder.join("forks-1"),
            folder: folder.clone(),
            kind: Kind::Integration,
            environment: &[],
            filters: Vec::new(),
        };
        let libraries = Libraries::beside(&[executable]).unwrap();
        fs::write(folder.join("libnew.so"), "of another build").unwrap();
        fs::remove_file(&of_macro).unwrap();
        libraries.require_unchanged().unwrap();

        // As the linker does it.
        let new = folder.join("new");
        fs::write(&new, "with other features").unwrap();
        fs::rename(&new, &library).unwrap();
        let error = libraries.require_unchanged().unwrap_err();
        assert!(error.contains("libmlx5_model.so was built again"), "{error}");

        fs::remove_file(&library).unwrap();
        assert!(libraries.require_unchanged().is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
