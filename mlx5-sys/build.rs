//! With the feature `link`, links libibverbs and libmlx5. With `bindgen`, also binds their headers.
//!
//! Without both it reads nothing of the machine: the bindings in `src/bindings` are those of
//! rdma-core 44, and the program opens the libraries itself.

use std::env;

#[cfg(feature = "bindgen")]
#[path = "build/cm.rs"]
mod cm;
#[cfg(feature = "bindgen")]
#[path = "build/headers.rs"]
mod headers;
#[cfg(feature = "link")]
#[path = "build/libraries.rs"]
mod libraries;
#[cfg(feature = "bindgen")]
#[path = "build/mlx5dv.rs"]
mod mlx5dv;
#[cfg(feature = "bindgen")]
#[path = "build/same.rs"]
mod same;
#[cfg(feature = "bindgen")]
#[path = "build/verbs.rs"]
mod verbs;

/// The rdma-core that the bindings in `src/bindings` are of.
#[cfg(not(feature = "bindgen"))]
const RDMA_CORE_OF_BINDINGS: &str = "44.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rustc-check-cfg=cfg(sized_flow_actions)");
    let rdma_core = prepare();
    // The build scripts of packages that depend on this one get it as DEP_MLX5_RDMA_CORE.
    println!("cargo::metadata=RDMA_CORE={rdma_core}");
}

/// Makes bindings and links the libraries. Returns the rdma-core that the bindings are of.
#[cfg(feature = "bindgen")]
fn prepare() -> String {
    let libraries = libraries::link();
    println!("cargo::rustc-env=MLX5_SYS_HEADERS={}", libraries.rdma_core);
    headers::bind(&libraries.include_paths);
    libraries.rdma_core
}

/// Links the libraries. Returns the rdma-core that the bindings are of.
#[cfg(all(feature = "link", not(feature = "bindgen")))]
fn prepare() -> &'static str {
    libraries::link();
    RDMA_CORE_OF_BINDINGS
}

/// Refuses executables that cannot open libraries. Returns the rdma-core that the bindings are of.
#[cfg(not(feature = "link"))]
fn prepare() -> &'static str {
    if has_static_libc() {
        println!(
            "cargo::error=a program with the target feature crt-static cannot open libibverbs and \
             libmlx5 at run time: add the feature `link` of mlx5-sys or mlx5, which links them, or \
             build with `-C target-feature=-crt-static`."
        );
        std::process::exit(1);
    }
    RDMA_CORE_OF_BINDINGS
}

/// Whether the C library is linked statically.
fn has_static_libc() -> bool {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    features.split(',').any(|feature| feature == "crt-static")
}
