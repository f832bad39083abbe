//! Tells in one sentence what a build of mlx5-sys misses on this machine, and what to install.
//!
//! mlx5-sys needs it with its features `link`, `bindgen` and `rdma-sys` only. A package of its own,
//! because cargo runs its build script first: it waits for two small crates only, while that of
//! rdma-sys, which would stop with a panic and a back trace, waits for bindgen.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

/// The C libraries and the oldest versions that have what mlx5-sys binds: rdma-core 39. libmlx5
/// needs libibverbs, so it comes first on the linker's line.
const LIBRARIES: [(&str, &str); 2] = [("libmlx5", "1.22.39"), ("libibverbs", "1.14.39")];

/// The library that rdma-sys and the bindings of librdmacm need besides, and its oldest version.
const RDMACM: (&str, &str) = ("librdmacm", if BINDS_CM { "1.3.39" } else { "1.2.28" });

/// Whether mlx5-sys binds librdmacm itself, and links it.
const BINDS_CM: bool = cfg!(feature = "cm");

/// The C libraries that were found.
pub struct Libraries {
    /// Folders of their headers, besides the compiler's own.
    pub include_paths: Vec<PathBuf>,
    /// Folders of the libraries themselves.
    pub link_paths: Vec<PathBuf>,
    /// Names for the linker, such as `mlx5`, in its order.
    pub names: Vec<String>,
    /// Version of rdma-core that libmlx5 is of, such as `44.0`.
    pub rdma_core: String,
}

/// Finds the C libraries.
///
/// # Errors
/// A sentence for the user: this system is not Linux, or a library is missing or too old.
pub fn libraries() -> Result<Libraries, String> {
    let mut libraries = Libraries {
        include_paths: Vec::new(),
        link_paths: Vec::new(),
        names: Vec::new(),
        rdma_core: String::new(),
    };
    for (name, version) in LIBRARIES {
        let library = find(name, version)?;
        libraries.include_paths.extend(library.include_paths);
        libraries.link_paths.extend(library.link_paths);
        libraries.names.push(name.trim_start_matches("lib").to_owned());
        if name == "libmlx5" {
            libraries.rdma_core = rdma_core_of(&library.version).to_owned();
        }
    }
    if BINDS_CM || cfg!(feature = "rdma-sys") {
        let (name, version) = RDMACM;
        let library = find(name, version)?;
        if BINDS_CM {
            libraries.include_paths.extend(library.include_paths);
            libraries.link_paths.extend(library.link_paths);
            // librdmacm needs libibverbs, too.
            libraries.names.insert(0, name.trim_start_matches("lib").to_owned());
        }
    }
    for paths in [&mut libraries.include_paths, &mut libraries.link_paths] {
        paths.sort();
        paths.dedup();
    }
    Ok(libraries)
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

/// One C library.
struct Found {
    version: String,
    include_paths: Vec<PathBuf>,
    link_paths: Vec<PathBuf>,
}

fn find(name: &str, version: &str) -> Result<Found, String> {
    let error = match pkg_config(name, Some(version)) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    // A machine that is no Linux has no package to install.
    system(env::consts::OS)?;
    let cause = match error {
        pkg_config::Error::Command { .. } => match without_pkg_config(name) {
            Some(found) if at_least(&found.version, version) => return Ok(found),
            Some(found) => return Err(too_old(name, version, &found.version)),
            None => "pkg-config cannot be run".to_owned(),
        },
        pkg_config::Error::EnvNoPkgConfig(variable) => format!("{variable} forbids pkg-config"),
        pkg_config::Error::CrossCompilation => return Err(cross_compilation()),
        _ => match pkg_config(name, None) {
            Ok(found) => return Err(too_old(name, version, &found.version)),
            Err(_) => format!("pkg-config finds no {name} {version} or newer"),
        },
    };
    Err(format!(
        "the development files of {HEADERS} are missing ({cause}): install \
         `libibverbs-dev{MORE_PACKAGES}` on Debian or Ubuntu, `rdma-core-devel pkgconf-pkg-config` on \
         Fedora, or build without the features `link`, `bindgen` and `rdma-sys`, which need them."
    ))
}

fn pkg_config(name: &str, version: Option<&str>) -> Result<Found, pkg_config::Error> {
    let mut config = pkg_config::Config::new();
    // The build script prints the linker's arguments itself.
    config.cargo_metadata(false).env_metadata(true).statik(false);
    if let Some(version) = version {
        config.atleast_version(version);
    }
    let pkg_config::Library { version, include_paths, link_paths, .. } = config.probe(name)?;
    Ok(Found { version, include_paths, link_paths })
}

/// Reads the library's `.pc` file where distributions have it, for a machine without pkg-config.
///
/// Returns `None` if it is not there, where the user names a pkg-config, for another target, and with
/// rdma-sys, which needs pkg-config.
fn without_pkg_config(name: &str) -> Option<Found> {
    let cross = env::var_os("TARGET") != env::var_os("HOST");
    if cross || cfg!(feature = "rdma-sys") || env::var_os("PKG_CONFIG").is_some() {
        return None;
    }
    let multiarch = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    ["/usr/lib64", &multiarch, "/usr/lib"].iter().find_map(|folder| {
        let folder = Path::new(folder);
        let text = fs::read_to_string(folder.join("pkgconfig").join(name).with_extension("pc"));
        let version = version_in(&text.ok()?)?.to_owned();
        Some(Found { version, include_paths: Vec::new(), link_paths: vec![folder.to_owned()] })
    })
}

/// The version in the text of a `.pc` file.
fn version_in(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("Version:")).map(str::trim)
}

fn at_least(version: &str, needed: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split('.').map(|number| number.parse().unwrap_or_default()).collect()
    };
    numbers(version) >= numbers(needed)
}

/// The libraries whose development files are used.
const HEADERS: &str =
    if BINDS_CM { "libibverbs, librdmacm and libmlx5" } else { "libibverbs and libmlx5" };

/// Debian's further packages for the features.
const MORE_PACKAGES: &str = if cfg!(feature = "rdma-sys") {
    " librdmacm-dev pkg-config"
} else if BINDS_CM {
    " librdmacm-dev"
} else {
    ""
};

fn too_old(name: &str, needed: &str, found: &str) -> String {
    format!(
        "the development files of {name} {found} are too old: {needed} or newer is needed, which comes with \
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
#[cfg(feature = "libclang")]
pub fn libclang() -> Result<(), String> {
    clang_sys::load().map_err(|error| {
        format!(
            "libclang, which reads the C headers, is missing: install `libclang-dev` on Debian or \
             Ubuntu, `clang-devel` on Fedora, or set LIBCLANG_PATH to its folder ({error})."
        )
    })?;
    let version = clang_sys::get_library().and_then(|library| library.version());
    if cfg!(feature = "rdma-sys") && version >= Some(clang_sys::Version::V16_0) {
        return Err("rdma-sys 0.3.0 cannot be built with libclang 16 or newer: leave the feature \
                    `rdma-sys` out, since the names and types are the same without it, or install \
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
