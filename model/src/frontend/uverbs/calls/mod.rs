//! The functions of the C library that the model interposes: the way in for programs.
//!
//! `files` are those that take a descriptor, `paths` those that take a path, `interfaces` those on network
//! interfaces, `signals` those on signals. Each asks whether the call is for the model, and hands all others to
//! the C library. `open` opens, copies and
//! closes the model's files, and `memory` follows what the program does to its mappings.

mod files;
mod interfaces;
mod memory;
mod open;
mod paths;
mod signals;
