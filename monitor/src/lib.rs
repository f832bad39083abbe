//! An observer of unmodified verbs programs, cheap enough to be left on.
//!
//! `mlx5 monitor` preloads this library into a program. libmlx5 calls libibverbs to modify a queue pair, and
//! the loader finds this library's functions first, also if the program opens libibverbs itself
//! (`dlopen`). When a queue pair moves to INIT, the functions that its context, its extended queue pair
//! and its extended CQs are called by are replaced. From then on each post leaves a record, and each
//! completion its time.
//!
//! | module | is |
//! |---|---|
//! | [`board`] | the memory that the program's processes share with `mlx5 monitor` |
//! | [`cell`] | the part of it that one queue pair has |
//! | [`clock`] | the CPU's counter |
//! | `table`, `state`, `real` | what a process knows: queue pairs, libmlx5's functions |
//! | `settle`, `post`, `poll`, `extended`, `extended_cq` | the data path |
//! | `contexts`, `function`, `queues`, `hooks` | the control path |
//!
//! The data path allocates nothing and takes no lock. It makes no system call but one, which wakes the
//! command at the first failure of a queue pair. Without the variable
//! [`board::VARIABLE`] all functions only call those that they stand for.
//!
//! ```
//! use mlx5_monitor::board::Board;
//!
//! let board = Board::create().unwrap();
//! assert!(board.path().starts_with("/proc/"));
//! // No process has a queue pair yet.
//! assert_eq!(board.cells().count(), 0);
//! ```

pub mod board;
pub mod cell;
pub mod clock;
mod contexts;
mod extended;
mod extended_cq;
mod function;
mod hooks;
mod poll;
mod post;
mod queues;
mod real;
mod settle;
mod state;
mod table;
#[cfg(test)]
mod tests;
