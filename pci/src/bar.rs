//! BAR 0: the initialization segment, the MSI-X table and pending bits, the UAR pages, and the window
//! of the device's own memory.

use mlx5_model::card::{Card, Profile};
use mlx5_model::clock::Clock;
use mlx5_model::engine::Engine;
use mlx5_model::identity::pci;
use mlx5_model::memory::Memory as _;
use mlx5_model::object::Memic;

use crate::commands::{self, LOG_SLOTS, LOG_STRIDE};
use crate::guest::{GuestMemory, OWN, OWN_SIZE};
use crate::options::Log;
use crate::vectors::{self, Vectors};

/// Bytes of the BAR: a page for each UAR number, and then the window of the device's own memory.
pub const SIZE: u64 = pci::BAR_SIZE;
/// Offset of the MSI-X table.
pub const VECTORS: u64 = 0x2000;
/// Offset of the pending bits.
pub const PENDING: u64 = 0x3000;
/// The first UAR page.
const FIRST_UAR: u64 = 0x10;
const PAGE: u64 = 0x1000;
/// Bytes that a store to a UAR page has at most.
const STORE: usize = 64;

/// Offsets in the initialization segment (`device.h` of Linux, `mlx5_init_seg`). Its words are
/// big-endian.
mod at {
    pub const FIRMWARE: u64 = 0x00;
    pub const INTERFACE: u64 = 0x04;
    pub const QUEUE_HIGH: u64 = 0x10;
    pub const QUEUE_LOW: u64 = 0x14;
    pub const DOORBELL: u64 = 0x18;
    pub const TIMER_HIGH: u64 = 0x1000;
    pub const TIMER_LOW: u64 = 0x1004;
    pub const HEALTH: u64 = 0x1010;
    pub const REAL_TIME_HIGH: u64 = 0x1040;
    pub const REAL_TIME_LOW: u64 = 0x1044;
}

/// Revision of the command interface.
const INTERFACE: u32 = 5;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Nanoseconds between two values of the health counter.
const HEARTBEAT: u64 = 10_000_000;

/// Operation of the function (`nic_interface`): full, or none.
const FULL: u32 = 0;
const DISABLED: u32 = 1;

/// The registers of the initialization segment.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Bus address of the command queue.
    queue: u64,
    /// Operation that the driver asks of the function (`nic_interface`). After a reset there is none
    /// until the driver gives the address of its queue, so a driver that was not told of the reset
    /// learns of it here.
    interface: u32,
}

impl Default for Registers {
    fn default() -> Self {
        Self { queue: 0, interface: DISABLED }
    }
}

/// The way from the BAR to the device.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    /// The devices.
    pub engine: &'a Engine,
    /// Which of them.
    pub card: usize,
    /// The memory of its guest, and its own.
    pub memory: &'a GuestMemory,
    /// Its vectors.
    pub vectors: &'a Vectors,
    /// Its clock.
    pub clock: &'a Clock,
    /// Which commands are logged.
    pub log: Log,
    /// The generation that the device stands for.
    pub profile: Profile,
}

impl Registers {
    /// Reads bytes; `None` if they are not all inside.
    pub fn read(&self, way: Way<'_>, offset: u64, count: usize) -> Option<Vec<u8>> {
        check(offset, count)?;
        let mut bytes = vec![0; count];
        let end = offset + count as u64;
        if let Some(bus) = own(offset, end) {
            way.memory.read(bus, &mut bytes).ok()?;
        } else if offset >= VECTORS && end <= VECTORS + vectors::TABLE as u64 {
            way.vectors.read_table((offset - VECTORS) as usize, &mut bytes);
        } else if offset >= PENDING && end <= PENDING + vectors::PENDING as u64 {
            way.vectors.read_pending((offset - PENDING) as usize, &mut bytes);
        } else if offset < VECTORS {
            let first = offset & !3;
            let mut words = Vec::new();
            for at in (first..end.min(VECTORS)).step_by(4) {
                words.extend(self.word(way, at).to_be_bytes());
            }
            let skip = (offset - first) as usize;
            for (to, from) in bytes.iter_mut().zip(&words[skip..]) {
                *to = *from;
            }
        }
        Some(bytes)
    }

    /// Reads a word of the initialization segment.
    fn word(&self, way: Way<'_>, at: u64) -> u32 {
        let [major, minor, number] = way.profile.firmware().map(u32::from);
        match at {
            at::FIRMWARE => minor << 16 | major,
            at::INTERFACE => INTERFACE << 16 | number,
            at::QUEUE_HIGH => (self.queue >> 32) as u32,
            at::QUEUE_LOW => self.queue as u32 | self.interface << 8 | LOG_SLOTS << 4 | LOG_STRIDE,
            at::TIMER_HIGH => (way.profile.ticks(way.clock.now()) >> 32) as u32,
            at::TIMER_LOW => way.profile.ticks(way.clock.now()) as u32,
            at::HEALTH => (way.clock.now() / HEARTBEAT) as u32 & 0x00ff_ffff,
            at::REAL_TIME_HIGH => (way.clock.now() / SECOND) as u32,
            at::REAL_TIME_LOW => (way.clock.now() % SECOND) as u32,
            _ => 0,
        }
    }

    /// Writes bytes outside of the UAR pages; `None` if they are not all inside.
    pub fn write(&mut self, way: Way<'_>, offset: u64, from: &[u8]) -> Option<()> {
        check(offset, from.len())?;
        let end = offset + from.len() as u64;
        if let Some(bus) = own(offset, end) {
            way.memory.write(bus, from).ok()?;
        } else if offset >= VECTORS && end <= VECTORS + vectors::TABLE as u64 {
            way.vectors.write_table((offset - VECTORS) as usize, from);
        } else if offset % 4 == 0 && end <= PAGE {
            for (at, bytes) in (offset..end).step_by(4).zip(from.chunks_exact(4)) {
                self.write_word(
                    way,
                    at,
                    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                );
            }
        }
        Some(())
    }

    /// Writes a word of the initialization segment.
    fn write_word(&mut self, way: Way<'_>, at: u64, value: u32) {
        let low = u64::from(value & !0xfff);
        match at {
            at::QUEUE_HIGH => self.queue = u64::from(value) << 32 | self.queue & 0xffff_ffff,
            at::QUEUE_LOW => {
                self.queue = self.queue & !0xffff_ffff | low;
                self.interface = value >> 8 & 7;
            }
            at::DOORBELL if self.interface == FULL => {
                let queue = self.queue;
                let ring = |card: &mut Card| commands::execute(card, queue, value, way.log);
                way.engine.enter(way.card, ring);
            }
            _ => {}
        }
    }
}

/// The bus address of bytes in the window of the device's own memory; `None` if they are not all in it.
fn own(offset: u64, end: u64) -> Option<u64> {
    let at = offset.checked_sub(Memic::WINDOW)?;
    (end <= Memic::WINDOW + OWN_SIZE).then_some(OWN + at)
}

/// Returns whether an offset is in the UAR pages.
pub fn is_in_uars(offset: u64) -> bool {
    (FIRST_UAR * PAGE..Memic::WINDOW).contains(&offset)
}

/// Stores to UAR pages, in pieces that stay in their page.
pub fn store(way: Way<'_>, mut offset: u64, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (page, at) = ((offset / PAGE) as u32, (offset % PAGE) as usize);
        let (piece, rest) = bytes.split_at(bytes.len().min(STORE).min(PAGE as usize - at));
        way.engine.enter(way.card, |card| card.store(page, at, piece));
        offset += piece.len() as u64;
        bytes = rest;
    }
}

/// Checks that bytes are inside of the BAR.
pub fn check(offset: u64, count: usize) -> Option<()> {
    let end = offset.checked_add(count as u64)?;
    (end <= SIZE).then_some(())
}
