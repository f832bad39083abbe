//! The twin that this crate posts to, in a batch or one by one.

use mlx5::ib::{Rc, Uc};
use mlx5::ring::{Batch, PostError, SendQueue};
use mlx5::verbs::MemoryRegion;
use mlx5::wqe::{
    BindWindow, Interleaved, LocalInvalidate, Nop, PostOn, RdmaWrite, Remote, SendInvalidate,
    SendMessage, Sge,
};
use mlx5_sys::verbs::ibv_qp_type;

use super::{Layout, Request, Side, What};

/// The destination of requests: a batch, or the queue, one by one.
pub(super) trait Sink<T: mlx5::ib::Transport> {
    fn take<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError>;
}

impl<T: mlx5::ib::Transport> Sink<T> for Batch<'_, T> {
    fn take<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        self.append(id, operation)
    }
}

/// Rings each request.
pub(super) struct Singly<'a, T: mlx5::ib::Transport>(pub &'a mut SendQueue<T>);

impl<T: mlx5::ib::Transport> Sink<T> for Singly<'_, T> {
    fn take<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        // SAFETY: the memory lives to the end of the test, and the program does not access it.
        unsafe { self.0.post(id, operation) }
    }
}

/// A transport that the requests of this file go on, as far as it has them.
pub(super) trait Twin: mlx5::ib::Transport + Sized
where
    RdmaWrite<Sge>: PostOn<Self>,
    SendMessage<Sge>: PostOn<Self>,
    BindWindow: PostOn<Self>,
    LocalInvalidate: PostOn<Self>,
    Nop: PostOn<Self>,
{
    const KIND: u32;
    /// Whether it has SEND with invalidate, and keys over keys.
    const MORE: bool;
    fn more(
        batch: &mut impl Sink<Self>,
        side: &Side,
        region: &MemoryRegion,
        request: &Request,
    ) -> Result<(), PostError>;
}

macro_rules! flagged {
    ($batch:ident, $request:ident, $op:expr) => {{
        let op = $op.signaled_if($request.signaled);
        if $request.fenced {
            $batch.take($request.id, op.fenced())
        } else {
            $batch.take($request.id, op)
        }
    }};
}

impl Twin for Rc {
    const KIND: u32 = ibv_qp_type::IBV_QPT_RC;
    const MORE: bool = true;

    fn more(
        batch: &mut impl Sink<Self>,
        side: &Side,
        region: &MemoryRegion,
        request: &Request,
    ) -> Result<(), PostError> {
        let sge = region.sge(0, 16).unwrap();
        match &request.what {
            What::SendInvalidate(at) => {
                flagged!(batch, request, SendInvalidate::new(sge, side.twos[*at].rkey()))
            }
            What::Configure(at, access, layout) => {
                let mut change = side.keys[*at].configure();
                if let Some(access) = access {
                    change = change.access(*access);
                }
                match layout {
                    Layout::Same => flagged!(batch, request, change),
                    Layout::List(list) => match list.as_slice() {
                        &[one, two, three, four] => {
                            let four = change.layout([one, two, three, four]);
                            flagged!(batch, request, four)
                        }
                        list => flagged!(batch, request, change.layout(list)),
                    },
                    Layout::Interleaved(repeat, pieces) => {
                        let layout = Interleaved { repeat: *repeat, pieces };
                        flagged!(batch, request, change.layout(layout))
                    }
                }
            }
            other => unreachable!("{other:?}"),
        }
    }
}

impl Twin for Uc {
    const KIND: u32 = ibv_qp_type::IBV_QPT_UC;
    const MORE: bool = false;

    fn more(
        _: &mut impl Sink<Self>,
        _: &Side,
        _: &MemoryRegion,
        request: &Request,
    ) -> Result<(), PostError> {
        unreachable!("{request:?}")
    }
}

pub(super) fn append<T: Twin>(
    batch: &mut impl Sink<T>,
    side: &Side,
    region: &MemoryRegion,
    request: &Request,
) -> Result<(), PostError>
where
    RdmaWrite<Sge>: PostOn<T>,
    SendMessage<Sge>: PostOn<T>,
    BindWindow: PostOn<T>,
    LocalInvalidate: PostOn<T>,
    Nop: PostOn<T>,
{
    let sge = region.sge(0, 16).unwrap();
    let part = |offset: u32, length: u32| Sge {
        addr: region.address() + u64::from(offset),
        length,
        ..sge
    };
    match &request.what {
        What::Write(by) => {
            let rkey = by.map_or(region.rkey(), |at| side.ones[at].rkey());
            flagged!(batch, request, RdmaWrite::new(sge, Remote::new(region.address(), rkey)))
        }
        What::Send => flagged!(batch, request, SendMessage::new(sge)),
        What::Bind1(at, offset, length, access) => {
            let part = part(*offset, *length);
            let bind = BindWindow::type_1(side.ones[*at].rkey(), part, *access);
            flagged!(batch, request, bind)
        }
        What::Bind2(at, tag, offset, length, access, zero) => {
            let (rkey, part) = (side.twos[*at].rkey(), part(*offset, *length));
            let bind = BindWindow::type_2(rkey, *tag, side.number(), part, *access);
            flagged!(batch, request, if *zero { bind.zero_based() } else { bind })
        }
        What::Invalidate(at) => flagged!(batch, request, side.twos[*at].invalidate()),
        _ => T::more(batch, side, region, request),
    }
}
