//! Finds libibverbs and libmlx5, links them, and binds the C headers.
//!
//! The checks come before the work, so that what is missing on the machine is told in one sentence
//! that names the package to install.

use std::env;
use std::path::PathBuf;
use std::process::exit;

use bindgen::callbacks::{DeriveInfo, DeriveTrait, ImplementsTrait, ParseCallbacks, TypeKind};

#[path = "build/verbs.rs"]
mod verbs;

/// The oldest rdma-core whose mlx5dv.h has every structure this crate checks itself against
/// (`mlx5dv_crypto_caps`, `mlx5dv_pd`, the MMO opcode).
const OLDEST_MLX5: &str = "1.24.44";

/// rdma-sys 0.3.0 brings bindgen 0.59, which reads no header with this libclang or a newer one.
const LIBCLANG_TOO_NEW_FOR_RDMA_SYS: u32 = 16;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/verbs.rs");
    println!("cargo::rerun-if-changed=wrapper/mlx5dv.h");
    println!("cargo::rerun-if-changed=wrapper/verbs.h");
    let rdma_sys = env::var_os("CARGO_FEATURE_RDMA_SYS").is_some();

    let include_paths = link_libraries(rdma_sys);
    check_libclang(rdma_sys);
    let include_args: Vec<String> =
        include_paths.iter().map(|path| format!("-I{}", path.display())).collect();

    write(mlx5dv(&include_args), "mlx5dv.rs");
    write(verbs::supplement(builder(&include_args)), "verbs_supplement.rs");
    write(verbs::check(builder(&include_args)), "verbs_check.rs");
    if !rdma_sys {
        write(verbs::whole(builder(&include_args)), "verbs.rs");
    }
}

/// Links libmlx5 and libibverbs and returns where their headers are.
fn link_libraries(rdma_sys: bool) -> Vec<PathBuf> {
    let probe = |name, version| {
        pkg_config::Config::new().atleast_version(version).statik(false).probe(name)
    };
    let mut include_paths = Vec::new();
    // libmlx5 needs libibverbs, so it comes first on the linker's line.
    for (name, version) in [("libmlx5", OLDEST_MLX5), ("libibverbs", "1.14")] {
        match probe(name, version) {
            Ok(library) => include_paths.extend(library.include_paths),
            Err(error) => stop(&missing_library(name, version, rdma_sys, &error)),
        }
    }
    include_paths.sort();
    include_paths.dedup();
    include_paths
}

fn missing_library(name: &str, version: &str, rdma_sys: bool, error: &pkg_config::Error) -> String {
    // rdma-sys asks for librdmacm besides; whoever reads this should not have to come back for it.
    let rdmacm = if rdma_sys { " librdmacm-dev" } else { "" };
    let cause = match error {
        pkg_config::Error::Command { .. } => "pkg-config cannot be run".to_owned(),
        pkg_config::Error::EnvNoPkgConfig(variable) => format!("{variable} forbids pkg-config"),
        _ => format!("pkg-config finds no {name} {version} or newer"),
    };
    format!(
        "mlx5-sys needs the headers of libibverbs and libmlx5 ({cause}): \
         install `libibverbs-dev{rdmacm} pkg-config` on Debian or Ubuntu, \
         `rdma-core-devel pkgconf-pkg-config` on Fedora."
    )
}

/// Stops with a sentence where libclang is missing, or too new for rdma-sys.
fn check_libclang(rdma_sys: bool) {
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    if let Err(error) = clang_sys::load() {
        stop(&format!(
            "mlx5-sys reads C headers with libclang, which is missing: install `libclang-dev` on \
             Debian or Ubuntu, `clang-devel` on Fedora, or set LIBCLANG_PATH ({error})."
        ));
    }
    let version = bindgen::clang_version();
    if let Some((major, _)) = version.parsed {
        if rdma_sys && major >= LIBCLANG_TOO_NEW_FOR_RDMA_SYS {
            stop(&format!(
                "rdma-sys 0.3.0 cannot be built with libclang {major}: build with \
                 `--no-default-features` (in Cargo.toml: `default-features = false`), which makes \
                 the same verbs bindings without rdma-sys, or install `libclang-14-dev` and set \
                 LIBCLANG_PATH to it."
            ));
        }
    }
}

/// What every binding of this crate has in common.
fn builder(include_args: &[String]) -> bindgen::Builder {
    bindgen::Builder::default()
        .clang_args(include_args)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .parse_callbacks(Box::new(Derives))
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("bindgen knows Rust 1.85"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .use_core()
        .ctypes_prefix("libc")
        .prepend_enum_name(false)
        .generate_comments(false)
        .size_t_is_usize(true)
        .derive_debug(false)
        .derive_copy(true)
        .layout_tests(true)
}

/// `mlx5dv.h`, with everything of `verbs.h` left to the `verbs` module.
fn mlx5dv(include_args: &[String]) -> bindgen::Builder {
    builder(include_args)
        .header("wrapper/mlx5dv.h")
        .allowlist_function("_?mlx5dv_.*")
        .allowlist_type("_?mlx5.*")
        .allowlist_var("MLX5.*")
        .blocklist_item("ibv_.*")
        .blocklist_item("IBV_.*")
        // Packed and aligned to 4 at once, which bindgen turns into 20 bytes.
        .blocklist_item("mlx5_wqe_ctrl_seg")
        .derive_default(true)
}

/// What bindgen has to be told of types that it does not generate.
#[derive(Debug)]
struct Derives;

impl ParseCallbacks for Derives {
    /// bindgen takes a type that it does not generate to be not even `Copy`, and would wrap it in
    /// unions. These are plain: libc's, and the ones `src/dv.rs` writes.
    fn blocklisted_type_implements_trait(
        &self,
        name: &str,
        derive_trait: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        let copy = name.contains("pthread_") || name.contains("ibv_tmh");
        (copy && matches!(derive_trait, DeriveTrait::Copy)).then_some(ImplementsTrait::Yes)
    }

    /// Structures here hold pointers and unions and are not printed; enums are.
    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        match info.kind {
            TypeKind::Enum => vec!["Debug".to_owned()],
            _ => Vec::new(),
        }
    }
}

fn write(builder: bindgen::Builder, file: &str) {
    let bindings = builder
        .generate()
        .unwrap_or_else(|error| stop(&format!("mlx5-sys cannot read the C headers: {error}")));
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(file);
    bindings
        .write_to_file(&path)
        .unwrap_or_else(|error| stop(&format!("cannot write {}: {error}", path.display())));
}

/// Fails the build with `sentence`, which cargo shows as an error of its own.
fn stop(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    eprintln!("{sentence}");
    exit(1)
}
