//! Stores to registers, in a form in which libmlx5's and the driver's can be compared.

#[allow(unused_imports, reason = "not every test uses both")]
pub use mlx5_model::stores::{Store, record};

/// Takes what was recorded since the last call, oldest first.
///
/// On arm64, libmlx5 copies a block to a BlueFlame register by one ST4 instruction, whose elements of
/// eight bytes are accesses of their own (Arm Architecture Reference Manual, B2.2.1). There, each store
/// is taken apart into words.
pub fn take() -> Vec<Store> {
    let log = mlx5_model::stores::take();
    if !cfg!(target_arch = "aarch64") {
        return log;
    }
    let words = |store: Store| {
        let at = move |index: usize| store.offset + 8 * index;
        let words = store.bytes.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let word = move |(index, bytes)| Store { uar: store.uar, offset: at(index), bytes };
        words.into_iter().enumerate().map(word)
    };
    log.into_iter().flat_map(words).collect()
}
