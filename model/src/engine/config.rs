//! The identities of a machine's devices.

use crate::card::{Bus, CounterSets, GidEntry, Identity, Link, PortState, Profile, Timeouts};
use crate::wire::gid;

/// Upper bytes of the node GUIDs: NVIDIA's (Mellanox's) OUI.
const OUI: u64 = 0x0050_6b4b << 40;
/// GUID of the first card without its OUI.
const FIRST: u64 = 0x03_00c0_4e00;
/// Difference of the GUIDs of two cards in succession, and of their Ethernet addresses.
const STEP: u64 = 0x10;
/// The network of the ports' IPv4 addresses: of the range set aside for tests of networks (RFC
/// 2544). Port number `n`, from 0, has the address `n + 1`.
pub(super) const NETWORK: [u8; 15] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0];
/// Subnet prefix of an unconfigured fabric.
const SUBNET: u64 = 0xfe80 << 48;

/// Most devices of a machine.
pub const DEVICES: usize = 16;

/// Identities of so many cards, the same in every process of a machine. Prefixes of QP numbers are
/// claimed by the engine. `seed` is the cards' randomness and need not be the same.
pub fn identities(devices: usize, link: Link, seed: u64) -> Vec<Identity> {
    (0..devices)
        .map(|index| {
            let node_guid = guid(index);
            Identity {
                node_guid,
                link,
                lid: if link == Link::InfiniBand { 1 + index as u16 } else { 0 },
                mac: port_mac(index),
                gids: gids(node_guid, index, link),
                qpn_prefixes: Vec::new(),
                seed: seed.wrapping_add(index as u64),
                user_contexts: true,
                bus: Bus::Process,
                profile: Profile::default(),
                port: PortState::Active,
                log_mtu: None,
                timeouts: Timeouts::default(),
                counter_sets: CounterSets::default(),
                prefetch: None,
                placement: None,
            }
        })
        .collect()
}

fn guid(index: usize) -> u64 {
    OUI | (FIRST + STEP * index as u64)
}

/// Returns the Ethernet address of port number `index` of a machine: the GUID's first and last three
/// bytes.
pub(super) fn port_mac(index: usize) -> [u8; 6] {
    let [a, b, c, _, _, d, e, f] = guid(index).to_be_bytes();
    [a, b, c, d, e, f]
}

fn in_subnet(identifier: [u8; 8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&SUBNET.to_be_bytes());
    gid[8..].copy_from_slice(&identifier);
    gid
}

fn gids(guid: u64, index: usize, link: Link) -> Vec<GidEntry> {
    match link {
        Link::InfiniBand => {
            let local = in_subnet(guid.to_be_bytes());
            vec![GidEntry { gid: local, ..GidEntry::default() }]
        }
        Link::Roce => {
            let mut mapped = [0; 16];
            mapped[..15].copy_from_slice(&NETWORK);
            mapped[15] = 1 + index as u8;
            GidEntry::pairs(&[gid::link_local(port_mac(index)), mapped])
        }
    }
}
