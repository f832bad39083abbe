//! `mlx5 decode` on libmlx5's reports of the model's errors, and its command line and output.

mod command_line;
#[path = "../../../diag/tests/decode/dumps.rs"]
mod dumps;
mod errors;
mod errors_frames;
mod errors_reliable;
mod errors_shared;
mod errors_unreliable;
mod model;
mod printed;
#[path = "../rig/mod.rs"]
mod rig;
