//! Decides which libclang reads the C headers.
//!
//! The choice also decides whether the verbs bindings come from the rdma-sys crate or from mlx5-sys
//! itself. rdma-sys 0.3.0 was made with a bindgen that misreads headers with libclang 16 and newer.
//! If the machine has an older libclang, it is used, and the default features stay on. Otherwise
//! the workspace is built with `--no-default-features`, and mlx5-sys makes the same bindings with
//! its own bindgen.

use std::cmp::Reverse;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The newest libclang that rdma-sys can be built with.
const NEWEST_FOR_RDMA_SYS: u32 = 15;

/// Development packages that carry a libclang old enough for rdma-sys, the best known first.
pub const PACKAGES_FOR_RDMA_SYS: &[&str] =
    &["libclang-14-dev", "libclang-15-dev", "libclang-13-dev", "libclang-11-dev"];

/// The package name that every distribution uses for its default version.
pub const PACKAGE_OF_ANY_VERSION: &str = "libclang-dev";

/// How the workspace is built on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Default features, with a libclang that the build finds by itself.
    RdmaSys { version: u32 },
    /// Default features, with LIBCLANG_PATH set, since the build would pick a newer one.
    RdmaSysWith { version: u32, library: PathBuf },
    /// `--no-default-features`: only newer versions are there.
    OwnBindings { version: u32 },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RdmaSys { version } => {
                write!(f, "libclang {version}: verbs bindings from rdma-sys (default features)")
            }
            Self::RdmaSysWith { version, library } => write!(
                f,
                "libclang {version} by LIBCLANG_PATH={}: verbs bindings from rdma-sys (default \
                 features)",
                library.display()
            ),
            Self::OwnBindings { version } => write!(
                f,
                "libclang {version}, too new for rdma-sys: verbs bindings made by mlx5-sys \
                 (--no-default-features)"
            ),
        }
    }
}

/// One libclang of the machine. The order is the one in which a build prefers them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Installed {
    version: Reverse<u32>,
    library: PathBuf,
}

/// Decides, or returns `None` where the machine has no libclang.
pub fn decide() -> Option<Decision> {
    if let Some(path) = env::var_os("LIBCLANG_PATH") {
        // A user who sets it means it: no other version is looked for.
        let version = installed_at(Path::new(&path)).into_iter().min()?.version.0;
        return Some(if version <= NEWEST_FOR_RDMA_SYS {
            Decision::RdmaSys { version }
        } else {
            Decision::OwnBindings { version }
        });
    }
    let mut installed: Vec<Installed> =
        search_folders().iter().flat_map(|folder| installed_at(folder)).collect();
    installed.sort();
    choose(installed)
}

fn choose(installed: Vec<Installed>) -> Option<Decision> {
    let newest = installed.first()?.version.0;
    if newest <= NEWEST_FOR_RDMA_SYS {
        return Some(Decision::RdmaSys { version: newest });
    }
    let old_enough = installed.into_iter().find(|found| found.version.0 <= NEWEST_FOR_RDMA_SYS);
    Some(match old_enough {
        Some(found) => Decision::RdmaSysWith { version: found.version.0, library: found.library },
        None => Decision::OwnBindings { version: newest },
    })
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
            let version = Reverse(version_of(&target).or_else(|| version_of(&file))?);
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

    fn installed(versions: &[u32]) -> Vec<Installed> {
        let mut installed: Vec<Installed> = versions
            .iter()
            .map(|version| Installed {
                version: Reverse(*version),
                library: format!("/usr/lib/libclang-{version}.so.1").into(),
            })
            .collect();
        installed.sort();
        installed
    }

    #[test]
    fn an_old_libclang_alone_needs_no_setting() {
        assert_eq!(choose(installed(&[13, 14])), Some(Decision::RdmaSys { version: 14 }));
    }

    #[test]
    fn the_newest_that_fits_is_named_where_a_newer_one_would_be_picked() {
        let library = "/usr/lib/libclang-15.so.1".into();
        assert_eq!(
            choose(installed(&[14, 19, 15])),
            Some(Decision::RdmaSysWith { version: 15, library })
        );
    }

    #[test]
    fn only_new_ones_turn_rdma_sys_off() {
        assert_eq!(choose(installed(&[16, 19])), Some(Decision::OwnBindings { version: 19 }));
        assert_eq!(choose(Vec::new()), None);
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
