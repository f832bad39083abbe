//! Checksums across changes of what they cover (RFC 1624).

use super::{Headers, Network, Transport, fold, header_length, sum, word};

/// The sums of a frame's IPv4 header, and of its TCP or UDP segment with the pseudo header. Each
/// includes the checksum itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    network: Option<u16>,
    transport: Option<u16>,
}

impl Sums {
    /// The sums of a frame with these headers.
    pub fn of(headers: &Headers, frame: &[u8]) -> Self {
        let network = headers.network_at(Network::V4).and_then(|at| {
            let header = frame.get(at..at + header_length(frame, at))?;
            Some(fold(sum(header)))
        });
        let transport = headers.transport.and_then(|(_, at)| {
            let segment = frame.get(at..headers.end)?;
            Some(fold(headers.pseudo_header(frame) + sum(segment)))
        });
        Self { network, transport }
    }

    /// Changes the checksums of a frame so that it has these sums again. A UDP packet without a checksum
    /// stays without one.
    pub fn restore(self, headers: &Headers, frame: &mut [u8]) {
        let now = Self::of(headers, frame);
        if let (Some(before), Some(after), Some(at)) =
            (self.network, now.network, headers.network_at(Network::V4))
        {
            adjust(frame, at + 10, before, after, 0);
        }
        if let (Some(before), Some(after), Some((kind, at))) =
            (self.transport, now.transport, headers.transport)
        {
            let udp = kind == Transport::Udp;
            match word(frame, at + 6) {
                Some(0) if udp => {}
                // Of the two zeros of the sum, UDP's is all ones.
                _ if udp => adjust(frame, at + 6, before, after, 0xffff),
                _ => adjust(frame, at + 16, before, after, 0),
            }
        }
    }
}

/// Adds the difference of two sums to the checksum at a place of a frame.
fn adjust(frame: &mut [u8], at: usize, before: u16, after: u16, zero: u16) {
    let (Some(checksum), true) = (word(frame, at), before != after) else { return };
    let new = fold(u32::from(checksum) + u32::from(before) + u32::from(!after));
    let new = if matches!(new, 0 | 0xffff) { zero } else { new };
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
}
