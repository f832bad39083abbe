//! Claims of this process on objects of libibverbs: each object is taken over once, and each BlueFlame
//! register is one queue's, or of queues that only ring.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Failed, Result};
use crate::status::Status;

/// A part of an object that is taken over once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Completions,
    Sends,
    Receives,
    Shared,
}

static TAKEN: Mutex<BTreeSet<(usize, Part)>> = Mutex::new(BTreeSet::new());

/// For each register the number of queues that only ring there, or `None` for one that copies WQEs.
static REGISTERS: Mutex<BTreeMap<usize, Option<u32>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object's part that is taken over, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim(usize, Part);

impl Claim {
    /// Claims the part of the object at this address.
    pub(crate) fn new<T>(object: *const T, part: Part) -> Result<Self> {
        let address = object.addr();
        if lock(&TAKEN).insert((address, part)) {
            return Ok(Self(address, part));
        }
        Err(Failed::with(
            Status::InUse,
            match part {
                Part::Completions => {
                    "the ibv_cq is taken over already: use that handle, or end it with \
                     mlx5_cq_give_back, mlx5_cq_abandon or mlx5_packets_abandon before the ibv_cq is \
                     destroyed"
                }
                Part::Sends => {
                    "the ibv_qp's send queue is taken over already: use that handle, or end it \
                     with mlx5_sq_give_back or mlx5_sq_abandon before the ibv_qp is destroyed"
                }
                Part::Receives => {
                    "the receives of the ibv_qp or ibv_wq are taken over already: use that handle, or \
                     end it with mlx5_rq_give_back, mlx5_rq_abandon or mlx5_packets_abandon, or with \
                     mlx5_srq_detach, before the object is destroyed"
                }
                Part::Shared => {
                    "the ibv_srq is taken over already: use that handle, or end it with \
                     mlx5_srq_abandon before the ibv_srq is destroyed"
                }
            },
        ))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&TAKEN).remove(&(self.0, self.1));
    }
}

/// The use of a BlueFlame register, until this is dropped.
#[derive(Debug)]
pub(crate) struct RegisterClaim(usize);

impl RegisterClaim {
    /// Claims the register at this address, alone (`own`) or beside other queues.
    pub(crate) fn new(register: usize, own: Own) -> Result<Self> {
        let mut registers = lock(&REGISTERS);
        match (registers.get_mut(&register), own) {
            (None, Own::Copies) => drop(registers.insert(register, None)),
            (None, Own::Rings) => drop(registers.insert(register, Some(1))),
            (Some(Some(sharers)), Own::Rings) => *sharers += 1,
            _ => return Err(Failed::of(Status::RegisterShared)),
        }
        Ok(Self(register))
    }
}

impl Drop for RegisterClaim {
    fn drop(&mut self) {
        let mut registers = lock(&REGISTERS);
        match registers.get_mut(&self.0) {
            Some(Some(sharers)) if *sharers > 1 => *sharers -= 1,
            _ => drop(registers.remove(&self.0)),
        }
    }
}

/// How a queue uses its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// It copies WQEs there, and no other queue may store to it.
    Copies,
    /// It only rings.
    Rings,
}

#[cfg(test)]
mod tests;
