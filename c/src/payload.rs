//! Payloads of requests: entries, or bytes that are copied into the WQE.

use core::mem::MaybeUninit;
use core::ptr::with_exposed_provenance;
use core::slice;

use mlx5::ring::{Excess, PostError};
use mlx5::wqe::{Inline, Payload, Sge};

use crate::error::{Failed, Result};
use crate::request::{INLINE, Request, entries};

/// A closure that is generic over the payload.
pub(crate) trait PutPayload {
    /// Writes a request with this payload.
    fn payload<P: Payload>(self, payload: P) -> Result;
}

/// More than any WQE has inline.
const GATHERED: usize = 1024;

/// # Safety
/// The entry's memory is readable.
#[inline(always)]
pub(crate) unsafe fn inline_bytes<'a>(entry: &Sge) -> Result<&'a [u8]> {
    if entry.length == 0 {
        return Ok(&[]);
    }
    if entry.addr == 0 {
        return Err(Failed::argument("an entry of an inline request has the address null"));
    }
    let bytes = with_exposed_provenance::<u8>(entry.addr as usize);
    // SAFETY: readable by this function's contract, and a byte is always aligned.
    Ok(unsafe { slice::from_raw_parts(bytes, entry.length as usize) })
}

/// Copies inline bytes of several entries one behind the other.
///
/// # Safety
/// The entries' memory is readable.
unsafe fn gather<'a>(list: &[Sge], into: &'a mut [MaybeUninit<u8>; GATHERED]) -> Result<&'a [u8]> {
    let mut end = 0usize;
    for entry in list {
        // SAFETY: this function's contract.
        let bytes = unsafe { inline_bytes(entry)? };
        let Some(place) = into.get_mut(end..end.saturating_add(bytes.len())) else {
            let excess = Excess::new(end.saturating_add(bytes.len()), GATHERED as u32);
            return Err(PostError::InlineTooLong(excess).into());
        };
        // SAFETY: as many bytes as the place has. Initialized bytes are such that may be none.
        let bytes: &[MaybeUninit<u8>] =
            unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) };
        place.copy_from_slice(bytes);
        end += bytes.len();
    }
    // SAFETY: the loop has written the first `end` bytes.
    Ok(unsafe { slice::from_raw_parts(into.as_ptr().cast(), end) })
}

impl Request {
    /// Calls `put` with the payload, in the form that posts with the least work.
    ///
    /// # Safety
    /// The list is readable, and with [`INLINE`] what it names.
    #[inline(always)]
    pub(crate) unsafe fn with_payload(&self, put: impl PutPayload) -> Result {
        // SAFETY: the caller's contract for the list.
        let list = unsafe { entries(self.sg_list, self.num_sge)? };
        match list {
            [one] if self.flags & INLINE == 0 => put.payload(*one),
            [one] => {
                // SAFETY: the caller's contract for inline bytes.
                put.payload(Inline(unsafe { inline_bytes(one)? }))
            }
            _ if self.flags & INLINE == 0 => put.payload(list),
            _ => {
                let mut gathered = [MaybeUninit::uninit(); GATHERED];
                // SAFETY: the caller's contract for inline bytes.
                put.payload(Inline(unsafe { gather(list, &mut gathered)? }))
            }
        }
    }
}
