//! Tells in one sentence what a build of mlx5-sys misses on this machine, and what to install.
//!
//! A package of its own, because cargo runs its build script first: it waits for two small crates
//! only, while that of rdma-sys, which would stop with a panic and a back trace, waits for bindgen.

use std::env;
use std::path::PathBuf;
use std::process::exit;

/// The C libraries and the oldest versions that have what mlx5-sys binds: rdma-core 39. libmlx5
/// needs libibverbs, so it comes first on the linker's line.
const LIBRARIES: [(&str, &str); 2] = [("libmlx5", "1.22.39"), ("libibverbs", "1.14.39")];

/// The library that rdma-sys needs besides, and its oldest version.
const RDMACM: (&str, &str) = ("librdmacm", "1.2.28");

/// The C libraries that were found.
pub struct Libraries {
    /// Folders of their headers.
    pub include_paths: Vec<PathBuf>,
    /// Version of rdma-core that libmlx5 is of, such as `44.0`.
    pub rdma_core: String,
}

/// Finds the C libraries, and links them if `link`.
///
/// # Errors
/// A sentence for the user: this system is not Linux, or a library is missing or too old.
pub fn libraries(link: bool) -> Result<Libraries, String> {
    let mut include_paths = Vec::new();
    let mut rdma_core = String::new();
    for (name, version) in LIBRARIES {
        let library = find(name, version, link)?;
        include_paths.extend(library.include_paths);
        if name == "libmlx5" {
            rdma_core = rdma_core_of(&library.version).to_owned();
        }
    }
    if cfg!(feature = "rdma-sys") {
        find(RDMACM.0, RDMACM.1, false)?;
    }
    include_paths.sort();
    include_paths.dedup();
    Ok(Libraries { include_paths, rdma_core })
}

/// Accepts `target_os` if it is Linux.
///
/// # Errors
/// A sentence for the user.
pub fn system(target_os: &str) -> Result<(), String> {
    if target_os == "linux" {
        return Ok(());
    }
    Err(format!(
        "mlx5-sys cannot be built for {target_os}: libibverbs and libmlx5 drive ConnectX devices \
         on Linux only; build on Linux, or in a virtual machine or container with it."
    ))
}

/// The part of a library's version that is the version of rdma-core: libmlx5 1.24.44.0 is of
/// rdma-core 44.0.
fn rdma_core_of(version: &str) -> &str {
    version.splitn(3, '.').nth(2).unwrap_or_default()
}

fn find(name: &str, version: &str, link: bool) -> Result<pkg_config::Library, String> {
    let found = pkg_config::Config::new()
        .atleast_version(version)
        .statik(false)
        .cargo_metadata(link)
        .env_metadata(link)
        .probe(name);
    found.map_err(|error| {
        // A machine that is no Linux has no package to install.
        if let Err(sentence) = system(env::consts::OS) {
            return sentence;
        }
        let cause = match error {
            pkg_config::Error::Command { .. } => "pkg-config cannot be run".to_owned(),
            pkg_config::Error::EnvNoPkgConfig(variable) => format!("{variable} forbids pkg-config"),
            pkg_config::Error::CrossCompilation => return cross_compilation(),
            _ => {
                let mut any = pkg_config::Config::new();
                match any.cargo_metadata(false).env_metadata(false).probe(name) {
                    Ok(found) => return too_old(name, version, &found.version),
                    Err(_) => format!("pkg-config finds no {name} {version} or newer"),
                }
            }
        };
        format!(
            "the headers of libibverbs and libmlx5 are missing ({cause}): install \
             `libibverbs-dev{RDMACM_PACKAGE} pkg-config` on Debian or Ubuntu, `rdma-core-devel \
             pkgconf-pkg-config` on Fedora."
        )
    })
}

/// Debian's package for rdma-sys.
const RDMACM_PACKAGE: &str = if cfg!(feature = "rdma-sys") { " librdmacm-dev" } else { "" };

fn too_old(name: &str, needed: &str, found: &str) -> String {
    format!(
        "the headers of {name} {found} are too old: {needed} or newer is needed, which comes with \
         rdma-core 39 (Debian 12, Ubuntu 22.04); install a newer `libibverbs-dev` or \
         `rdma-core-devel`, or build rdma-core and set PKG_CONFIG_PATH to its `lib/pkgconfig`."
    )
}

fn cross_compilation() -> String {
    "pkg-config is not set up for another target: install the target's `libibverbs-dev` in a \
     sysroot and set PKG_CONFIG_SYSROOT_DIR to it, or set PKG_CONFIG_ALLOW_CROSS=1 where the \
     host's headers serve."
        .to_owned()
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
