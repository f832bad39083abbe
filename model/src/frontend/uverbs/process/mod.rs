//! The process that the model lives in: its descriptors, memory, signals and C library.
//!
//! Nothing here knows a device. `real` are the C library's own functions, behind those that the model
//! interposes, and `errno` what they fail with. `descriptors` is the table of the model's open files.
//! `trap` catches stores to protected pages: `instruction` decodes them, `stack` finds room for the work.
//! `user` reads and writes the program's memory at addresses that may be invalid.

pub(crate) mod descriptors;
pub(crate) mod errno;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod instruction;
pub(crate) mod real;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod stack;
mod thread;
pub(crate) mod trap;
pub(crate) mod user;
pub(crate) mod valgrind;

pub(crate) use thread::lock;
pub(super) use thread::{in_children, own_process, thread};
