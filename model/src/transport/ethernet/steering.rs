//! The way of a frame through flow tables: to receive queues, or out of the port.

use std::borrow::Cow;

use mlx5_sys::ifc::{
    Field, fte_match_param, fte_match_set_lyr_2_4, fte_match_set_misc2, rx_hash_field_select, tirc,
};

use super::receiver::{self, Arrived};
use crate::card::Card;
use crate::object::{Classified, DIRECT, Delivery, Edits, MATCH, NIC_TX, SteeredPacket, Tir};
use crate::wire::ethernet::fields::Metadata;
use crate::wire::ethernet::{Headers, Network, SERVICE_VLAN, Transport};

/// A frame in the tables, as the entries on its way have left it.
struct Steered<'a> {
    frame: Cow<'a, [u8]>,
    headers: Headers,
    metadata: Metadata,
    fields: Box<[u8; MATCH]>,
}

impl<'a> Steered<'a> {
    /// `None` if the frame has not even addresses and a type.
    fn new(frame: Cow<'a, [u8]>, metadata: Metadata) -> Option<Self> {
        let headers = Headers::of(&frame)?;
        let mut fields = Box::new(key(&frame, &headers));
        for (register, value) in REGISTERS.iter().zip(metadata) {
            let field = register.within(fte_match_param::MISC_PARAMETERS_2);
            field.set(&mut fields[..], value.into());
        }
        Some(Self { frame, headers, metadata, fields })
    }
}

impl SteeredPacket for Steered<'_> {
    fn fields(&self) -> &[u8; MATCH] {
        &self.fields
    }

    fn length(&self) -> usize {
        self.frame.len()
    }

    fn edited(&self, edits: &Edits<'_>) -> Option<Self> {
        let mut metadata = self.metadata;
        let frame = edits.apply(&self.frame, &mut metadata)?;
        Self::new(frame.into(), metadata)
    }
}

/// The registers of metadata that entries compare.
const REGISTERS: [Field; 8] = [
    fte_match_set_misc2::METADATA_REG_C_0,
    fte_match_set_misc2::METADATA_REG_C_1,
    fte_match_set_misc2::METADATA_REG_C_2,
    fte_match_set_misc2::METADATA_REG_C_3,
    fte_match_set_misc2::METADATA_REG_C_4,
    fte_match_set_misc2::METADATA_REG_C_5,
    fte_match_set_misc2::METADATA_REG_C_6,
    fte_match_set_misc2::METADATA_REG_C_7,
];

/// Returns the frame's header fields (`ip_protocol` and the like) for comparison with match values.
fn key(frame: &[u8], headers: &Headers) -> [u8; MATCH] {
    use fte_match_set_lyr_2_4 as outer;
    let mut key = [0; MATCH];
    let mut set = |field: Field, value: u64| {
        field.within(fte_match_param::OUTER_HEADERS).set(&mut key, value);
    };
    let number = |at: usize, n: usize| {
        frame
            .get(at..at + n)
            .unwrap_or_default()
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    set(outer::DMAC_47_16, number(0, 4));
    set(outer::DMAC_15_0, number(4, 2));
    set(outer::SMAC_47_16, number(6, 4));
    set(outer::SMAC_15_0, number(10, 2));
    set(outer::ETHERTYPE, headers.kind.into());
    if let Some((kind, tag)) = headers.vlan {
        let field = if kind == SERVICE_VLAN { outer::SVLAN_TAG } else { outer::CVLAN_TAG };
        set(field, 1);
        set(outer::FIRST_PRIO, u64::from(tag >> 13));
        set(outer::FIRST_CFI, u64::from(tag >> 12 & 1));
        set(outer::FIRST_VID, u64::from(tag & 0xfff));
    }
    let Some((network, at)) = headers.network else { return key };
    set(outer::IP_PROTOCOL, headers.protocol.into());
    set(outer::FRAG, headers.fragment.into());
    let (version, class, limit) = match network {
        Network::V4 => (4, number(at + 1, 1), number(at + 8, 1)),
        Network::V6 => (6, number(at, 2) >> 4 & 0xff, number(at + 7, 1)),
    };
    set(outer::IP_VERSION, version);
    set(outer::IP_DSCP, class >> 2);
    set(outer::IP_ECN, class & 3);
    set(outer::TTL_HOPLIMIT, limit);
    if let (Some((kind, start)), Some((source, destination))) =
        (headers.transport, headers.ports(frame))
    {
        match kind {
            Transport::Tcp => {
                set(outer::TCP_SPORT, source.into());
                set(outer::TCP_DPORT, destination.into());
                set(outer::TCP_FLAGS, number(start + 12, 2) & 0x1ff);
            }
            Transport::Udp => {
                set(outer::UDP_SPORT, source.into());
                set(outer::UDP_DPORT, destination.into());
            }
        }
    }
    let (source, destination) = addresses(frame, network, at);
    // IPv4's are the last four bytes.
    for (field, address) in
        [(outer::SRC_IPV4_SRC_IPV6, source), (outer::DST_IPV4_DST_IPV6, destination)]
    {
        let place = field.within(fte_match_param::OUTER_HEADERS).bytes();
        key[place.end - address.len()..place.end].copy_from_slice(address);
    }
    key
}

fn addresses(frame: &[u8], network: Network, at: usize) -> (&[u8], &[u8]) {
    let (start, length) = match network {
        Network::V4 => (at + 12, 4),
        Network::V6 => (at + 8, 16),
    };
    let part = |start: usize| frame.get(start..start + length).unwrap_or_default();
    (part(start), part(start + length))
}

/// Returns a TIR's hash of a packet, and the hashed fields as CQEs report them. `None` if the hash
/// is not for the packet's protocols.
fn hash(tir: &Tir, frame: &[u8], headers: &Headers) -> Option<(u32, u8)> {
    /// `mlx5_ifc.h`, `MLX5_HASH_FIELD_SEL_*`
    const SOURCE: u32 = 1;
    const DESTINATION: u32 = 2;
    const SOURCE_PORT: u32 = 4;
    const DESTINATION_PORT: u32 = 8;
    let select = |field: Field| tir.get(field.within(tirc::RX_HASH_FIELD_SELECTOR_OUTER));
    let fields = select(rx_hash_field_select::SELECTED_FIELDS);
    let (network, at) = headers.network?;
    let wanted = match select(rx_hash_field_select::L3_PROT_TYPE) {
        0 => Network::V4,
        _ => Network::V6,
    };
    if fields == 0 || network != wanted {
        return None;
    }
    let mut input = Vec::with_capacity(36);
    let (mut source, mut destination) = addresses(frame, network, at);
    let symmetric = tir.get(tirc::RX_HASH_SYMMETRIC) == 1;
    let both = fields & (SOURCE | DESTINATION) == SOURCE | DESTINATION;
    if symmetric && both && source > destination {
        (source, destination) = (destination, source);
    }
    for (bit, address) in [(SOURCE, source), (DESTINATION, destination)] {
        if fields & bit != 0 {
            input.extend_from_slice(address);
        }
    }
    // `linux/mlx5/device.h`, CQE_RSS_HTYPE_IP and _L4.
    let mut kind = if network == Network::V4 { 1 << 2 } else { 2 << 2 };
    if fields & (SOURCE_PORT | DESTINATION_PORT) != 0 {
        let (transport, code) = match select(rx_hash_field_select::L4_PROT_TYPE) {
            0 => (Transport::Tcp, 1),
            _ => (Transport::Udp, 2),
        };
        let (mut source, mut destination) = headers.ports(frame)?;
        if headers.transport.is_none_or(|(met, _)| met != transport) {
            return None;
        }
        let both = fields & (SOURCE_PORT | DESTINATION_PORT) == SOURCE_PORT | DESTINATION_PORT;
        if symmetric && both && source > destination {
            (source, destination) = (destination, source);
        }
        for (bit, port) in [(SOURCE_PORT, source), (DESTINATION_PORT, destination)] {
            if fields & bit != 0 {
                input.extend_from_slice(&port.to_be_bytes());
            }
        }
        kind |= code << 6;
    }
    let start = tirc::RX_HASH_TOEPLITZ_KEY.bit_offset() / 8;
    Some((toeplitz(&tir.context[start..start + KEY], &input), kind))
}

/// Bytes of a hash's key.
const KEY: usize = 40;

/// Toeplitz's hash: for each bit of the input that is set, the 32 bits of the key that start there.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| {
        u32::from(bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1))
    };
    let mut window = (0..32).fold(0, |all, at| all << 1 | bit(key, at));
    let mut hash = 0;
    for at in 0..input.len() * 8 {
        if bit(input, at) == 1 {
            hash ^= window;
        }
        window = window << 1 | bit(key, at + 32);
    }
    hash
}

impl Card {
    /// Leads a frame through the tables of a type. `None` if there are none, or it is no frame.
    fn classify<'a>(&mut self, kind: u8, frame: &'a [u8]) -> Option<Classified<Steered<'a>>> {
        if !self.objects.steering.roots.contains_key(&kind) {
            return None;
        }
        let packet = Steered::new(frame.into(), Metadata::default())?;
        let found = self.objects.steering.classify(kind, packet);
        for (counter, bytes) in &found.counters {
            if let Some(counter) = self.objects.flow_counters.get_mut(*counter) {
                counter.count(*bytes);
            }
        }
        Some(found)
    }

    /// Returns the frames that leave in place of one that a queue sends: it, changed or not, or none.
    pub(super) fn steer_sent(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        let leaving = self.classify(NIC_TX, &frame).map(|found| {
            let frames = found.leaving.iter().map(|packet| packet.frame.to_vec());
            frames.collect()
        });
        leaving.unwrap_or_else(|| vec![frame])
    }

    /// Gives a frame to every queue that the tables of a type lead to. `domain` is the transport domain
    /// of the queue that sent it, if that is one of the device.
    pub(super) fn steer(&mut self, kind: u8, frame: &[u8], domain: Option<u32>) -> bool {
        let found = self.classify(kind, frame).unwrap_or_default();
        let mut wanted = false;
        for delivery in &found.tirs {
            wanted |= self.deliver_to_tir(delivery, domain);
        }
        wanted
    }

    /// Gives a frame to a TIR's queue, unless the TIR blocks it.
    fn deliver_to_tir(&mut self, delivery: &Delivery<Steered<'_>>, domain: Option<u32>) -> bool {
        let Some(tir) = self.objects.tirs.get(delivery.tir) else { return false };
        let Steered { frame, headers, .. } = &*delivery.packet;
        let is_group = frame.first().is_some_and(|first| first & 1 == 1);
        if domain.is_some_and(|domain| tir.blocks(domain, is_group)) {
            return false;
        }
        let hashed = hash(tir, frame, headers);
        let queue = if tir.get(tirc::DISP_TYPE) == DIRECT {
            tir.get(tirc::INLINE_RQN)
        } else {
            let Some(rqt) = self.objects.rqts.get(tir.get(tirc::INDIRECT_TABLE)) else {
                return false;
            };
            let index = hashed.map_or(0, |(hash, _)| hash) as usize & (rqt.queues.len() - 1);
            rqt.queues[index]
        };
        let hash = hashed.unwrap_or((0, 0));
        receiver::deliver(self, queue, &Arrived { frame, headers, hash, tag: delivery.tag });
        true
    }
}

#[cfg(test)]
mod tests;
