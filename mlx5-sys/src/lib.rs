//! FFI to libmlx5 and the raw layouts of ConnectX cards.

pub mod cqe;
pub mod doorbell;
pub mod dv;
pub mod ifc;
mod layout;
pub mod verbs;
pub mod wqe;
