//! Registered memory stays with the device whatever the program does at its address: unmaps it,
//! maps over it, moves it, drops its content. ODP regions follow the program.

mod support;

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::FromRawFd;
use std::ptr::null_mut;
use std::sync::MutexGuard;

use libc::c_void;
use mlx5_model as _;
use mlx5_sys::verbs::*;
use support::role::{Player, play};
use support::turn;
use support::verbs::{ACCESS, Address, Device, LENGTH, Station, connect};

const PAGE: usize = 4096;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

#[test]
fn role() {
    play(&[("memory", memory), ("parent", parent)]);
}

/// Maps memory at an address, in place of the mapping there.
fn map_at(at: *mut u8, length: usize) {
    // SAFETY: the tests map over their own buffers, which no reference points into.
    let mapped = unsafe { libc::mmap(at.cast(), length, BOTH, PRIVATE | libc::MAP_FIXED, -1, 0) };
    assert_eq!(mapped, at.cast());
}

fn unmap(at: *mut u8, length: usize) {
    // SAFETY: the tests unmap their own buffers, which no reference points into.
    assert_eq!(unsafe { libc::munmap(at.cast(), length) }, 0);
}

fn fill(at: *mut u8, byte: u8, length: usize) {
    // SAFETY: the tests fill their own mappings.
    unsafe { at.write_bytes(byte, length) };
}

/// Whether each byte of a mapping is this one. The card may write to it.
fn is_all(at: *const u8, byte: u8, length: usize) -> bool {
    // SAFETY: the tests read their own mappings.
    (0..length).all(|offset| unsafe { at.add(offset).read_volatile() } == byte)
}

/// Two stations, the first of which writes to and reads from the second.
struct Pair {
    near: Station,
    far: Station,
    /// One test at a time: what another mapped could come to lie where this one has unmapped.
    _turn: MutexGuard<'static, ()>,
}

impl Pair {
    fn new() -> Self {
        let turn = turn();
        let device = Device::open(0);
        let pair = Self { near: Station::new(device), far: Station::new(device), _turn: turn };
        connect(&pair.near, &pair.far);
        pair
    }

    /// Writes a byte all over a part of memory of the other side.
    #[track_caller]
    fn write(&self, byte: u8, to: (u64, u32), length: usize) {
        self.near.put(0, &vec![byte; length]);
        let posted = self.near.try_post(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, 0, length, to);
        assert_eq!(posted, 0);
        self.near.expect(1);
    }

    /// The bytes that the device finds in memory of the other side.
    #[track_caller]
    fn read(&self, from: (u64, u32), length: usize) -> Vec<u8> {
        let posted = self.near.try_post(ibv_wr_opcode::IBV_WR_RDMA_READ, 2, 0, length, from);
        assert_eq!(posted, 0);
        self.near.expect(2);
        self.near.get(0, length)
    }

    /// Adds to eight bytes of memory of the other side, and returns the old value.
    #[track_caller]
    fn add(&self, to: (u64, u32), number: u64) -> u64 {
        // SAFETY: all zeros is a valid request, filled with what it needs; the library copies it.
        unsafe {
            let (addr, lkey) = (self.near.buffer as u64, (*self.near.mr).lkey);
            let mut sge = ibv_sge { addr, length: 8, lkey };
            let mut request: ibv_send_wr = std::mem::zeroed();
            request.wr_id = 3;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            request.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            request.wr.atomic.remote_addr = to.0;
            request.wr.atomic.compare_add = number;
            request.wr.atomic.rkey = to.1;
            assert_eq!(ibv_post_send(self.near.qp, &mut request, &mut null_mut()), 0);
        }
        self.near.expect(3);
        u64::from_ne_bytes(self.near.get(0, 8).try_into().expect("eight bytes"))
    }

    fn far(&self) -> (u64, u32) {
        let Address { buffer, rkey, .. } = self.far.address();
        (buffer, rkey)
    }

    /// Registers memory for the other side.
    fn register(&self, at: *mut u8, length: usize, further: u32) -> *mut ibv_mr {
        // SAFETY: the protection domain lives, and the memory is the test's.
        let mr = unsafe { ibv_reg_mr(self.far.pd, at.cast(), length, (ACCESS | further) as i32) };
        assert!(!mr.is_null(), "{}", std::io::Error::last_os_error());
        mr
    }
}

fn key(mr: *mut ibv_mr) -> u32 {
    // SAFETY: the region lives.
    unsafe { (*mr).rkey }
}

fn deregister(mr: *mut ibv_mr) {
    // SAFETY: each region of these tests is deregistered once.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}

/// A new mapping of the test's own.
fn mapping(length: usize) -> *mut u8 {
    // SAFETY: a new mapping at an address of the kernel's choosing.
    let at = unsafe { libc::mmap(null_mut(), length, BOTH, PRIVATE, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// A way to put a new mapping in the place of a buffer, and its name.
type Replacement = (&'static str, fn(*mut u8));

fn replacements() -> [Replacement; 4] {
    fn by_syscall(number: libc::c_long, at: *mut u8, flags: i32) {
        // SAFETY: the tests unmap and map over their own buffers.
        let result = unsafe { libc::syscall(number, at, LENGTH, BOTH, flags, -1, 0) };
        assert!(result >= 0, "{}", std::io::Error::last_os_error());
    }
    [
        ("munmap", |at| {
            unmap(at, LENGTH);
            map_at(at, LENGTH);
        }),
        ("mmap", |at| map_at(at, LENGTH)),
        ("system calls", |at| {
            by_syscall(libc::SYS_munmap, at, 0);
            by_syscall(libc::SYS_mmap, at, PRIVATE | libc::MAP_FIXED);
        }),
        ("mremap", |at| {
            let other = mapping(LENGTH);
            // SAFETY: the new mapping is moved over the buffer.
            let moved = unsafe {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                libc::mremap(other.cast(), LENGTH, LENGTH, flags, at.cast::<c_void>())
            };
            assert_eq!(moved, at.cast());
        }),
    ]
}

#[test]
fn a_write_after_munmap_goes_to_the_old_pages() {
    for (how, replace) in replacements() {
        let pair = Pair::new();
        pair.far.put(0, &[b'o'; LENGTH]);
        let buffer = pair.far.buffer;
        replace(buffer);
        fill(buffer, b'n', LENGTH);
        pair.write(b'#', pair.far(), 2 * PAGE);
        assert!(is_all(buffer, b'n', LENGTH), "{how}: the new mapping was written to");
        let found = pair.read(pair.far(), LENGTH);
        assert!(found[..2 * PAGE].iter().all(|byte| *byte == b'#'), "{how}");
        assert!(found[2 * PAGE..].iter().all(|byte| *byte == b'o'), "{how}");
    }
}

#[test]
fn memory_that_is_gone_is_still_written_to_and_read() {
    let pair = Pair::new();
    pair.far.put(0, &[b'o'; LENGTH]);
    unmap(pair.far.buffer, LENGTH);
    pair.write(b'#', pair.far(), PAGE);
    let found = pair.read(pair.far(), 2 * PAGE);
    assert_eq!((found[0], found[PAGE - 1], found[PAGE]), (b'#', b'#', b'o'));
    // Atomics, too.
    assert_eq!(pair.add(pair.far(), 1), u64::from_ne_bytes([b'#'; 8]));
    assert_eq!(pair.add(pair.far(), 1), u64::from_ne_bytes([b'#'; 8]) + 1);
}

#[test]
fn each_part_of_a_region_is_where_it_was_left() {
    let pair = Pair::new();
    let (address, key) = pair.far();
    for page in 0..8 {
        pair.far.put(page * PAGE, &[b'0' + page as u8; PAGE]);
    }
    // Two pages go for good, one has something new, the others stay; the seams are unaligned.
    let at = |page: usize| pair.far.buffer.wrapping_add(page * PAGE);
    unmap(at(1), PAGE);
    unmap(at(2), PAGE);
    map_at(at(5), PAGE);
    fill(at(5), b'n', PAGE);
    pair.write(b'#', (address + PAGE as u64 / 2, key), 6 * PAGE);
    let mut expected: Vec<u8> = (0..8).flat_map(|page| [b'0' + page; PAGE]).collect();
    expected[PAGE / 2..PAGE / 2 + 6 * PAGE].fill(b'#');
    assert_eq!(pair.read((address, key), 8 * PAGE), expected);
    assert!(is_all(at(5), b'n', PAGE));
    assert!(is_all(at(3), b'#', PAGE), "what was left in place is the program's, too");
    // The rest, with what came in between.
    for (page, count) in [(0, 1), (3, 5)] {
        unmap(at(page), count * PAGE);
    }
    assert_eq!(pair.read((address, key), 8 * PAGE), expected);
}

#[test]
fn two_registrations_of_an_address_are_two_memories() {
    let pair = Pair::new();
    let (address, old) = pair.far();
    pair.far.put(0, &[b'o'; LENGTH]);
    map_at(pair.far.buffer, LENGTH);
    fill(pair.far.buffer, b'n', LENGTH);
    let new = pair.register(pair.far.buffer, LENGTH, 0);
    pair.write(b'1', (address, old), PAGE);
    pair.write(b'2', (address, key(new)), PAGE);
    assert_eq!(pair.read((address, old), 1), [b'1']);
    assert_eq!(pair.read((address, key(new)), 1), [b'2']);
    assert!(is_all(pair.far.buffer, b'2', PAGE));
    // The second is as pinned as the first.
    map_at(pair.far.buffer, LENGTH);
    fill(pair.far.buffer, b'z', LENGTH);
    let third = pair.register(pair.far.buffer, LENGTH, 0);
    for (key, byte) in [(old, b'1'), (key(new), b'2'), (key(third), b'z')] {
        assert_eq!(pair.read((address, key), 1), [byte]);
    }
    deregister(new);
    assert_eq!(pair.read((address, old), 1), [b'1']);
    assert_eq!(pair.read((address, key(third)), 1), [b'z']);
    deregister(third);
}

#[test]
fn memory_that_the_program_moves_is_shared_where_it_is_now() {
    let pair = Pair::new();
    pair.far.put(0, &[b'o'; LENGTH]);
    let place = mapping(2 * LENGTH);
    // SAFETY: the buffer is moved over a mapping of the test's own.
    let moved = unsafe {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        libc::mremap(pair.far.buffer.cast(), LENGTH, LENGTH, flags, place.cast::<c_void>())
    };
    assert_eq!(moved, place.cast());
    map_at(pair.far.buffer, LENGTH);
    pair.write(b'#', pair.far(), PAGE);
    assert!(is_all(place, b'#', PAGE));
    assert!(is_all(pair.far.buffer, 0, PAGE));
    fill(place, b'p', PAGE);
    assert_eq!(pair.read(pair.far(), 1), [b'p']);
    // From there it goes as any other.
    unmap(place, LENGTH);
    assert_eq!(pair.read(pair.far(), PAGE), [b'p'; PAGE]);
    // What is cut off by a move goes, too, and not for the card.
    drop(pair);
    let other = Pair::new();
    other.far.put(0, &[b'o'; LENGTH]);
    // SAFETY: the buffer is made shorter in place.
    let cut = unsafe { libc::mremap(other.far.buffer.cast(), LENGTH, PAGE, 0) };
    assert_eq!(cut, other.far.buffer.cast());
    assert_eq!(other.read(other.far(), LENGTH), [b'o'; LENGTH]);
}

#[test]
fn content_that_the_program_drops_is_kept_for_the_card() {
    for (advice, left) in [(libc::MADV_DONTNEED, 0), (libc::MADV_FREE, b'o')] {
        let pair = Pair::new();
        pair.far.put(0, &[b'o'; LENGTH]);
        // SAFETY: the buffer is the station's, and nothing points into it.
        assert_eq!(unsafe { libc::madvise(pair.far.buffer.cast(), 2 * PAGE, advice) }, 0);
        assert!(is_all(pair.far.buffer, left, 2 * PAGE), "advice {advice}");
        assert!(is_all(pair.far.buffer.wrapping_add(2 * PAGE), b'o', PAGE));
        assert_eq!(pair.read(pair.far(), 4 * PAGE), [b'o'; 4 * PAGE], "advice {advice}");
    }
}

#[test]
fn calls_that_fail_leave_memory_where_it_is() {
    let pair = Pair::new();
    pair.far.put(0, &[b'o'; LENGTH]);
    let buffer = pair.far.buffer;
    // SAFETY: each of these is refused by the kernel.
    unsafe {
        assert_eq!(libc::munmap(buffer.add(1).cast(), LENGTH), -1);
        assert_eq!(libc::munmap(buffer.cast(), 0), -1);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let none = libc::mmap(buffer.cast(), LENGTH, BOTH, flags, -1, 0);
        assert_eq!(none, libc::MAP_FAILED);
    }
    assert!(is_all(buffer, b'o', LENGTH));
    pair.write(b'#', pair.far(), LENGTH);
    assert!(is_all(buffer, b'#', LENGTH));
}

#[test]
fn a_file_stays_pinned_as_well() {
    let pair = Pair::new();
    // SAFETY: the name is a C string; the descriptor is new, and the mapping the kernel's choice.
    let (mut file, at) = unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(fd, LENGTH as i64), 0);
        let at = libc::mmap(null_mut(), LENGTH, BOTH, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        (fs::File::from_raw_fd(fd), at.cast::<u8>())
    };
    let region = pair.register(at, LENGTH, 0);
    map_at(at, LENGTH);
    pair.write(b'#', (at as u64, key(region)), PAGE);
    assert!(is_all(at, 0, LENGTH));
    let mut content = vec![0; LENGTH];
    file.seek(SeekFrom::Start(0)).expect("a file");
    file.read_exact(&mut content).expect("its content");
    assert!(content[..PAGE].iter().all(|byte| *byte == b'#'));
    assert!(content[PAGE..].iter().all(|byte| *byte == 0));
    deregister(region);
    unmap(at, LENGTH);
}

#[test]
fn regions_on_demand_follow_the_program() {
    let pair = Pair::new();
    let at = mapping(LENGTH);
    // One over this buffer, one over all of the process's memory; a third that is pinned.
    let here = pair.register(at, LENGTH, ibv_access_flags::IBV_ACCESS_ON_DEMAND.0);
    let everywhere =
        pair.register(null_mut(), usize::MAX, ibv_access_flags::IBV_ACCESS_ON_DEMAND.0);
    let pinned = pair.register(at, LENGTH, 0);
    fill(at, b'o', LENGTH);
    unmap(at, LENGTH);
    map_at(at, LENGTH);
    fill(at, b'n', LENGTH);
    for (region, found) in [(here, b'n'), (everywhere, b'n'), (pinned, b'o')] {
        assert_eq!(pair.read((at as u64, key(region)), PAGE), [found; PAGE]);
    }
    pair.write(b'#', (at as u64, key(here)), PAGE);
    assert!(is_all(at, b'#', PAGE));
    [here, everywhere, pinned].into_iter().for_each(deregister);
    unmap(at, LENGTH);
}

/// Pages of this process that are in memory.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").expect("statistics");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
}

/// Memory that is pinned is there until it is deregistered, and no longer.
fn memory() -> i32 {
    const MANY: usize = 64 << 20;
    let pair = Pair::new();
    for _ in 0..8 {
        let at = mapping(MANY);
        fill(at, 1, MANY);
        let (whole, part) = (pair.register(at, MANY, 0), pair.register(at, PAGE, 0));
        let with = resident();
        unmap(at, MANY);
        assert!(resident() + 1024 > with, "{} pages of {with} are left", resident());
        deregister(whole);
        assert_eq!(pair.read((at as u64, key(part)), PAGE), [1; PAGE]);
        deregister(part);
        assert!(resident() + MANY / PAGE < with + 1024, "{} pages of {with} stay", resident());
    }
    0
}

#[test]
fn pinned_memory_is_freed_when_it_is_deregistered() {
    Player::of("memory").end_well();
}

/// A child that unmaps its copy changes nothing of the parent's.
fn parent() -> i32 {
    let pair = Pair::new();
    pair.far.put(0, &[b'o'; LENGTH]);
    unmap(pair.far.buffer, PAGE);
    // SAFETY: the child makes system calls only, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        unmap(pair.far.buffer, LENGTH);
        map_at(pair.far.buffer, LENGTH);
        fill(pair.far.buffer, b'c', LENGTH);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 1;
    // SAFETY: the status is there.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(pair.read(pair.far(), 2 * PAGE), [b'o'; 2 * PAGE]);
    pair.write(b'#', pair.far(), 2 * PAGE);
    assert!(is_all(pair.far.buffer.wrapping_add(PAGE), b'#', PAGE));
    0
}

#[test]
fn children_of_a_fork_unmap_their_own() {
    Player::of("parent").end_well();
}
