//! The identities of a machine's devices.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::card::{Bus, CounterSets, Identity, Link, PortState, Profile, Timeouts};
use crate::wire::mac;

/// Upper bytes of the node GUIDs: NVIDIA's (Mellanox's) OUI.
const OUI: u64 = 0x0050_6b4b << 40;
/// GUID of the first card without its OUI.
const FIRST: u64 = 0x03_00c0_4e00;
/// Difference of the GUIDs of two cards in succession, and of their Ethernet addresses.
const STEP: u64 = 0x10;
/// The network of the ports' IPv4 addresses: of the range set aside for tests of networks (RFC
/// 2544). Port number `n`, from 0, has the address `n + 1`.
const NETWORK: [u8; 15] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0];
/// Subnet prefix of an unconfigured fabric.
const SUBNET: u64 = 0xfe80 << 48;

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
                gid_macs: BTreeMap::new(),
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
fn port_mac(index: usize) -> [u8; 6] {
    let [a, b, c, _, _, d, e, f] = guid(index).to_be_bytes();
    [a, b, c, d, e, f]
}

/// GIDs and Ethernet addresses of this machine's ports that are on network interfaces.
static OWN: OnceLock<Vec<([u8; 16], [u8; 6])>> = OnceLock::new();

/// Remembers the addresses of this machine's ports for [`neighbour`]. A process has one network: a
/// later call changes nothing.
pub(super) fn remember(own: Vec<([u8; 16], [u8; 6])>) {
    let _ = OWN.set(own);
}

/// Returns the Ethernet address of the port or group that has a GID, as the host's network stack
/// finds it. The port of an address of another network is not known: the address that follows from
/// the GID stands for it.
pub fn neighbour(gid: &[u8; 16]) -> [u8; 6] {
    if let Some((_, mac)) = OWN.get().and_then(|own| own.iter().find(|(own, _)| own == gid)) {
        return *mac;
    }
    match gid {
        [network @ .., host] if *network == NETWORK && *host > 0 => {
            port_mac(usize::from(*host) - 1)
        }
        _ => mac(gid),
    }
}

fn gids(guid: u64, index: usize, link: Link) -> Vec<[u8; 16]> {
    let mut local = [0; 16];
    local[..8].copy_from_slice(&SUBNET.to_be_bytes());
    match link {
        Link::InfiniBand => {
            local[8..].copy_from_slice(&guid.to_be_bytes());
            vec![local]
        }
        Link::Roce => {
            // The interface identifier of the port's MAC address.
            let [a, b, c, d, e, f] = port_mac(index);
            local[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
            let mut mapped = [0; 16];
            mapped[..15].copy_from_slice(&NETWORK);
            mapped[15] = 1 + index as u8;
            vec![local, mapped]
        }
    }
}
