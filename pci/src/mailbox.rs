//! Entries of the command queue, and the mailboxes that hold what does not fit into an entry.
//!
//! An entry and each mailbox are big-endian structures in guest memory (Linux's `mlx5/driver.h`,
//! `mlx5_cmd_layout` and `mlx5_cmd_prot_block`). Mailboxes form a list. How far the device follows it
//! depends only on the length in the entry, which is bounded, so a list that ends nowhere is no harm.

use mlx5_model::memory::{Fault, Memory};

/// Bytes of an entry.
pub const ENTRY: usize = 64;
/// Bytes of a command or a reply in the entry itself.
pub const INLINE: usize = 16;
/// Bytes of a command or a reply in a mailbox.
pub const BLOCK: usize = 512;
/// Most bytes of a command or a reply: those of a key with two million pages.
pub const LONGEST: usize = 1 << 24;
/// The transport that an entry names: commands over PCI.
const PCI: u8 = 7;
/// Bytes of a mailbox.
const MAILBOX: usize = 0x240;
/// The alignment of its address: a ConnectX-4 Lx asks for it (evidence F133), and Linux's pool has it.
const ALIGNMENT: u64 = 0x400;

/// Offsets in an entry.
mod entry {
    pub const TYPE: usize = 0x00;
    pub const INPUT_LENGTH: usize = 0x04;
    pub const INPUT_LIST: usize = 0x08;
    pub const INPUT: usize = 0x10;
    pub const OUTPUT: usize = 0x20;
    pub const OUTPUT_LIST: usize = 0x30;
    pub const OUTPUT_LENGTH: usize = 0x38;
    pub const TOKEN: usize = 0x3c;
    pub const SIGNATURE: usize = 0x3d;
    pub const STATUS: usize = 0x3f;
}

/// Offsets in a mailbox.
mod block {
    pub const RESERVED: usize = 0x200;
    pub const NEXT: usize = 0x230;
    pub const NUMBER: usize = 0x238;
    pub const TOKEN: usize = 0x23d;
    pub const CONTROL_SIGNATURE: usize = 0x23e;
    pub const SIGNATURE: usize = 0x23f;
}

/// Why the device could not take a command or leave its reply (`cmd.c` of Linux,
/// `MLX5_CMD_DELIVERY_STAT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Delivery {
    /// The signature of the entry or of a mailbox is wrong.
    #[error("the signature is wrong")]
    Signature = 0x1,
    /// A mailbox has another token than the entry.
    #[error("a mailbox has another token than the entry")]
    Token = 0x2,
    /// A mailbox is not the one that is next.
    #[error("a mailbox has a wrong number")]
    BlockNumber = 0x3,
    /// The output list is not aligned.
    #[error("the address of an output mailbox is not aligned")]
    OutputAlignment = 0x4,
    /// The input list is not aligned.
    #[error("the address of an input mailbox is not aligned")]
    InputAlignment = 0x5,
    /// A mailbox is not in memory.
    #[error("a mailbox is not in memory")]
    Firmware = 0x6,
    /// The length of the command.
    #[error("the command is too short or too long")]
    InputLength = 0x7,
    /// The length of the reply.
    #[error("the reply is too short or too long")]
    OutputLength = 0x8,
    /// The type of the entry.
    #[error("the entry is of another type")]
    Descriptor = 0x10,
}

/// An entry of the command queue.
#[derive(Clone, Debug)]
pub struct Entry {
    address: u64,
    bytes: [u8; ENTRY],
}

/// The lists of mailboxes of an entry.
#[derive(Clone, Copy)]
enum List {
    Input,
    Output,
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// If it is not in memory.
    pub fn read(memory: &dyn Memory, address: u64) -> Result<Self, Fault> {
        let mut bytes = [0; ENTRY];
        memory.read(address, &mut bytes)?;
        Ok(Self { address, bytes })
    }

    /// Returns whether the device is to execute it.
    pub fn is_for_device(&self) -> bool {
        self.bytes[entry::STATUS] & 1 == 1
    }

    fn word(&self, at: usize) -> u32 {
        be32(&self.bytes, at)
    }

    /// Gathers the command.
    ///
    /// # Errors
    /// See [`Delivery`].
    pub fn command(&self, memory: &dyn Memory) -> Result<Vec<u8>, Delivery> {
        if self.bytes[entry::TYPE] != PCI {
            return Err(Delivery::Descriptor);
        }
        if exclusive_or(&self.bytes) != 0xff {
            return Err(Delivery::Signature);
        }
        let length = self.word(entry::INPUT_LENGTH) as usize;
        if length > LONGEST {
            return Err(Delivery::InputLength);
        }
        let mut command = self.bytes[entry::INPUT..entry::INPUT + INLINE].to_vec();
        command.resize(length, 0);
        self.each_block(memory, List::Input, length, |_, block, part| {
            command[part.clone()].copy_from_slice(&block[..part.len()]);
            Ok(())
        })?;
        Ok(command)
    }

    /// Returns room for the reply.
    ///
    /// # Errors
    /// If it is longer than [`LONGEST`].
    pub fn reply(&self) -> Result<Vec<u8>, Delivery> {
        let length = self.word(entry::OUTPUT_LENGTH) as usize;
        if length > LONGEST { Err(Delivery::OutputLength) } else { Ok(vec![0; length]) }
    }

    /// Spreads the reply over the entry and the output mailboxes. [`Entry::finish`] writes the entry.
    ///
    /// # Errors
    /// See [`Delivery`].
    pub fn answer(&mut self, memory: &dyn Memory, reply: &[u8]) -> Result<(), Delivery> {
        self.each_block(memory, List::Output, reply.len(), |address, block, part| {
            block[..part.len()].copy_from_slice(&reply[part]);
            sign(block);
            memory.write(address, block).map_err(|_| Delivery::Firmware)
        })?;
        let head = reply.len().min(INLINE);
        self.bytes[entry::OUTPUT..entry::OUTPUT + head].copy_from_slice(&reply[..head]);
        Ok(())
    }

    /// Gives the entry back to the driver.
    ///
    /// # Errors
    /// If it is not in memory any more.
    pub fn finish(
        &mut self,
        memory: &dyn Memory,
        delivered: Result<(), Delivery>,
    ) -> Result<(), Fault> {
        let status = delivered.err().map_or(0, |delivery| delivery as u8);
        self.bytes[entry::STATUS] = status << 1;
        self.bytes[entry::SIGNATURE] = 0;
        self.bytes[entry::SIGNATURE] = !exclusive_or(&self.bytes);
        // The status is the last byte, by which the driver sees that the rest is there.
        memory.publish(self.address + entry::OUTPUT as u64, &self.bytes[entry::OUTPUT..])
    }

    /// Calls `each` for every mailbox with its address, its bytes, and the part of the message that it
    /// has.
    fn each_block(
        &self,
        memory: &dyn Memory,
        list: List,
        length: usize,
        mut each: impl FnMut(u64, &mut [u8; MAILBOX], std::ops::Range<usize>) -> Result<(), Delivery>,
    ) -> Result<(), Delivery> {
        let (at, misaligned) = match list {
            List::Input => (entry::INPUT_LIST, Delivery::InputAlignment),
            List::Output => (entry::OUTPUT_LIST, Delivery::OutputAlignment),
        };
        let mut next = be64(&self.bytes, at);
        for (number, start) in (INLINE..length).step_by(BLOCK).enumerate() {
            if next % ALIGNMENT != 0 {
                return Err(misaligned);
            }
            let mut block = [0; MAILBOX];
            memory.read(next, &mut block).map_err(|_| Delivery::Firmware)?;
            if block[block::TOKEN] != self.bytes[entry::TOKEN] {
                return Err(Delivery::Token);
            }
            if be32(&block, block::NUMBER) as usize != number {
                return Err(Delivery::BlockNumber);
            }
            if matches!(list, List::Input) && !is_signed(&block) {
                return Err(Delivery::Signature);
            }
            each(next, &mut block, start..(start + BLOCK).min(length))?;
            next = be64(&block, block::NEXT);
        }
        Ok(())
    }
}

/// Signs a mailbox.
pub fn sign(mailbox: &mut [u8]) {
    mailbox[block::CONTROL_SIGNATURE] =
        !exclusive_or(&mailbox[block::RESERVED..block::CONTROL_SIGNATURE]);
    mailbox[block::SIGNATURE] = !exclusive_or(&mailbox[..block::SIGNATURE]);
}

/// Returns whether the signatures of a mailbox are right, or it has none: the driver may leave them
/// out.
fn is_signed(mailbox: &[u8; MAILBOX]) -> bool {
    let none = mailbox[block::CONTROL_SIGNATURE] == 0 && mailbox[block::SIGNATURE] == 0;
    let control = exclusive_or(&mailbox[block::RESERVED..block::SIGNATURE]);
    none || (control, exclusive_or(mailbox)) == (0xff, 0xff)
}

/// Returns all bytes combined by exclusive or.
pub fn exclusive_or(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |all, byte| all ^ byte)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests;
