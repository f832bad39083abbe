//! What UMR requests have in common: a memory key's context is changed, field by field.
//!
//! After the ctrl segment, which names the key, come a UMR control segment (which fields change), a
//! key context with their values, and, where the key is to lead elsewhere, where to.

use mlx5_sys::wqe::{
    ACCESS_ATOMIC, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, Klm,
    MKEY_MASK_ATOMIC, MKEY_MASK_LOCAL_WRITE, MKEY_MASK_REMOTE_READ, MKEY_MASK_REMOTE_WRITE,
    MkeySeg, UmrCtrlSeg,
};

use super::{Segment, Segments, Sge};
use crate::verbs::Access;

/// 16-byte units of the UMR control segment and the key context.
pub(super) const HEAD_DS: u32 = 7;

/// Stands for "any queue pair", in bits 31–8 of [`MkeySeg::qpn_mkey`].
pub(super) const ANY_QP: u32 = 0xffff_ff00;

/// The rights' bits in a mask.
pub(super) const MASK_ACCESS: u64 =
    MKEY_MASK_LOCAL_WRITE | MKEY_MASK_REMOTE_READ | MKEY_MASK_REMOTE_WRITE | MKEY_MASK_ATOMIC;

/// Which fields change, and to what. What is not in the mask is zero, and the card does not look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// `UMR_*`
    pub(super) flags: u8,
    /// Units of the list that follows.
    pub(super) octowords: u16,
    /// Units of the BSF that follows the list.
    pub(super) bsf_octowords: u16,
    /// `MKEY_MASK_*`
    pub(super) mask: u64,
    /// [`mlx5_sys::wqe::MKEY_FREE`] or 0.
    pub(super) free: u8,
    /// `ACCESS_*`
    pub(super) access: u8,
    /// Queue pair, and the key's low byte.
    pub(super) qpn_mkey: u32,
    /// [`MkeySeg::flags_pd`].
    pub(super) flags_pd: u32,
    pub(super) start: u64,
    pub(super) length: u64,
}

impl Change {
    /// Writes the UMR control segment and the key context.
    ///
    /// # Safety
    /// There is space for [`HEAD_DS`] segments.
    #[inline(always)]
    pub(super) unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let control: [Segment; 3] = zerocopy::transmute!(UmrCtrlSeg {
            flags: self.flags,
            rsvd0: [0; 3],
            klm_octowords: self.octowords.into(),
            offset_or_bsf_octowords: self.bsf_octowords.into(),
            mkey_mask: self.mask.into(),
            rsvd1: [0; 32],
        });
        let key: [Segment; 4] = zerocopy::transmute!(MkeySeg {
            free: self.free,
            reserved1: 0,
            access_flags: self.access,
            sf: 0,
            qpn_mkey: self.qpn_mkey.into(),
            reserved2: 0.into(),
            flags_pd: self.flags_pd.into(),
            start_addr: self.start.into(),
            len: self.length.into(),
            bsf_octword_size: 0.into(),
            reserved3: [0; 16],
            translations_octword_size: 0.into(),
            reserved4: [0; 3],
            log_page_size: 0,
            reserved: 0.into(),
        });
        for segment in control {
            // SAFETY: one of those that the caller has space for.
            unsafe { writer.put(segment) }
        }
        for segment in key {
            // SAFETY: as above.
            unsafe { writer.put(segment) }
        }
    }
}

/// `access_flags` of a key context.
#[inline(always)]
pub(super) const fn access_flags(access: Access) -> u8 {
    const fn bit(access: Access, right: Access, flag: u8) -> u8 {
        if access.contains(right) { flag } else { 0 }
    }
    bit(access, Access::LOCAL_WRITE, ACCESS_LOCAL_WRITE)
        | bit(access, Access::REMOTE_READ, ACCESS_REMOTE_READ)
        | bit(access, Access::REMOTE_WRITE, ACCESS_REMOTE_WRITE)
        | bit(access, Access::REMOTE_ATOMIC, ACCESS_ATOMIC)
}

/// An entry of the list that a key leads to.
#[inline(always)]
pub(super) fn klm_segment(entry: &Sge) -> Segment {
    zerocopy::transmute!(Klm {
        byte_count: entry.length.into(),
        mkey: entry.lkey.into(),
        address: entry.addr.into(),
    })
}
