//! The safe layer, which owns the memory in flight: traffic, connections that share queues, threads, and
//! what is dropped, leaked or mixed up.

mod deaths;
mod endpoints;
mod flight;
mod misuse;
mod shared;
mod traffic;
mod unwind;
