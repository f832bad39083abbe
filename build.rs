//! Refuses targets that the driver does not know, and exports the version of rdma-core.
//!
//! Sets `MLX5_RDMA_CORE` for the crate, its tests and its examples: the version whose headers the
//! bindings of mlx5-sys are of, such as `44.0`.

use std::{env, process};

#[path = "build/environment.rs"]
mod environment;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/environment.rs");
    match environment::lines(|name| env::var(name).ok()) {
        Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
        Err(sentence) => {
            println!("cargo::error={sentence}");
            process::exit(1);
        }
    }
}
