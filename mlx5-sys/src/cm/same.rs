//! The bindings in use, held to those that the build script makes of the header, as those of `verbs`
//! are.

#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unused_unsafe, unused_variables)]

use super::*;
use crate::verbs::*;
use libc::{sockaddr, socklen_t};

include!(concat!(env!("OUT_DIR"), "/cm_same.rs"));
