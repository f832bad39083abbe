//! The Ethernet parts of WQEs and CQEs.

use crate::wire::ethernet::{HEADER, Headers, Network, TAG, Transport, folded};

/// The Ethernet segment of a send WQE (`mlx5dv.h`, `mlx5_wqe_eth_seg`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EthernetSegment {
    /// Whether the card fills in IPv4's checksum.
    pub fill_network: bool,
    /// Whether it fills in TCP's or UDP's.
    pub fill_transport: bool,
    /// Bytes of TCP's payload in each packet that a large one is cut into.
    pub maximum: u16,
    /// The control information of a VLAN tag that the card puts in.
    pub insert: Option<u16>,
    /// The beginning of the frame.
    pub header: Vec<u8>,
}

/// Part of a WQE that several packets share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The WQE.
    pub wqe: u16,
    /// How many strides are taken.
    pub strides: u16,
    /// Whether they are only what was left, without a packet.
    pub filler: bool,
}

/// The CQE's information on the headers of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    hash: (u32, u8),
    checksum: u16,
    ok: u8,
    kinds: u8,
    tag: u32,
    /// The control information of a VLAN tag that was taken out.
    pub stripped: Option<u16>,
    /// Which part of a WQE the frame is in, where several share one.
    pub part: Option<Part>,
}

/// `mlx5dv.h`, `MLX5_CQE_L2_OK` and so on.
const L2_OK: u8 = 1;
const L3_OK: u8 = 2;
const L4_OK: u8 = 4;
/// Bit of the byte of header types that says that the CQE has the control information of a VLAN tag.
pub const TAGGED: u8 = 1;

impl Seen {
    /// Looks at a frame.
    pub fn of(frame: &[u8], headers: &Headers, hash: (u32, u8), tag: u32) -> Self {
        let mut ok = L2_OK;
        if headers.network_is_right(frame) {
            ok |= L3_OK;
        }
        if headers.transport_is_right(frame) {
            ok |= L4_OK;
        }
        // `mlx5dv.h`, MLX5_CQE_L3_HDR_TYPE_*.
        let network = match headers.network {
            None => 0,
            Some((Network::V6, _)) => 1,
            Some((Network::V4, _)) => 2,
        };
        // `linux/mlx5/device.h`, CQE_L4_HDR_TYPE_*: TCP by what it acknowledges and carries.
        let transport = match headers.transport {
            None => 0,
            Some((Transport::Udp, _)) => 2,
            Some((Transport::Tcp, at)) => {
                let acknowledges = frame.get(at + 13).is_some_and(|flags| flags & 0x10 != 0);
                let length = headers.transport_length(frame);
                let carries = length.is_some_and(|length| at + length < headers.end);
                match (acknowledges, carries) {
                    (false, _) => 1,
                    (true, false) => 3,
                    (true, true) => 4,
                }
            }
        };
        let tag_length = if headers.vlan.is_some() { TAG } else { 0 };
        Self {
            hash,
            // From IP on, without VLAN tags (Linux, `mlx5e_handle_csum`).
            checksum: folded(frame.get(HEADER + tag_length..).unwrap_or_default()),
            ok,
            kinds: transport << 4 | network << 2,
            tag,
            stripped: None,
            part: None,
        }
    }

    /// Writes it to a CQE of 64 bytes in which the rest is already (`mlx5dv.h`, `mlx5_cqe64`).
    pub fn write(&self, cqe: &mut [u8]) {
        cqe[12..16].copy_from_slice(&self.hash.0.to_be_bytes());
        cqe[16] = self.hash.1;
        cqe[20..22].copy_from_slice(&self.checksum.to_be_bytes());
        cqe[28] = self.ok;
        cqe[29] = self.kinds | if self.stripped.is_some() { TAGGED } else { 0 };
        cqe[30..32].copy_from_slice(&self.stripped.unwrap_or(0).to_be_bytes());
        // Where others have the queue pair, the flow.
        cqe[56..60].copy_from_slice(&self.tag.to_be_bytes());
        if let Some(part) = self.part {
            cqe[2..4].copy_from_slice(&part.wqe.to_be_bytes());
            let strides = part.strides | if part.filler { 0x8000 } else { 0 };
            cqe[44..46].copy_from_slice(&strides.to_be_bytes());
        }
    }
}
