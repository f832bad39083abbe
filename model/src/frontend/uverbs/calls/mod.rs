//! The functions of the C library that the model interposes: the way in for programs.
//!
//! `files` are those that take a descriptor, `paths` those that take a path, `signals` those on signals. Each
//! asks whether the call is for the model, and hands all others to the C library.

pub(super) mod files;
pub(super) mod memory;
pub(super) mod open;
pub(super) mod paths;
pub(super) mod signals;
