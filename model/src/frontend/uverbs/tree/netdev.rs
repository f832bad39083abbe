//! The network interface of a RoCE port, as Linux shows it.
//!
//! If the port is on an interface of the machine (`MLX5_MODEL_NETWORK`), it is that one. Otherwise it is a
//! view: a name, files in sysfs, and answers to `if_nametoindex` and to `ioctl`, for which no privilege is
//! needed. The machine's lists of interfaces do not have a view, and no packet of the network stack passes it.

use std::net::Ipv4Addr;

use super::folder::Entry;
use crate::card::Identity;
use crate::fabric::udp::{Interface, Vlan};
use crate::wire::{ethernet, gid};

/// The start of a view's name. The number of the device follows.
const VIEW: &str = "mlx5view";
/// Number of the first view. The kernel counts interfaces from 1.
const INDEX: u32 = 0x6d35_0000;
/// Bits of a view's number below those of the VLAN on top of it.
const VLAN_SHIFT: u32 = 4;
/// The folder of interfaces that no function has, as those of VLANs.
const VIRTUAL: &str = "sys/devices/virtual/net";
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
    /// Its first IPv4 address.
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

    /// Returns the view of a VLAN on top of this view, with these addresses.
    pub fn vlan(&self, id: u16, gids: Vec<[u8; 16]>) -> Vlan {
        let index = self.index | u32::from(id) << VLAN_SHIFT;
        Vlan { id, name: format!("{}.{id}", self.name), index, mac: self.mac, gids }
    }

    /// Returns the interface of a VLAN on top of this one.
    pub fn of_vlan(&self, vlan: &Vlan) -> Self {
        let Vlan { name, index, mac, gids, .. } = vlan;
        let (name, index, mac, ipv4) = (name.clone(), *index, *mac, gid::first_ipv4(gids));
        Self { name, index, mac, ipv4, ..*self }
    }

    /// Writes the folder `net` of the port's function. A view is also among the machine's interfaces, in
    /// `/sys/class/net`.
    pub(super) fn describe(&self, entries: &mut Vec<(String, Entry)>, function: &str) {
        let folder = format!("{function}/net/{}", self.name);
        self.describe_in(entries, &folder, &[("iflink", self.index.to_string())]);
        entries.push((format!("{folder}/device"), Entry::Link("../..".into())));
    }

    /// Writes the folders of the VLANs on top of a view.
    pub(super) fn describe_vlans(&self, entries: &mut Vec<(String, Entry)>, vlans: &[Vlan]) {
        for vlan in vlans.iter().filter(|_| self.is_view) {
            let own = self.of_vlan(vlan);
            let kind = format!("DEVTYPE=vlan\nINTERFACE={}\nIFINDEX={}", own.name, own.index);
            let of_vlan = [("iflink", self.index.to_string()), ("uevent", kind)];
            own.describe_in(entries, &format!("{VIRTUAL}/{}", own.name), &of_vlan);
        }
    }

    /// Writes an interface's folder, with some files as they are given.
    fn describe_in(
        &self,
        entries: &mut Vec<(String, Entry)>,
        folder: &str,
        given: &[(&str, String)],
    ) {
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
            ("link_mode", "0".into()),
            ("mtu", self.mtu.to_string()),
            ("operstate", state.into()),
            ("phys_port_name", "p0".into()),
            ("speed", SPEED.to_string()),
            ("tx_queue_len", "1000".into()),
            ("type", libc::ARPHRD_ETHER.to_string()),
            ("uevent", format!("INTERFACE={}\nIFINDEX={index}", self.name)),
        ] {
            if !given.iter().any(|(known, _)| *known == name) {
                entries.push((format!("{folder}/{name}"), Entry::text(&text)));
            }
        }
        for (name, text) in given {
            entries.push((format!("{folder}/{name}"), Entry::text(text)));
        }
        if self.is_view {
            let class = format!("sys/class/net/{}", self.name);
            entries.push((class, Entry::Link(format!("../../../{folder}"))));
        }
    }
}

#[cfg(test)]
mod tests;
