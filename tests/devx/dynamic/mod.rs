//! Dynamic connections whose targets were made by command, with shared receive queues that were: the
//! Repertoire's own tests of them, and what verbs cannot ask for.

#![allow(clippy::duplicate_mod, reason = "the same tests, of objects that something else makes")]

mod list;
mod ring;
mod target;
