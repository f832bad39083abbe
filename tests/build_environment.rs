//! The build script's decision, with inputs of other machines, and its exports in this build.

#[cfg(feature = "bindgen")]
use std::process::Command;

#[path = "../build/environment.rs"]
mod environment;

/// The variables that cargo passes to the build script on a machine that can build the driver.
const GOOD: [(&str, &str); 4] = [
    ("CARGO_CFG_TARGET_ARCH", "x86_64"),
    ("CARGO_CFG_TARGET_ENDIAN", "little"),
    ("CARGO_CFG_TARGET_POINTER_WIDTH", "64"),
    ("DEP_MLX5_RDMA_CORE", "44.0"),
];

/// The decision with `changed` variables; `None` unsets one.
fn decide(changed: &[(&str, Option<&str>)]) -> Result<Vec<String>, String> {
    environment::lines(|name| {
        let value = match changed.iter().find(|(changed, _)| *changed == name) {
            Some((_, value)) => *value,
            None => GOOD.iter().find(|(good, _)| *good == name).map(|(_, value)| *value),
        };
        value.map(str::to_owned)
    })
}

/// Asserts that the build stops with one line that has all of `words`: cause and cure.
fn stops(changed: &[(&str, Option<&str>)], words: &[&str]) {
    let sentence = decide(changed).expect_err("the build goes on");
    assert!(!sentence.contains('\n') && sentence.ends_with('.'), "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "`{word}` is not in: {sentence}");
    }
}

#[test]
fn both_architectures_build_and_export_the_version() {
    for architecture in ["x86_64", "aarch64"] {
        let lines = decide(&[("CARGO_CFG_TARGET_ARCH", Some(architecture))]).unwrap();
        assert_eq!(lines, ["cargo::rustc-env=MLX5_RDMA_CORE=44.0"]);
    }
}

#[test]
fn other_targets_stop_with_cause_and_cure() {
    stops(
        &[("CARGO_CFG_TARGET_ARCH", Some("riscv64"))],
        &["for riscv64", "order of stores", "choose such a target"],
    );
    stops(
        &[("CARGO_CFG_TARGET_ARCH", Some("aarch64")), ("CARGO_CFG_TARGET_ENDIAN", Some("big"))],
        &["aarch64 with big-endian", "choose a little-endian target"],
    );
    stops(
        &[("CARGO_CFG_TARGET_POINTER_WIDTH", Some("32"))],
        &["x86_64 with 32-bit pointers", "choose a 64-bit target"],
    );
}

#[test]
fn a_missing_or_odd_rdma_core_version_stops_with_cause_and_cure() {
    for version in [None, Some(""), Some("unknown"), Some(".44")] {
        stops(&[("DEP_MLX5_RDMA_CORE", version)], &["rdma-core", "mlx5-sys of one version"]);
    }
}

#[test]
fn a_build_script_without_cargo_stops() {
    for (name, _) in &GOOD[..3] {
        stops(&[(name, None)], &[name, "run by cargo"]);
    }
}

#[test]
fn headers_that_lack_what_the_driver_uses_stop_the_build() {
    stops(&[("DEP_MLX5_RDMA_CORE", Some("39.0"))], &["rdma-core 39.0", "`bindgen`", "43 or newer"]);
    assert!(decide(&[("DEP_MLX5_RDMA_CORE", Some("43.0"))]).is_ok());
}

#[cfg(not(feature = "bindgen"))]
#[test]
fn exported_version_is_that_of_the_bindings() {
    assert_eq!(mlx5::RDMA_CORE_VERSION, "44.0");
}

#[cfg(feature = "bindgen")]
#[test]
fn exported_version_is_that_of_pkg_config() {
    let output = Command::new("pkg-config").args(["--modversion", "libmlx5"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let libmlx5 = String::from_utf8(output.stdout).unwrap();
    // libmlx5 1.24.44.0 is of rdma-core 44.0.
    let (abi, rdma_core) = libmlx5.trim().match_indices('.').nth(1).map_or(("", ""), |(at, _)| {
        let (abi, rest) = libmlx5.trim().split_at(at);
        (abi, &rest[1..])
    });
    assert!(!abi.is_empty(), "{libmlx5}");
    assert_eq!(mlx5::RDMA_CORE_VERSION, rdma_core);
}
