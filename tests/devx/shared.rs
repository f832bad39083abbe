//! The Repertoire's tests of shared receive queues, with queues and queue pairs by command.

use crate::made;

#[path = "../repertoire/shared_receive/mod.rs"]
mod shared_receive;
