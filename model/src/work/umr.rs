//! UMR: a send queue changes memory keys, which is how memory windows are bound and invalidated.
//!
//! The WQE has a control segment that says which fields of the key's context change, those fields
//! in the context's own layout, and a list of the keys that it leads to. The list is in the WQE
//! itself or behind a pointer (PRM, "UMR WQE"; `mlx5dv.h`, `mlx5_wqe_umr_ctrl_seg`,
//! `mlx5_wqe_mkey_context_seg`).

use mlx5_sys::ifc::{Field, mkc};

use super::{Klm, Syndrome};

/// Bytes of the control segment and of the context.
pub(crate) const CONTROL: usize = 48;
pub(crate) const CONTEXT: usize = 64;

/// Flags of the control segment (`MLX5_WQE_UMR_CTRL_FLAG_*`).
pub(crate) mod flag {
    pub const CHECK_QPN: u8 = 1 << 3;
    pub const TRANSLATION_OFFSET: u8 = 1 << 4;
    pub const CHECK_FREE: u8 = 1 << 5;
    /// Linux names it by what fails: a key that is free (`device.h`, `MLX5_UMR_CHECK_FREE`).
    pub const CHECK_USED: u8 = 1 << 6;
    pub const INLINE: u8 = 1 << 7;
    pub const KNOWN: u8 = CHECK_QPN | TRANSLATION_OFFSET | CHECK_FREE | CHECK_USED | INLINE;
}

/// Fields by their bits in the mask (`MLX5_WQE_UMR_CTRL_MKEY_MASK_*`; those of the driver alone:
/// `device.h` of Linux, `MLX5_MKEY_MASK_*`).
pub(crate) const FIELDS: [(u32, Field); 12] = [
    (0, mkc::LEN),
    (1, mkc::LOG_PAGE_SIZE),
    (6, mkc::START_ADDR),
    (7, mkc::PD),
    (13, mkc::MKEY_7_0),
    (14, mkc::QPN),
    (17, mkc::LR),
    (18, mkc::LW),
    (19, mkc::RR),
    (20, mkc::RW),
    (21, mkc::A),
    (29, mkc::FREE),
];

/// Bits of the fields that only the driver's queue may change: the size of pages, the domain, and the right
/// of local reads.
pub(crate) const OF_DRIVER: u64 = 1 << 1 | 1 << 7 | 1 << 17;

/// Bits of the fields that say which bytes of its pages a key has: length, size of pages, start address.
pub(crate) const GEOMETRY: u64 = 1 | 1 << 1 | 1 << 6;

/// Entries of page lists come in units of so many octwords (Linux, `umr.h`, `MLX5_UMR_FLEX_ALIGNMENT`).
pub(crate) const UNIT: usize = 4;

/// The list of keys or pages that a key leads to. An octword is one key, or two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Inside the WQE.
    Inline(Vec<Klm>),
    /// So many, behind a local key.
    Pointer {
        /// Entries of 16 bytes.
        count: usize,
        /// Local key.
        key: u32,
        /// Virtual address.
        address: u64,
    },
}

/// A change of a key that a UMR requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Umr {
    /// The key to change, as it is before.
    pub key: u32,
    /// Whether it must be free.
    pub check_free: bool,
    /// Whether it must be in use.
    pub check_used: bool,
    /// Whether it must be in use, and be bound to no other queue pair.
    pub check_qp: bool,
    /// Which fields change.
    pub mask: u64,
    /// The fields, where the context has them.
    pub context: [u8; CONTEXT],
    /// First entry that changes.
    pub offset: usize,
    /// The new entries from `offset` on, if they change.
    pub entries: Option<Entries>,
}

/// Decodes what follows the control segment that all WQEs have.
pub(crate) fn decode(key: u32, bytes: &[u8]) -> Result<Umr, Syndrome> {
    const MALFORMED: Syndrome = Syndrome::LocalQpOperation;
    let (control, rest) = bytes.split_first_chunk::<CONTROL>().ok_or(MALFORMED)?;
    let (context, rest) = rest.split_first_chunk::<CONTEXT>().ok_or(MALFORMED)?;
    let half = |at: usize| usize::from(u16::from_be_bytes([control[at], control[at + 1]]));
    let flags = control[0];
    let mut mask = [0; 8];
    mask.copy_from_slice(&control[8..16]);
    let mask = u64::from_be_bytes(mask);
    let known = FIELDS.iter().fold(0, |known, (bit, _)| known | 1 << bit);
    let (count, other) = (half(4), half(6));
    // Without the flag, the other half counts the octwords of a BSF, of which there is none.
    let offset = if flags & flag::TRANSLATION_OFFSET != 0 { other } else { 0 };
    if flags & !flag::KNOWN != 0
        || mask & !known != 0
        || (flags & flag::TRANSLATION_OFFSET == 0 && other != 0)
    {
        return Err(MALFORMED);
    }
    let entries = match (count, flags & flag::INLINE != 0) {
        (0, _) if rest.is_empty() => None,
        // Filled up to a multiple of 64 bytes.
        (1.., true) if rest.len() == (count * 16).next_multiple_of(64) => {
            Some(Entries::Inline(Klm::list(&rest[..count * 16])))
        }
        (1.., false) if rest.len() == 16 => {
            let pointer = Klm::list(rest).first().copied().unwrap_or_default();
            if (pointer.length as usize) < count * 16 {
                return Err(Syndrome::LocalLength);
            }
            Some(Entries::Pointer { count, key: pointer.key, address: pointer.address })
        }
        _ => return Err(MALFORMED),
    };
    Ok(Umr {
        key,
        check_free: flags & flag::CHECK_FREE != 0,
        check_used: flags & flag::CHECK_USED != 0,
        check_qp: flags & flag::CHECK_QPN != 0,
        mask,
        context: *context,
        offset,
        entries,
    })
}

#[cfg(test)]
mod tests;
