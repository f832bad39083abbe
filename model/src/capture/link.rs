//! Frames as captures of their link hold them.
//!
//! An Ethernet frame is as it is on the link, without the checksum at its end (FCS). An InfiniBand
//! packet is in an ERF record, as Endace's analysers write it: Wireshark dissects InfiniBand in no
//! other form. Its own link type, 247, is known to libpcap alone.

use crate::wire::{Frame, Link};

/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;
/// `LINKTYPE_ERF`.
const ERF: u16 = 197;
/// Type of an ERF record with an InfiniBand packet.
const ERF_INFINIBAND: u8 = 21;
/// Flag of an ERF record: its length is that of its packet.
const ERF_VARYING: u8 = 1 << 2;
/// Bytes of an ERF record before the packet.
const ERF_HEADER: usize = 16;

/// Returns the link type of an interface's block.
pub(super) fn kind(link: Link) -> u16 {
    match link {
        Link::InfiniBand => ERF,
        Link::Roce => ETHERNET,
    }
}

/// The bytes that a capture has before and after a frame's own.
#[derive(Default)]
pub(super) struct Envelope {
    before: [u8; ERF_HEADER],
    length: usize,
    after: [u8; VCRC],
    tail: usize,
}

impl Envelope {
    /// The envelope of a frame that passed the port at a time, in nanoseconds since 1970.
    pub(super) fn of(link: Link, frame: &Frame, time: u64) -> Self {
        match link {
            Link::InfiniBand => Self::erf(&frame.0, time),
            Link::Roce => Self::default(),
        }
    }

    /// The parts of the captured packet, given the frame that the envelope is for.
    pub(super) fn around<'a>(&'a self, frame: &'a [u8]) -> [&'a [u8]; 3] {
        [&self.before[..self.length], frame, &self.after[..self.tail]]
    }

    /// ERF counts seconds in 32 bits and their fraction in 32 bits.
    fn erf(packet: &[u8], time: u64) -> Self {
        const SECOND: u64 = 1_000_000_000;
        let (seconds, rest) = (time / SECOND, time % SECOND);
        let stamp = (seconds << 32) | ((rest << 32) / SECOND);
        let length = packet.len() + VCRC;
        let mut before = [0; ERF_HEADER];
        before[..8].copy_from_slice(&stamp.to_le_bytes());
        before[8] = ERF_INFINIBAND;
        before[9] = ERF_VARYING;
        before[10..12].copy_from_slice(&((ERF_HEADER + length) as u16).to_be_bytes());
        before[14..16].copy_from_slice(&(length as u16).to_be_bytes());
        Self { before, length: ERF_HEADER, after: vcrc(packet), tail: VCRC }
    }
}

/// Bytes of the variant CRC, with which an InfiniBand packet ends on its link.
const VCRC: usize = 2;

/// Returns the variant CRC of a packet from LRH to ICRC: CRC-16 with the polynomial 0x100b (IBA
/// 1.3, 7.8.2).
fn vcrc(packet: &[u8]) -> [u8; VCRC] {
    let mut crc = 0xffff;
    for byte in packet {
        crc = crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)];
    }
    (!crc).to_le_bytes()
}

const TABLE: [u16; 256] = {
    /// 0x100b with its bits in reverse.
    const POLYNOMIAL: u16 = 0xd008;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
