//! The build's messages on machines whose libraries are missing or too old.
//!
//! pkg-config takes its folders from the environment, so each case runs in a process of its own:
//! this executable again, with one test and other variables.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Set in the processes that run one case.
const CHILD: &str = "MLX5_PROBE_TEST_CHILD";

/// Prints what a build on this machine is told. The other tests run it with their variables.
#[test]
fn the_machine_of_this_test_has_the_libraries() {
    let outcome = mlx5_sys_probe::libraries();
    if env::var_os(CHILD).is_some() {
        println!("told: {}", outcome.map_or_else(|sentence| sentence, |found| found.rdma_core));
        return;
    }
    let found = outcome.unwrap();
    assert!(found.rdma_core.contains('.'), "{}", found.rdma_core);
}

/// Returns the message of a build if pkg-config sees only `libraries`, by name and version.
fn told(case: &str, libraries: &[(&str, &str)], variables: &[(&str, &str)]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-{case}"));
    fs::create_dir_all(&folder).unwrap();
    for (name, version) in libraries {
        let text = format!("Name: {name}\nDescription: {name}\nVersion: {version}\n");
        fs::write(folder.join(format!("{name}.pc")), text).unwrap();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "the_machine_of_this_test_has_the_libraries", "--nocapture"])
        .env(CHILD, "1")
        .env("PKG_CONFIG_LIBDIR", &folder)
        .env_remove("PKG_CONFIG_PATH")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, told) = text.split_once("told: ").unwrap_or_else(|| panic!("{text}"));
    told.lines().next().unwrap().to_owned()
}

const RECENT: [(&str, &str); 3] =
    [("libmlx5", "1.25.56.1"), ("libibverbs", "1.15.56.1"), ("librdmacm", "1.3.56.1")];

#[test]
fn the_version_of_rdma_core_is_taken_from_that_of_libmlx5() {
    assert_eq!(told("recent", &RECENT, &[]), "56.1");
}

#[test]
fn missing_headers_are_named_with_the_packages_that_have_them() {
    let told = told("missing", &[], &[]);
    for word in ["are missing", "no libmlx5 1.22.39", "libibverbs-dev", "rdma-core-devel"] {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn old_headers_are_named_with_the_version_that_is_needed() {
    let old = [("libmlx5", "1.21.35.0"), ("libibverbs", "1.13.35.0"), ("librdmacm", "1.3.35.0")];
    let told = told("old", &old, &[]);
    for word in ["libmlx5 1.21.35.0 are too old", "1.22.39", "rdma-core 39", "PKG_CONFIG_PATH"] {
        assert!(told.contains(word), "{told}");
    }
}

/// The feature `cm` needs librdmacm.
#[cfg(feature = "cm")]
#[test]
fn a_missing_librdmacm_is_named_with_its_package() {
    let told = told("no-cm", &RECENT[..2], &[]);
    for word in ["no librdmacm 1.3.39", "libibverbs, librdmacm and libmlx5", "librdmacm-dev"] {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn a_missing_pkg_config_is_named() {
    let told = told("tool", &[], &[("PKG_CONFIG", "/nonexistent/pkg-config")]);
    for word in ["pkg-config cannot be run", "install"] {
        assert!(told.contains(word), "{told}");
    }
}

/// The feature `rdma-sys` needs pkg-config.
#[cfg(not(feature = "rdma-sys"))]
#[test]
fn without_pkg_config_the_same_version_is_found() {
    let folder = told("path", &[], &[("PATH", "/nonexistent")]);
    assert_eq!(folder, mlx5_sys_probe::libraries().unwrap().rdma_core);
}

#[test]
fn only_linux_is_accepted() {
    assert_eq!(mlx5_sys_probe::system("linux"), Ok(()));
    for system in ["macos", "windows", "freebsd"] {
        let sentence = mlx5_sys_probe::system(system).unwrap_err();
        assert!(sentence.contains(system) && sentence.contains("build on Linux"), "{sentence}");
    }
}
