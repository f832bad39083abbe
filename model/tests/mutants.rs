//! Requests that are almost valid: creation, use and destruction of completion queues and queue
//! pairs, with some words changed, and stores of any value to their registers.

mod support;

use std::collections::BTreeMap;
use std::ptr::null_mut;

use libc::c_int;
use mlx5_model as _;
use support::random::Random;
use support::request::{ERRNOS, PAGE, Scene, attribute, call, word};
use support::role::{Player, play};

#[test]
fn role() {
    play(&[("lives", lives)]);
}

/// Bytes of a structure, put together.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, values: &[u32]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    fn u16(mut self, values: &[u16]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    fn u8(mut self, values: &[u8]) -> Self {
        self.0.extend(values);
        self
    }
}

/// Address of the pages that the queues lie in: far from all other memory. A card writes to any
/// address that it is told. So an address with a byte changed must not be an address of the
/// program's own memory, which would then be rightly lost.
const FAR: usize = 0x2000_0000_0000;

/// Positions in those pages.
const QUEUES: usize = 64 * PAGE;
const CQ_RING: u64 = 0;
const QP_RING: u64 = 16 * PAGE as u64;
const RECORDS: u64 = 32 * PAGE as u64;
const REQUEST: u64 = 40 * PAGE as u64;
const REPLY: u64 = 42 * PAGE as u64;
const DATA: u64 = 48 * PAGE as u64;

/// A command file and what was made on it.
struct Life<'a> {
    scene: &'a Scene,
    base: u64,
    uar: u32,
    /// The register page.
    registers: *mut u8,
    random: Random,
    /// How often each command was given and worked.
    tally: BTreeMap<&'static str, (usize, usize)>,
}

impl Life<'_> {
    fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        // SAFETY: inside the pages of the queues, which the card may be writing to.
        (0..length)
            .map(|i| unsafe { ((self.base + at) as *const u8).add(i).read_volatile() })
            .collect()
    }

    fn fill(&self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= QUEUES);
        // SAFETY: inside the pages of the queues; nothing borrows them.
        unsafe { std::ptr::copy(bytes.as_ptr(), (self.base + at) as *mut u8, bytes.len()) };
    }

    /// Changes some of a structure, more often than not nothing.
    fn mutate(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() || self.random.below(5) > 0 {
            return;
        }
        for _ in 0..=self.random.below(3) {
            let value = word(&mut self.random, &self.scene.scratch).to_ne_bytes();
            let width = self.random.pick(&[1, 2, 4, 8]).min(bytes.len());
            let at = self.random.below(bytes.len() - width + 1) / width * width;
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
    }

    /// Gives a command; the words of its reply if it works.
    fn give(
        &mut self,
        name: &'static str,
        command: u64,
        core: Bytes,
        driver: Bytes,
        room: u16,
    ) -> Option<[u32; 4]> {
        let (mut core, mut driver) = (core.0, driver.0);
        self.mutate(&mut core);
        self.mutate(&mut driver);
        self.fill(REQUEST, &core);
        self.fill(REQUEST + 2048, &driver);
        let inline = |at: u64, bytes: &[u8]| {
            let mut word = [0; 8];
            match bytes.len() {
                0..=8 => {
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_ne_bytes(word)
                }
                _ => self.base + at,
            }
        };
        let given = [
            attribute(0, core.len() as u16, inline(REQUEST, &core)),
            attribute(1, room, self.base + REPLY),
            attribute(2, 8, command),
            attribute(0x1000, driver.len() as u16, inline(REQUEST + 2048, &driver)),
            attribute(0x1001, 64, self.base + REPLY + 2048),
        ];
        let result = call(self.scene.file, 0, 0, &given);
        if let Err(errno) = result {
            assert!(ERRNOS.contains(&errno), "{name}: errno {errno}");
        }
        let counts = self.tally.entry(name).or_default();
        counts.0 += 1;
        counts.1 += usize::from(result.is_ok());
        result.ok()?;
        let reply = self.bytes(REPLY, 16);
        Some(std::array::from_fn(|i| {
            u32::from_ne_bytes(reply[4 * i..4 * i + 4].try_into().expect("four bytes"))
        }))
    }

    /// Something for the card to do, or something like it.
    fn ring(&mut self, qpn: u32, key: u32) {
        let base = self.base;
        for slot in 0..16u16 {
            let opcode = self.random.pick(&[0u8, 8, 9, 10, 11, 16, 17, 18, 0x25, 0x0d, 0xff]);
            let ds = self.random.below(8) as u32;
            let length = self.random.pick(&[0u32, 8, 64, 5000, 0x8000_0010, 0x7fff_ffff]);
            let mut block = Vec::new();
            block.extend((u32::from(slot) << 8 | u32::from(opcode)).to_be_bytes());
            block.extend((qpn << 8 | ds).to_be_bytes());
            block.extend([0, 0, 0, self.random.pick(&[8u8, 0, 0x88, 0x40, 0xe8])]);
            block.extend([0; 4]);
            for _ in 0..3 {
                // Half of them remote addresses, half data segments, wherever they come to lie.
                if self.random.below(2) == 0 {
                    block.extend((base + DATA).to_be_bytes());
                    block.extend(key.to_be_bytes());
                    block.extend([0; 4]);
                } else {
                    block.extend(length.to_be_bytes());
                    block.extend(key.to_be_bytes());
                    block.extend((base + DATA).to_be_bytes());
                }
            }
            self.mutate(&mut block);
            self.fill(QP_RING + 64 * u64::from(slot), &block);
        }
        for turn in 1..=4u32 {
            let records = match self.random.below(6) {
                0 => self.random.next() as u32,
                _ => turn * 4,
            };
            self.fill(RECORDS + 64, &[records.to_be_bytes(), records.to_be_bytes()].concat());
            let control = self.bytes(QP_RING, 8);
            let value = match self.random.below(4) {
                0 => self.random.next(),
                _ => u64::from_ne_bytes(control.try_into().expect("eight bytes")),
            };
            let at = match self.random.below(4) {
                0 => self.random.below(PAGE / 8) * 8,
                _ => 0x800,
            };
            // SAFETY: inside the register page; what a store does there is what this tests.
            unsafe {
                match self.random.below(8) {
                    0 => self.registers.add(at).cast::<u32>().write_volatile(value as u32),
                    1 => self.registers.add(at).cast::<u16>().write_volatile(value as u16),
                    2 => self.registers.add(at + 5).write_volatile(value as u8),
                    _ => self.registers.add(at).cast::<u64>().write_volatile(value),
                }
            }
        }
    }

    fn live(&mut self) {
        let base = self.base;
        let none = Bytes::default;
        let Some([pd, ..]) = self.give("ALLOC_PD", 3, none().u64(0), none(), 4) else { return };
        let region =
            none().u64(0).u64(base + DATA).u64(4 * PAGE as u64).u64(base + DATA).u32(&[pd, 15]);
        let region = self.give("REG_MR", 9, region, none(), 12);
        let size = self.random.pick(&[15u32, 31, 63]);
        let driver = none()
            .u64(base + CQ_RING)
            .u64(base + RECORDS)
            .u32(&[64])
            .u8(&[0, 0])
            .u16(&[2, self.uar as u16, 0])
            .u32(&[0]);
        let made = if self.random.below(2) == 0 {
            let core = none().u64(0).u64(7).u32(&[size, 0, u32::MAX, 0]);
            self.give("CREATE_CQ", 18, core, driver, 8)
        } else {
            let core = none().u64(7).u32(&[size, 0, u32::MAX, 0, 0, 0]);
            self.give("EX_CREATE_CQ", 0x8000_0012, core, driver, 16)
        };
        if let (Some([cq, ..]), Some([mr, key, ..])) = (made, region) {
            self.queue_pair(pd, cq, key);
            let driver = none().u64(base + CQ_RING).u16(&[64, 0]).u32(&[0]);
            self.give("RESIZE_CQ", 19, none().u64(0).u32(&[cq, 100]), driver, 8);
            self.give("DESTROY_CQ", 20, none().u64(0).u32(&[cq, 0]), none(), 8);
            self.give("DEREG_MR", 13, none().u32(&[mr]), none(), 0);
        }
        self.give("DEALLOC_PD", 4, none().u32(&[pd]), none(), 0);
    }

    fn queue_pair(&mut self, pd: u32, cq: u32, key: u32) {
        let base = self.base;
        let none = Bytes::default;
        // Without receives, their stride may be anything.
        let (receives, stride) = self.random.pick(&[(16, 6), (16, 6), (16, 6), (0, 77)]);
        let driver = none()
            .u64(base + QP_RING)
            .u64(base + RECORDS + 64)
            .u32(&[16, receives, stride, 1 << 10 | 2, 5, self.uar])
            .u64(0)
            .u32(&[0, 0]);
        let core = none().u64(0).u64(9).u32(&[pd, cq, cq, 0, 16, 16, 2, 2, 0]).u8(&[0, 2, 0, 0]);
        let Some([qp, qpn, ..]) = self.give("CREATE_QP", 24, core, driver, 32) else { return };
        let path = |modify: Bytes| {
            modify.u8(&[0; 16]).u32(&[0]).u16(&[1, 0]).u8(&[0, 0, 0, 0, 0, 0, 0, 1])
        };
        let states: [(&str, u32, u8); 6] = [
            ("to INIT", 1 | 1 << 3 | 1 << 4 | 1 << 5, 1),
            ("to RTR", 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20, 2),
            ("to RTS", 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16, 3),
            ("to RTS again", 1 | 1 << 3 | 1 << 15, 3),
            ("to ERR", 1, 6),
            ("to RESET", 1, 0),
        ];
        for (name, mask, state) in states {
            let core = path(path(none()))
                .u32(&[qp, mask, 0, 0, 0, qpn, 14])
                .u16(&[0, 0])
                .u8(&[state, 0, 3, 0, 0, 4, 4, 12, 1, 12, 1, 1, 1, 0, 0, 0]);
            self.give(name, 26, core, none(), 0);
            let core = none().u64(0).u32(&[qp, 1]);
            self.give("QUERY_QP", 25, core, none(), 128);
            if state == 3 {
                self.ring(qpn, key);
            }
        }
        self.give("DESTROY_QP", 27, none().u64(0).u32(&[qp, 0]), none(), 4);
    }
}

fn lives() -> i32 {
    let scene = Scene::new();
    let mut uar = [0u8; 24];
    let at = uar.as_mut_ptr() as u64;
    let given = [
        attribute(0x1000, 0, 0),
        attribute(0x1001, 1, 0),
        attribute(0x1002, 8, at),
        attribute(0x1003, 4, at + 8),
        attribute(0x1004, 4, at + 16),
    ];
    assert_eq!(call(scene.file, 0x1008, 0x1000, &given), Ok(()));
    let offset = u64::from_ne_bytes(uar[..8].try_into().expect("eight bytes"));
    let number = u32::from_ne_bytes(uar[16..20].try_into().expect("four bytes"));
    // SAFETY: new mappings: the register page of the file, and pages for queues.
    let (registers, base) = unsafe {
        let registers = libc::mmap(
            null_mut(),
            PAGE,
            libc::PROT_WRITE,
            libc::MAP_SHARED,
            scene.file,
            offset as libc::off_t,
        );
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let far = FAR as *mut libc::c_void;
        (registers, libc::mmap(far, QUEUES, protection, flags, -1 as c_int, 0))
    };
    assert!(registers != libc::MAP_FAILED && base != libc::MAP_FAILED);
    let mut life = Life {
        scene: &scene,
        base: base as u64,
        uar: number,
        registers: registers.cast(),
        random: Random::new(0),
        tally: BTreeMap::new(),
    };
    for seed in 0..1500 {
        life.random = Random::new(seed);
        life.live();
        if seed % 50 == 0 {
            scene.check();
        }
    }
    // Each request worked at least once. Each request that can be wrong was refused at least once.
    // Otherwise this would test nothing.
    println!("given and worked: {:?}", life.tally);
    for (name, (given, worked)) in &life.tally {
        assert!(*worked > 0, "{name}: none of {given} worked");
        assert!(worked < given || *name == "ALLOC_PD", "{name}: all of {given} worked");
    }
    scene.end()
}

#[test]
fn requests_that_are_almost_right_do_no_harm() {
    Player::of("lives").end_well();
}
