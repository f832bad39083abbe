//! Changes of keys: binds of windows, layouts and rights of indirect keys, invalidations.

use mlx5::ib::{Access, Rc, Transport};
use mlx5::ring::PostError;
use mlx5::wqe::{
    BindWindow, ConfigureKey, Interleaved, ListAt, LocalInvalidate, PostOn, Sge, Strided,
};

use super::{Sink, flagged};
use crate::error::{Failed, Result};
use crate::request::{
    FENCED, INTERLEAVED, LIST_IN_MEMORY, Request, SIGNALED, TYPE_2, ZERO_BASED, entries,
};
use crate::status::Status;

/// Rights that a key may give to peers.
const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// As many pieces of a key as any WQE has units.
const MAX_DS: usize = 63;

/// Writes the invalidation of a key.
///
/// # Safety
/// The contract of [`Sink::put`].
pub(super) unsafe fn invalidate<T: Transport, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    LocalInvalidate: PostOn<T>,
{
    request.check(SIGNALED | FENCED)?;
    let invalidate = LocalInvalidate::new(request.rkey);
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, invalidate)) }?)
}

/// Writes the bind of a window.
///
/// # Safety
/// The contract of [`Carries::put`](super::Carries::put).
pub(super) unsafe fn bind<T: Transport, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    BindWindow: PostOn<T>,
{
    request.check(SIGNALED | FENCED | TYPE_2 | ZERO_BASED)?;
    let (before, after) = (request.rkey, request.immediate);
    let access = request.access(REMOTE)?;
    // SAFETY: this function's contract.
    let memory = match unsafe { entries(request.sg_list, request.num_sge)? } {
        [one] => *one,
        [] if request.flags & TYPE_2 == 0 => Sge::new(0, 0, 0),
        _ => return Err(Failed::argument("sg_list has one entry, the memory behind the window")),
    };
    let bind = if request.flags & TYPE_2 != 0 {
        BindWindow::type_2(before, after as u8, sink.qpn(), memory, access)
    } else {
        BindWindow::type_1(before, memory, access)
    };
    if bind.rkey() != after {
        return Err(Failed::told(
            Status::InvalidArgument,
            format_args!(
                "immediate, the window's next key, is {after:#x}: it differs from rkey {before:#x} in the \
                 low byte alone, and is ibv_inc_rkey(rkey) for a window of type 1"
            ),
        ));
    }
    let bind = if request.flags & ZERO_BASED != 0 { bind.zero_based() } else { bind };
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, bind)) }?)
}

/// Writes the configuration of a key.
///
/// # Safety
/// The contract of [`Carries::put`](super::Carries::put).
pub(super) unsafe fn configure<S: Sink<Rc>>(sink: &mut S, request: &Request) -> Result {
    request.check(SIGNALED | FENCED | INTERLEAVED | LIST_IN_MEMORY)?;
    let access = request.access(REMOTE.union(Access::LOCAL_WRITE))?;
    // SAFETY: this function's contract.
    let list = match unsafe { entries(request.sg_list, request.num_sge)? } {
        [] => {
            return Err(Failed::argument(
                "sg_list is empty: it has the memory behind the key, or with MLX5_LIST_IN_MEMORY that of \
                 the list",
            ));
        }
        list => list,
    };
    let key = ConfigureKey::new(request.rkey).access(access);
    match request.flags & (INTERLEAVED | LIST_IN_MEMORY) {
        // SAFETY: this function's contract.
        0 => return Ok(unsafe { sink.put(request.id, flagged!(request, key.layout(list))) }?),
        INTERLEAVED => {}
        LIST_IN_MEMORY => {
            let layout = listed(list, request.swap)?;
            // SAFETY: this function's contract.
            return Ok(unsafe { sink.put(request.id, flagged!(request, key.layout(layout))) }?);
        }
        _ => {
            return Err(Failed::argument(
                "MLX5_INTERLEAVED excludes MLX5_LIST_IN_MEMORY: pieces of cycles are in sg_list",
            ));
        }
    }
    let mut pieces = [Strided::default(); MAX_DS];
    let Some(pieces) = pieces.get_mut(..list.len()) else {
        return Err(PostError::TooManyEntries.into());
    };
    for (piece, entry) in pieces.iter_mut().zip(list) {
        // Two halves: bytes of the piece, and of the gap behind it.
        let [length, skip] = [entry.length, entry.length >> 16].map(|half| half as u16);
        *piece = Strided { addr: entry.addr, lkey: entry.lkey, length, skip };
    }
    let repeat = match request.immediate {
        0 => return Err(Failed::argument("immediate, the number of cycles, is 0")),
        repeat => repeat,
    };
    let key = key.layout(Interleaved { repeat, pieces });
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, key)) }?)
}

/// Returns the layout of a key whose list is in the memory of the one entry.
fn listed(list: &[Sge], length: u64) -> Result<ListAt> {
    let [entries] = list else {
        return Err(Failed::argument(
            "sg_list has one entry with MLX5_LIST_IN_MEMORY, the memory of the list",
        ));
    };
    if length == 0 {
        return Err(Failed::argument("key_length, the bytes of all pieces, is 0"));
    }
    Ok(ListAt { entries: *entries, length })
}
