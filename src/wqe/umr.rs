//! The common part of UMR requests: they change a memory key's context field by field.
//!
//! After the ctrl segment, which names the key, come a UMR control segment (which fields change), a
//! key context with their values, and, if the key's layout changes, the new layout.

use core::mem::offset_of;

use mlx5_sys::wqe::{
    ACCESS_ATOMIC, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, Klm,
    MKEY_MASK_ATOMIC, MKEY_MASK_LOCAL_WRITE, MKEY_MASK_REMOTE_READ, MKEY_MASK_REMOTE_WRITE,
    MkeySeg, UmrCtrlSeg,
};

use super::{Segment, Segments, Sge};
use crate::ib::Access;

/// 16-byte units of the UMR control segment and the key context.
pub(super) const HEAD_DS: u32 = 7;

/// Stands for "any queue pair", in bits 31–8 of [`MkeySeg::qpn_mkey`].
pub(super) const ANY_QP: u32 = 0xffff_ff00;

/// The rights' bits in a mask.
pub(super) const MASK_ACCESS: u64 =
    MKEY_MASK_LOCAL_WRITE | MKEY_MASK_REMOTE_READ | MKEY_MASK_REMOTE_WRITE | MKEY_MASK_ATOMIC;

/// The fields that change, and their values. Fields outside the mask are zero, and the HCA does not
/// read them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
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
        // Word by word, as the structures have it: the compiler would make the structures first.
        const {
            assert!(
                offset_of!(UmrCtrlSeg, flags) == 0 && offset_of!(UmrCtrlSeg, klm_octowords) == 4
            );
            assert!(offset_of!(UmrCtrlSeg, offset_or_bsf_octowords) == 6);
            assert!(offset_of!(UmrCtrlSeg, mkey_mask) == 8 && UmrCtrlSeg::SIZE == 48);
            assert!(offset_of!(MkeySeg, free) == 0 && offset_of!(MkeySeg, access_flags) == 2);
            assert!(offset_of!(MkeySeg, qpn_mkey) == 4 && offset_of!(MkeySeg, flags_pd) == 12);
            assert!(offset_of!(MkeySeg, start_addr) == 16 && offset_of!(MkeySeg, len) == 24);
            assert!(MkeySeg::SIZE == 64);
        }
        let sizes = u64::from(self.octowords) << 16 | u64::from(self.bsf_octowords);
        let first = u64::from(self.flags) << 56 | sizes;
        let rights = u64::from(self.free) << 56 | u64::from(self.access) << 40;
        let key = rights | u64::from(self.qpn_mkey);
        // SAFETY: by the caller's contract, there is space for these segments.
        unsafe {
            writer.put([first.to_be(), self.mask.to_be()]);
            writer.put([0, 0]);
            writer.put([0, 0]);
            writer.put([key.to_be(), u64::from(self.flags_pd).to_be()]);
            writer.put([self.start.to_be(), self.length.to_be()]);
            writer.put([0, 0]);
            writer.put([0, 0]);
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

/// An entry of the list of an indirect key.
#[inline(always)]
pub(super) fn klm_segment(entry: &Sge) -> Segment {
    const {
        assert!(offset_of!(Klm, byte_count) == 0 && offset_of!(Klm, mkey) == 4);
        assert!(offset_of!(Klm, address) == 8);
    }
    let first = u64::from(entry.length) << 32 | u64::from(entry.lkey);
    [first.to_be(), entry.addr.to_be()]
}
