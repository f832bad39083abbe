//! Links libibverbs and libmlx5, binds their headers, and passes on their version.

use std::path::PathBuf;
use std::{env, fs};

use bindgen::callbacks::{DeriveInfo, DeriveTrait, ImplementsTrait, ParseCallbacks, TypeKind};
use mlx5_sys_probe::stop;

#[path = "build/cm.rs"]
mod cm;
#[path = "build/same.rs"]
mod same;
#[path = "build/verbs.rs"]
mod verbs;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/cm.rs");
    println!("cargo::rerun-if-changed=build/same.rs");
    println!("cargo::rerun-if-changed=build/verbs.rs");
    println!("cargo::rerun-if-changed=wrapper/mlx5dv.h");
    println!("cargo::rerun-if-changed=wrapper/rdma_cma.h");
    println!("cargo::rerun-if-changed=wrapper/verbs.h");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");

    let target_os = env::var("CARGO_CFG_TARGET_OS").expect("cargo sets CARGO_CFG_TARGET_OS");
    mlx5_sys_probe::system(&target_os).unwrap_or_else(|sentence| stop(&sentence));
    let libraries = mlx5_sys_probe::libraries().unwrap_or_else(|sentence| stop(&sentence));
    mlx5_sys_probe::libclang().unwrap_or_else(|sentence| stop(&sentence));
    link(&libraries);
    // The build scripts of packages that depend on this one get it as DEP_MLX5_RDMA_CORE.
    println!("cargo::metadata=RDMA_CORE={}", libraries.rdma_core);
    let include_args: Vec<String> =
        libraries.include_paths.iter().map(|path| format!("-I{}", path.display())).collect();

    let mlx5dv = generate(mlx5dv(&include_args)).to_string();
    println!("cargo::rustc-check-cfg=cfg(sized_flow_actions)");
    if mlx5dv.contains("fn __mlx5dv_create_flow(") {
        println!("cargo::rustc-cfg=sized_flow_actions");
    }
    write("mlx5dv.rs", &mlx5dv);
    write("verbs_supplement.rs", &generate(verbs::supplement(builder(&include_args))));
    write("verbs_check.rs", &generate(verbs::check(builder(&include_args))));
    write_either("verbs", &generate(verbs::whole(builder(&include_args))));
    if env::var_os("CARGO_FEATURE_CM").is_some() {
        write("cm_supplement.rs", &generate(cm::supplement(builder(&include_args))));
        write("cm_check.rs", &generate(cm::check(builder(&include_args))));
        write_either("cm", &generate(cm::whole(builder(&include_args))));
    }
}

/// Writes bindings that rdma-sys has as well, their names from the source in use, and a comparison.
fn write_either(name: &str, bindings: &bindgen::Bindings) {
    write(&format!("{name}.rs"), bindings);
    let interface = same::Interface::of(bindings)
        .unwrap_or_else(|error| stop(&format!("mlx5-sys cannot read its own bindings: {error}")));
    let rdma_sys = env::var_os("CARGO_FEATURE_RDMA_SYS").is_some();
    let source = if rdma_sys { "rdma_sys" } else { "generated" };
    write(&format!("{name}_names.rs"), &interface.exports(source));
    write(&format!("{name}_same.rs"), &interface.checks());
}

/// Links the C libraries.
fn link(libraries: &mlx5_sys_probe::Libraries) {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    for path in &libraries.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in &libraries.names {
        if features.split(',').any(|feature| feature == "crt-static") {
            println!("cargo::rustc-link-lib={name}");
        } else {
            // By the name of the file: a crate such as rdma-mummy-sys puts a folder with a partial
            // `libmlx5.a` in front of the system's, and `-lmlx5` would take that.
            println!("cargo::rustc-link-lib=dylib:+verbatim=lib{name}.so");
        }
    }
}

/// Returns a bindgen builder with the settings that all bindings of this crate share.
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
        .allowlist_function("_{0,2}mlx5dv_.*")
        .allowlist_type("_?mlx5.*")
        .allowlist_var("MLX5.*")
        .blocklist_item("ibv_.*")
        .blocklist_item("IBV_.*")
        // Packed and aligned to 4 at once, which bindgen turns into 20 bytes.
        .blocklist_item("mlx5_wqe_ctrl_seg")
        .derive_default(true)
}

/// Tells bindgen the traits of types that it does not generate, and the derives of its own.
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

fn generate(builder: bindgen::Builder) -> bindgen::Bindings {
    builder
        .generate()
        .unwrap_or_else(|error| {
            let error = error.to_string();
            stop(&format!(
                "libclang cannot read the headers of libibverbs and libmlx5: {}. If a header of C \
                 such as `stddef.h` is missing, install `libclang-dev` and `libc6-dev` on Debian or \
                 Ubuntu, `clang-devel` and `glibc-devel` on Fedora.",
                error.trim().replace('\n', " ")
            ))
        })
}

fn write(file: &str, text: &impl ToString) {
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(file);
    fs::write(&path, text.to_string())
        .unwrap_or_else(|error| stop(&format!("cannot write {}: {error}", path.display())));
}
