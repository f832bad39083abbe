//! Stores to registers, in a form in which libmlx5's and the driver's can be compared.
//!
//! The model sees instructions. On arm64 one of them may make several accesses (Arm Architecture
//! Reference Manual, B2.2.1), so there the stores are taken apart.

pub use mlx5_model::stores::{Store, record};

/// Takes what was recorded since the last call, oldest first. On arm64 in words of eight bytes: libmlx5
/// copies a block to a BlueFlame register by one ST4, whose elements are accesses of their own.
pub fn take() -> Vec<Store> {
    apart(8)
}

/// The same, on arm64 in accesses of one vector register at most: STP stores two.
pub fn by_register() -> Vec<Store> {
    apart(16)
}

fn apart(most: usize) -> Vec<Store> {
    let log = mlx5_model::stores::take();
    if !cfg!(target_arch = "aarch64") {
        return log;
    }
    let mut parts = Vec::new();
    for Store { uar, offset, bytes } in log {
        for (index, part) in bytes.chunks(most).enumerate() {
            parts.push(Store { uar, offset: offset + index * most, bytes: part.to_vec() });
        }
    }
    parts
}
