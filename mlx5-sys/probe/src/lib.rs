//! Tells in one sentence what a build of mlx5-sys misses on this machine, and what to install.
//!
//! A package of its own, because cargo runs its build script first: it waits for two small crates
//! only, while that of rdma-sys, which would stop with a panic and a back trace, waits for bindgen.

use std::path::PathBuf;
use std::process::exit;

/// The C libraries and the oldest versions that have what mlx5-sys binds: rdma-core 39. libmlx5
/// needs libibverbs, so it comes first on the linker's line.
const LIBRARIES: [(&str, &str); 2] = [("libmlx5", "1.22.39"), ("libibverbs", "1.14.39")];

/// What rdma-sys asks for besides.
const RDMACM: (&str, &str) = ("librdmacm", "1.2.28");

/// Finds the C libraries, and links them if `link`. Returns where their headers are.
///
/// # Errors
/// A sentence for the user.
pub fn libraries(link: bool) -> Result<Vec<PathBuf>, String> {
    let mut include_paths = Vec::new();
    for (name, version) in LIBRARIES {
        include_paths.extend(find(name, version, link)?);
    }
    if cfg!(feature = "rdma-sys") {
        find(RDMACM.0, RDMACM.1, false)?;
    }
    include_paths.sort();
    include_paths.dedup();
    Ok(include_paths)
}

fn find(name: &str, version: &str, link: bool) -> Result<Vec<PathBuf>, String> {
    let found = pkg_config::Config::new()
        .atleast_version(version)
        .statik(false)
        .cargo_metadata(link)
        .env_metadata(link)
        .probe(name);
    found.map(|library| library.include_paths).map_err(|error| {
        let cause = match error {
            pkg_config::Error::Command { .. } => "pkg-config cannot be run".to_owned(),
            pkg_config::Error::EnvNoPkgConfig(variable) => format!("{variable} forbids pkg-config"),
            _ => format!("pkg-config finds no {name} {version} or newer"),
        };
        let rdmacm = if cfg!(feature = "rdma-sys") { " librdmacm-dev" } else { "" };
        format!(
            "the headers of libibverbs and libmlx5 are missing ({cause}): install \
             `libibverbs-dev{rdmacm} pkg-config` on Debian or Ubuntu, `rdma-core-devel \
             pkgconf-pkg-config` on Fedora."
        )
    })
}

/// Loads libclang, which bindgen reads the headers with.
///
/// # Errors
/// A sentence for the user: it is missing, or too new for rdma-sys, whose bindgen 0.59 panics at
/// the names that libclang 16 and newer give unnamed unions.
pub fn libclang() -> Result<(), String> {
    clang_sys::load().map_err(|error| {
        format!(
            "libclang, which reads the C headers, is missing: install `libclang-dev` on Debian or \
             Ubuntu, `clang-devel` on Fedora, or set LIBCLANG_PATH to its folder ({error})."
        )
    })?;
    let version = clang_sys::get_library().and_then(|library| library.version());
    if cfg!(feature = "rdma-sys") && version >= Some(clang_sys::Version::V16_0) {
        return Err("rdma-sys 0.3.0 cannot be built with libclang 16 or newer: turn the feature \
                    `rdma-sys` off (`cargo build --no-default-features`, or `default-features = \
                    false` beside the dependency), which gives the same verbs, or install \
                    `libclang-14-dev` or `libclang-15-dev` and set LIBCLANG_PATH to its folder."
            .to_owned());
    }
    Ok(())
}

/// Fails the build with `sentence`, which cargo shows as an error of its own.
pub fn stop(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    exit(1)
}
