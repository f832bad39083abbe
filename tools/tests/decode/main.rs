//! `mlx5 decode` on dumps from public threads, on libmlx5's reports of the model's errors, on
//! random input.

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
