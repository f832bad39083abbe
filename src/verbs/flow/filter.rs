//! The fields of packets that a flow rule compares.

use std::net::{IpAddr, SocketAddr};

use mlx5_sys::verbs::ibv_flow_attr_type;

use crate::error::{Error, Result};

/// The fields that a rule compares, with their values. Those that are `None` match every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) destination: Option<[u8; 6]>,
    pub(super) source: Option<[u8; 6]>,
    pub(super) ether_type: Option<u16>,
    pub(super) vlan: Option<u16>,
    pub(super) source_ip: Option<IpAddr>,
    pub(super) destination_ip: Option<IpAddr>,
    pub(super) udp: Ports,
    pub(super) tcp: Ports,
    /// The group that [`group`](Self::group) was given.
    group: Option<IpAddr>,
}

/// The ports of TCP or UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) source: Option<u16>,
    pub(super) destination: Option<u16>,
}

impl Ports {
    /// Returns whether one of them is compared.
    pub(super) fn any(self) -> bool {
        self != Ports::default()
    }
}

/// Returns the Ethernet address of a multicast group: RFC 1112, section 6.4, and RFC 2464, section 7.
pub(crate) fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(group) => {
            let [_, second, third, fourth] = group.octets();
            [0x01, 0x00, 0x5e, second & 0x7f, third, fourth]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

impl Filter {
    /// Compares both addresses of a group.
    pub(super) fn group(&mut self, group: IpAddr) {
        self.group = Some(group);
        self.destination = Some(group_mac(group));
        self.destination_ip = Some(group);
    }

    /// Compares the addresses of a connection, and returns its ports.
    pub(super) fn connection(&mut self, from: SocketAddr, to: SocketAddr) -> Ports {
        self.source_ip = Some(from.ip());
        self.destination_ip = Some(to.ip());
        Ports { source: Some(from.port()), destination: Some(to.port()) }
    }

    /// Fails if the values contradict each other, are out of range, or are given to a rule of a kind
    /// that compares none.
    pub(super) fn check(&self, kind: ibv_flow_attr_type::Type) -> Result<()> {
        /// EtherTypes of IPv4 and IPv6.
        const IPV4: u16 = 0x0800;
        const IPV6: u16 = 0x86dd;
        if let Some(vlan) = self.vlan.filter(|vlan| *vlan > 0xfff) {
            return Err(Error::attribute("vlan", vlan, "at most 4095"));
        }
        if let Some(group) = self.group.filter(|group| !group.is_multicast()) {
            let rule = "a multicast address: 224.0.0.0/4 or ff00::/8";
            return Err(Error::attribute("group", group, rule));
        }
        if let (Some(from), Some(to)) = (self.source_ip, self.destination_ip) {
            if from.is_ipv4() != to.is_ipv4() {
                let rule = format!("of the same IP version as destination_ip {to}");
                return Err(Error::attribute("source_ip", from, rule));
            }
        }
        let kinds = self.source_ip.or(self.destination_ip).zip(self.ether_type);
        if let Some((address, given)) = kinds {
            let kind = if address.is_ipv4() { IPV4 } else { IPV6 };
            if given != kind {
                let rule = format!("{kind:#06x}, as the rule compares {address}");
                return Err(Error::attribute("ether_type", format!("{given:#06x}"), rule));
            }
        }
        if self.udp.any() && self.tcp.any() {
            let port = self.tcp.destination.or(self.tcp.source).unwrap_or(0);
            let rule = "a rule compares ports of UDP or of TCP: make one for each";
            return Err(Error::attribute("tcp port", port, rule));
        }
        if kind != ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL && *self != Filter::default() {
            let rule = "the rest and a sniffer take all packets: compare no field";
            return Err(Error::attribute("rule", "rest or sniffer with a field", rule));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
