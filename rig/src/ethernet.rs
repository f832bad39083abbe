//! The model with a port of Ethernet, and addresses of packets.

use std::sync::LazyLock;

use crate::Rig;

static ROCE: LazyLock<()> = LazyLock::new(|| {
    // SAFETY: every test of such a process comes through here before it calls anything that reads the
    // environment.
    unsafe {
        std::env::set_var("MLX5_MODEL", "always");
        std::env::set_var("MLX5_MODEL_LINK", "roce");
    }
});

/// Gives this process a model with a port of Ethernet. The first call of every test, by way of [`rig`]
/// or not: it changes the environment.
pub fn choose() {
    LazyLock::force(&ROCE);
}

/// Opens a device with a port of Ethernet, which delivers before a post returns.
pub fn rig() -> Rig {
    choose();
    Rig::new(mlx5_model::Mode::Trapped)
}

/// Returns the Ethernet address of a group that no other process uses: tests of all share one link. A
/// port gives back only packets to groups and to its own address, and the sides of a test share one.
pub fn address(number: u8) -> [u8; 6] {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    [3, a, b, c, d, number]
}
