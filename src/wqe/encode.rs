//! Encoding of operations as WQEs, and macros that implement it for a type from its parts.
//!
//! The macros name everything by its whole path: a file beside this one imports `setters` and
//! `encode`, and nothing else for their sake.

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::{RaddrSeg, SEGMENT_SIZE, WQEBB_SIZE};

use super::PostError;
use super::{Block, Limits, Remote, Segment, Segments};

/// 16-byte units of a block.
const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;

/// 16-byte units of a BlueFlame buffer.
const MOST: u32 = (BF_BUFFER_SIZE / SEGMENT_SIZE) as u32;

mod sealed {
    use super::{Block, Limits, MOST, PostError, Segments, UNITS};

    /// How an operation is encoded as a WQE. Sealed: the queue trusts that `put` writes `body_ds`
    /// units.
    pub trait Encode {
        /// Size of the WQE in its usual form, in 16-byte units; 0 if no form is usual. Known to the
        /// compiler, so that a WQE with it needs no arithmetic.
        const KNOWN_DS: u32 = 0;
        /// [`KNOWN_DS`](Self::KNOWN_DS), if that is one 64-byte block; or else 0.
        const USUAL_DS: u32 = if Self::KNOWN_DS <= UNITS { Self::KNOWN_DS } else { 0 };
        /// [`KNOWN_DS`](Self::KNOWN_DS), if that is more than one 64-byte block, and no more than a
        /// BlueFlame buffer takes; or else 0.
        const LONG_DS: u32 =
            if UNITS < Self::KNOWN_DS && Self::KNOWN_DS <= MOST { Self::KNOWN_DS } else { 0 };
        /// Number of blocks of such a WQE.
        const LONG_BLOCKS: u32 = Self::LONG_DS.div_ceil(UNITS);
        /// Whether a WQE in another form than its usual one may be longer than that.
        const GROWS: bool = false;
        /// Returns whether [`check`](Self::check) would pass and the WQE has
        /// [`KNOWN_DS`](Self::KNOWN_DS) units, on a queue that takes at least one entry.
        #[inline(always)]
        fn is_usual(&self, _limits: &Limits) -> bool {
            false
        }
        /// Size of the WQE without its ctrl segment, in 16-byte units.
        fn body_ds(&self) -> u32;
        /// Checks the operation against the queue's limits.
        fn check(&self, limits: &Limits) -> Result<(), PostError>;
        /// `fm_ce_se` of the ctrl segment.
        fn flags(&self) -> u8;
        /// `imm` of the ctrl segment.
        #[inline(always)]
        fn immediate(&self) -> u32 {
            0
        }
        /// Writes the segments after the ctrl segment.
        ///
        /// # Safety
        /// There is space for [`body_ds`](Self::body_ds) segments, and [`check`](Self::check)
        /// passed.
        unsafe fn put<W: Segments>(&self, writer: &mut W);
        /// Writes the segments after the ctrl segment of a [usual](Self::is_usual) request, without
        /// further checks.
        ///
        /// # Safety
        /// There is space for [`body_ds`](Self::body_ds) segments, and [`is_usual`](Self::is_usual)
        /// returned true.
        #[inline(always)]
        unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
            // SAFETY: there is space. `is_usual` returned true, so `check` would pass.
            unsafe { self.put(writer) }
        }
        /// Writes the segments after the ctrl segment to a block, and keeps the words before a
        /// payload.
        ///
        /// # Safety
        /// There is space for [`body_ds`](Self::body_ds) segments in the block, and
        /// [`check`](Self::check) passed.
        #[inline(always)]
        unsafe fn put_short(&self, writer: &mut Block) {
            // SAFETY: there is space, and `check` passed.
            unsafe { self.put(writer) }
        }
    }
}
pub(crate) use sealed::Encode;

/// A request for a send queue: one of this module's types.
///
/// ```
/// use mlx5::wqe::{Inline, Operation, SendMessage};
///
/// /// The opcode by which a completion or a log names the operation.
/// fn opcode<O: Operation>(_: &O) -> u8 {
///     O::OPCODE
/// }
/// assert_eq!(opcode(&SendMessage::new(Inline(b"hello"))), 0x0a); // MLX5_OPCODE_SEND
/// ```
#[doc(alias("ibv_send_wr", "ibv_wr_opcode"))]
pub trait Operation: Encode {
    /// Opcode in the ctrl segment (`mlx5dv.h`, `MLX5_OPCODE_*`).
    const OPCODE: u8;

    /// Returns the ctrl segment's description of the operation.
    #[doc(hidden)]
    #[inline(always)]
    fn code(&self) -> Code {
        Code::new(Self::OPCODE)
    }
}

/// A ctrl segment's description of an operation, without flags and immediate.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Code {
    pub(crate) opcode: u8,
    /// Opcode modifier.
    pub(crate) modifier: u8,
    /// Bytes 8 to 10 of the ctrl segment: signature and stream.
    pub(crate) stream: u32,
}

impl Code {
    #[inline(always)]
    pub(crate) const fn new(opcode: u8) -> Self {
        Self { opcode, modifier: 0, stream: 0 }
    }

    #[inline(always)]
    pub(crate) const fn modified(opcode: u8, modifier: u8) -> Self {
        Self { opcode, modifier, stream: 0 }
    }
}

/// The setters of a type's `flags`: those of every request, or of one that reaches a receive.
macro_rules! setters {
    (signaled) => {
        /// Asks for a completion. An unsignaled request is retired by the completion of a later
        /// one; only its failure is reported. Default: unsignaled.
        #[doc(alias = "IBV_SEND_SIGNALED")]
        pub const fn signaled(mut self) -> Self {
            self.flags |= ::mlx5_sys::wqe::CE_ALWAYS;
            self
        }

        /// Asks for a completion if `yes`, as [`signaled`](Self::signaled).
        pub const fn signaled_if(mut self, yes: bool) -> Self {
            if yes {
                self.flags |= ::mlx5_sys::wqe::CE_ALWAYS;
            }
            self
        }

        /// Starts only when the READs and atomics before it are done.
        #[doc(alias = "IBV_SEND_FENCE")]
        pub const fn fenced(mut self) -> Self {
            self.flags |= ::mlx5_sys::wqe::FENCE_SMALL_AND_FENCE;
            self
        }
    };
    (solicited) => {
        /// Raises an event at the peer, if its CQ is armed for solicited completions.
        #[doc(alias = "IBV_SEND_SOLICITED")]
        pub const fn solicited(mut self) -> Self {
            self.flags |= ::mlx5_sys::wqe::SOLICITED;
            self
        }
    };
}

/// [`Operation`] and [`Encode`] of a type, from the names of its parts.
macro_rules! encode {
    (
        [$($generics:tt)*] $type:ty, $code:ident
        $(, remote $remote:ident)? $(, payload $payload:ident)? $(, imm $imm:ident)?
    ) => {
        impl<$($generics)*> $crate::wqe::Operation for $type {
            const OPCODE: u8 = ::mlx5_sys::wqe::opcode::$code;
        }

        impl<$($generics)*> $crate::wqe::Encode for $type {
            // The type of every payload is called `P`.
            const KNOWN_DS: u32 = $crate::wqe::encode::known_ds(
                1 $(+ $crate::wqe::encode::one_for(stringify!($remote)))?,
                0 $(+ P::USUAL_DS * $crate::wqe::encode::one_for(stringify!($payload)))?
            );

            #[inline(always)]
            fn is_usual(&self, _limits: &$crate::wqe::Limits) -> bool {
                true $(&& self.$payload.is_usual(_limits))?
            }

            #[inline(always)]
            fn body_ds(&self) -> u32 {
                0 $(+ $crate::wqe::encode::segments_of(self.$remote))? $(+ self.$payload.ds())?
            }

            #[inline(always)]
            fn check(&self, _limits: &$crate::wqe::Limits) -> Result<(), $crate::wqe::PostError> {
                $(self.$payload.check(_limits)?;)?
                Ok(())
            }

            #[inline(always)]
            fn flags(&self) -> u8 {
                self.flags
            }

            #[inline(always)]
            fn immediate(&self) -> u32 {
                0 $(| self.$imm)?
            }

            #[inline(always)]
            unsafe fn put<W: $crate::wqe::Segments>(&self, _writer: &mut W) {
                $(
                    // SAFETY: `body_ds` counts this segment.
                    unsafe { _writer.put($crate::wqe::encode::raddr_segment(self.$remote)) };
                )?
                $(
                    // SAFETY: `body_ds` counts these segments; `check` passed.
                    unsafe { self.$payload.put(_writer) };
                )?
            }

            #[inline(always)]
            unsafe fn put_usual<W: $crate::wqe::Segments>(&self, _writer: &mut W) {
                $(
                    // SAFETY: `body_ds` counts this segment.
                    unsafe { _writer.put($crate::wqe::encode::raddr_segment(self.$remote)) };
                )?
                $(
                    // SAFETY: `body_ds` counts these segments; the payload is a usual one.
                    unsafe { self.$payload.put_usual(_writer) };
                )?
            }

            #[inline(always)]
            unsafe fn put_short(&self, _writer: &mut $crate::wqe::Block) {
                $(
                    // SAFETY: `body_ds` counts this segment.
                    unsafe { _writer.put($crate::wqe::encode::raddr_segment(self.$remote)) };
                )?
                let _most = ::mlx5_sys::wqe::WQEBB_SIZE / ::mlx5_sys::wqe::SEGMENT_SIZE
                    - 1
                    $(- $crate::wqe::encode::one_for(stringify!($remote)) as usize)?;
                $(
                    // SAFETY: `body_ds` counts these segments, `check` passed; the rest of the
                    // block is no less than they take.
                    unsafe { self.$payload.put_short(_writer.rest(), _most) };
                )?
            }
        }
    };
}

pub(super) use {encode, setters};

/// 1, for a part that is there.
pub(in crate::wqe) const fn one_for(_part: &str) -> u32 {
    1
}

/// Size of a WQE with so many units before a payload of `payload` units, if that has a usual form.
pub(in crate::wqe) const fn known_ds(before: u32, payload: u32) -> u32 {
    if payload != 0 { before + payload } else { 0 }
}

/// Segments that a remote address takes.
#[inline(always)]
pub(in crate::wqe) const fn segments_of(_: Remote) -> u32 {
    1
}

#[inline(always)]
pub(in crate::wqe) fn raddr_segment(remote: Remote) -> Segment {
    zerocopy::transmute!(RaddrSeg {
        raddr: remote.addr.into(),
        rkey: remote.rkey.into(),
        reserved: 0.into()
    })
}
