//! The `mlx5` command, as a library for its own tests and fuzzers.
//!
//! A command is a module: its arguments, what it finds out (a *report*: `Serialize` for programs,
//! `Display` for people), and how it finds it out. [`cli`] lists them, [`options`] are common
//! to all, [`bed`] and [`machine`] say what they run on, [`outcome`] how they end, [`output`] prints.
//! Everything about the card comes from the public interface of the crate `mlx5`.

#![allow(rustdoc::private_intra_doc_links, reason = "a page on a folder tells of all its files")]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bed;
pub mod cli;
pub mod decode;
mod doctor;
mod dump;
mod generate;
mod info;
pub mod lint;
pub mod machine;
pub mod options;
pub mod outcome;
pub mod output;
pub mod perf;
pub mod replay;
pub mod trace;
