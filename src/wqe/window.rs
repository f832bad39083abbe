//! Memory windows, and the invalidation of keys.

use mlx5_sys::wqe::{
    MKEY_FREE, MKEY_MASK_FREE, MKEY_MASK_LEN, MKEY_MASK_MKEY, MKEY_MASK_QPN, MKEY_MASK_START_ADDR,
    UMR_CHECK_FREE, UMR_CHECK_QPN, UMR_INLINE, UMR_TRANSLATION_OFFSET, opcode,
};

use super::encode::{encode, setters};
use super::payload::MAX_SGE_LENGTH;
use super::umr::{ANY_QP, Change, HEAD_DS, MASK_ACCESS, access_flags, klm_segment};
use super::{Encode, Limits, Operation, Payload, PostOn, Segments, Sge};
use crate::ib::{Access, Rc, Uc};
use crate::wqe::PostError;

/// Units of a list of one entry, which is filled up to 64 bytes.
const LIST_DS: u32 = 4;

/// SEND with invalidate: the peer's oldest receive takes the payload, and one of the peer's keys is
/// invalidated. The peer's completion carries the key.
///
/// ```
/// # let rig::Link { pd, qp, mut reader, mut sends, mut receives, memory, sge, .. } = rig::link()?;
/// # use mlx5::{cqe::Completion, ib::Access, verbs::{MemoryWindow, Type2}};
/// # let mut window = MemoryWindow::<Type2>::new(&pd)?;
/// # let grant = window.bind(qp.number(), 1, &memory, 64, 64, Access::REMOTE_WRITE)?;
/// # // SAFETY: no reference covers the memory.
/// # let rkey = unsafe { sends.bind(1, &mut window, grant.signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// use mlx5::cqe::ReceiveKind;
/// use mlx5::wqe::{Inline, SendInvalidate};
///
/// // The peer has granted the key `rkey`. This gives it back: it opens nothing any more.
/// // SAFETY: the payload is copied into the WQE. The receive's memory stays registered.
/// unsafe {
///     receives.post(1, sge)?; // the peer's side
///     sends.post(2, SendInvalidate::new(Inline(b"done"), rkey))?;
/// }
/// # let completion = rig::poll(&mut reader, &mut (&mut sends, &mut receives))?;
/// let Completion::Receive(done) = completion else { return Err("a send".into()) };
/// assert_eq!(done.kind, ReceiveKind::SendInvalidate(rkey));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("IBV_WR_SEND_WITH_INV", "ibv_wr_send_inv", "MLX5_OPCODE_SEND_INVAL"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SendInvalidate<P> {
    payload: P,
    rkey: u32,
    flags: u8,
}

impl<P: Payload> SendInvalidate<P> {
    /// Sends `payload` and invalidates the peer's `rkey`: a window of type 2, or a key that was
    /// made for it, of the domain of the peer's queue pair or, on XRC, of the shared receive queue
    /// that the request names.
    pub const fn new(payload: P, rkey: u32) -> Self {
        Self { payload, rkey, flags: 0 }
    }

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] SendInvalidate<P>, SEND_INVAL, payload payload, imm rkey);

/// Binds a memory window to a piece of memory, or to none. By the window's key, the peer may then
/// access the memory as the window allows.
///
/// Created by [`MemoryWindow::bind`](crate::verbs::MemoryWindow::bind), which knows the rules, or
/// here from plain numbers. The request after it waits for it (the small fence), unless several
/// threads share the queue. Then the thread that uses the key must set
/// [`fenced`](crate::wqe::SendMessage::fenced).
///
/// The window grants its access until it is bound again, invalidated or freed, not only until the
/// request completes. For all that time, no reference to the memory may exist that a peer's access
/// would contradict.
///
/// ```
/// use mlx5::ib::Access;
/// use mlx5::wqe::{BindWindow, Sge};
///
/// // For a window of this crate, `MemoryWindow::bind` makes it. This key is from elsewhere.
/// let bytes = Sge::new(0x1000, 512, 1);
/// let grant = BindWindow::type_1(0x100, bytes, Access::REMOTE_READ).signaled();
/// ```
#[doc(alias("IBV_WR_BIND_MW", "ibv_wr_bind_mw", "MLX5_OPCODE_UMR"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct BindWindow {
    before: u32,
    rkey: u32,
    /// In bits 31–8 as in the key context, for type 2.
    qp: Option<u32>,
    memory: Sge,
    start: u64,
    access: u8,
    flags: u8,
}

impl BindWindow {
    /// Binds a window of type 1, whose key is `rkey` so far, to `memory` of a region. The bind
    /// changes its key, see [`rkey`](Self::rkey). With no memory (length 0), it is bound to
    /// nothing.
    #[inline]
    pub const fn type_1(rkey: u32, memory: Sge, access: Access) -> Self {
        let next = rkey & !0xff | rkey.wrapping_add(1) & 0xff;
        Self::new(rkey, next, None, memory, access)
    }

    /// Binds a window of type 2, whose key is `rkey` so far, to `memory` of a region. Its key then
    /// has the low byte `tag`, and works on the queue pair number `qpn` only, which must be the one
    /// that this is posted on. The window must not be bound: one is bound anew after it was
    /// invalidated.
    ///
    /// Requests of peers never arrive at the requesting end of an extended reliable connection, nor
    /// at an initiator of dynamic connections: a window that is bound for one of these lets no peer
    /// in. Posted there, windows of [type 1](Self::type_1) do.
    #[inline]
    pub const fn type_2(rkey: u32, tag: u8, qpn: u32, memory: Sge, access: Access) -> Self {
        Self::new(rkey, rkey & !0xff | tag as u32, Some(qpn << 8), memory, access)
    }

    #[inline]
    const fn new(before: u32, rkey: u32, qp: Option<u32>, memory: Sge, access: Access) -> Self {
        let start = memory.addr;
        Self { before, rkey, qp, memory, start, access: access_flags(access), flags: 0 }
    }

    /// Makes addresses behind the window start at 0, not at the memory's own.
    #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
    #[inline]
    pub const fn zero_based(mut self) -> Self {
        self.start = 0;
        self
    }

    /// Returns the window's key after the bind.
    #[inline]
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    setters!(signaled);
}

impl Operation for BindWindow {
    const OPCODE: u8 = opcode::UMR;
}

impl Encode for BindWindow {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        HEAD_DS + if self.memory.length == 0 { 0 } else { LIST_DS }
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        match self.memory.length {
            0..=MAX_SGE_LENGTH => Ok(()),
            bytes => Err(PostError::SgeTooLong { bytes }),
        }
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    fn immediate(&self) -> u32 {
        self.before
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let qp_changes = if self.qp.is_some() { MKEY_MASK_QPN } else { 0 };
        let mut change = Change {
            flags: UMR_TRANSLATION_OFFSET | UMR_INLINE,
            mask: MKEY_MASK_FREE | MKEY_MASK_MKEY | qp_changes,
            qpn_mkey: ANY_QP | self.rkey & 0xff,
            ..Change::default()
        };
        if self.memory.length == 0 {
            if self.qp.is_some() {
                change.flags |= UMR_CHECK_QPN;
            }
            change.free = MKEY_FREE;
            // SAFETY: `body_ds` counts these.
            unsafe { change.put(writer) };
            return;
        }
        if let Some(qp) = self.qp {
            change.flags |= UMR_CHECK_FREE;
            change.qpn_mkey = qp | self.rkey & 0xff;
        }
        change.octowords = LIST_DS as u16;
        change.mask |= MKEY_MASK_LEN | MKEY_MASK_START_ADDR | MASK_ACCESS;
        change.access = self.access;
        change.start = self.start;
        change.length = self.memory.length.into();
        // SAFETY: `body_ds` counts all of these.
        unsafe {
            change.put(writer);
            writer.put(klm_segment(&self.memory));
            for _ in 1..LIST_DS {
                writer.put([0; 2]);
            }
        }
    }
}

/// Local invalidate: invalidates one of this side's keys, for peers and for this side.
///
/// A window of type 2 can then be bound anew, a key with a layout
/// ([`ConfigureKey`](super::ConfigureKey)) be given another. The key's low byte is 0 afterwards.
///
/// ```
/// # let rig::Link { pd, mut reader, mut sends, memory, sge, .. } = rig::link()?;
/// use mlx5::verbs::Mkey;
///
/// let key = Mkey::new(&pd, 4)?;
/// // SAFETY: the memory stays registered, and nothing uses it while the key leads to it.
/// unsafe { sends.post(1, key.configure().layout([sge]))? };
/// // The key opens nothing from here on, and can be configured again.
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(2, key.invalidate().signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("IBV_WR_LOCAL_INV", "ibv_wr_local_inv", "MLX5_OPCODE_UMR"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct LocalInvalidate {
    rkey: u32,
    flags: u8,
}

impl LocalInvalidate {
    /// Invalidates the key `rkey`: one that is bound to this queue pair, or to none.
    pub const fn new(rkey: u32) -> Self {
        Self { rkey, flags: 0 }
    }

    setters!(signaled);
}

impl Operation for LocalInvalidate {
    const OPCODE: u8 = opcode::UMR;
}

impl Encode for LocalInvalidate {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        HEAD_DS
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    fn immediate(&self) -> u32 {
        self.rkey
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let change = Change {
            flags: UMR_TRANSLATION_OFFSET | UMR_INLINE | UMR_CHECK_QPN,
            mask: MKEY_MASK_FREE | MKEY_MASK_MKEY | MKEY_MASK_QPN,
            qpn_mkey: ANY_QP,
            free: MKEY_FREE,
            ..Change::default()
        };
        // SAFETY: `body_ds` counts these.
        unsafe { change.put(writer) }
    }
}

impl<P: Payload> PostOn<Rc> for SendInvalidate<P> {}
impl PostOn<Rc> for BindWindow {}
impl PostOn<Rc> for LocalInvalidate {}

impl PostOn<Uc> for BindWindow {}
impl PostOn<Uc> for LocalInvalidate {}
