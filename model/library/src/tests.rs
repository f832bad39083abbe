use std::ffi::OsString;
use std::path::Path;

use crate::find;

fn library(arguments: &str, exists: bool) -> Result<Option<String>, String> {
    let arguments = arguments.split_whitespace().map(OsString::from);
    find::library("mlx5_model", arguments, |_: &Path| exists)
}

#[test]
fn the_library_lies_beside_the_rust_library() {
    for arguments in [
        "rustc --emit=dep-info,metadata,link --extern libc=/t/liblibc.rmeta --extern \
         mlx5_model=/t/libmlx5_model-01ab.rlib",
        "rustc --emit link --extern=mlx5_model=/t/libmlx5_model-01ab.rmeta",
        "rustc --emit dep-info --emit link --extern priv:mlx5_model=/t/libmlx5_model-01ab.rlib",
    ] {
        assert_eq!(library(arguments, true).unwrap().unwrap(), "/t/libmlx5_model-01ab.so");
    }
}

#[test]
fn a_check_and_a_page_have_no_library() {
    for arguments in [
        "rustc --emit=dep-info,metadata --extern mlx5_model=/t/libmlx5_model.rmeta",
        "rustdoc --extern mlx5_model=/t/libmlx5_model.rlib",
    ] {
        assert_eq!(library(arguments, false), Ok(None));
    }
}

#[test]
fn a_library_that_is_not_there_stops_the_build() {
    let missing = library("rustc --emit=link --extern mlx5_model=/t/libmlx5_model.rlib", false);
    assert!(missing.unwrap_err().contains("/t/libmlx5_model.so does not exist"));
    let foreign = library("rustc --emit=link --extern libc=/t/liblibc.rlib", true);
    assert!(foreign.unwrap_err().contains("does not depend on mlx5-model"));
}

#[test]
fn a_file_of_arguments_is_read() {
    let file = std::env::temp_dir().join(format!("mlx5-arguments-{}", std::process::id()));
    std::fs::write(&file, "--emit=link\n--extern\nmlx5_model=/t/libmlx5_model.rlib\n").unwrap();
    let found = library(&format!("rustc @{}", file.display()), true);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(found.unwrap().unwrap(), "/t/libmlx5_model.so");
}
