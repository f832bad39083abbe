//! What a program chooses when it takes a send queue over.

use crate::ring::{BlueFlameCopy, UarMapping};

/// Which queues store to the QP's doorbell register.
///
/// ```
/// # let rig::Link { qp, mut reader, sends, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::ring::{RegisterUse, SendConfig, SendQueue};
///
/// // libibverbs posts to other queue pairs of this context, maybe by the same register.
/// let config = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
/// let sends = SendQueue::new(&qp, &mut reader, config)?;
/// assert!(sends.copy().is_none()); // eight bytes ring, and no WQE is copied
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterUse {
    /// Only this queue. Short WQEs that are posted singly are copied to the register (BlueFlame),
    /// if the register supports it.
    Own,
    /// Other queues may store to it, too. Only 8-byte doorbells are used; these do not disturb each
    /// other.
    Shared,
}

/// Configuration of a [`SendQueue`](crate::ring::SendQueue).
///
/// ```
/// # let rig::Link { qp, mut reader, sends, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::expert::BlueFlameCopy;
/// use mlx5::ring::{SendConfig, SendQueue};
///
/// // At most 16 requests are outstanding. WQEs are copied as the processor does it best.
/// let copy = BlueFlameCopy::detect();
/// let config = SendConfig { requests: 16, copy, ..SendConfig::default() };
/// let sends = SendQueue::new(&qp, &mut reader, config)?;
/// assert!(sends.request_limit() <= 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendConfig {
    /// Which queues store to the doorbell register. Default: only this queue.
    pub register: RegisterUse,
    /// CQ slots to reserve for this queue: the number of requests that may be outstanding, signaled
    /// or not, at most the QP's `max_send_wr`. So many are reserved, or the queue is refused.
    /// Default (`u32::MAX`): `max_send_wr`, or fewer if the CQ has fewer left, see
    /// [CQ slots](crate::ring::CqReader#cq-slots).
    pub requests: u32,
    /// How WQEs are copied to the register, if they are. Default: [`BlueFlameCopy::Words`], the
    /// stores of libmlx5.
    pub copy: BlueFlameCopy,
    /// Whether the last WQE of a batch is copied by BlueFlame, as a single WQE is. This saves the
    /// HCA one fetch before it can start on that WQE. It fetches the other WQEs from the ring.
    /// Worth it for short batches. Default: no, as with libmlx5.
    pub copy_last: bool,
    /// The memory type of the register, if the program knows more of it than the queue. Default:
    /// [`UarMapping::WRITE_COMBINING`], or what is known of it by the kind of its
    /// [`Uar`](crate::devx::Uar).
    pub memory: UarMapping,
}

impl Default for SendConfig {
    fn default() -> Self {
        Self {
            register: RegisterUse::Own,
            requests: u32::MAX,
            copy: BlueFlameCopy::Words,
            copy_last: false,
            memory: UarMapping::WRITE_COMBINING,
        }
    }
}
