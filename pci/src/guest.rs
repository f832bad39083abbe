//! Memory as the device sees it: files that the client shares, each at a range of bus addresses, and
//! the device's own memory above them.
//!
//! Accesses are made by the model's guarded instructions. An access to an address that is not mapped,
//! against the rights of a mapping, or behind the end of a file that has shrunk is a [`Fault`].

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mlx5_model::memory::{Fault, Memory, ProcessMemory};
use mlx5_model::object::Memic;

use crate::protocol::{MAX_MAPPED, MAX_MAPPINGS, PAGE, Refusal};
use crate::signals;

/// Bus address of the device's own memory. Clients map lower addresses only.
pub const OWN: u64 = 1 << 63;
/// Bytes of the device's own memory.
pub const OWN_SIZE: u64 = Memic::PAGES << 12;

/// The device's access to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The device may read.
    pub read: bool,
    /// The device may write.
    pub write: bool,
}

impl Rights {
    const READ: Self = Self { read: true, write: false };
    const WRITE: Self = Self { read: false, write: true };
    const BOTH: Self = Self { read: true, write: true };

    fn cover(self, needed: Self) -> bool {
        self.read >= needed.read && self.write >= needed.write
    }
}

/// A part of a file in the memory of this process.
#[derive(Debug)]
struct View {
    at: u64,
    length: usize,
    /// The mapping around the part: whole pages of the file, which may be huge.
    pages: Range<u64>,
}

impl View {
    /// Maps a part of a file. The pages around it have at most `room` bytes.
    fn new(
        file: &OwnedFd,
        offset: u64,
        length: u64,
        rights: Rights,
        room: u64,
    ) -> Result<Self, Refusal> {
        let end = offset.checked_add(length).ok_or(Refusal::Invalid)?;
        if end > file_length(file)? {
            return Err(Refusal::Invalid);
        }
        let page = page_size(file)?;
        let inside = offset % page;
        let end = end.checked_next_multiple_of(page).ok_or(Refusal::Invalid)?;
        let around = end - (offset - inside);
        if around > room {
            return Err(Refusal::TooMuch);
        }
        let (Ok(first), Ok(length), Ok(bytes)) =
            ((offset - inside).try_into(), usize::try_from(length), usize::try_from(around))
        else {
            return Err(Refusal::Invalid);
        };
        let protection = match rights {
            Rights { write: false, .. } => libc::PROT_READ,
            _ => libc::PROT_READ | libc::PROT_WRITE,
        };
        // Huge pages are the client's to reserve. An access to one that is not free is a fault.
        let (file, flags) = (file.as_raw_fd(), libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: the kernel chooses an address at which nothing is mapped.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, first) };
        if at == libc::MAP_FAILED {
            return Err(Refusal::Unmappable);
        }
        let at = at as u64;
        Ok(Self { at: at + inside, length, pages: at..at + around })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let Range { start, end } = self.pages;
        // SAFETY: `new` has made this mapping. Accesses to it hold the lock of the table that owned
        // this value, so there is none now.
        let result = unsafe { libc::munmap(start as *mut libc::c_void, (end - start) as usize) };
        if result != 0 {
            let error = io::Error::last_os_error();
            eprintln!("mlx5-model-pci: {} bytes stay mapped: munmap: {error}", end - start);
        }
    }
}

/// Returns the bytes of a regular file.
fn file_length(file: &OwnedFd) -> Result<u64, Refusal> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call writes to `status`, which has the structure's size.
    if unsafe { libc::fstat(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
        return Err(Refusal::Invalid);
    }
    // SAFETY: the call above has succeeded, so it has written the structure.
    let status = unsafe { status.assume_init() };
    let is_file = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    u64::try_from(status.st_size).ok().filter(|_| is_file).ok_or(Refusal::Invalid)
}

/// Returns the size of a file's pages, which the kernel itself has to hold. The device touches them
/// under locks that other functions wait for, so an access must not depend on a disk or on a file
/// system's process.
fn page_size(file: &OwnedFd) -> Result<u64, Refusal> {
    let mut status = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call writes to `status`, which has the structure's size.
    if unsafe { libc::fstatfs(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
        return Err(Refusal::Invalid);
    }
    // SAFETY: the call above has succeeded, so it has written the structure.
    let status = unsafe { status.assume_init() };
    if ![libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC].contains(&status.f_type) {
        return Err(Refusal::NotInMemory);
    }
    u64::try_from(status.f_bsize).ok().filter(|size| *size > 0).ok_or(Refusal::Invalid)
}

/// Creates the device's own memory, all zeros.
fn own_memory() -> io::Result<View> {
    // SAFETY: the call reads the name, a C string.
    let file = unsafe { libc::memfd_create(c"device memory".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has returned this descriptor, which nothing else has.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: the call has no other effect than on the file.
    if unsafe { libc::ftruncate(file.as_raw_fd(), OWN_SIZE as libc::off_t) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let view = View::new(&file, 0, OWN_SIZE, Rights::BOTH, MAX_MAPPED);
    view.map_err(|_| io::Error::other("the memory of a device cannot be mapped"))
}

/// A range of bus addresses.
#[derive(Debug)]
struct Mapping {
    length: u64,
    rights: Rights,
    /// Its memory; `None` if the client did not share it.
    view: Option<View>,
}

/// The mappings by their first bus address. They do not overlap.
type Table = BTreeMap<u64, Mapping>;

/// Returns the bytes of this process's address space that mappings take.
fn mapped(table: &Table) -> u64 {
    table
        .values()
        .flat_map(|mapping| &mapping.view)
        .map(|view| view.pages.end - view.pages.start)
        .sum()
}

/// The memory of a guest, and that of its device.
#[derive(Debug)]
pub struct GuestMemory {
    process: ProcessMemory,
    table: RwLock<Table>,
    own: View,
}

impl GuestMemory {
    /// Creates the memory of a guest that has not mapped any.
    ///
    /// # Errors
    /// Those of installing signal handlers, and of making the device's own memory.
    pub fn new() -> io::Result<Self> {
        signals::install()?;
        let own = own_memory()?;
        // SAFETY: `each` passes addresses inside of a `View`, which it keeps from being unmapped. No
        // reference to a view's bytes exists. The handlers are installed and stay.
        let process = unsafe { ProcessMemory::new(true) };
        Ok(Self { process, table: RwLock::default(), own })
    }

    fn read_table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a part of a file at a bus address. Without a file the range is known, and accesses fail.
    ///
    /// # Errors
    /// - Empty ranges, ranges that reach to [`OWN`], and files that are too short.
    /// - Ranges and offsets that are not whole pages of 4096 bytes.
    /// - Files of other file systems than tmpfs and hugetlbfs. A memfd is in one of these.
    /// - Ranges that overlap a mapping.
    /// - More than [`MAX_MAPPINGS`], or more than [`MAX_MAPPED`] bytes of files.
    pub fn map(
        &self,
        address: u64,
        length: u64,
        rights: Rights,
        file: Option<(&OwnedFd, u64)>,
    ) -> Result<(), Refusal> {
        let end = address.checked_add(length).filter(|end| length > 0 && *end <= OWN);
        let end = end.ok_or(Refusal::Invalid)?;
        let offset = file.map_or(0, |(_, offset)| offset);
        if [address, length, offset].iter().any(|bytes| bytes % PAGE != 0) {
            return Err(Refusal::Invalid);
        }
        let mut table = self.write_table();
        if table.len() >= MAX_MAPPINGS {
            return Err(Refusal::TooMuch);
        }
        let before = table.range(..end).next_back();
        if before.is_some_and(|(start, mapping)| start + mapping.length > address) {
            return Err(Refusal::Exists);
        }
        let view = |(file, offset)| {
            let room = MAX_MAPPED.saturating_sub(mapped(&table));
            View::new(file, offset, length, rights, room)
        };
        let view = file.map(view).transpose()?;
        table.insert(address, Mapping { length, rights, view });
        Ok(())
    }

    /// Removes the mappings inside a range.
    ///
    /// # Errors
    /// If there is none, or the range cuts one.
    pub fn unmap(&self, address: u64, length: u64) -> Result<(), Refusal> {
        let end = address.checked_add(length).ok_or(Refusal::Invalid)?;
        let mut table = self.write_table();
        let cuts = |at: u64| {
            let before = table.range(..at).next_back();
            before.is_some_and(|(start, mapping)| start + mapping.length > at)
        };
        if cuts(address) || cuts(end) {
            return Err(Refusal::Invalid);
        }
        let inside: Vec<u64> = table.range(address..end).map(|(start, _)| *start).collect();
        if inside.is_empty() {
            return Err(Refusal::Invalid);
        }
        for start in inside {
            table.remove(&start);
        }
        Ok(())
    }

    /// Removes all mappings.
    pub fn clear(&self) {
        self.write_table().clear();
    }

    /// Forgets the client: its mappings, and what its guest has stored in the device's own memory.
    ///
    /// # Errors
    /// If the device's own memory cannot be written.
    pub fn disconnect(&self) -> Result<(), Fault> {
        self.clear();
        self.write(OWN, &vec![0; OWN_SIZE as usize])
    }

    /// Returns the memory at a bus address, and where in it that is.
    fn view<'a>(&'a self, table: &'a Table, at: u64, needed: Rights) -> Option<(&'a View, usize)> {
        let (start, view) = match at.checked_sub(OWN) {
            Some(_) => (OWN, &self.own),
            None => {
                let (start, mapping) = table.range(..=at).next_back()?;
                (*start, mapping.view.as_ref().filter(|_| mapping.rights.cover(needed))?)
            }
        };
        Some((view, usize::try_from(at - start).ok()?))
    }

    /// Calls `access` for each piece of a range with its address in this process, and the bytes of
    /// the range that it has.
    fn each(
        &self,
        address: u64,
        length: usize,
        needed: Rights,
        mut access: impl FnMut(u64, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let table = self.read_table();
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(Fault(address))?;
            let (view, inside) = self.view(&table, at, needed).ok_or(Fault(at))?;
            let room = view.length.saturating_sub(inside);
            if room == 0 {
                return Err(Fault(at));
            }
            let piece = room.min(length - done);
            let host = view.at + inside as u64;
            access(host, done..done + piece)
                .map_err(|Fault(host_at)| Fault(at + host_at.saturating_sub(host)))?;
            done += piece;
        }
        Ok(())
    }
}

impl Memory for GuestMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.each(address, to.len(), Rights::READ, |host, part| {
            self.process.read(host, &mut to[part])
        })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.publish(address, from)
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        let mut old = [0; 8];
        if address % 8 != 0 {
            return Err(Fault(address));
        }
        self.each(address, 8, Rights::BOTH, |host, part| {
            if part.len() < 8 {
                return Err(Fault(host));
            }
            old = self.process.update(host, change)?;
            Ok(())
        })?;
        Ok(old)
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.each(address, from.len(), Rights::WRITE, |host, part| {
            self.process.publish(host, &from[part])
        })
    }
}

#[cfg(test)]
mod tests;
