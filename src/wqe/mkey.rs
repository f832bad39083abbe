//! Indirect memory keys: their layout, and their rights.

use core::fmt;

use mlx5_sys::wqe::{
    MAX_DS, MKEY_FREE, MKEY_MASK_FREE, MKEY_MASK_LEN, MKEY_MASK_MKEY, REPEAT_BLOCK_OP, RepeatBlock,
    RepeatEntry, UMR_INLINE, opcode,
};

use super::encode::setters;
use super::payload::MAX_SGE_LENGTH;
use super::umr::{ANY_QP, Change, HEAD_DS, MASK_ACCESS, access_flags, klm_segment};
use super::{Encode, Limits, Operation, PostOn, Segment, Segments, Sge, data_segment};
use crate::ib::{Access, Rc};

/// A key's list has a multiple of four entries.
const GROUP: usize = 4;

mod sealed {
    use super::{Change, PostError, Segments};

    /// The layout of a key. Sealed: the queue trusts that `put` writes `ds` units.
    pub trait Encode {
        /// Whether the list is in the WQE.
        const INLINE: bool = true;
        /// Size of the key's list in 16-byte units, a multiple of 4; 0 if it stays as it is.
        fn octowords(&self) -> u32;
        /// Size in the WQE in 16-byte units.
        #[inline(always)]
        fn ds(&self) -> u32 {
            self.octowords()
        }
        /// Number of bytes behind the key; `None` if it does not change.
        fn length(&self) -> Option<u64>;
        /// Adds the fields of the key's context that this layout changes beside list and length.
        #[inline(always)]
        fn amend(&self, _: &mut Change) {}
        /// Checks that the layout can be encoded.
        fn check(&self) -> Result<(), PostError>;
        /// Writes the segments.
        ///
        /// # Safety
        /// There is space for [`ds`](Self::ds) segments, and [`check`](Self::check) passed.
        unsafe fn put<W: Segments>(&self, writer: &mut W);
    }
}
use crate::wqe::PostError;
pub(super) use sealed::Encode as EncodeLayout;

/// The layout of a key.
///
/// - `[Sge; N]`, `&[Sge; N]` or `&[Sge]`: one piece after the other.
/// - [`Interleaved`]: interleaved pieces.
/// - [`ListAt`]: a list by pointer.
/// - `()`: does not change the key's layout.
///
/// ```
/// use mlx5::wqe::{ConfigureKey, KeyLayout, Sge};
///
/// /// The request that makes `key` lead to what the layout says.
/// fn lead<L: KeyLayout>(key: ConfigureKey, layout: L) -> ConfigureKey<L> {
///     key.layout(layout).signaled()
/// }
/// let one = lead(ConfigureKey::new(0x100), [Sge::new(0x1000, 64, 1)]);
/// ```
pub trait KeyLayout: EncodeLayout {}

impl KeyLayout for () {}

impl EncodeLayout for () {
    #[inline(always)]
    fn octowords(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn length(&self) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn check(&self) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, _: &mut W) {}
}

/// Returns 16-byte units of `entries`, rounded up to fours. If they exceed any WQE, so does the
/// result.
#[inline(always)]
const fn filled(entries: usize) -> u32 {
    let entries = if entries > MAX_DS { MAX_DS } else { entries };
    entries.next_multiple_of(GROUP) as u32
}

macro_rules! list {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> KeyLayout for $type {}

        impl<$($generics)*> EncodeLayout for $type {
            #[inline(always)]
            fn octowords(&self) -> u32 {
                filled(self.len())
            }

            #[inline(always)]
            fn length(&self) -> Option<u64> {
                Some(self.iter().map(|entry| u64::from(entry.length)).sum())
            }

            #[inline(always)]
            fn check(&self) -> Result<(), PostError> {
                // One comparison for all entries, if no length is near the limit.
                if self.iter().fold(0, |all, entry| all | entry.length) < MAX_SGE_LENGTH {
                    return Ok(());
                }
                match self.iter().find(|entry| entry.length > MAX_SGE_LENGTH) {
                    None => Ok(()),
                    Some(long) => Err(PostError::SgeTooLong { bytes: long.length }),
                }
            }

            #[inline(always)]
            unsafe fn put<W: Segments>(&self, writer: &mut W) {
                // SAFETY: `octowords` counts these, and `check` has bounded it.
                unsafe {
                    for entry in self.iter() {
                        writer.put(klm_segment(entry));
                    }
                    for _ in self.len()..self.len().next_multiple_of(GROUP) {
                        writer.put([0; 2]);
                    }
                }
            }
        }
    };
}

list!([const N: usize] [Sge; N]);
list!(['a] &'a [Sge]);
list!(['a, const N: usize] &'a [Sge; N]);

/// A piece of each cycle of an [`Interleaved`] layout.
///
/// See the example on [`Interleaved`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Strided {
    /// Virtual address of the first cycle's piece.
    pub addr: u64,
    /// Local key of the memory region.
    pub lkey: u32,
    /// Bytes of the piece.
    pub length: u16,
    /// Bytes between the end of one cycle's piece and the start of the next one's.
    pub skip: u16,
}

/// A periodic layout: each cycle takes the bytes of each piece, further on by the piece's stride.
///
/// ```
/// # let rig::Link { pd, mut reader, mut sends, memory, .. } = rig::link()?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::Mkey;
/// use mlx5::wqe::{Interleaved, Strided};
///
/// // A table of rows with 16 bytes. Behind the key are the first 4 bytes of 8 rows: 32 bytes.
/// let key = Mkey::new(&pd, 4)?;
/// let column =
///     [Strided { addr: memory.address(), lkey: memory.lkey(), length: 4, skip: 12 }];
/// let layout = Interleaved { repeat: 8, pieces: &column };
/// let request = key.configure().access(Access::REMOTE_READ).layout(layout);
/// // SAFETY: the memory stays registered, and no code writes it while the key leads to it.
/// unsafe { sends.post(1, request.signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_wr_set_mkey_layout_interleaved", "mlx5dv_wr_mr_interleaved"))]
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<'a> {
    /// Cycles.
    pub repeat: u32,
    /// Pieces of each cycle.
    pub pieces: &'a [Strided],
}

impl Interleaved<'_> {
    fn cycle(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.length)).sum()
    }
}

impl KeyLayout for Interleaved<'_> {}

impl EncodeLayout for Interleaved<'_> {
    #[inline(always)]
    fn octowords(&self) -> u32 {
        filled(self.pieces.len().saturating_add(1))
    }

    #[inline(always)]
    fn length(&self) -> Option<u64> {
        Some(self.cycle().wrapping_mul(self.repeat.into()))
    }

    #[inline(always)]
    fn check(&self) -> Result<(), PostError> {
        let stride = |piece: &Strided| piece.length.checked_add(piece.skip);
        if self.pieces.iter().any(|piece| stride(piece).is_none()) {
            return Err(PostError::StrideTooLong);
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // The count is no more than a WQE holds, so it fits the field; so do lengths of 16 bits.
        let block: Segment = zerocopy::transmute!(RepeatBlock {
            byte_count: (self.cycle() as u32).into(),
            op: REPEAT_BLOCK_OP.into(),
            repeat_count: self.repeat.into(),
            reserved: 0.into(),
            num_ent: (self.pieces.len() as u16).into(),
        });
        // SAFETY: `octowords` counts all of these.
        unsafe {
            writer.put(block);
            for piece in self.pieces {
                writer.put(zerocopy::transmute!(RepeatEntry {
                    stride: piece.length.wrapping_add(piece.skip).into(),
                    byte_count: piece.length.into(),
                    memkey: piece.lkey.into(),
                    va: piece.addr.into(),
                }));
            }
            let used = self.pieces.len() + 1;
            for _ in used..used.next_multiple_of(GROUP) {
                writer.put([0; 2]);
            }
        }
    }
}

/// A list that the HCA fetches from this host's memory: as many [entries](Self::entry) as the key
/// has, in whole fours.
///
/// The HCA reads the memory when it executes the request, so it must not change until the request
/// is complete. libmlx5 does not write requests of this form. Linux (`mlx5_ib`, `umr.c`) and UCX's
/// and DPDK's layouts of the control segment have it with the flag for inline lists clear, and one
/// data segment in the list's place.
///
/// ```
/// use mlx5::wqe::{ListAt, Sge};
///
/// // 4 entries in registered memory at 0x8000, two of which are empty: 64 bytes behind the key.
/// let entries = [ListAt::entry(Sge::new(0x1000, 32, 1)), ListAt::entry(Sge::new(0x3000, 32, 1))];
/// let bytes = [entries.concat(), vec![0; 32]].concat();
/// let layout = ListAt { entries: Sge::new(0x8000, bytes.len() as u32, 2), length: 64 };
/// assert_eq!(layout.entries.length, 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListAt {
    /// Memory of the entries, 16 bytes each. Its length is a multiple of 64, not 0, at most 1 MiB.
    pub entries: Sge,
    /// Number of bytes behind the key: the sum over all entries.
    pub length: u64,
}

impl ListAt {
    const LONGEST: u32 = 1 << 20;

    /// Returns an entry of such a list, for the memory that `piece` names: length, key and address,
    /// big-endian. 16 bytes of zeroes are an empty entry, to fill up a list.
    pub fn entry(piece: Sge) -> [u8; 16] {
        zerocopy::transmute!(klm_segment(&piece))
    }
}

impl KeyLayout for ListAt {}

impl EncodeLayout for ListAt {
    const INLINE: bool = false;

    #[inline(always)]
    fn octowords(&self) -> u32 {
        self.entries.length / 16
    }

    #[inline(always)]
    fn ds(&self) -> u32 {
        1
    }

    #[inline(always)]
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    #[inline(always)]
    fn check(&self) -> Result<(), PostError> {
        let length = self.entries.length;
        // The field counts 16 bits of units.
        if length == 0 || length % 64 != 0 || length >= Self::LONGEST {
            return Err(PostError::ListLength { bytes: length });
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: `ds` counts it.
        unsafe { writer.put(data_segment(&self.entries)) }
    }
}

/// Configures an indirect key ([`verbs::Mkey`](crate::verbs::Mkey)): its layout and its rights.
/// Afterwards the key is in use or, with [`free`](Self::free), not in use.
///
/// Posts the same as `mlx5dv_wr_mkey_configure` with its setters, `mlx5dv_wr_mr_list` and
/// `mlx5dv_wr_mr_interleaved`. The request after it waits for it (the small fence), unless several
/// threads share the queue. Then the thread that uses the key must set
/// [`fenced`](crate::wqe::SendMessage::fenced).
///
/// Addresses behind the key start at 0. So a QP that receives into the key, or reads into it, must
/// not put payload into CQEs: [`ScatterToCqe::Never`](crate::verbs::attr::ScatterToCqe), the default.
/// Entries name regions of the same protection domain, or other such keys, which are looked at when
/// the key is used.
///
/// A key grants its access until it is configured again, invalidated or freed, not only until the
/// request completes. For all that time, no reference to memory behind it may exist that the access
/// would contradict. From the regions it needs only this side's own access. The rights of peers are
/// given by [`access`](Self::access), whatever the regions grant them.
///
/// See the examples on [`Mkey`](crate::verbs::Mkey) and [`Interleaved`].
#[doc(alias("mlx5dv_wr_mkey_configure", "MLX5_OPCODE_UMR"))]
#[derive(Clone, Copy)]
#[must_use]
pub struct ConfigureKey<L = ()> {
    key: u32,
    access: Option<u8>,
    layout: L,
    free: u8,
    flags: u8,
}

impl ConfigureKey {
    /// Puts the key `lkey` in use, with its layout and rights as they were.
    pub const fn new(lkey: u32) -> Self {
        Self { key: lkey, access: None, layout: (), free: 0, flags: 0 }
    }

    /// Takes the key `lkey` out of use. A request that uses it fails until it is configured again.
    /// Layout and rights are kept.
    ///
    /// Linux (`mlx5_ib`, `umr.c`) frees keys this way. libmlx5 posts [`LocalInvalidate`], which
    /// also clears the key's low byte.
    ///
    /// [`LocalInvalidate`]: super::LocalInvalidate
    pub const fn free(lkey: u32) -> Self {
        Self { key: lkey, access: None, layout: (), free: MKEY_FREE, flags: 0 }
    }
}

impl<L: KeyLayout> ConfigureKey<L> {
    /// Sets the rights of the key: `LOCAL_WRITE`, `REMOTE_READ`, `REMOTE_WRITE`, `REMOTE_ATOMIC`.
    /// Other rights are ignored. Reading by this side is always allowed.
    #[doc(alias = "mlx5dv_wr_set_mkey_access_flags")]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = Some(access_flags(access));
        self
    }

    /// Sets the layout of the key.
    #[doc(alias("mlx5dv_wr_set_mkey_layout_list", "mlx5dv_wr_mr_list"))]
    pub fn layout<M: KeyLayout>(self, layout: M) -> ConfigureKey<M> {
        let Self { key, access, layout: _, free, flags } = self;
        ConfigureKey { key, access, layout, free, flags }
    }

    setters!(signaled);
}

impl<L: KeyLayout> Operation for ConfigureKey<L> {
    const OPCODE: u8 = opcode::UMR;
}

impl<L: KeyLayout> Encode for ConfigureKey<L> {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        HEAD_DS + self.layout.ds()
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        if 1 + self.body_ds() > MAX_DS as u32 {
            return Err(PostError::TooManyEntries);
        }
        self.layout.check()
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    fn immediate(&self) -> u32 {
        self.key
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let (length, access) = (self.layout.length(), self.access);
        let mut change = Change {
            flags: if L::INLINE { UMR_INLINE } else { 0 },
            octowords: self.layout.octowords() as u16,
            mask: MKEY_MASK_FREE
                | MKEY_MASK_MKEY
                | if length.is_some() { MKEY_MASK_LEN } else { 0 }
                | if access.is_some() { MASK_ACCESS } else { 0 },
            free: self.free,
            access: access.unwrap_or(0),
            qpn_mkey: ANY_QP | self.key & 0xff,
            length: length.unwrap_or(0),
            ..Change::default()
        };
        self.layout.amend(&mut change);
        // SAFETY: `body_ds` counts all of these; `check` passed.
        unsafe {
            change.put(writer);
            self.layout.put(writer);
        }
    }
}

impl<L> fmt::Debug for ConfigureKey<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigureKey")
            .field("key", &format_args!("{:#x}", self.key))
            .field("access", &self.access)
            .field("free", &(self.free != 0))
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl<L: KeyLayout> PostOn<Rc> for ConfigureKey<L> {}
