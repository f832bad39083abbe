//! Finds the libclang of the machine, which reads the C headers with the features `bindgen` and `rdma-sys`.
//!
//! Any version serves `bindgen`. The feature `rdma-sys` needs an old one: rdma-sys
//! 0.3.0 was made with a bindgen that misreads headers with libclang 16 and newer.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The newest libclang that rdma-sys can be built with.
const NEWEST_FOR_RDMA_SYS: u32 = 15;

/// Development packages that carry a libclang old enough for rdma-sys, the best known first.
pub const PACKAGES_FOR_RDMA_SYS: &[&str] =
    &["libclang-14-dev", "libclang-15-dev", "libclang-13-dev", "libclang-11-dev"];

/// The package name that every distribution uses for its default version.
pub const PACKAGE_OF_ANY_VERSION: &str = "libclang-dev";

/// One libclang of the machine. The newest is the greatest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Installed {
    version: u32,
    library: PathBuf,
}

/// Whether the machine has any libclang.
pub fn is_installed() -> bool {
    !installed().is_empty()
}

/// A libclang that rdma-sys can be built with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForRdmaSys {
    /// The one that a build finds by itself.
    Found,
    /// An older one than that; LIBCLANG_PATH has to name it.
    At(PathBuf),
}

/// Finds the newest libclang that rdma-sys can be built with.
pub fn for_rdma_sys() -> Option<ForRdmaSys> {
    choose(installed())
}

fn choose(mut installed: Vec<Installed>) -> Option<ForRdmaSys> {
    installed.sort();
    let newest = installed.last()?.version;
    let fit = installed.into_iter().rev().find(|found| found.version <= NEWEST_FOR_RDMA_SYS)?;
    Some(if fit.version == newest { ForRdmaSys::Found } else { ForRdmaSys::At(fit.library) })
}

/// All of the machine, or only what LIBCLANG_PATH names: a user who sets it means it.
fn installed() -> Vec<Installed> {
    match env::var_os("LIBCLANG_PATH") {
        Some(path) => installed_at(Path::new(&path)),
        None => search_folders().iter().flat_map(|folder| installed_at(folder)).collect(),
    }
}

/// Returns the library folders of distributions and of LLVM's own packages.
fn search_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"].map(PathBuf::from).into();
    folders.push(format!("/usr/lib/{}-linux-gnu", env::consts::ARCH).into());
    for entry in fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("llvm") {
            folders.push(entry.path().join("lib"));
        }
    }
    folders
}

/// The libraries at `path`, which is a folder or a library itself, as LIBCLANG_PATH may be.
fn installed_at(path: &Path) -> Vec<Installed> {
    let files: Vec<PathBuf> = if path.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    } else {
        vec![path.to_owned()]
    };
    files
        .into_iter()
        .filter(|file| is_libclang(file))
        .filter_map(|file| {
            // Symbolic links carry the ABI's number (libclang.so.13); the file has the version's.
            let target = fs::canonicalize(&file).ok()?;
            let version = version_of(&target).or_else(|| version_of(&file))?;
            Some(Installed { version, library: file })
        })
        .collect()
}

fn is_libclang(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name == "libclang.so"
        || (name.starts_with("libclang-") && !name.starts_with("libclang-cpp"))
            && name.contains(".so")
        || name.starts_with("libclang.so.")
}

/// The major version in a path such as `/usr/lib/llvm-14/lib/libclang.so.1`,
/// `libclang-14.so.14.0.6` or `libclang.so.17.0.6`.
fn version_of(file: &Path) -> Option<u32> {
    let number = |text: &str| -> Option<u32> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let name = file.file_name()?.to_string_lossy();
    if let Some(version) = name.strip_prefix("libclang-").and_then(number) {
        return Some(version);
    }
    let folder = file.components().find_map(|component| {
        let component = component.as_os_str().to_string_lossy();
        component.strip_prefix("llvm-").or(component.strip_prefix("llvm")).and_then(number)
    });
    folder.or_else(|| {
        let version = name.strip_prefix("libclang.so.")?;
        // A lone number is the ABI's, which says nothing from LLVM 13 on.
        version.contains('.').then(|| number(version)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_sys_gets_the_newest_libclang_that_it_can_be_built_with() {
        let newest = |versions: &[u32]| {
            let library = |version: &u32| format!("/usr/lib/libclang-{version}.so.1").into();
            let installed = versions
                .iter()
                .map(|version| Installed { version: *version, library: library(version) })
                .collect();
            choose(installed)
        };
        let fifteen = ForRdmaSys::At("/usr/lib/libclang-15.so.1".into());
        assert_eq!(newest(&[14, 19, 15]), Some(fifteen));
        assert_eq!(newest(&[13, 14]), Some(ForRdmaSys::Found));
        assert_eq!(newest(&[16, 19]), None);
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn versions_are_read_from_every_distributions_paths() {
        for (path, version) in [
            ("/usr/lib/x86_64-linux-gnu/libclang-14.so.14.0.6", Some(14)),
            ("/usr/lib/llvm-19/lib/libclang.so.1", Some(19)),
            ("/usr/lib64/llvm15/lib/libclang.so.15.0.7", Some(15)),
            ("/usr/lib64/libclang.so.17.0.6", Some(17)),
            ("/usr/lib64/libclang.so.13", None),
        ] {
            assert_eq!(version_of(Path::new(path)), version, "{path}");
        }
    }

    #[test]
    fn the_cpp_library_is_another() {
        assert!(is_libclang(Path::new("/usr/lib/libclang-14.so.1")));
        assert!(is_libclang(Path::new("/usr/lib/libclang.so")));
        assert!(!is_libclang(Path::new("/usr/lib/libclang-cpp.so.14")));
        assert!(!is_libclang(Path::new("/usr/lib/libclang_rt.so")));
    }
}
