//! cargo, called for this workspace: the manifest, the target folder.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Result;

/// The folder that holds the workspace.
pub fn root() -> PathBuf {
    // cargo sets the variable when it runs xtask; the compile-time value serves a bare call.
    let package = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or(package.clone(), PathBuf::from)
}

/// The cargo that runs xtask, or else the one in PATH.
pub fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo SUBCOMMAND` for the workspace, from whatever folder the user is in.
pub fn cargo(subcommand: &str) -> Command {
    cargo_of(subcommand, "Cargo.toml")
}

/// `cargo SUBCOMMAND` for a package with a manifest of its own, relative to the workspace.
pub fn cargo_of(subcommand: &str, manifest: &str) -> Command {
    let mut command = Command::new(program());
    command.arg(subcommand).arg("--manifest-path").arg(root().join(manifest));
    // These describe xtask itself and would only disturb the build scripts of others.
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// Like [`cargo`], into a folder of its own within the usual one.
///
/// For builds with other features than the tests have. The model's library and the one for C have no
/// hash in their names: in the tests' folder, such a build replaces the libraries that the tests load.
///
/// # Errors
/// cargo cannot be asked for the usual folder.
pub fn cargo_into(folder: &str, subcommand: &str) -> Result<Command> {
    let mut command = cargo(subcommand);
    command.arg("--target-dir").arg(target_directory()?.join(folder));
    Ok(command)
}

/// Builds programs of the workspace, chosen by cargo's arguments, with the libraries that the tests have.
///
/// # Errors
/// cargo fails; its messages are printed before.
pub fn programs(chosen: &[&str]) -> Result {
    let mut command = cargo("build");
    // With all packages and a test, what they depend on has the features that it has for the tests, so
    // nothing is compiled again that these may be loading.
    command.args(["--quiet", "--workspace", "--test", "aliases"]).args(chosen);
    run(&format!("cargo build {}", chosen.join(" ")), &mut command)
}

/// Runs a command whose failure ends the task; `what` names it.
pub fn run(what: &str, command: &mut Command) -> Result {
    let status = command.status().map_err(|error| {
        format!("cannot run {}: {error}", command.get_program().to_string_lossy())
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{what} failed ({status}); its messages are above"))
    }
}

/// The folder that cargo builds into.
pub fn target_directory() -> Result<PathBuf> {
    let output = cargo("metadata")
        .args(["--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed ({})", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    json_string(&text, "target_directory")
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata names no target_directory".to_owned())
}

/// The value of the first `"key":"value"` in JSON text.
pub fn json_string(text: &str, key: &str) -> Option<String> {
    let start = text.find(&format!("\"{key}\":\""))? + key.len() + 4;
    let mut value = String::new();
    let mut characters = text[start..].chars();
    loop {
        match characters.next()? {
            '"' => return Some(value),
            '\\' => match characters.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'u' => {
                    let digits: String = characters.by_ref().take(4).collect();
                    value.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                escaped => value.push(escaped),
            },
            character => value.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::json_string;

    #[test]
    fn a_path_is_read_from_json() {
        let text = r#"{"packages":[],"target_directory":"/a \"b\"\\cé\u00e9/target","version":1}"#;
        assert_eq!(json_string(text, "target_directory").unwrap(), "/a \"b\"\\céé/target");
        assert_eq!(json_string(text, "workspace_root"), None);
        assert_eq!(json_string(r#"{"key":"cut"#, "key"), None);
    }
}
