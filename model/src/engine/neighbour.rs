//! The Ethernet addresses of ports and groups that have a GID, as the host's network stack finds them.

use std::sync::Arc;

use super::Engine;
use super::config::{DEVICES, NETWORK, port_mac};
use crate::fabric::Carrier;
use crate::fabric::udp;
use crate::identity::{GidEntry, Identity};
use crate::wire::{RoceVersion, gid, mac};

/// The reason why a GID has no Ethernet address that packets could be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// It is an IPv4 address, and the sender's an IPv6 address, or the other way round.
    Family,
    /// No route leads to its network.
    Route,
    /// No port of the network has it.
    Neighbour,
    /// It is not this machine's, and RoCE v1, which is not IP, does not leave the machine.
    Version,
}

/// The ports that this process's ports can reach by GID, at a moment. A port of a VLAN reaches those of
/// the same VLAN.
pub(crate) struct Neighbours {
    /// This process's ports.
    ports: Arc<[Identity]>,
    /// The carrier of ports that are on interfaces. `None` for views.
    carrier: Option<Carrier>,
}

impl Engine {
    /// Returns the ports that can be reached now.
    pub(crate) fn neighbours(&self) -> Neighbours {
        Neighbours { ports: self.directory.ports(), carrier: self.carrier }
    }
}

impl Neighbours {
    /// Returns this process's ports, by the index of their device.
    pub(crate) fn ports(&self) -> &[Identity] {
        &self.ports
    }

    /// Returns the Ethernet address of the port or group that has a GID. `from` is the sender's entry, of
    /// a port on the interface of this number. The address of another host's port is not known: the one
    /// that follows from the GID stands for it.
    ///
    /// # Errors
    /// Those of Linux (`ib_resolve_unicast_gid_dmac`): a link-local GID of RoCE v1 is always resolved, and
    /// any other only if there is a route, and a port of the network has it.
    pub(crate) fn find(
        &self,
        from: &GidEntry,
        gid: &[u8; 16],
        interface: u32,
    ) -> Result<[u8; 6], Unresolved> {
        let of_link = from.version == RoceVersion::V1 && gid::is_link_local(gid);
        if gid::is_multicast(gid) || of_link {
            return Ok(self.address(gid, from.vlan));
        }
        if gid::is_ipv4(&from.gid) != gid::is_ipv4(gid) {
            return Err(Unresolved::Family);
        }
        match (self.known(gid, from.vlan), self.carrier, from.version) {
            (Some(mac), ..) => Ok(mac),
            (None, None, _) => self.on_view(gid, from.vlan),
            // The question is not heard in the VLAN that the address is of.
            _ if self.has(gid) => Err(Unresolved::Neighbour),
            (None, Some(Carrier::Udp), RoceVersion::V1) => Err(Unresolved::Version),
            _ if udp::has_route(gid, interface) => Ok(mac(gid)),
            _ => Err(Unresolved::Route),
        }
    }

    /// Returns the Ethernet address of the port or group that has a GID in a VLAN, whether there is one or
    /// not.
    pub(crate) fn address(&self, gid: &[u8; 16], vlan: Option<u16>) -> [u8; 6] {
        let others = || self.carrier.is_none().then(|| self.on_view(gid, vlan).ok()).flatten();
        self.known(gid, vlan).or_else(others).unwrap_or_else(|| mac(gid))
    }

    /// Returns whether one of this process's ports has a GID, in whatever VLAN.
    fn has(&self, gid: &[u8; 16]) -> bool {
        let mut entries = self.ports.iter().flat_map(|port| &port.gids);
        entries.any(|entry| !entry.is_empty() && entry.gid == *gid)
    }

    /// Returns the Ethernet address of this process's port with a GID in a VLAN.
    fn known(&self, gid: &[u8; 16], vlan: Option<u16>) -> Option<[u8; 6]> {
        let has = |entry: &&GidEntry| !entry.is_empty() && entry.gid == *gid && entry.vlan == vlan;
        self.ports.iter().find_map(|port| {
            let entry = port.gids.iter().find(has)?;
            Some(entry.mac.unwrap_or(port.mac))
        })
    }

    /// Finds a port of another process on the network of ports without an interface, which has those that
    /// any process of the machine may have. They are of no VLAN. Routes lead to the networks of this
    /// process's ports in the same VLAN.
    fn on_view(&self, gid: &[u8; 16], vlan: Option<u16>) -> Result<[u8; 6], Unresolved> {
        if vlan.is_some() {
            return Err(self.unanswered(gid, vlan));
        }
        let others = self.ports.len()..DEVICES;
        let [network @ .., host] = gid;
        if *network == NETWORK {
            let number = usize::from(*host).checked_sub(1).filter(|number| others.contains(number));
            return number.map(port_mac).ok_or(Unresolved::Neighbour);
        }
        if gid::is_link_local(gid) {
            let is_port = others.map(port_mac).any(|mac| gid::link_local(mac) == *gid);
            return if is_port { Ok(mac(gid)) } else { Err(Unresolved::Neighbour) };
        }
        Err(self.unanswered(gid, vlan))
    }

    /// Returns why a GID of a view that no port has in a VLAN is not found.
    fn unanswered(&self, gid: &[u8; 16], vlan: Option<u16>) -> Unresolved {
        let mut entries = self.ports.iter().flat_map(|port| &port.gids);
        match entries.any(|own| own.vlan == vlan && is_near(&own.gid, gid)) {
            true => Unresolved::Neighbour,
            false => Unresolved::Route,
        }
    }
}

/// Returns whether two GIDs are of one network of a view: 256 IPv4 addresses, or 64 bits of IPv6.
fn is_near(own: &[u8; 16], gid: &[u8; 16]) -> bool {
    let prefix = if gid::is_ipv4(gid) { 15 } else { 8 };
    own[..prefix] == gid[..prefix]
}

#[cfg(test)]
mod tests;
