//! The model with a port of Ethernet, and addresses of packets.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};

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

thread_local! {
    /// The number of this thread: each test has one.
    static THREAD: u8 = {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns the Ethernet address of a group that no other process or thread uses: all tests share one link. A
/// port gives back only packets to groups and to its own address, and the sides of a test share one.
pub fn address(number: u8) -> [u8; 6] {
    // Linux has at most 2^22 processes.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    [3, a, b, c, THREAD.with(|thread| *thread), number]
}
