//! This crate against libmlx5's own data path in another process.

mod messages;
mod pingpong;
mod shared;
