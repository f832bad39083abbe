//! The facts that a side tells of itself: at most 1024 bytes of JSON.

use std::net::Ipv6Addr;

use mlx5::connect::LocalPort;
use mlx5::ib::GidType;
use serde::{Deserialize, Serialize};

use super::super::libraries::rdma_core;
use super::super::port::partitions_of;
use super::super::situation::Situation;
use super::super::vlan::Vlan;

/// Changes with each change of the steps or of these fields.
const VERSION: u32 = 2;
/// Most partitions that a side tells, so that its facts fit into a message.
const PARTITIONS: usize = 32;
/// Most bytes of a name.
const NAME: usize = 64;

/// The facts of a side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub version: u32,
    pub host: String,
    pub device: String,
    pub firmware: String,
    pub kernel: String,
    /// rdma-core's version, if it is known.
    pub rdma_core: Option<u32>,
    pub port: u8,
    pub is_ethernet: bool,
    /// The port's state in words.
    pub state: String,
    pub is_active: bool,
    /// Active MTU in bytes.
    pub mtu: u16,
    pub lid: u16,
    /// The address in use, if one is used.
    pub gid: Option<Ipv6Addr>,
    pub gid_index: u32,
    /// 1 or 2; `None` on InfiniBand.
    pub roce: Option<u8>,
    /// The VLAN of the address's interface, if there is one.
    pub vlan: Option<Vlan>,
    /// The entry of the P_Key table that programs use by default.
    pub first_pkey: u16,
    /// The partitions of the port.
    pub pkeys: Vec<u16>,
}

impl Facts {
    /// Collects the facts of a port.
    pub fn of(situation: &Situation, local: &LocalPort) -> Facts {
        let port = local.attributes();
        let text = |path: &str| situation.tree.read(path).unwrap_or_default();
        let device = situation.device.as_ref();
        let folder = device.map_or("", |device| &device.folder);
        let pkeys = partitions_of(situation, port.port);
        let gid = local.gid();
        Facts {
            version: VERSION,
            host: short(text("proc/sys/kernel/hostname")),
            device: short(device.map(|device| device.name.clone()).unwrap_or_default()),
            firmware: short(text(&format!("{folder}/fw_ver"))),
            kernel: short(text("proc/sys/kernel/osrelease")),
            rdma_core: rdma_core(&situation.tree),
            port: port.port,
            is_ethernet: port.is_ethernet(),
            state: short(situation.port_file(port.port, "state").unwrap_or_default()),
            is_active: situation.is_active(port.port),
            mtu: u16::try_from(port.active_mtu.bytes()).unwrap_or(u16::MAX),
            lid: port.lid,
            gid: gid.map(|entry| Ipv6Addr::from(entry.gid.0)),
            gid_index: gid.map_or(0, |entry| entry.index),
            roce: gid.and_then(|entry| match entry.kind {
                GidType::RoceV2 => Some(2),
                GidType::RoceV1 => Some(1),
                _ => None,
            }),
            vlan: gid.and_then(|entry| {
                let file = format!("{folder}/ports/{}/gid_attrs/ndevs/{}", port.port, entry.index);
                Vlan::of(&situation.tree, &situation.tree.read(&file)?)
            }),
            first_pkey: pkeys.first().copied().unwrap_or(0),
            pkeys: pkeys.into_iter().filter(|key| key & 0x7fff != 0).take(PARTITIONS).collect(),
        }
    }

    /// Returns the message.
    pub fn encode(&self) -> Vec<u8> {
        // Numbers and texts have no JSON that fails.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the peer's message.
    pub fn decode(bytes: &[u8]) -> Result<Facts, String> {
        let facts: Facts = serde_json::from_slice(bytes)
            .map_err(|error| format!("what the peer tells of itself cannot be read: {error}"))?;
        if facts.version != VERSION {
            return Err(format!(
                "the peer speaks version {}, this command version {VERSION}: use the same mlx5",
                facts.version
            ));
        }
        if !matches!(facts.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(format!("the peer's MTU is {}: no port has that", facts.mtu));
        }
        Ok(facts)
    }

    /// Returns device and port in words.
    pub fn name(&self) -> String {
        match self.device.is_empty() {
            true => "a device".to_owned(),
            false => format!("{} port {}", self.device, self.port),
        }
    }
}

/// Shortens a text to [`NAME`] bytes at most.
fn short(mut text: String) -> String {
    let mut end = NAME.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn longest() -> Facts {
        Facts {
            version: VERSION,
            host: "h".repeat(NAME),
            device: "d".repeat(NAME),
            firmware: "f".repeat(NAME),
            kernel: "k".repeat(NAME),
            state: "s".repeat(NAME),
            rdma_core: Some(u32::MAX),
            port: 255,
            mtu: 4096,
            lid: u16::MAX,
            gid: Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()),
            gid_index: u32::MAX,
            roce: Some(2),
            vlan: Some(Vlan(Some(4094))),
            first_pkey: u16::MAX,
            pkeys: vec![u16::MAX; PARTITIONS],
            ..Facts::default()
        }
    }

    #[test]
    fn the_longest_facts_fit_into_a_message_and_come_back() {
        let bytes = longest().encode();
        assert!(bytes.len() <= 1024, "{}", bytes.len());
        assert_eq!(Facts::decode(&bytes), Ok(longest()));
        assert_eq!(short("é".repeat(NAME)).len(), NAME);
        assert_eq!(short("x".to_owned() + &"é".repeat(NAME)).len(), NAME - 1);
    }

    #[test]
    fn another_version_and_an_impossible_mtu_are_refused() {
        let decode = |facts: &Facts| Facts::decode(&facts.encode()).unwrap_err();
        assert!(decode(&Facts { version: 1, ..longest() }).contains("version 1"));
        assert!(decode(&Facts { mtu: 1500, ..longest() }).contains("1500"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..1024), cut in 0usize..1024) {
            let _ = Facts::decode(&bytes);
            let whole = longest().encode();
            prop_assert!(Facts::decode(&whole[..cut.min(whole.len() - 1)]).is_err());
        }
    }
}
