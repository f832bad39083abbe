//! The kernel's interface for connections, `/dev/infiniband/rdma_cm`, as librdmacm uses it.
//!
//! A program opens the file once for each event channel, writes commands to it and reads events by
//! a command. Each file is an eventfd that is readable while events wait, so poll and epoll work
//! without further code.
//!
//! - `abi` are the structures; `serve` decodes commands.
//! - `state` are the process's ids, files and connections. One lock covers them.
//! - `address` finds the port of an IP address; `connect` starts, answers and ends connections;
//!   `attributes` tells programs what to set their queue pairs to; `group` joins multicast groups.
//! - `agent` takes management datagrams from the engine.
//!
//! Locks are taken in this order: the engine, the state.

mod abi;
mod address;
mod agent;
mod attributes;
mod connect;
mod file;
mod group;
mod serve;
mod state;

pub(super) use file::CmFile;
pub(super) use serve::write;
pub(super) use state::Manager;
