//! Packets that a receiver lends, and errors of its polls.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::super::KeptPacket;
use super::super::slots::Slots;
use super::ring::Ring;
use super::supply::{Polled, Supply};
use crate::cqe::{Failure, Layer3, PacketInfo, PacketWords, TransportHeader, UnexpectedCqe};
use crate::error::Error;
use crate::ring::{self, FoundPacket, PacketEvent, PollError};

/// The packets of a poll, see [`PacketReceiver::poll`](super::PacketReceiver::poll).
#[must_use = "packets are taken as the iterator is advanced"]
pub struct Packets<'a> {
    ring: &'a mut Ring,
    slots: &'a Arc<Slots>,
    polled: &'a mut Polled,
    left: usize,
}

/// A received packet, in the memory where it arrived. Its bytes are those of the slice to which it
/// dereferences: from the Ethernet header on, without the checksum of the frame.
///
/// See the example on [`packet`](crate::packet).
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    words: PacketWords,
    slots: &'a Arc<Slots>,
    slot: u32,
    offset: u32,
}

/// A fault of a packet that has arrived, which the HCA has found.
///
/// See the example on [`Packet::fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PacketFault {
    /// The header of IP is damaged, or its checksum is wrong.
    NetworkHeader,
    /// The checksum of TCP or UDP is wrong.
    TransportChecksum,
}

impl PacketFault {
    /// Returns the fault that the HCA's results tell, if they tell one.
    pub(in crate::packet) fn of(info: &PacketInfo) -> Option<PacketFault> {
        if info.network != Layer3::None && !info.network_ok {
            return Some(PacketFault::NetworkHeader);
        }
        let checked = info.transport != TransportHeader::Other;
        (checked && !info.transport_ok).then_some(PacketFault::TransportChecksum)
    }
}

/// Why a poll of a [`PacketReceiver`](super::PacketReceiver) returned no packet.
///
/// ```
/// use mlx5::cqe::Status;
/// use mlx5::packet::{PacketError, PacketReceiver};
///
/// /// Goes on after a packet that was longer than its slot.
/// fn go_on(receiver: &mut PacketReceiver, error: PacketError) -> mlx5::Result<()> {
///     match error {
///         PacketError::Failed(failure) if failure.status == Status::LocalLength => receiver.recover(),
///         other => Err(other.into()),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketError {
    /// The CQ cannot be polled further.
    Poll(PollError),
    /// The queue has failed, and returns no packet until it [recovers](super::PacketReceiver::recover). The
    /// status says why: [`LocalLength`](crate::cqe::Status) if a packet was longer than its slot.
    Failed(Failure),
    /// A CQE that is of no packet, or contradicts the state of the queue. Later polls return what
    /// follows it.
    UnexpectedCqe(UnexpectedCqe),
    /// A CQE whose packet does not lie in its slot. Later polls return what follows it.
    Length {
        /// The length that the HCA has reported, in bytes.
        bytes: u32,
    },
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => fmt::Display::fmt(error, f),
            Self::Failed(failure) => write!(f, "the receive queue has failed: {failure}"),
            Self::UnexpectedCqe(value) => write!(f, "a completion is of no packet: {value:?}"),
            Self::Length { bytes } => {
                write!(
                    f,
                    "a completion names a packet of {bytes} bytes, which its slot cannot hold"
                )
            }
        }
    }
}

crate::ib::debug_as_display!(PacketError);

impl std::error::Error for PacketError {}

impl From<PacketError> for Error {
    /// Returns [`Error::Poll`], [`Error::Failed`], [`Error::UnexpectedCqe`], or [`Error::Attribute`]
    /// with the length.
    fn from(error: PacketError) -> Error {
        match error {
            PacketError::Poll(error) => error.into(),
            PacketError::Failed(failure) => failure.into(),
            PacketError::UnexpectedCqe(unexpected) => Error::UnexpectedCqe(unexpected.into()),
            PacketError::Length { bytes } => Error::attribute("length", bytes, error.to_string()),
        }
    }
}

impl<'a> Packets<'a> {
    #[inline(always)]
    pub(super) fn new(supply: &'a mut Supply, most: usize) -> Self {
        let Supply { ring, slots, polled, .. } = supply;
        Self { ring, slots, polled, left: most }
    }

    /// Lends a packet that was found.
    #[inline(always)]
    fn lend(&mut self, packet: ring::Packet) -> Result<Packet<'a>, PacketError> {
        self.polled.packets += 1;
        self.polled.used_up += u32::from(packet.last);
        // Ids are slots.
        let (slot, offset, length) = (packet.id as u32, packet.offset, packet.byte_len);
        if !self.slots.fits(offset, length) {
            return Err(PacketError::Length { bytes: length });
        }
        // SAFETY: the slot is that of a WQE, and the packet fits it. The HCA has reported the packet. The
        // slot is posted again by the next poll, which borrows the receiver anew, so that the result
        // is gone.
        let bytes = unsafe { self.slots.bytes(slot, offset, length) };
        Ok(Packet { bytes, words: packet.words(), slots: self.slots, slot, offset })
    }

    /// Takes what comes next, where a look has found no packet.
    #[cold]
    #[inline(never)]
    fn next_any(&mut self) -> Result<Option<Packet<'a>>, PacketError> {
        loop {
            match self.ring.poll_any().map_err(PacketError::Poll)? {
                Some(PacketEvent::Packet(packet)) => return self.lend(packet).map(Some),
                Some(PacketEvent::UsedUp { .. }) => self.polled.used_up += 1,
                Some(PacketEvent::Failed(failure)) => {
                    // What was flushed behind a failure says nothing.
                    let first = *self.polled.failed.get_or_insert(PacketError::Failed(failure));
                    return Err(first);
                }
                Some(PacketEvent::UnexpectedCqe(unexpected)) => {
                    return Err(PacketError::UnexpectedCqe(unexpected));
                }
                None => return self.polled.failed.map_or(Ok(None), Err),
            }
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, PacketError>;

    // Always: as a call, with the packet in memory, a packet would cost twice as much.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let error = match self.ring.find() {
            FoundPacket::Packet(packet) => match self.lend(packet) {
                Ok(packet) => return Some(Ok(packet)),
                Err(error) => error,
            },
            FoundPacket::Nothing if self.polled.failed.is_none() => {
                self.left = 0;
                return None;
            }
            FoundPacket::Nothing | FoundPacket::Other => match self.next_any() {
                Ok(Some(packet)) => return Some(Ok(packet)),
                Ok(None) => {
                    self.left = 0;
                    return None;
                }
                Err(error) => error,
            },
        };
        self.left = 0;
        Some(Err(error))
    }
}

impl<'a> Packet<'a> {
    /// Returns the bytes, which may outlive this value.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the HCA's results for its headers: flow tag, checksums, VLAN, RSS hash and time.
    pub fn info(&self) -> PacketInfo {
        self.words.info()
    }

    /// Returns the fault that the HCA has found in its headers. Packets with a wrong checksum of Ethernet do not arrive: the port
    /// counts them.
    ///
    /// ```
    /// use mlx5::packet::PacketReceiver;
    ///
    /// fn payloads(receiver: &mut PacketReceiver) -> mlx5::Result<()> {
    ///     for packet in receiver.poll(32) {
    ///         let packet = packet?;
    ///         match packet.fault() {
    ///             None => println!("{:?}", &packet[42..]),
    ///             Some(fault) => println!("discarded: {fault:?}"),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn fault(&self) -> Option<PacketFault> {
        PacketFault::of(&self.info())
    }

    /// Keeps the packet beyond the next poll. `None` if packets of as many slots are kept as
    /// [may be](super::PacketReceiverBuilder::spare_slots): copy it then, or drop others.
    ///
    /// ```
    /// use mlx5::packet::{KeptPacket, PacketReceiver};
    ///
    /// /// Keeps packets for another thread. Returns how many could not be kept.
    /// fn capture(receiver: &mut PacketReceiver, kept: &mut Vec<KeptPacket>) -> mlx5::Result<usize> {
    ///     let mut left = 0;
    ///     for packet in receiver.poll(32) {
    ///         match packet?.keep() {
    ///             Some(packet) => kept.push(packet),
    ///             None => left += 1,
    ///         }
    ///     }
    ///     Ok(left)
    /// }
    /// ```
    pub fn keep(&self) -> Option<KeptPacket> {
        let place = (self.slot, self.offset, self.bytes.len() as u32);
        // SAFETY: the packet lies in its slot, and the HCA has reported it. The receiver does not post a
        // slot that is not free.
        unsafe { KeptPacket::new(self.slots, place, self.words) }
    }
}

impl Deref for Packet<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet").field("len", &self.len()).field("info", &self.info()).finish()
    }
}

impl fmt::Debug for Packets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").field("left", &self.left).finish_non_exhaustive()
    }
}
