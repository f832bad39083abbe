//! The attack.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use mlx5_model::clock::Random;
use mlx5_sys::ifc::opcode;

use crate::Result;
use crate::memory::{Bar, Width};
use crate::queue::{LONGEST, Queue};

/// The command register of the configuration space: memory space and bus master.
const COMMAND: u64 = 0x04;
const ENABLED: [u8; 2] = 0x0006u16.to_le_bytes();
/// The power state in the configuration space. QEMU hides the BAR in any other than D0, also after a
/// reset.
const POWER: u64 = 0x44;
const D0: [u8; 1] = [0];

/// The host bridge of QEMU's q35. Its registers from 0x91 on say which parts of the memory between
/// 0xc0000 and 0xeffff can be read and written. QEMU maps and unmaps them at the function.
const BRIDGE: &str = "/sys/bus/pci/devices/0000:00:00.0/config";
const SHADOWS: std::ops::Range<u64> = 0x91..0x97;

/// How many steps were made of each kind.
#[derive(Debug, Default)]
pub struct Done {
    stores: u64,
    loads: u64,
    executed: u64,
    refused: u64,
    undelivered: u64,
    unseen: u64,
    config: u64,
    mappings: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stores, loads, executed, refused, undelivered, unseen, config, mappings } = self;
        write!(
            f,
            "{stores} stores, {loads} loads; commands: {executed} executed, {refused} refused, \
             {undelivered} not delivered, {unseen} not seen; {config} stores to the configuration \
             space, {mappings} changes of mappings"
        )
    }
}

/// An attack on a function.
pub struct Attack {
    random: Random,
    queue: Queue,
    config: File,
    bridge: File,
    shadows: Vec<u8>,
    opcodes: Vec<u16>,
    done: Done,
}

impl Attack {
    pub fn new(function: &Path, seed: u64) -> Result<Self> {
        let open = |path: &Path| {
            let file = File::options().read(true).write(true).open(path);
            file.map_err(|error| format!("{}: {error}", path.display()))
        };
        let (config, bridge) = (open(&function.join("config"))?, open(Path::new(BRIDGE))?);
        let mut shadows = vec![0; (SHADOWS.end - SHADOWS.start) as usize];
        bridge.read_exact_at(&mut shadows, SHADOWS.start).map_err(|error| error.to_string())?;
        let opcodes = (0x100..0xb80).filter(|code| opcode::name(*code).is_some()).collect();
        enable(&config)?;
        let queue = Queue::new(Bar::open(function)?)?;
        let (random, done) = (Random::seeded(seed), Done::default());
        Ok(Self { random, queue, config, bridge, shadows, opcodes, done })
    }

    /// Attacks for a time. The HCA runs at first, so that commands get far.
    pub fn run(mut self, time: Duration) -> Result<Done> {
        self.queue.boot()?;
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.below(256) == 0 {
                // The function may have been reset, and refuses this if it was not.
                let _ = self.queue.boot();
            }
            match self.below(16) {
                0..=5 => self.store_to_bar(),
                6 => {
                    self.queue.bar.load(self.random.draw() as usize, Width::Eight);
                    self.done.loads += 1;
                }
                7..=13 => self.command(),
                14 => self.store_to_config()?,
                _ => self.change_mappings()?,
            }
        }
        store(&self.bridge, SHADOWS.start, &self.shadows)?;
        Ok(self.done)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.draw() % end
    }

    fn store_to_bar(&mut self) {
        let length = self.queue.bar.length() as u64;
        let offset = match self.below(4) {
            0 => self.below(0x40),
            1 => self.below(0x4000),
            2 => 0x1_0000 + self.below(0x4_0000),
            _ => self.below(length),
        };
        let width = Width::ALL[self.below(4) as usize];
        let value = self.random.draw() >> self.below(64);
        self.queue.bar.store(offset as usize, width, value);
        self.done.stores += 1;
    }

    /// Fills a command. Its addresses are pages of this program, or beyond the guest's memory.
    fn fill(&mut self, input: &mut [u8]) {
        let kind = self.below(3);
        let spare = self.queue.spare().to_vec();
        for word in input.chunks_exact_mut(8) {
            let value = match (kind, self.below(8)) {
                (0, 0) => self.below(16) << (16 * self.below(4)),
                (0, _) => 0,
                (1, _) => self.random.draw() | 1 << 62,
                (_, 0..4) => spare[self.below(spare.len() as u64) as usize],
                _ => self.below(0x100),
            };
            word.copy_from_slice(&value.to_be_bytes());
        }
    }

    fn command(&mut self) {
        // An earlier store may have changed the address.
        self.queue.connect();
        let length = 16 + self.below(LONGEST as u64 / 2) as usize;
        let mut input = vec![0; length];
        self.fill(&mut input);
        let chosen = self.below(self.opcodes.len() as u64) as usize;
        let code = self.opcodes[chosen];
        input[..2].copy_from_slice(&code.to_be_bytes());
        input[2..6].fill(0);
        if [opcode::TEARDOWN_HCA, opcode::DISABLE_HCA].contains(&code) && self.below(64) != 0 {
            return;
        }
        let output = 16 + self.below(LONGEST as u64 / 2) as usize;
        self.queue.put(&input, output);
        if self.below(6) == 0 {
            let (at, byte) = (self.below(64 + 0x240) as usize, self.random.draw() as u8);
            self.queue.damage(at, byte);
        }
        match self.queue.ring() {
            Ok(0) => self.done.executed += 1,
            Ok(_) => self.done.refused += 1,
            Err(Some(_)) => self.done.undelivered += 1,
            Err(None) => self.done.unseen += 1,
        }
    }

    /// Stores to capabilities, the BAR's address and what lies between. The function-level reset in
    /// them may start.
    fn store_to_config(&mut self) -> Result<()> {
        let (offset, byte) = (0x40 + self.below(0x100), self.random.draw() as u8);
        store(&self.config, offset, &[byte])?;
        self.done.config += 1;
        enable(&self.config)
    }

    fn change_mappings(&mut self) -> Result<()> {
        let offset = SHADOWS.start + self.below(SHADOWS.end - SHADOWS.start);
        let rights = [0x00, 0x11, 0x22, 0x33][self.below(4) as usize];
        store(&self.bridge, offset, &[rights])?;
        self.done.mappings += 1;
        Ok(())
    }
}

/// Lets stores to the BAR reach the function.
fn enable(config: &File) -> Result<()> {
    store(config, POWER, &D0)?;
    store(config, COMMAND, &ENABLED)
}

fn store(file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|error| format!("configuration space: {error}"))
}
