//! The identities of a machine's devices.

use crate::card::{Identity, Link, PortState};

/// Upper bytes of the node GUIDs: NVIDIA's (Mellanox's) OUI.
const OUI: u64 = 0x0050_6b4b << 40;
/// GUID of the first card without its OUI.
const FIRST: u64 = 0x03_00c0_4e00;
/// Subnet prefix of an unconfigured fabric.
const SUBNET: u64 = 0xfe80 << 48;

/// Identities of so many cards, the same in every process of a machine. Prefixes of QP numbers are
/// claimed by the engine. `seed` is the cards' randomness and need not be the same.
pub fn identities(devices: usize, link: Link, seed: u64) -> Vec<Identity> {
    (0..devices)
        .map(|index| {
            let node_guid = OUI | (FIRST + 0x10 * index as u64);
            Identity {
                node_guid,
                link,
                lid: if link == Link::InfiniBand { 1 + index as u16 } else { 0 },
                gids: gids(node_guid, index, link),
                qpn_prefixes: Vec::new(),
                seed: seed.wrapping_add(index as u64),
                user_contexts: true,
                port: PortState::Active,
                log_mtu: None,
                timeout_floor: Identity::TIMEOUT_FLOOR,
            }
        })
        .collect()
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
            // The interface identifier of the port's MAC address, and an address of the range set
            // aside for tests of networks (RFC 2544).
            let guid = guid.to_be_bytes();
            local[8..].copy_from_slice(&[
                guid[0] ^ 2,
                guid[1],
                guid[2],
                0xff,
                0xfe,
                guid[5],
                guid[6],
                guid[7],
            ]);
            let mut mapped = [0; 16];
            mapped[10..].copy_from_slice(&[0xff, 0xff, 198, 18, 0, 1 + index as u8]);
            vec![local, mapped]
        }
    }
}
