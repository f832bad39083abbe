//! The decisions of the build script: which targets the driver supports, and what it exports.
//!
//! A file of its own, without I/O, so that `tests/build_environment.rs` can give it bad inputs.

/// Architectures for which the driver knows the order of stores: `docs/ordering.md`.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Returns the lines that the build script prints for cargo.
///
/// `variable` returns the value of an environment variable that cargo gives to build scripts.
///
/// # Errors
/// One sentence with cause and cure:
/// - The target is neither x86-64 nor arm64, has big-endian numbers or no 64-bit pointers.
/// - mlx5-sys passed no version of rdma-core on, or one without a number.
///
/// The build script of mlx5-sys, which runs before, refuses other systems than Linux and missing
/// headers and libraries.
pub fn lines(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    let target = |name: &str| variable(name).ok_or_else(|| without(name));
    supported(
        &target("CARGO_CFG_TARGET_ARCH")?,
        &target("CARGO_CFG_TARGET_ENDIAN")?,
        &target("CARGO_CFG_TARGET_POINTER_WIDTH")?,
    )?;
    let rdma_core = variable("DEP_MLX5_RDMA_CORE").filter(|it| starts_with_number(it)).ok_or(
        "mlx5-sys did not say which rdma-core it found: use mlx5 and mlx5-sys of one version, and \
         no `[target.….mlx5]` section in cargo's configuration, which replaces the build script of \
         mlx5-sys.",
    )?;
    Ok(vec![format!("cargo::rustc-env=MLX5_RDMA_CORE={rdma_core}")])
}

fn supported(architecture: &str, endian: &str, pointer_width: &str) -> Result<(), String> {
    if !ARCHITECTURES.contains(&architecture) {
        return Err(format!(
            "mlx5 cannot be built for {architecture}: it knows the order of stores on x86_64 and \
             aarch64 only; choose such a target, or add the fences of {architecture} to \
             src/doorbell."
        ));
    }
    if endian != "little" {
        return Err(format!(
            "mlx5 cannot be built for {architecture} with {endian}-endian numbers: its words of \
             doorbells and inline data are tested in little-endian order only; choose a \
             little-endian target."
        ));
    }
    if pointer_width != "64" {
        return Err(format!(
            "mlx5 cannot be built for {architecture} with {pointer_width}-bit pointers: the HCA \
             takes addresses of 64 bits; choose a 64-bit target."
        ));
    }
    Ok(())
}

fn starts_with_number(version: &str) -> bool {
    version.split('.').next().is_some_and(|major| major.parse::<u32>().is_ok())
}

fn without(name: &str) -> String {
    format!("{name} is not set: the build script of mlx5 has to be run by cargo.")
}
