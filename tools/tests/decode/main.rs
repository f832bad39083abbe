//! `mlx5 decode`: on dumps from public threads, on what libmlx5 prints of the model's errors, on anything.

#[path = "../../../tests/rig/mod.rs"]
mod card;
mod command_line;
mod errors;
mod errors_frames;
mod errors_reliable;
mod errors_shared;
mod errors_unreliable;
mod model;
mod public;
mod random;
#[path = "../rig/mod.rs"]
mod rig;
