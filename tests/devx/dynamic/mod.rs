//! Dynamic connections whose targets and shared receive queues were made by command: the
//! Repertoire's tests of them, and features that verbs cannot request.

#![allow(clippy::duplicate_mod, reason = "the same tests, of objects that something else makes")]

mod list;
mod ring;
mod target;
