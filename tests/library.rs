//! Programs on a machine whose C libraries cannot be opened: which error names which package.

#![cfg(not(feature = "link"))]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use mlx5::Error;
use mlx5::verbs::{Context, devices, fork_init};

/// Set in the processes that lack libraries.
const CHILD: &str = "MLX5_TEST_LACKS_LIBRARY";

/// Runs this test again, in a process for which files of these names are no libraries. Returns what
/// the calls say.
fn told_without(case: &str, files: &[&str]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("library-{case}"));
    fs::create_dir_all(&folder).unwrap();
    for file in files {
        fs::write(folder.join(file), "").unwrap();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "calls_of_a_child", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Prints the errors of the calls that need no object. The other tests run it.
#[test]
fn calls_of_a_child() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    for error in [devices().err(), Context::open_first().err(), Context::open("mlx5_0").err()] {
        let error = error.unwrap();
        assert!(matches!(error, Error::Library(_)), "{error}");
        println!("told: {error}");
    }
    if let Err(error) = fork_init() {
        println!("fork: {error}");
    }
    #[cfg(feature = "cm")]
    if let Err(error) = mlx5::connect::cm::Identifier::<mlx5::ib::Rc>::new() {
        println!("cm: {error}");
    }
}

#[track_caller]
fn names(text: &str, call: &str, words: [&str; 2]) {
    let lines: Vec<_> = text.lines().filter(|line| line.contains(call)).collect();
    assert!(!lines.is_empty(), "{text}");
    for line in lines {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
}

#[test]
fn without_libibverbs_each_call_names_its_package() {
    let text = told_without("verbs", &["libibverbs.so.1"]);
    names(&text, "told: ", ["libibverbs.so.1", "libibverbs1"]);
    names(&text, "fork: ", ["libibverbs.so.1", "libibverbs1"]);
}

#[test]
fn without_libmlx5_listing_devices_names_its_package() {
    let text = told_without("mlx5", &["libmlx5.so.1"]);
    names(&text, "told: ", ["libmlx5.so.1", "ibverbs-providers"]);
}

#[cfg(feature = "cm")]
#[test]
fn without_librdmacm_a_new_identifier_names_its_package() {
    let text = told_without("cm", &["libibverbs.so.1", "librdmacm.so.1"]);
    names(&text, "cm: ", ["librdmacm.so.1", "librdmacm1"]);
}
