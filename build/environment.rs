//! The decisions of the build script: which targets the driver supports, and what it exports.
//!
//! A file of its own, without I/O, so that `tests/build_environment.rs` can give it bad inputs.

/// Architectures for which the driver knows the order of stores: `docs/ordering.md`.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// The oldest rdma-core whose headers have what the driver uses.
const OLDEST_HEADERS: u32 = 43;

/// Returns the lines that the build script prints for cargo.
///
/// `variable` returns the value of an environment variable that cargo gives to build scripts.
///
/// # Errors
/// One sentence with cause and cure:
/// - The target is neither x86-64 nor arm64, has big-endian numbers or no 64-bit pointers.
/// - mlx5-sys passed no version of rdma-core on, or one without a number, or one that is too old.
///
/// mlx5-sys refuses other systems than Linux, and what its own features miss.
pub fn lines(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    let target = |name: &str| variable(name).ok_or_else(|| without(name));
    supported(
        &target("CARGO_CFG_TARGET_ARCH")?,
        &target("CARGO_CFG_TARGET_ENDIAN")?,
        &target("CARGO_CFG_TARGET_POINTER_WIDTH")?,
    )?;
    let rdma_core = variable("DEP_MLX5_RDMA_CORE").unwrap_or_default();
    let major = major(&rdma_core).ok_or(
        "mlx5-sys did not say which rdma-core its bindings are of: use mlx5 and mlx5-sys of one \
         version, and no `[target.….mlx5]` section in cargo's configuration, which replaces the \
         build script of mlx5-sys.",
    )?;
    if major < OLDEST_HEADERS {
        return Err(format!(
            "the headers of rdma-core {rdma_core} lack what mlx5 uses: build without the features \
             `bindgen` and `rdma-sys`, or with the headers of rdma-core {OLDEST_HEADERS} or newer; \
             programs run with the libraries of rdma-core 39 and newer in any case."
        ));
    }
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

/// The first number of a version.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

fn without(name: &str) -> String {
    format!("{name} is not set: the build script of mlx5 has to be run by cargo.")
}
