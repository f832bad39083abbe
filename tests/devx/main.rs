//! What is made and asked by firmware command, end to end on the model: what works, and what each
//! error looks like.

#[path = "../rig/mod.rs"]
mod rig;

mod capabilities;
mod commands;
mod resources;
