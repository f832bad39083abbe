//! The BAR, and pages whose bus addresses are known.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use crate::Result;

pub const PAGE: usize = 4096;

/// A mapping of this process.
struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Maps a file, or new memory that stays where it is.
    fn new(file: Option<&File>, length: usize) -> Result<Self> {
        let (flags, file) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_LOCKED, -1),
        };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an address at which nothing is mapped.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, file, 0) };
        if at == libc::MAP_FAILED {
            return Err(format!("mmap: {}", std::io::Error::last_os_error()));
        }
        let at = NonNull::new(at.cast()).ok_or("mmap returned null")?;
        Ok(Self { at, length })
    }

    /// Returns the address of so many bytes.
    ///
    /// # Panics
    /// They are not all inside.
    fn range(&self, offset: usize, count: usize) -> *mut u8 {
        assert!(offset <= self.length && count <= self.length - offset, "outside of a mapping");
        // SAFETY: the mapping has `length` bytes, and `offset` is not more.
        unsafe { self.at.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has made this mapping, and no reference into it exists.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

/// BAR 0.
pub struct Bar(Mapping);

/// Widths of accesses, in bytes.
#[derive(Clone, Copy)]
pub enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Width {
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Eight];

    fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

impl Bar {
    /// Maps the BAR of a function, by its folder in sysfs.
    pub fn open(function: &Path) -> Result<Self> {
        let path = function.join("resource0");
        let failed = |error| format!("{}: {error}", path.display());
        let file = File::options().read(true).write(true).open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Mapping::new(Some(&file), length as usize).map(Self)
    }

    pub fn length(&self) -> usize {
        self.0.length
    }

    /// Returns an aligned address inside, at or below an offset.
    fn place(&self, offset: usize, width: Width) -> *mut u8 {
        let offset = offset.min(self.0.length - 8) & !(width.bytes() - 1);
        self.0.range(offset, width.bytes())
    }

    /// Stores the low bytes of a value.
    pub fn store(&self, offset: usize, width: Width, value: u64) {
        let place = self.place(offset, width);
        // SAFETY: `place` is inside of the mapping, aligned to the width, and device memory to which
        // this process has no references.
        unsafe {
            match width {
                Width::One => place.write_volatile(value as u8),
                Width::Two => place.cast::<u16>().write_volatile(value as u16),
                Width::Four => place.cast::<u32>().write_volatile(value as u32),
                Width::Eight => place.cast::<u64>().write_volatile(value),
            }
        }
    }

    /// Loads a value.
    pub fn load(&self, offset: usize, width: Width) -> u64 {
        let place = self.place(offset, width);
        // SAFETY: as for `store`.
        unsafe {
            match width {
                Width::One => place.read_volatile().into(),
                Width::Two => place.cast::<u16>().read_volatile().into(),
                Width::Four => place.cast::<u32>().read_volatile().into(),
                Width::Eight => place.cast::<u64>().read_volatile(),
            }
        }
    }

    /// Loads a big-endian word.
    pub fn word(&self, offset: usize) -> u32 {
        u32::from_be(self.load(offset, Width::Four) as u32)
    }

    /// Stores a big-endian word.
    pub fn set_word(&self, offset: usize, word: u32) {
        self.store(offset, Width::Four, word.to_be().into());
    }
}

/// Pages of this process, which the function reaches.
pub struct Pages {
    mapping: Mapping,
    addresses: Vec<u64>,
}

impl Pages {
    /// Allocates pages, and looks their bus addresses up. Without IOMMU these are the physical ones.
    pub fn new(count: usize) -> Result<Self> {
        let mapping = Mapping::new(None, count * PAGE)?;
        let path = "/proc/self/pagemap";
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        let mut addresses = Vec::new();
        for page in 0..count {
            let at = mapping.range(page * PAGE, PAGE);
            // SAFETY: the page is inside of the mapping. The store makes it present.
            unsafe { at.write_volatile(0) };
            let mut entry = [0; 8];
            let offset = (at as usize / PAGE * 8) as u64;
            file.read_exact_at(&mut entry, offset).map_err(|error| format!("{path}: {error}"))?;
            // Bits of the kernel's documentation, admin-guide/mm/pagemap: present, and the number.
            let entry = u64::from_ne_bytes(entry);
            let number = entry & ((1 << 55) - 1);
            if entry >> 63 == 0 || number == 0 {
                return Err(format!("{path} does not tell addresses: root is needed"));
            }
            addresses.push(number * PAGE as u64);
        }
        Ok(Self { mapping, addresses })
    }

    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Copies bytes to a page.
    pub fn write(&self, page: usize, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE, "beyond a page");
        for (index, byte) in bytes.iter().enumerate() {
            let at = self.mapping.range(page * PAGE + offset + index, 1);
            // SAFETY: `at` is inside of the mapping, to which no references exist.
            unsafe { at.write_volatile(*byte) };
        }
    }

    /// Copies bytes from a page.
    pub fn read(&self, page: usize, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= PAGE, "beyond a page");
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = self.mapping.range(page * PAGE + offset + index, 1);
            // SAFETY: as for `write`.
            *byte = unsafe { at.read_volatile() };
        }
    }
}
