//! The headers and libraries of arm64, from the packages of the system's own mirrors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;

/// The packages that building and running need.
const PACKAGES: &str = "libc6-dev,libgcc-s1,libibverbs-dev,librdmacm-dev,ibverbs-providers";

/// Shows that a sysroot is whole: mmdebstrap extracts in no particular order, so this file is written
/// by [`ready`] at the end.
const COMPLETE: &str = "complete";

/// Makes the sysroot in this folder, if it is not there.
///
/// # Errors
/// - The system names no suite or no mirror for it.
/// - mmdebstrap fails: the mirrors lack arm64, as Ubuntu's do, or there is no network.
pub fn ready(folder: &Path) -> Result {
    if folder.join(COMPLETE).is_file() {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    // mmdebstrap makes the folder, but none around it.
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let suite = suite()?;
    let sources = sources(&suite)?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=extract", "--architectures=arm64"]);
    command.arg(format!("--include={PACKAGES}")).arg(&suite).arg(folder).args(sources);
    build::run("mmdebstrap, which takes arm64 libraries from Debian's mirrors,", &mut command)?;
    fs::write(folder.join(COMPLETE), suite).map_err(|error| format!("{COMPLETE}: {error}"))
}

/// The name of the system's release, as its mirrors have it.
fn suite() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").map_err(|error| error.to_string())?;
    value_of(&text, "VERSION_CODENAME")
        .ok_or_else(|| "/etc/os-release names no VERSION_CODENAME: use Debian".to_owned())
}

fn value_of(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(line.trim_matches('"').to_owned())
}

/// The files of apt that have a mirror of this release. Others, such as those of third parties, lack
/// arm64.
fn sources(suite: &str) -> Result<Vec<PathBuf>> {
    let folder = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = folder
        .map(|entry| entry.path())
        .chain([PathBuf::from("/etc/apt/sources.list")])
        .filter(|file| fs::read_to_string(file).is_ok_and(|text| has_suite(&text, suite)))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(format!("no file of /etc/apt has a mirror of {suite}"));
    }
    Ok(files)
}

/// Whether apt would take packages of this release from here.
fn has_suite(text: &str, suite: &str) -> bool {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .filter(|line| line.starts_with("deb ") || line.starts_with("Suites:"))
        .any(|line| line.split_whitespace().any(|word| word == suite))
}

/// Sets the variables by which cargo builds for this sysroot and runs on it.
pub fn use_by(command: &mut Command, folder: &Path) {
    let root = folder.display();
    command
        .env("PKG_CONFIG_ALLOW_CROSS", "1")
        .env("PKG_CONFIG_LIBDIR", folder.join("usr/lib/aarch64-linux-gnu/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", folder)
        .env("BINDGEN_EXTRA_CLANG_ARGS", format!("--sysroot={root}"))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            format!("-C link-arg=--sysroot={root}"),
        )
        .stdin(Stdio::null());
}

/// An arm64 program on this sysroot.
pub fn program(folder: &Path, path: &Path) -> Command {
    let mut command = Command::new("qemu-aarch64-static");
    command.arg("-L").arg(folder).arg(path);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_of_the_release_are_told_from_others() {
        let ours = "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm bookworm-updates\n";
        assert!(has_suite(ours, "bookworm"));
        assert!(has_suite("deb http://mirror/debian bookworm main", "bookworm"));
        assert!(!has_suite("deb https://elsewhere/apt cloud-sdk-bookworm main", "bookworm"));
        assert!(!has_suite("# deb http://mirror/debian bookworm main", "bookworm"));
        assert!(!has_suite("Suites: nodistro", "bookworm"));
    }

    #[test]
    fn the_release_is_read_with_and_without_quotes() {
        let text = "ID=debian\nVERSION_CODENAME=bookworm\nNAME=\"A B\"\n";
        assert_eq!(value_of(text, "VERSION_CODENAME").as_deref(), Some("bookworm"));
        assert_eq!(value_of(text, "NAME").as_deref(), Some("A B"));
        assert_eq!(value_of(text, "VERSION"), None);
    }
}
