//! Binds the installed headers by libclang.

use std::path::PathBuf;
use std::{env, fs};

use bindgen::callbacks::{DeriveInfo, DeriveTrait, ImplementsTrait, ParseCallbacks, TypeKind};
use mlx5_sys_probe::stop;

use crate::{cm, mlx5dv, same, verbs};

/// Writes the bindings of all headers into `OUT_DIR`. Ends the build where they cannot be read.
pub fn bind(include_paths: &[PathBuf]) {
    println!("cargo::rerun-if-changed=wrapper");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    mlx5_sys_probe::libclang().unwrap_or_else(|sentence| stop(&sentence));
    let builder = || builder(include_paths);

    let mlx5dv = generate(mlx5dv::whole(builder())).to_string();
    if mlx5dv.contains("fn __mlx5dv_create_flow(") {
        println!("cargo::rustc-cfg=sized_flow_actions");
    }
    write("mlx5dv.rs", &mlx5dv);
    write("verbs_supplement.rs", &generate(verbs::supplement(builder())));
    write("verbs_check.rs", &generate(verbs::check(builder())));
    write_either("verbs", &generate(verbs::whole(builder())));
    if env::var_os("CARGO_FEATURE_CM").is_some() {
        write("cm_supplement.rs", &generate(cm::supplement(builder())));
        write("cm_check.rs", &generate(cm::check(builder())));
        write_either("cm", &generate(cm::whole(builder())));
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

/// Returns a bindgen builder with the settings that all bindings of this crate share.
fn builder(include_paths: &[PathBuf]) -> bindgen::Builder {
    let include = |path: &PathBuf| format!("-I{}", path.display());
    bindgen::Builder::default()
        .clang_args(include_paths.iter().map(include))
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

/// Tells bindgen the traits of types that it does not generate, and the derives of its own.
#[derive(Debug)]
struct Derives;

impl ParseCallbacks for Derives {
    /// bindgen takes a type that it does not generate to be not even `Copy`, and would wrap it in
    /// unions. These are plain: libc's, and the ones `src/dv/mod.rs` writes.
    fn blocklisted_type_implements_trait(
        &self,
        name: &str,
        derive_trait: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        let copy = name.contains("pthread_") || name.contains("ibv_tmh");
        let is_number = name == "off_t";
        (is_number || copy && matches!(derive_trait, DeriveTrait::Copy))
            .then_some(ImplementsTrait::Yes)
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
