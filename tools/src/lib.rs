//! The `mlx5` command, as a library for its own tests and fuzzers.
//!
//! Each command is a module with its arguments, its *report* (`Serialize` for programs, `Display`
//! for people), and the code that fills the report. [`cli`] lists the commands. [`options`] are
//! common to all, [`bed`] and [`machine`] choose the device or the model, [`outcome`] defines exit
//! statuses and errors, [`output`] prints. All device access goes through the public interface of
//! the crate `mlx5`.

#![allow(rustdoc::private_intra_doc_links, reason = "a page on a folder tells of all its files")]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bed;
pub mod cli;
mod columns;
mod conform;
pub mod decode;
mod doctor;
mod dump;
mod generate;
mod info;
pub mod lint;
pub mod machine;
mod mesh;
mod monitor;
pub mod options;
pub mod outcome;
pub mod output;
pub mod perf;
mod program;
mod register;
pub mod replay;
mod run;
pub mod trace;
