//! Inline WRITEs of other lengths than eight bytes, and of lengths that are known at run time only.
//!
//! The payload is a message in memory, which other code may have changed since the last call, but
//! for its first eight bytes: the loop's own counter.

use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::wqe::{Inline, InlineBytes, RdmaWrite, Remote};

use super::prepared::MOST;
use super::safe::Safe;
use crate::side::{Line, Row, Side, forget};

/// Posts payloads of a size that is known at compile time.
pub trait Known {
    fn post<const BYTES: usize>(&mut self, calls: usize) -> usize;
}

/// Runs a row of such payloads.
pub fn known(side: &mut impl Known, row: Row, calls: usize) -> Option<usize> {
    Some(match row {
        Row::Inline12 => side.post::<12>(calls),
        Row::Inline16 => side.post::<16>(calls),
        Row::Inline24 => side.post::<24>(calls),
        Row::Inline28 => side.post::<28>(calls),
        Row::Inline32 => side.post::<32>(calls),
        Row::Inline44 => side.post::<44>(calls),
        Row::Inline64 => side.post::<64>(calls),
        Row::Inline96 => side.post::<96>(calls),
        _ => return None,
    })
}

/// Whether the length of a row's payload is known at run time only.
fn at_run_time(row: Row) -> bool {
    matches!(row, Row::RunTime | Row::RunTime16 | Row::RunTime28)
}

/// Whether a row is of this file.
fn is_here(row: Row) -> bool {
    row.inline_bytes().is_some() && !matches!(row, Row::Inline | Row::UdInline | Row::UdInline24)
}

/// The message, with the counter in front.
#[inline(always)]
pub fn message<const BYTES: usize>(message: &[u8; MOST], id: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&message[..BYTES]);
    bytes[..8].copy_from_slice(&id.to_ne_bytes());
    bytes
}

/// A side of libmlx5 whose inline requests may have any length.
pub trait Lengths: Side {
    fn set_inline(&mut self, bytes: usize);
}

/// libmlx5, which posts payloads of any length by the same code.
pub struct Verbs<S>(pub S);

impl<S: Lengths> Side for Verbs<S> {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::Poll | Row::Empty if calls != 0 => self.0.run(row, calls),
            _ if is_here(row) => {
                self.0.set_inline(row.inline_bytes()?);
                self.0.run(Row::Inline, calls)
            }
            _ => None,
        }
    }
}

/// This crate, raw layer.
pub struct Raw {
    send: SendQueue<Rc>,
    completions: CqReader,
    message: [u8; MOST],
    /// The length, where it is known at run time only.
    bytes: usize,
    remote: Remote,
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::with_inline(MOST as u32);
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        Self {
            send: send.expect("a QP of its own"),
            completions,
            message: [7; MOST],
            bytes: 0,
            remote: line.remote(),
            _line: line,
        }
    }

    #[inline(never)]
    fn post_slice(&mut self, calls: usize) -> usize {
        let remote = self.remote;
        for id in 0..calls as u64 {
            forget(self);
            // SAFETY: the length is that of a row, which the message has.
            let bytes = unsafe { self.message.get_unchecked(..self.bytes) };
            let write = RdmaWrite::new(Inline(bytes), remote).signaled();
            // SAFETY: the payload is copied into the WQE.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }
}

impl Known for Raw {
    #[inline(never)]
    fn post<const BYTES: usize>(&mut self, calls: usize) -> usize {
        let remote = self.remote;
        for id in 0..calls as u64 {
            forget(self);
            let bytes = InlineBytes(message::<BYTES>(&self.message, id));
            let write = RdmaWrite::new(bytes, remote).signaled();
            // SAFETY: the payload is copied into the WQE.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            _ if at_run_time(row) => {
                self.bytes = row.inline_bytes()?;
                Some(self.post_slice(calls))
            }
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => known(self, row, calls),
        }
    }
}

/// This crate, owned layer, up to the length that its queue pair has room for.
pub struct Owned {
    safe: Safe,
    message: [u8; MOST],
}

impl Owned {
    pub fn new() -> Self {
        Self { safe: Safe::new(), message: [7; MOST] }
    }
}

impl Known for Owned {
    #[inline(never)]
    fn post<const BYTES: usize>(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let bytes = InlineBytes(message::<BYTES>(&self.message, id));
            let write = RdmaWrite::new(bytes, self.safe.remote).signaled();
            self.safe.channel.post(id, write).expect("posted");
        }
        calls
    }
}

impl Side for Owned {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::Poll | Row::Empty if calls != 0 => self.safe.run(row, calls),
            Row::Inline96 => None,
            _ => known(self, row, calls),
        }
    }
}
