//! The memory that the program's processes share with `mlx5 monitor`.
//!
//! The command makes a file without a name (`memfd_create`), and tells its path by a variable. A process
//! opens the path when it makes its first queue pair, and keeps mappings, but no open file: a number
//! that the program closes and uses again must not be the library's. Each cell is mapped when a process
//! first uses it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use crate::cell::{CELL_SIZE, Cell};

/// The variable that tells processes the path of the board.
pub const VARIABLE: &str = "MLX5_MONITOR";

/// Cells of a board.
pub(crate) const CELLS: usize = 8192;
/// Processes that a board has notes of.
pub(crate) const NOTES: usize = 256;
/// Bytes in front of the cells.
const HEADER_SIZE: usize = 64 << 10;
/// The first word of a board of this layout.
const MAGIC: u32 = 0x6d35_6d01;

/// A state of a cell.
pub(crate) mod state {
    /// It belongs to no queue pair.
    pub(crate) const FREE: u32 = 0;
    /// A process fills it in.
    pub(crate) const CLAIMED: u32 = 1;
    /// The queue pair exists.
    pub(crate) const LIVE: u32 = 2;
    /// The queue pair was destroyed, and the command has not read the cell since.
    pub(crate) const ENDED: u32 = 3;
}

/// What a process tells of itself.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) process: AtomicU32,
    pub(crate) notes: AtomicU32,
    pub(crate) program: [std::sync::atomic::AtomicU64; 2],
}

/// What a process tells of itself: it takes queues over from libibverbs (`mlx5dv_init_obj`).
pub const DRIVES_ITSELF: u32 = 1;
/// What a process tells of itself: one of its devices has another provider, or another kind of context.
pub const OTHER_PROVIDER: u32 = 2;
/// What a process tells of itself: it has more queue pairs than can be kept.
pub const TOO_MANY: u32 = 4;

/// The part of a board in front of the cells.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    magic: AtomicU32,
    /// Grows when the command has to look.
    wakes: AtomicU32,
    pub(crate) notes: [Note; NOTES],
    states: [AtomicU32; CELLS],
}

const _: () = assert!(size_of::<Header>() <= HEADER_SIZE);

impl Header {
    /// Wakes the command. `errno` stays as it is.
    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Release);
        // SAFETY: the address of `errno` is valid in its thread; the word is in a shared mapping.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::syscall(libc::SYS_futex, self.wakes.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
            *errno = before;
        }
    }

    /// Takes a free cell. Returns its index.
    pub(crate) fn claim(&self) -> Option<usize> {
        self.states.iter().position(|state| {
            let from = state::FREE;
            let free = state.load(Ordering::Relaxed) == from;
            free && state
                .compare_exchange(from, state::CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// Sets the state of a cell.
    pub(crate) fn set(&self, cell: usize, state: u32) {
        if let Some(place) = self.states.get(cell) {
            place.store(state, Ordering::Release);
        }
    }
}

/// Maps a part of a board.
fn map(file: &File, offset: usize, length: usize) -> io::Result<NonNull<libc::c_void>> {
    // SAFETY: a new mapping of a file; nothing else is at its place.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    match NonNull::new(memory).filter(|memory| memory.as_ptr() != libc::MAP_FAILED) {
        Some(memory) => Ok(memory),
        None => Err(io::Error::last_os_error()),
    }
}

/// A process' view of a board. Its mappings stay until the process ends.
pub(crate) struct View {
    pub(crate) header: &'static Header,
    cells: Box<[AtomicPtr<Cell>]>,
    path: std::ffi::CString,
}

impl View {
    /// Opens the board at a path; `None` if there is none, or if it is another build's.
    pub(crate) fn open(path: &CStr) -> Option<View> {
        let file = open(path)?;
        let header = map(&file, 0, HEADER_SIZE).ok()?.cast::<Header>();
        // SAFETY: the mapping is that long, stays for ever, and any bytes are a valid header of atomics.
        let header = unsafe { header.as_ref() };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return None;
        }
        let cells = (0..CELLS).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Some(View { header, cells, path: path.to_owned() })
    }

    /// Returns a cell, mapped.
    pub(crate) fn cell(&self, index: usize) -> Option<&'static Cell> {
        let place = self.cells.get(index)?;
        let known = place.load(Ordering::Acquire);
        // SAFETY: the pointer is one that this function has mapped, for ever.
        if let Some(cell) = unsafe { known.as_ref() } {
            return Some(cell);
        }
        let file = open(&self.path)?;
        let cell = map(&file, HEADER_SIZE + index * CELL_SIZE, CELL_SIZE).ok()?.cast::<Cell>();
        place.store(cell.as_ptr(), Ordering::Release);
        // SAFETY: as above; any bytes are a valid cell of atomics.
        Some(unsafe { cell.as_ref() })
    }
}

/// Opens a board's file.
fn open(path: &CStr) -> Option<File> {
    // SAFETY: the path ends with a zero.
    let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    (descriptor >= 0).then(|| unsafe { File::from_raw_fd(descriptor) })
}

/// A board, of the command that made it.
#[derive(Debug)]
pub struct Board {
    /// Kept open: processes open it by its number here.
    file: File,
    header: NonNull<Header>,
    cells: NonNull<libc::c_void>,
}

// SAFETY: all that is behind the pointers is atomic, and stays mapped.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Makes an empty board.
    ///
    /// # Errors
    /// Returns the system's error if there is no memory for it.
    pub fn create() -> io::Result<Board> {
        // SAFETY: the name ends with a zero.
        let descriptor = unsafe {
            libc::memfd_create(
                c"mlx5-monitor".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len((HEADER_SIZE + CELLS * CELL_SIZE) as u64)?;
        // A process that cut the file would end this one: its reads would find no memory.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the call passes no memory.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let header = map(&file, 0, HEADER_SIZE)?.cast::<Header>();
        let cells = map(&file, HEADER_SIZE, CELLS * CELL_SIZE)?;
        let board = Board { file, header, cells };
        board.header().magic.store(MAGIC, Ordering::Release);
        Ok(board)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is that long, and any bytes are a valid header of atomics.
        unsafe { self.header.as_ref() }
    }

    /// Returns the path by which processes open it. They need the rights of this process' user.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Returns the cells of queue pairs, each with its index, and whether the queue pair still exists.
    pub fn cells(&self) -> impl Iterator<Item = (usize, &Cell, bool)> {
        self.header().states.iter().enumerate().filter_map(|(index, state)| {
            let state = state.load(Ordering::Acquire);
            let has_content = state == state::LIVE || state == state::ENDED;
            has_content.then(|| (index, self.cell(index), state == state::LIVE))
        })
    }

    fn cell(&self, index: usize) -> &Cell {
        // SAFETY: the index is one of the board's; any bytes are a valid cell of atomics.
        unsafe { &*self.cells.as_ptr().cast::<u8>().add(index * CELL_SIZE).cast::<Cell>() }
    }

    /// Frees the cell of a queue pair that exists no more.
    pub fn free(&self, index: usize) {
        if let Some(state) = self.header().states.get(index) {
            let (ended, free) = (state::ENDED, state::FREE);
            // Another state means that the caller's index is wrong: the cell stays.
            let _ = state.compare_exchange(ended, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns what processes tell of themselves: number, name, and a set of [`DRIVES_ITSELF`],
    /// [`OTHER_PROVIDER`] and [`TOO_MANY`].
    #[must_use]
    pub fn notes(&self) -> Vec<(u32, String, u32)> {
        let told = self.header().notes.iter().filter_map(|note| {
            let notes = note.notes.load(Ordering::Acquire);
            let process = note.process.load(Ordering::Relaxed);
            (notes != 0).then(|| (process, crate::cell::name(&note.program), notes))
        });
        told.collect()
    }

    /// Returns the number of times that [`Board::wait`] was to end.
    #[must_use]
    pub fn wakes(&self) -> u32 {
        self.header().wakes.load(Ordering::Acquire)
    }

    /// Waits until [`Board::wakes`] is another number than `seen`, or for this time.
    pub fn wait(&self, seen: u32, time: Duration) {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos() as libc::c_long,
        };
        let word = self.header().wakes.as_ptr();
        // SAFETY: the word is in a shared mapping, and the time is valid during the call.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, seen, &raw const time) };
    }

    /// Ends [`Board::wait`].
    pub fn wake(&self) {
        self.header().wake();
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mappings are this board's, and nothing borrows them any more.
        unsafe {
            libc::munmap(self.header.as_ptr().cast(), HEADER_SIZE);
            libc::munmap(self.cells.as_ptr(), CELLS * CELL_SIZE);
        }
    }
}
