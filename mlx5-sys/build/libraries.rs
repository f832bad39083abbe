//! Finds the C libraries and links them.

use std::env;

use mlx5_sys_probe::{Libraries, stop};

/// Links the C libraries, and returns them. Ends the build where they are missing.
pub fn link() -> Libraries {
    let target_os = env::var("CARGO_CFG_TARGET_OS").expect("cargo sets CARGO_CFG_TARGET_OS");
    mlx5_sys_probe::system(&target_os).unwrap_or_else(|sentence| stop(&sentence));
    let libraries = mlx5_sys_probe::libraries().unwrap_or_else(|sentence| stop(&sentence));
    for path in &libraries.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in &libraries.names {
        if super::has_static_libc() {
            println!("cargo::rustc-link-lib={name}");
        } else {
            // By the name of the file: a crate such as rdma-mummy-sys puts a folder with a partial
            // `libmlx5.a` in front of the system's, and `-lmlx5` would take that.
            println!("cargo::rustc-link-lib=dylib:+verbatim=lib{name}.so");
        }
    }
    libraries
}
