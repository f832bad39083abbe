//! One function: its answers to the client's requests.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mlx5_model::card::{Card, Link, Profile};
use mlx5_model::clock::Clock;
use mlx5_model::engine::Engine;
use mlx5_model::memory::Fault;

use crate::bar::{self, Registers, Way};
use crate::combine::Combiner;
use crate::config::{self, ConfigSpace, Effect};
use crate::guest::{GuestMemory, Rights};
use crate::options::Log;
use crate::protocol::{
    Access, MAX_DESCRIPTORS, MAX_MAPPINGS, MAX_TRANSFER, PAGE, Refusal, command, long, word, words,
};
use crate::socket::Message;
use crate::vectors::{self, Vectors};

/// Regions, by their index: six BARs, the ROM, the configuration space, and VGA.
mod region {
    pub const BAR: u32 = 0;
    pub const CONFIG: u32 = 7;
    pub const COUNT: u32 = 9;
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
}

/// Interrupts, by their index: INTx, MSI, MSI-X, errors, and requests.
mod interrupt {
    pub const MSIX: u32 = 2;
    pub const COUNT: u32 = 5;
    pub const EVENTFD: u32 = 1;
    pub const MASKABLE: u32 = 2;
}

/// Bits of DEVICE_SET_IRQS: what comes with the request, and what it does.
mod set {
    pub const NO_DATA: u32 = 1;
    pub const BOOLEANS: u32 = 2;
    pub const EVENTFDS: u32 = 4;
    pub const MASK: u32 = 8;
    pub const UNMASK: u32 = 16;
    pub const TRIGGER: u32 = 32;
}

/// The version of the protocol.
const MAJOR: u16 = 0;
const MINOR: u16 = 1;

/// A function that a client drives.
pub struct Function {
    engine: Arc<Engine>,
    card: usize,
    memory: Arc<GuestMemory>,
    vectors: Arc<Vectors>,
    clock: Clock,
    log: Log,
    profile: Profile,
    link: Link,
    config: ConfigSpace,
    registers: Registers,
    combiner: Combiner,
    /// Whether the log tells already why this client's memory is refused.
    explained: bool,
}

impl Function {
    /// Creates a function around a device of an engine.
    pub fn new(
        engine: Arc<Engine>,
        card: usize,
        memory: Arc<GuestMemory>,
        vectors: Arc<Vectors>,
        log: Log,
    ) -> Self {
        let (clock, profile, link) = engine
            .enter(card, |card| (card.clock.clone(), card.identity.profile, card.identity.link));
        let (config, registers) = (ConfigSpace::new(profile.device(), link), Registers::default());
        let combiner = Combiner::default();
        Self {
            engine,
            card,
            memory,
            vectors,
            clock,
            log,
            profile,
            link,
            config,
            registers,
            combiner,
            explained: false,
        }
    }

    /// Resets the function. The client keeps its mappings and eventfds.
    pub fn reset(&mut self) {
        self.config = ConfigSpace::new(self.profile.device(), self.link);
        self.registers = Registers::default();
        self.combiner.clear();
        self.engine.enter(self.card, Card::reset);
        self.vectors.reset();
    }

    /// Resets the function and forgets the client. A port that the client has switched off is as it
    /// was when the server started.
    ///
    /// # Errors
    /// If the device's own memory cannot be cleared. The next client could read it.
    pub fn disconnect(&mut self) -> Result<(), Fault> {
        self.reset();
        self.engine.enter(self.card, |card| card.port_state = card.identity.port);
        self.vectors.disconnect();
        self.explained = false;
        self.memory.disconnect()
    }

    fn way(&self) -> Way<'_> {
        let Self { engine, card, memory, vectors, clock, log, profile, .. } = self;
        Way { engine, card: *card, memory, vectors, clock, log: *log, profile: *profile }
    }

    /// Returns whether stores wait for others that they may be combined with.
    pub fn holds_stores(&self) -> bool {
        self.combiner.holds()
    }

    /// Makes the stores that wait, one by one.
    pub fn release_stores(&mut self) {
        let mut combiner = std::mem::take(&mut self.combiner);
        combiner.release(|offset, bytes| bar::store(self.way(), offset, bytes));
    }

    /// Answers a request: returns the reply's payload. Stores that wait come before all other
    /// requests than stores.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn answer(&mut self, request: Message) -> Result<Vec<u8>, Refusal> {
        let Message { header, payload, descriptors } = request;
        if header.command != command::REGION_WRITE {
            self.release_stores();
        }
        match header.command {
            command::VERSION => version(&payload),
            command::DMA_MAP => self.map(&payload, &descriptors),
            command::DMA_UNMAP => self.unmap(&payload),
            command::DEVICE_GET_INFO => {
                /// A PCI device that can be reset.
                const FLAGS: u32 = 3;
                word(&payload, 0)?;
                Ok(words(&[16, FLAGS, region::COUNT, interrupt::COUNT]))
            }
            command::DEVICE_GET_REGION_INFO => region_info(&payload),
            command::DEVICE_GET_IRQ_INFO => interrupt_info(&payload),
            command::DEVICE_SET_IRQS => self.set_interrupts(&payload, descriptors),
            command::REGION_READ => self.read(&payload),
            command::REGION_WRITE => self.write(&payload),
            command::DEVICE_RESET => {
                self.reset();
                Ok(Vec::new())
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    fn map(&mut self, payload: &[u8], descriptors: &[OwnedFd]) -> Result<Vec<u8>, Refusal> {
        let flags = word(payload, 4)?;
        let (offset, address, length) = (long(payload, 8)?, long(payload, 16)?, long(payload, 24)?);
        let rights = Rights { read: flags & 1 != 0, write: flags & 2 != 0 };
        if flags & !3 != 0 || descriptors.len() > 1 {
            return Err(Refusal::Invalid);
        }
        let file = descriptors.first().map(|file| (file, offset));
        let mapped = self.memory.map(address, length, rights, file);
        if mapped == Err(Refusal::NotInMemory) && !std::mem::replace(&mut self.explained, true) {
            eprintln!("mlx5-model-pci: memory at {address:#x}: {}", Refusal::NotInMemory);
        }
        mapped.map(|()| Vec::new())
    }

    fn unmap(&self, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
        const ALL: u32 = 2;
        let (address, length) = (long(payload, 8)?, long(payload, 16)?);
        match word(payload, 4)? {
            0 => self.memory.unmap(address, length)?,
            ALL if (address, length) == (0, 0) => self.memory.clear(),
            _ => return Err(Refusal::Invalid),
        }
        Ok(payload[..24].to_vec())
    }

    fn set_interrupts(
        &self,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Vec<u8>, Refusal> {
        let (flags, index) = (word(payload, 4)?, word(payload, 8)?);
        let (first, count) = (word(payload, 12)? as usize, word(payload, 16)? as usize);
        let data = flags & (set::NO_DATA | set::BOOLEANS | set::EVENTFDS);
        let action = flags & !data;
        if index != interrupt::MSIX {
            // The function has none of the others, which a client may switch off all the same.
            return if index < interrupt::COUNT && descriptors.is_empty() {
                Ok(Vec::new())
            } else {
                Err(Refusal::Invalid)
            };
        }
        match (data, action) {
            (set::EVENTFDS, set::TRIGGER) if descriptors.is_empty() => {
                let count = count.min(vectors::COUNT + 1);
                self.vectors.listen(first, (0..count).map(|_| None).collect())?;
            }
            (set::EVENTFDS, set::TRIGGER) if descriptors.len() == count => {
                self.vectors.listen(first, descriptors.into_iter().map(Some).collect())?;
            }
            // Nothing to trigger: MSI-X is switched off.
            (set::NO_DATA, set::TRIGGER) if count == 0 => self.vectors.disconnect(),
            (set::NO_DATA, set::TRIGGER) => self.vectors.trigger(first, count)?,
            (set::NO_DATA, set::MASK) => self.vectors.mask(first, count, true)?,
            (set::NO_DATA, set::UNMASK) => self.vectors.mask(first, count, false)?,
            (set::BOOLEANS, set::MASK | set::UNMASK | set::TRIGGER) => {
                let chosen = payload.get(20..).and_then(|data| data.get(..count));
                let chosen = chosen.ok_or(Refusal::Invalid)?.iter().enumerate();
                for vector in chosen.filter(|(_, set)| **set != 0).map(|(at, _)| first + at) {
                    match action {
                        set::TRIGGER => self.vectors.trigger(vector, 1)?,
                        action => self.vectors.mask(vector, 1, action == set::MASK)?,
                    }
                }
            }
            _ => return Err(Refusal::Invalid),
        }
        Ok(Vec::new())
    }

    fn read(&mut self, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
        let access = Access::read(payload)?;
        let count = access.count as usize;
        let data = match access.region {
            region::BAR => self.registers.read(self.way(), access.offset, count),
            region::CONFIG => self.config.read(access.offset, count),
            _ => None,
        };
        let mut reply = access.bytes().to_vec();
        reply.extend(data.ok_or(Refusal::Invalid)?);
        Ok(reply)
    }

    /// Stores to a UAR page.
    fn store(&mut self, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        bar::check(offset, data.len()).ok_or(Refusal::Invalid)?;
        let mut combiner = std::mem::take(&mut self.combiner);
        combiner.store(offset, data, |offset, bytes| bar::store(self.way(), offset, bytes));
        self.combiner = combiner;
        Ok(())
    }

    fn write(&mut self, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
        let access = Access::read(payload)?;
        let data = &payload[Access::SIZE..];
        if data.len() != access.count as usize {
            return Err(Refusal::Invalid);
        }
        if access.region == region::BAR && bar::is_in_uars(access.offset) {
            self.store(access.offset, data)?;
            return Ok(access.bytes().to_vec());
        }
        self.release_stores();
        match access.region {
            region::BAR => {
                let mut registers = self.registers;
                let written = registers.write(self.way(), access.offset, data);
                self.registers = registers;
                written.ok_or(Refusal::Invalid)?;
            }
            region::CONFIG => {
                let effect = self.config.write(access.offset, data).ok_or(Refusal::Invalid)?;
                self.vectors.mask_all(self.config.masks_all());
                if effect == Effect::Reset {
                    self.reset();
                }
            }
            _ => return Err(Refusal::Invalid),
        }
        Ok(access.bytes().to_vec())
    }
}

/// Agrees on a version, and says what the server can do.
fn version(payload: &[u8]) -> Result<Vec<u8>, Refusal> {
    let versions = word(payload, 0)?;
    let (major, minor) = (versions as u16, (versions >> 16) as u16);
    if major != MAJOR {
        return Err(Refusal::Unsupported);
    }
    let capabilities = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{MAX_DESCRIPTORS},\
         \"max_data_xfer_size\":{MAX_TRANSFER},\"max_dma_maps\":{MAX_MAPPINGS},\
         \"pgsizes\":{PAGE}}}}}\0"
    );
    let mut reply = words(&[u32::from(MAJOR) | u32::from(minor.min(MINOR)) << 16]);
    reply.extend(capabilities.as_bytes());
    Ok(reply)
}

fn region_info(payload: &[u8]) -> Result<Vec<u8>, Refusal> {
    let index = word(payload, 8)?;
    let size = match index {
        region::BAR => bar::SIZE,
        region::CONFIG => config::SIZE as u64,
        index if index < region::COUNT => 0,
        _ => return Err(Refusal::Invalid),
    };
    let flags = if size > 0 { region::READ | region::WRITE } else { 0 };
    let (low, high) = (size as u32, (size >> 32) as u32);
    Ok(words(&[32, flags, index, 0, low, high, 0, 0]))
}

fn interrupt_info(payload: &[u8]) -> Result<Vec<u8>, Refusal> {
    let index = word(payload, 8)?;
    let (flags, count) = match index {
        interrupt::MSIX => (interrupt::EVENTFD | interrupt::MASKABLE, vectors::COUNT as u32),
        index if index < interrupt::COUNT => (interrupt::EVENTFD, 0),
        _ => return Err(Refusal::Invalid),
    };
    Ok(words(&[16, flags, index, count]))
}

/// The parts of a function that its device needs before it is made.
///
/// # Errors
/// Those of [`GuestMemory::new`] and [`Vectors::new`].
pub fn parts() -> io::Result<(Arc<GuestMemory>, Arc<Vectors>)> {
    Ok((Arc::new(GuestMemory::new()?), Arc::new(Vectors::new()?)))
}
