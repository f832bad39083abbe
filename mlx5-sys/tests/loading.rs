//! Programs that are built without the feature `link`, on machines with and without the C libraries.
//!
//! A library stays open once it is, so each case runs in a process of its own: this executable again,
//! with one test and other variables.

#![cfg(not(feature = "link"))]

use std::ffi::CStr;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;
use std::{env, fs, io};

use mlx5_sys::load::Library;
use mlx5_sys::verbs::{
    ibv_free_device_list, ibv_get_device_list, ibv_wc_status, ibv_wc_status_str,
};

/// The name of the case, in the processes that run one.
const CASE: &str = "MLX5_SYS_LOADING_CASE";

/// Runs the case that a variable names. The other tests run it.
#[test]
fn case_of_a_child() {
    match env::var(CASE).as_deref() {
        Ok("first call") => first_call_opens(),
        Ok("forked child") => forked_child_opens(),
        Ok("missing") => report_missing(),
        _ => {}
    }
}

/// Runs a case in a process of its own. Returns what it prints.
fn run(case: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "case_of_a_child", "--nocapture"])
        .env(CASE, case)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn is_mapped(library: Library) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(library.file())
}

/// Returns libibverbs' words for a successful completion.
fn success() -> String {
    // SAFETY: the function takes any status, and its text is never freed.
    let text = unsafe { CStr::from_ptr(ibv_wc_status_str(ibv_wc_status::IBV_WC_SUCCESS)) };
    text.to_str().unwrap().to_owned()
}

fn first_call_opens() {
    assert!(!is_mapped(Library::Verbs) && !is_mapped(Library::Mlx5));
    assert_eq!(success(), "success");
    assert!(is_mapped(Library::Verbs));
    Library::Mlx5.open().unwrap();
    assert!(is_mapped(Library::Mlx5));
}

#[test]
fn the_first_call_opens_the_library() {
    run("first call", &[]);
}

fn forked_child_opens() {
    assert!(!is_mapped(Library::Verbs));
    // SAFETY: the child calls the loader and libibverbs, which glibc allows after a fork, and ends.
    match unsafe { libc::fork() } {
        0 => {
            let status = if success() == "success" { 0 } else { 1 };
            // SAFETY: ends this process.
            unsafe { libc::_exit(status) }
        }
        child => {
            assert!(child > 0, "{}", io::Error::last_os_error());
            let mut status = -1;
            // SAFETY: `status` is writable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    // The parent's own first call.
    assert_eq!(success(), "success");
}

#[test]
fn a_forked_child_makes_a_first_call_of_its_own() {
    run("forked child", &[]);
}

/// Prints the errors of all libraries, after calls that need libibverbs.
fn report_missing() {
    let mut count = -1;
    // SAFETY: `count` is writable; null is no list.
    let list = unsafe { ibv_get_device_list(&mut count) };
    let errno = io::Error::last_os_error().raw_os_error();
    assert_eq!((list, errno), (null_mut(), Some(libc::ELIBACC)));
    // SAFETY: without a library nothing is done.
    unsafe { ibv_free_device_list(list) };
    assert!(success().contains("cannot be opened"));
    for library in LIBRARIES {
        println!("told: {}", library.open().unwrap_err());
    }
}

const LIBRARIES: &[Library] = &[
    Library::Verbs,
    Library::Mlx5,
    #[cfg(feature = "cm")]
    Library::Cm,
];

#[test]
fn a_library_that_cannot_be_opened_is_named_with_its_package() {
    // Empty files in front of the libraries: the loader refuses them, and looks no further.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-libraries");
    fs::create_dir_all(&folder).unwrap();
    for library in LIBRARIES {
        fs::write(folder.join(library.file()), "").unwrap();
    }
    let text = run("missing", &[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
    let told: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("told: ")).map(|(_, told)| told).collect();
    assert_eq!(told.len(), LIBRARIES.len(), "{text}");
    for (told, library) in told.iter().zip(LIBRARIES) {
        for word in [library.file(), library.package(), "too short"] {
            assert!(told.contains(word), "{told}");
        }
    }
}
