//! Compares the bindings in use with the header: the build script makes bindings of it for this test.

#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unused_unsafe, unused_variables)]

use super::*;
use crate::verbs::*;
use libc::{sockaddr, socklen_t};

include!(concat!(env!("OUT_DIR"), "/cm_same.rs"));
