//! Registered memory of each origin: of the host, of the device, and of a dma-buf.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use mlx5::ib::Access;
use mlx5::verbs::{
    DeviceMemory, DeviceRegion, DmaBufRegion, HugePageSize, MemoryRegion, Pages, ProtectionDomain,
};

use super::memory::{Origin, Source};
use crate::bed;
use crate::outcome::{Error, Result};

/// Bytes by which the host accesses memory of the device.
const WORD: usize = 4;

/// A registered region that this side reads and writes.
#[derive(Debug)]
pub enum Region {
    /// Memory of the host.
    Host(MemoryRegion),
    /// Memory of the device.
    Device(DeviceRegion, DeviceMemory),
    /// A dma-buf, and its bytes in this process.
    DmaBuf(DmaBufRegion, Mapping),
}

impl Region {
    /// Allocates and registers so many bytes, all zero.
    ///
    /// # Errors
    /// Returns what cannot be had, and what to choose instead.
    pub fn new(
        pd: &ProtectionDomain,
        origin: Origin,
        length: usize,
        access: Access,
    ) -> Result<Region> {
        match origin.source {
            Source::Host => host(pd, origin, length, access),
            Source::OnDemand => host(pd, origin, length, access | Access::ON_DEMAND),
            Source::Device => device(pd, length, access),
            Source::DmaBuf => dma_buf(pd, length, access),
        }
    }

    /// Returns the address of the first byte, as requests of this side name it.
    pub fn address(&self) -> u64 {
        match self {
            Region::Host(region) => region.address(),
            Region::Device(..) => 0,
            Region::DmaBuf(region, _) => region.address(),
        }
    }

    /// Returns the key for requests of this side.
    pub fn lkey(&self) -> u32 {
        match self {
            Region::Host(region) => region.lkey(),
            Region::Device(region, _) => region.lkey(),
            Region::DmaBuf(region, _) => region.lkey(),
        }
    }

    /// Returns the key for requests of the peer, which name the same addresses.
    pub fn rkey(&self) -> u32 {
        match self {
            Region::Host(region) => region.rkey(),
            Region::Device(region, _) => region.rkey(),
            Region::DmaBuf(region, _) => region.rkey(),
        }
    }

    /// Returns where the bytes are in the host's own memory, if they are.
    pub fn as_host_ptr(&self) -> Option<NonNull<u8>> {
        match self {
            Region::Host(region) => Some(region.as_ptr()),
            Region::Device(..) | Region::DmaBuf(..) => None,
        }
    }

    /// Copies `data` into the region at `offset`.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        match self {
            Region::Host(region) => region.write(offset, data),
            Region::DmaBuf(_, mapping) => mapping.write(offset, data),
            Region::Device(_, memory) => words(offset, data.len(), |word, within, part| {
                let mut bytes = [0; WORD];
                if part.len() < WORD {
                    memory.read(word, &mut bytes);
                }
                bytes[within..within + part.len()].copy_from_slice(&data[part]);
                memory.write(word, &bytes);
            }),
        }
    }

    /// Copies out of the region at `offset`.
    ///
    /// # Panics
    /// If the range ends beyond the region.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        match self {
            Region::Host(region) => region.read(offset, data),
            Region::DmaBuf(_, mapping) => mapping.read(offset, data),
            Region::Device(_, memory) => words(offset, data.len(), |word, within, part| {
                let mut bytes = [0; WORD];
                memory.read(word, &mut bytes);
                let length = part.len();
                data[part].copy_from_slice(&bytes[within..within + length]);
            }),
        }
    }

    /// Returns the byte at `offset` as it is now. Later reads see what the HCA wrote before it.
    ///
    /// # Panics
    /// If it lies outside the region.
    #[inline(always)]
    pub fn poll_byte(&self, offset: usize) -> u8 {
        match self {
            Region::Host(region) => region.poll_byte(offset),
            Region::Device(..) | Region::DmaBuf(..) => self.poll_elsewhere(offset),
        }
    }

    #[inline(never)]
    fn poll_elsewhere(&self, offset: usize) -> u8 {
        let mut byte = [0];
        self.read(offset, &mut byte);
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        byte[0]
    }
}

/// Calls `each` with every aligned word that a range touches: its offset, the place of the range's
/// bytes in it, and which bytes of the range these are.
fn words(offset: usize, length: usize, mut each: impl FnMut(usize, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let within = (offset + done) % WORD;
        let count = (WORD - within).min(length - done);
        each(offset + done - within, within, done..done + count);
        done += count;
    }
}

fn host(pd: &ProtectionDomain, origin: Origin, length: usize, access: Access) -> Result<Region> {
    let pages = match origin.huge {
        Some(size) => Pages::huge(length, size)?,
        None => Pages::new(length)?,
    };
    if let Some(node) = origin.node {
        pages.bind(node)?;
    }
    let region = pd.register(pages, access).map_err(|error| error.error);
    region.map(Region::Host).map_err(|error| match origin.source {
        Source::OnDemand => Error::Told(format!("--memory odp: {error}")),
        _ => error.into(),
    })
}

fn device(pd: &ProtectionDomain, length: usize, access: Access) -> Result<Region> {
    let most = pd.context().device_memory()?;
    let wanted = |error: mlx5::Error| {
        Error::Told(format!(
            "--memory device: {length} bytes of messages, of at most {most} of the device: {error}; \
             choose a smaller --size, --depth or --qps"
        ))
    };
    let mut memory = DeviceMemory::allocate(pd.context(), length, 6).map_err(wanted)?;
    // Its first contents are undefined.
    (0..length / WORD).for_each(|word| memory.write(word * WORD, &[0; WORD]));
    let region = pd.register_device(&memory, 0, length, access)?;
    Ok(Region::Device(region, memory))
}

fn dma_buf(pd: &ProtectionDomain, length: usize, access: Access) -> Result<Region> {
    let told =
        |what: &str, error: io::Error| Error::Told(format!("--memory dmabuf: {what}: {error}"));
    // udmabuf takes whole pages.
    let length = length.next_multiple_of(HugePageSize::Mib2.bytes());
    let file = sealed_file(length).map_err(|error| told("no memory file can be made", error))?;
    let mapping = Mapping::new(&file, length).map_err(|error| told("no mapping", error))?;
    let exported: OwnedFd = match bed::is_model() {
        // The model takes any file that can be mapped.
        true => file.into(),
        false => export(&file, length)
            .map_err(|error| told("/dev/udmabuf (module udmabuf) makes no dma-buf", error))?,
    };
    // SAFETY: the file is mapped here alone, in `mapping`, whose bytes no reference covers. Requests
    // and peers use its slots by the plan.
    let region = unsafe { pd.register_dmabuf(exported.as_fd(), 0, length, 0, access) }
        .map_err(|error| Error::Told(format!("--memory dmabuf: {error}")))?;
    Ok(Region::DmaBuf(region, mapping))
}

/// Creates a memory file of that length, which cannot shrink.
fn sealed_file(length: usize) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string of C.
    let fd = unsafe { libc::memfd_create(c"mlx5-perf".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above made the descriptor, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(length as u64)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Exports a memory file as a dma-buf: `linux/udmabuf.h`.
fn export(file: &File, length: usize) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    /// `UDMABUF_CREATE`: `_IOW('u', 0x42, struct udmabuf_create)`.
    const CREATE: libc::c_ulong = 1 << 30 | (size_of::<Create>() as libc::c_ulong) << 16 | 0x7542;
    /// `UDMABUF_FLAGS_CLOEXEC`.
    const CLOEXEC: u32 = 1;
    let maker = OpenOptions::new().read(true).write(true).open("/dev/udmabuf")?;
    let create =
        Create { memfd: file.as_raw_fd() as u32, flags: CLOEXEC, offset: 0, size: length as u64 };
    // SAFETY: the request reads one such structure.
    let fd = unsafe { libc::ioctl(maker.as_raw_fd(), CREATE, &raw const create) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above made the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The bytes of a memory file in this process, which the HCA may write at any time.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone. `&self` reads by volatile loads, and stores take
// `&mut self`.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &File, length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: the kernel chooses the place, and the file has this length.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { start, length })
    }

    fn check(&self, offset: usize, length: usize) {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(fits, "{length} bytes at offset {offset} of {}", self.length);
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        for (at, byte) in data.iter().enumerate() {
            // SAFETY: the range was checked above, and no reference to the bytes exists.
            unsafe { self.start.add(offset + at).write_volatile(*byte) };
        }
    }

    fn read(&self, offset: usize, data: &mut [u8]) {
        self.check(offset, data.len());
        for (at, byte) in data.iter_mut().enumerate() {
            // SAFETY: the range was checked above. The load is volatile, since the HCA may write.
            *byte = unsafe { self.start.add(offset + at).read_volatile() };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping and owns it. The HCA has a mapping of its own.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_range_lies_in_one_word() {
        for offset in 0..9 {
            for length in 0..14 {
                let mut seen = Vec::new();
                words(offset, length, |word, within, part| {
                    assert!(word % WORD == 0 && within + part.len() <= WORD);
                    seen.extend(part.map(|at| (at, word + within)));
                });
                let bytes: Vec<usize> = seen.iter().map(|(at, _)| *at).collect();
                assert_eq!(bytes, (0..length).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_mapping_has_the_bytes_of_its_file_and_no_others() {
        let file = sealed_file(4096).unwrap();
        assert!(file.set_len(0).is_err(), "it cannot shrink");
        let mut mapping = Mapping::new(&file, 4096).unwrap();
        mapping.write(4090, b"at end");
        let mut found = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 4090).unwrap();
        assert_eq!(&found, b"at end");
        let beyond = std::panic::AssertUnwindSafe(|| mapping.read(4091, &mut [0; 6]));
        assert!(std::panic::catch_unwind(beyond).is_err());
    }
}
