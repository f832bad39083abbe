//! The bindings in use, held to those that the build script makes of the header: same types of fields,
//! arguments and results, same sizes and offsets, same values. With rdma-sys the former are its own.

#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unused_unsafe, unused_variables)]

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::*;

include!(concat!(env!("OUT_DIR"), "/verbs_same.rs"));
