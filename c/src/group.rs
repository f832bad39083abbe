//! A completion queue with the queues that complete on it. They are one group, which one thread uses at a
//! time.

use core::ptr::NonNull;

use mlx5::ib::{Dci, RawPacket, Rc, Transport, Uc, Ud, XrcSend};
use mlx5::ring::{Batch, CqReader, QueueTable, Queues, SendQueue};
use mlx5_sys::verbs::ibv_cq;

use crate::claims::Claim;
use crate::error::{Failed, Result, caught};
use crate::status::Status;
use crate::wait::Channel;

/// `struct mlx5_cq`.
pub struct Cq {
    // Fields are dropped in this order: the batch borrows a queue, and queues end before their reader.
    /// The batch that is being filled. While there is one, nothing touches the tables.
    pub(crate) open: Option<Open>,
    pub(crate) tables: Tables,
    pub(crate) reader: CqReader,
    pub(crate) channel: Channel,
    /// Handles of queues that complete here.
    pub(crate) queues: u32,
    /// Whether a call on this group has panicked.
    pub(crate) broken: bool,
    pub(crate) raw: NonNull<ibv_cq>,
    pub(crate) _claim: Claim,
}

/// The queues of a group, by transport. Most groups have one transport.
#[derive(Default)]
pub(crate) struct Tables {
    /// Also has the receive queues of all transports.
    pub(crate) rc: QueueTable<Rc>,
    uc: Option<Box<QueueTable<Uc>>>,
    ud: Option<Box<QueueTable<Ud>>>,
    dci: Option<Box<QueueTable<Dci>>>,
    xrc: Option<Box<QueueTable<XrcSend>>>,
    packets: Option<Box<QueueTable<RawPacket>>>,
}

impl Tables {
    /// All of them, for a poll.
    #[inline(always)]
    pub(crate) fn all(&mut self) -> impl Queues + '_ {
        let Self { rc, uc, ud, dci, xrc, packets } = self;
        let rest = (dci.as_deref_mut(), (xrc.as_deref_mut(), packets.as_deref_mut()));
        (rc, (uc.as_deref_mut(), (ud.as_deref_mut(), rest)))
    }
}

/// A transport whose send queues a group may have.
pub(crate) trait Grouped: Transport + Sized {
    /// The table of its queues, if the group has one.
    fn table(tables: &mut Tables) -> Option<&mut QueueTable<Self>>;
    /// The table of its queues.
    fn make_table(tables: &mut Tables) -> &mut QueueTable<Self>;
    /// Its batch as the one that a group has open.
    fn filled(batch: Batch<'static, Self>) -> Filled;

    /// The queue of a handle.
    #[inline(always)]
    fn queue(tables: &mut Tables, qpn: u32) -> Result<&mut SendQueue<Self>> {
        Self::table(tables).and_then(|table| table.send(qpn)).ok_or_else(Failed::gone)
    }
}

impl Grouped for Rc {
    #[inline(always)]
    fn table(tables: &mut Tables) -> Option<&mut QueueTable<Self>> {
        Some(&mut tables.rc)
    }

    fn make_table(tables: &mut Tables) -> &mut QueueTable<Self> {
        &mut tables.rc
    }

    fn filled(batch: Batch<'static, Self>) -> Filled {
        Filled::Rc(batch)
    }
}

macro_rules! grouped {
    ($($transport:ident $field:ident;)*) => { $(
        impl Grouped for $transport {
            #[inline(always)]
            fn table(tables: &mut Tables) -> Option<&mut QueueTable<Self>> {
                tables.$field.as_deref_mut()
            }

            fn make_table(tables: &mut Tables) -> &mut QueueTable<Self> {
                tables.$field.get_or_insert_with(Box::default)
            }

            fn filled(batch: Batch<'static, Self>) -> Filled {
                Filled::$transport(batch)
            }
        }
    )* };
}

grouped! {
    Uc uc;
    Ud ud;
    Dci dci;
    XrcSend xrc;
    RawPacket packets;
}

/// The transport of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    Rc,
    Uc,
    Ud,
    Dci,
    XrcSend,
    RawPacket,
}

/// Evaluates an expression in which a name is the type of a transport.
macro_rules! with_transport {
    ($carried:expr, |$transport:ident| $body:expr) => {
        match $carried {
            $crate::group::Carried::Rc => {
                type $transport = mlx5::ib::Rc;
                $body
            }
            $crate::group::Carried::Uc => {
                type $transport = mlx5::ib::Uc;
                $body
            }
            $crate::group::Carried::Ud => {
                type $transport = mlx5::ib::Ud;
                $body
            }
            $crate::group::Carried::Dci => {
                type $transport = mlx5::ib::Dci;
                $body
            }
            $crate::group::Carried::XrcSend => {
                type $transport = mlx5::ib::XrcSend;
                $body
            }
            $crate::group::Carried::RawPacket => {
                type $transport = mlx5::ib::RawPacket;
                $body
            }
        }
    };
}
pub(crate) use with_transport;

impl Cq {
    /// Fails if a batch is open: nothing but its own calls may touch the tables.
    #[inline(always)]
    pub(crate) fn require_no_batch(&self) -> Result {
        match self.open {
            None => Ok(()),
            Some(_) => Err(Failed::of(Status::BatchOpen)),
        }
    }
}

/// The batch that a group has open.
pub(crate) struct Open {
    pub(crate) qpn: u32,
    pub(crate) batch: Filled,
}

/// A batch that borrows a queue of the group's tables: nothing touches the tables while it exists.
pub(crate) enum Filled {
    Rc(Batch<'static, Rc>),
    Uc(Batch<'static, Uc>),
    Ud(Batch<'static, Ud>),
    Dci(Batch<'static, Dci>),
    XrcSend(Batch<'static, XrcSend>),
    RawPacket(Batch<'static, RawPacket>),
}

/// Evaluates an expression with the batch, whatever its transport is.
macro_rules! with_batch {
    ($filled:expr, |$batch:ident| $body:expr) => {
        match $filled {
            $crate::group::Filled::Rc($batch) => $body,
            $crate::group::Filled::Uc($batch) => $body,
            $crate::group::Filled::Ud($batch) => $body,
            $crate::group::Filled::Dci($batch) => $body,
            $crate::group::Filled::XrcSend($batch) => $body,
            $crate::group::Filled::RawPacket($batch) => $body,
        }
    };
}
pub(crate) use with_batch;

impl Open {
    /// Returns the open batch, if it is of the queue pair with this number.
    pub(crate) fn of(open: &mut Option<Self>, qpn: u32) -> Result<&mut Self> {
        open.as_mut().filter(|open| open.qpn == qpn).ok_or_else(|| Failed::of(Status::NoBatch))
    }
}

/// Runs a body on a group. A panic in it ends the use of the group.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[inline(always)]
pub(crate) unsafe fn on<R>(cq: *mut Cq, body: impl FnOnce(&mut Cq) -> Result<R>) -> Result<R> {
    // SAFETY: null or alive, and used by nothing else, by this function's contract.
    let Some(cq) = (unsafe { cq.as_mut() }) else {
        return Err(Failed::argument("the handle is null"));
    };
    if cq.broken {
        return Err(Failed::of(Status::Internal));
    }
    let group = &mut *cq;
    let result = caught(move || body(group));
    if matches!(&result, Err(failed) if failed.status() == Status::Internal) {
        cq.broken = true;
    }
    result
}

#[cfg(test)]
mod tests;
