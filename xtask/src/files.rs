//! The files of the checkout, as git sees them: their hash, and which of them changed.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;

/// The content of the checkout, committed or not, without ignored files.
pub struct Files {
    /// One line a file, as `git ls-files --stage` prints it: mode, hash, stage, path.
    listed: String,
}

impl Files {
    /// Reads the checkout as it is now, into an index of its own.
    ///
    /// # Errors
    /// The folder is no git checkout, or git is missing.
    pub fn now() -> Result<Self> {
        let folder = build::target_directory()?.join("ci");
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        // Of one process: several xtasks may look at the same time.
        let index = folder.join(format!("index-{}", std::process::id()));
        let listed = git(&["add", "--all", "."], Some(&index), "")
            .and_then(|_| git(&["ls-files", "--stage"], Some(&index), ""));
        // Without it the next look is as right, and the folder is one of build results.
        let _ = fs::remove_file(&index);
        Ok(Self { listed: listed? })
    }

    /// Returns the hash of the files below `paths`, and of the compiler's version.
    ///
    /// # Errors
    /// A path has no file, so the list of inputs is wrong; or git fails.
    pub fn hash(&self, paths: &[&str]) -> Result<String> {
        for path in paths {
            if !self.paths().any(|file| is_below(file, path)) {
                return Err(format!("no file of the checkout is `{path}` or below it"));
            }
        }
        let mut text = compiler()?;
        for line in self.listed.lines() {
            if paths.iter().any(|path| is_below(path_of(line), path)) {
                text += line;
                text.push('\n');
            }
        }
        Ok(git(&["hash-object", "--stdin"], None, &text)?.trim().to_owned())
    }

    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.listed.lines().map(path_of)
    }
}

/// Returns the files that differ from `commit`, uncommitted and new ones included.
///
/// # Errors
/// git does not know the commit.
pub fn changed_since(commit: &str) -> Result<BTreeSet<String>> {
    let changed = git(&["diff", "--name-only", "--no-renames", commit], None, "")?;
    let new = git(&["ls-files", "--others", "--exclude-standard"], None, "")?;
    Ok(changed.lines().chain(new.lines()).map(str::to_owned).collect())
}

/// Returns the commit that this branch left its upstream at. `None` where it has no upstream.
pub fn upstream() -> Option<String> {
    let base = git(&["merge-base", "HEAD", "@{upstream}"], None, "").ok()?;
    Some(base.trim().to_owned())
}

/// Returns the short name of the commit that is checked out.
///
/// # Errors
/// There is none, or git is missing.
pub fn commit() -> Result<String> {
    Ok(git(&["rev-parse", "--short", "HEAD"], None, "")?.trim().to_owned())
}

/// Returns whether `file` is `path`, or in the folder `path`.
pub fn is_below(file: &str, path: &str) -> bool {
    file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path in a line of `git ls-files --stage`.
fn path_of(line: &str) -> &str {
    line.split_once('\t').map_or(line, |(_, path)| path)
}

/// The version of the compiler.
fn compiler() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--version", "--verbose"])
        .output()
        .map_err(|error| format!("cannot run rustc: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs git in the workspace with `input`, and returns what it prints.
fn git(arguments: &[&str], index: Option<&PathBuf>, input: &str) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(build::root()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let cannot = |error| format!("cannot run git: {error}; install the package git");
    let mut child = command.spawn().map_err(cannot)?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes()).map_err(cannot)?;
    }
    let output = child.wait_with_output().map_err(cannot)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("git {} failed: {why}", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "100644 aa 0\tmodel/src/lib.rs\n100644 bb 0\tsrc/lib.rs\n";

    fn files(listed: &str) -> Files {
        Files { listed: listed.to_owned() }
    }

    #[test]
    fn hash_depends_on_the_named_files_alone() {
        let before = files(TWO);
        let after = files(&TWO.replace("bb", "cc"));
        assert_eq!(before.hash(&["model"]), after.hash(&["model"]));
        assert_ne!(before.hash(&["src"]), after.hash(&["src"]));
        assert_ne!(before.hash(&["src/lib.rs"]), before.hash(&["src", "model"]));
    }

    #[test]
    fn an_input_without_files_is_an_error() {
        let error = files(TWO).hash(&["src", "mode"]).unwrap_err();
        assert!(error.contains("`mode`"), "{error}");
    }

    #[test]
    fn a_folder_contains_its_files_and_no_neighbors() {
        assert!(is_below("src/ring/mod.rs", "src") && is_below("build.rs", "build.rs"));
        assert!(!is_below("srcs/a.rs", "src") && !is_below("build.rs", "build"));
    }
}
