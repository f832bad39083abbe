//! The model on RoCE against facts and tables.

mod answers;
mod counters;
mod keys;
mod profiles;
mod responder;

use std::sync::LazyLock;

use mlx5_model as _;

/// Chooses RoCE. Every test calls it first.
fn roce() {
    static ROCE: LazyLock<()> = LazyLock::new(|| {
        // SAFETY: every test comes through here before it calls anything that reads the environment.
        unsafe {
            std::env::set_var("MLX5_MODEL", "always");
            std::env::set_var("MLX5_MODEL_LINK", "roce");
        }
    });
    LazyLock::force(&ROCE);
}
