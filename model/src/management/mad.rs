//! The header of MADs (IBA 1.3, 13.4), and the packet that carries one.

use super::message::Message;
use crate::wire::{Deth, Frame, Header, Link, Opcode, Route};

/// Bytes of a MAD.
pub const SIZE: usize = 256;
/// Bytes of the header.
pub const HEADER: usize = 24;
/// Bytes after the header.
pub const DATA: usize = SIZE - HEADER;
/// Queue pair of general services.
pub const QP: u32 = 1;
/// Q_Key of queue pair 1 (IBA 1.3, 3.5.3).
const Q_KEY: u32 = 0x8001_0000;

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const SEND: u8 = 0x03;

/// A MAD of the communication manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// The number that an answer repeats.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

/// The process that a MAD is for, by its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// The owner of a communication id.
    Connection(u32),
    /// The listener of a service id.
    Service(u64),
}

impl Mad {
    /// Returns the bytes of the MAD.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, SEND]);
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        bytes[20..24].copy_from_slice(&self.message.modifier().to_be_bytes());
        let (_, data) = bytes.split_at_mut(HEADER);
        self.message.encode(data);
        bytes
    }

    /// Reads a MAD. Returns `None` for another class, method or version, for an unknown message and
    /// for too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SIZE] = bytes.get(..SIZE)?.try_into().ok()?;
        if bytes[..4] != [BASE_VERSION, CLASS, CLASS_VERSION, SEND] {
            return None;
        }
        let transaction = u64::from_be_bytes(bytes[8..16].try_into().ok()?);
        let attribute = u16::from_be_bytes([bytes[16], bytes[17]]);
        let modifier = u32::from_be_bytes(bytes[20..24].try_into().ok()?);
        let message = Message::decode(attribute, modifier, &bytes[HEADER..])?;
        Some(Self { transaction, message })
    }

    /// Returns the packet that carries the MAD.
    pub fn frame(&self, route: Route, p_key: u16) -> Frame {
        let mut header = Header::new(route, Opcode::SendOnly, p_key, QP, 0);
        header.service = crate::wire::Service::Ud;
        header.datagram = Some(Deth { q_key: Q_KEY, source: QP });
        let bytes = self.encode();
        let made = header.frame(SIZE, |to| {
            // Padding, if there is any, stays zero.
            let length = to.len().min(SIZE);
            to[..length].copy_from_slice(&bytes[..length]);
            Ok::<(), std::convert::Infallible>(())
        });
        match made {
            Ok(frame) => frame,
            Err(never) => match never {},
        }
    }

    /// Reads the MAD in a packet to queue pair 1, and returns it with the packet's route. Returns
    /// `None` for any other packet.
    pub fn of_frame(link: Link, frame: &Frame) -> Option<(Route, Self)> {
        let (_, destination) = Header::destination(link, &frame.0)?;
        if destination != QP {
            return None;
        }
        let (header, payload) = Header::decode(link, &frame.0).ok()?;
        if header.datagram?.q_key != Q_KEY {
            return None;
        }
        Some((header.route, Self::decode(&frame.0[payload])?))
    }

    /// Returns whether a packet has a MAD of the communication manager.
    pub fn is_in(link: Link, frame: &Frame) -> bool {
        Self::of_frame(link, frame).is_some()
    }

    /// Returns who takes the MAD at the port it is for.
    pub fn addressee(&self) -> Addressee {
        match &self.message {
            Message::Request(request) => Addressee::Service(request.service),
            Message::Resolve(resolve) => Addressee::Service(resolve.service),
            Message::Resolved(resolved) => Addressee::Connection(resolved.request),
            Message::Delay(delay) => Addressee::Connection(delay.ids.remote),
            Message::Reject(reject) => Addressee::Connection(reject.ids.remote),
            Message::Reply(reply) => Addressee::Connection(reply.ids.remote),
            Message::Ready(ready) => Addressee::Connection(ready.ids.remote),
            Message::Disconnect(disconnect) => Addressee::Connection(disconnect.ids.remote),
            Message::Disconnected(disconnected) => Addressee::Connection(disconnected.ids.remote),
            Message::LoadPath(load) => Addressee::Connection(load.ids.remote),
            Message::PathLoaded(loaded) => Addressee::Connection(loaded.ids.remote),
        }
    }
}
