//! The network interface of a RoCE port, as Linux shows it.
//!
//! If the port is on an interface of the machine (`MLX5_MODEL_NETWORK`), it is that one. Otherwise it is a
//! view: a name, files in sysfs, and answers to `if_nametoindex` and to `ioctl`, for which no privilege is
//! needed. The machine's lists of interfaces do not have a view, and no packet of the network stack passes it.

use std::net::Ipv4Addr;

use super::folder::Entry;
use crate::card::Identity;
use crate::fabric::udp::Interface;
use crate::wire::{ethernet, gid};

/// The start of a view's name. The number of the device follows.
const VIEW: &str = "mlx5view";
/// Number of the first view. The kernel counts interfaces from 1.
const INDEX: u32 = 0x6d35_0000;
/// Megabits in a second, as the port's rate is.
const SPEED: u32 = 200_000;
/// Bytes of a name, with its zero (`IFNAMSIZ`).
pub(crate) const NAME: usize = 16;

/// A network interface.
#[derive(Clone, Debug)]
pub(crate) struct Netdev {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether there is such an interface only for programs on the model.
    pub is_view: bool,
    /// Its first IPv4 address, when the process looked for devices.
    pub ipv4: Option<Ipv4Addr>,
    /// Whether it is up, and has a carrier.
    pub is_up: bool,
}

/// Returns whether a name is that of a view, whatever views there are.
pub(crate) fn may_be_view(name: &[u8]) -> bool {
    name.starts_with(VIEW.as_bytes())
}

/// Returns whether a number is that of a view, whatever views there are.
pub(crate) fn may_be_view_number(index: u32) -> bool {
    index >= INDEX
}

/// Returns the MTU of an interface with this log2 of the RoCE payload: a usual one, if it has it.
fn mtu(log: u32) -> u32 {
    let usual = [1500, 9000].into_iter().find(|mtu| ethernet::log_mtu(*mtu) == Some(log));
    usual.unwrap_or((1 << log) + ethernet::ROCE_HEADERS)
}

impl Netdev {
    /// Returns the interface of port number `number`, which has this identity.
    pub fn new(number: usize, identity: &Identity, interface: Option<&Interface>) -> Self {
        let ipv4 = gid::first_ipv4(identity.gids.iter().map(|entry| &entry.gid));
        let (mac, is_up) = (identity.mac, identity.port.logical() != 1);
        match interface {
            Some(Interface { name, index, mtu, .. }) => {
                let (name, index, mtu) = (name.clone(), *index, *mtu);
                Self { name, index, mac, mtu, is_view: false, ipv4, is_up }
            }
            None => Self {
                name: format!("{VIEW}{number}"),
                index: INDEX + number as u32,
                mac,
                mtu: mtu(identity.log_mtu()),
                is_view: true,
                ipv4,
                is_up,
            },
        }
    }

    /// Returns its flags (`netdevice(7)`). The only port that starts without a link is switched off.
    pub fn flags(&self) -> libc::c_int {
        let usual = libc::IFF_BROADCAST | libc::IFF_MULTICAST;
        if self.is_up { usual | libc::IFF_UP | libc::IFF_RUNNING } else { usual }
    }

    /// Writes the folder `net` of the port's function. A view is also among the machine's interfaces, in
    /// `/sys/class/net`.
    pub(super) fn describe(&self, entries: &mut Vec<(String, Entry)>, function: &str) {
        let folder = format!("{function}/net/{}", self.name);
        let mac: Vec<String> = self.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let index = self.index.to_string();
        let (state, carrier) = if self.is_up { ("up", "1") } else { ("down", "0") };
        for (name, text) in [
            ("address", mac.join(":")),
            ("addr_len", "6".into()),
            ("addr_assign_type", "0".into()),
            ("broadcast", "ff:ff:ff:ff:ff:ff".into()),
            ("carrier", carrier.into()),
            ("dev_id", "0x0".into()),
            ("dev_port", "0".into()),
            ("dormant", "0".into()),
            ("duplex", "full".into()),
            // sysfs does not show whether there is a carrier (IFF_RUNNING).
            ("flags", format!("{:#x}", self.flags() & !libc::IFF_RUNNING)),
            ("ifindex", index.clone()),
            ("iflink", index.clone()),
            ("link_mode", "0".into()),
            ("mtu", self.mtu.to_string()),
            ("operstate", state.into()),
            ("phys_port_name", "p0".into()),
            ("speed", SPEED.to_string()),
            ("tx_queue_len", "1000".into()),
            ("type", libc::ARPHRD_ETHER.to_string()),
            ("uevent", format!("INTERFACE={}\nIFINDEX={index}", self.name)),
        ] {
            entries.push((format!("{folder}/{name}"), Entry::text(&text)));
        }
        entries.push((format!("{folder}/device"), Entry::Link("../..".into())));
        if self.is_view {
            let class = format!("sys/class/net/{}", self.name);
            entries.push((class, Entry::Link(format!("../../../{folder}"))));
        }
    }
}

#[cfg(test)]
mod tests;
