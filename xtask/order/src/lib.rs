//! Calls of the data path, each in a function of its own, for tests that read their instructions.
//!
//! `cargo xtask arm64` compiles this for arm64 and compares fences and stores with
//! `docs/ordering.md`. Nothing runs it.

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, Prepared, ReceiveQueue, SendQueue};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote, Sge};

/// Posts one WQE, whose size is known at compile time.
///
/// # Safety
/// The contract of [`SendQueue::post`].
#[unsafe(no_mangle)]
pub unsafe fn order_post(queue: &mut SendQueue<Rc>, data: u64, remote: Remote) -> bool {
    let write = RdmaWrite::new(InlineBytes(data.to_ne_bytes()), remote).signaled();
    // SAFETY: the caller keeps the contract of `post`.
    unsafe { queue.post(data, write) }.is_ok()
}

/// Posts two WQEs by one doorbell.
///
/// # Safety
/// The contract of [`SendQueue::post`], for both.
#[unsafe(no_mangle)]
pub unsafe fn order_batch(queue: &mut SendQueue<Rc>, from: Sge, remote: Remote) -> bool {
    let mut batch = queue.batch();
    let appended = (0..2).all(|id| batch.append(id, RdmaWrite::new(from, remote)).is_ok());
    if appended {
        // SAFETY: the caller keeps the contract of `post`.
        unsafe { batch.ring() };
    }
    appended
}

/// Fires a prepared WQE.
#[unsafe(no_mangle)]
pub fn order_fire(queue: &mut Prepared<RdmaWrite<InlineBytes<8>>>, data: u64) -> bool {
    queue.fire(data.to_ne_bytes()).is_ok()
}

/// Posts a receive.
///
/// # Safety
/// The contract of [`ReceiveQueue::post`].
#[unsafe(no_mangle)]
pub unsafe fn order_receive(queue: &mut ReceiveQueue, to: Sge) -> bool {
    // SAFETY: the caller keeps the contract of `post`.
    unsafe { queue.post(0, to) }.is_ok()
}

/// Polls for the completion of a send.
#[unsafe(no_mangle)]
pub fn order_poll(reader: &mut CqReader, queue: &mut SendQueue<Rc>) -> Option<u64> {
    match reader.poll(queue) {
        Ok(Some(Completion::Send(done))) => Some(done.id),
        _ => None,
    }
}
