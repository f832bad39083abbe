//! The kernel's verbs interface, implemented inside the process.
//!
//! Unmodified libibverbs and libmlx5 look for devices in sysfs, open `/dev/infiniband/uverbs0`,
//! issue ioctls on it and map register pages from it. This module serves all of that:
//!
//! - `paths`, `calls` and `signals` are interposed functions of the C library.
//! - `discovery` decides whether the model offers devices; `sysfs` is the tree that programs read.
//! - `ioctl` and `legacy` decode requests. One file per kind of object turns them into firmware
//!   commands, as `ib_uverbs` and `mlx5_ib` do.
//! - `observe` leaves the devices to the kernel, and records what a program does with them.
//! - `trap` and `poll` bring register stores to the device; `event` brings events to the program.
//!
//! Locks are taken in this order: a file's state, the engine, event rings, listeners, an event
//! queue.

mod abi;
mod advise;
mod ah;
mod boot;
mod calls;
mod clock;
mod command;
mod config;
mod counters;
mod cq;
mod dct;
pub(super) mod descriptors;
mod device;
mod devx;
mod discovery;
mod dm;
mod dmabuf;
pub(super) mod errno;
mod event;
mod file;
mod flow;
mod flow_matcher;
mod folder;
mod function;
mod identity;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod instruction;
mod ioctl;
mod keys;
mod legacy;
mod mappings;
mod methods;
mod mr;
mod multicast;
mod mw;
mod observe;
mod path;
mod paths;
mod pd;
mod pins;
mod poll;
mod port;
mod privilege;
mod qp;
mod qp_modify;
mod qp_query;
mod raw;
pub(super) mod real;
mod running;
mod settings;
mod signals;
mod srq;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod stack;
mod sysfs;
mod trap;
mod uar;
mod umem;
pub(super) mod user;
mod valgrind;
mod visitor;
mod wq;
mod xrcd;

use crate::private::{complain, system};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use config::Mode;
pub use discovery::mlx5_model_yield;
pub use settings::{
    Unavailable, fault_tallies, offered, profile, refusal, run, set_counter_sets, set_faults,
    set_mode, set_port, set_timeouts,
};

/// Locks a mutex, even if a thread panicked while it held the lock. The data under locks here is
/// whole between any two statements, and a model that has panicked must not end the program.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that no signal of the program is delivered to.
fn thread(work: impl FnOnce() + Send + 'static) {
    // SAFETY: a set is an array of integers, for which zeros are values. The calls read and write the two
    // of this block.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigdelset(&mut all, libc::SIGSEGV);
        libc::sigdelset(&mut all, libc::SIGBUS);
        system::signal_mask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = crate::engine::spawn(work);
    // SAFETY: the call reads the set, which was filled above.
    unsafe { system::signal_mask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    if let Err(error) = started {
        complain!("a thread cannot be started: {error}");
    }
}
