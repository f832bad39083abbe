//! Advice on on-demand paging (ODP) regions: prefetch.

use super::super::driver::umem::PAGE;
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::file::CommandFile;
use super::mr::Mr;
use super::pd::Pd;
use crate::private::system;

/// `IB_UVERBS_ADVISE_MR_ADVICE_*`
const PREFETCH: u64 = 0;
const PREFETCH_WRITE: u64 = 1;
const PREFETCH_NO_FAULT: u64 = 2;
/// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`: only back when it is done.
const FLUSH: u64 = 1;
/// Bytes of a scatter/gather entry.
const SGE: usize = 16;

/// `ADVISE_MR`.
pub(crate) fn advise(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let pd = attributes.handle(0)?;
    let advice = attributes.number(1)?;
    let flags = attributes.number(2)?;
    if !(PREFETCH..=PREFETCH_NO_FAULT).contains(&advice) {
        return Err(Errno::EOPNOTSUPP);
    }
    let list = attributes.input(3)?;
    if flags & !FLUSH != 0 || list.is_empty() || list.len() % SGE != 0 {
        return Err(Errno::EINVAL);
    }
    let state = file.state();
    state.get::<Pd>(pd)?;
    let mut ranges = Vec::new();
    for entry in list.chunks_exact(SGE) {
        let half = |at: usize| {
            u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight bytes of sixteen"))
        };
        let (address, length, key) = (half(0), half(8) & 0xffff_ffff, (half(8) >> 32) as u32);
        let region = state.find(|mr: &Mr| mr.on_demand(pd, key)).ok_or(Errno::ENOENT)?;
        if advice == PREFETCH_WRITE && !region.writable {
            return Err(Errno::EPERM);
        }
        let inside = length == 0
            || (region.reach.contains(&address)
                && address
                    .checked_add(length - 1)
                    .is_some_and(|last| region.reach.contains(&last)));
        if inside {
            ranges.push((address, length));
        } else if flags & FLUSH != 0 {
            return Err(Errno::EFAULT);
        }
    }
    drop(state);
    if advice == PREFETCH_NO_FAULT {
        // Present pages need no work.
        return Ok(());
    }
    for (address, length) in ranges {
        // A prefetch in the background cannot report an error.
        let fetched = populate(address, length, advice == PREFETCH_WRITE);
        if flags & FLUSH != 0 {
            fetched?;
        }
    }
    Ok(())
}

/// Makes the kernel bring every page of a range in.
fn populate(address: u64, length: u64, write: bool) -> Result<()> {
    let first = address / PAGE * PAGE;
    let Some(last) = (address + length).checked_next_multiple_of(PAGE) else {
        return Err(Errno::EFAULT);
    };
    if first == last {
        return Ok(());
    }
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no byte of memory, wherever it is; what is not mapped is an error.
    let asked = unsafe { system::madvise(first as *mut _, (last - first) as usize, advice) };
    match (asked, super::super::process::errno::last()) {
        // Kernels before 5.14 do not know the advice: pages then come when they are accessed.
        (0, _) | (_, Errno::EINVAL) => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}
