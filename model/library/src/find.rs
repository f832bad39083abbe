//! Finds the library by the arguments of rustc.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the path of a crate's shared library; `None` if rustc makes no machine code.
///
/// # Errors
/// Returns a sentence with cause and cure.
pub(crate) fn library(
    name: &str,
    arguments: impl Iterator<Item = OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Result<Option<String>, String> {
    let arguments: Vec<OsString> = arguments.flat_map(expand).collect();
    if !links(&arguments) {
        return Ok(None);
    }
    let rust = rust_library(name, &arguments).ok_or_else(|| {
        let package = name.replace('_', "-");
        format!(
            "mlx5_model_library::bytes! is used in a package that does not depend on {package}: add it \
             to [dependencies]"
        )
    })?;
    let library = std::path::absolute(&rust).unwrap_or(rust).with_extension("so");
    if !exists(&library) {
        return Err(format!(
            "{} does not exist: the target of this build has no shared libraries, or cargo keeps \
             them elsewhere; build for a target of glibc",
            library.display()
        ));
    }
    library.into_os_string().into_string().map(Some).map_err(|path| {
        format!("the path {} is not UTF-8: build in another folder", path.to_string_lossy())
    })
}

/// Replaces `@FILE` by the lines of the file. cargo writes one if the arguments are too long.
fn expand(argument: OsString) -> Vec<OsString> {
    let text = argument.to_str().and_then(|text| text.strip_prefix('@'));
    match text.and_then(|file| fs::read_to_string(file).ok()) {
        Some(lines) => lines.lines().map(OsString::from).collect(),
        None => vec![argument],
    }
}

/// The values of an option, given as `--NAME VALUE` or `--NAME=VALUE`.
fn values<'a>(arguments: &'a [OsString], name: &'a str) -> impl Iterator<Item = &'a str> {
    arguments.iter().enumerate().filter_map(move |(index, argument)| {
        match argument.to_str()?.strip_prefix(name)? {
            "" => arguments.get(index + 1)?.to_str(),
            value => value.strip_prefix('='),
        }
    })
}

/// Whether rustc writes machine code.
fn links(arguments: &[OsString]) -> bool {
    values(arguments, "--emit").flat_map(|kinds| kinds.split(',')).any(|kind| kind == "link")
}

/// The path of the crate's `rlib` or metadata.
fn rust_library(wanted: &str, arguments: &[OsString]) -> Option<PathBuf> {
    values(arguments, "--extern").find_map(|library| {
        let (name, path) = library.split_once('=')?;
        // Options of rustc may stand before the name, as in `priv:NAME`.
        let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
        (name == wanted).then(|| PathBuf::from(OsStr::new(path)))
    })
}
