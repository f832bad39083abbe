//! `mlx5 doctor`: on the bare machine, on the model, on files, and with one thing wrong.
//!
//! [`machine`] is a sound machine in files, which [`files`] breaks one thing of at a time; [`model`]
//! breaks the model, or the process that runs on it; [`peers`] are two processes that
//! examine the link between them; [`findings`] reads reports.

mod files;
mod findings;
mod machine;
mod model;
mod peers;
#[path = "../rig/mod.rs"]
mod rig;
