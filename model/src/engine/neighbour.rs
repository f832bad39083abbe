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

/// The ports that this process's ports can reach by GID, at a moment.
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
            return Ok(self.address(gid));
        }
        if gid::is_ipv4(&from.gid) != gid::is_ipv4(gid) {
            return Err(Unresolved::Family);
        }
        match (self.known(gid), self.carrier, from.version) {
            (Some(mac), ..) => Ok(mac),
            (None, None, _) => self.on_view(gid),
            (None, Some(Carrier::Udp), RoceVersion::V1) => Err(Unresolved::Version),
            _ if udp::has_route(gid, interface) => Ok(mac(gid)),
            _ => Err(Unresolved::Route),
        }
    }

    /// Returns the Ethernet address of the port or group that has a GID, whether there is one or not.
    pub(crate) fn address(&self, gid: &[u8; 16]) -> [u8; 6] {
        let others = || self.carrier.is_none().then(|| self.on_view(gid).ok()).flatten();
        self.known(gid).or_else(others).unwrap_or_else(|| mac(gid))
    }

    /// Returns the Ethernet address of this process's port with a GID.
    fn known(&self, gid: &[u8; 16]) -> Option<[u8; 6]> {
        let has = |entry: &&GidEntry| !entry.is_empty() && entry.gid == *gid;
        self.ports.iter().find_map(|port| {
            let entry = port.gids.iter().find(has)?;
            Some(entry.mac.unwrap_or(port.mac))
        })
    }

    /// Finds a port of another process on the network of ports without an interface, which has those that
    /// any process of the machine may have. Routes lead to the networks of this process's ports.
    fn on_view(&self, gid: &[u8; 16]) -> Result<[u8; 6], Unresolved> {
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
        let near = self.ports.iter().any(|port| port.gids.iter().any(|own| is_near(&own.gid, gid)));
        Err(if near { Unresolved::Neighbour } else { Unresolved::Route })
    }
}

/// Returns whether two GIDs are of one network of a view: 256 IPv4 addresses, or 64 bits of IPv6.
fn is_near(own: &[u8; 16], gid: &[u8; 16]) -> bool {
    let prefix = if gid::is_ipv4(gid) { 15 } else { 8 };
    own[..prefix] == gid[..prefix]
}

#[cfg(test)]
mod tests {
    //! Unit tests.

    use super::*;
    use crate::engine::identities;
    use crate::wire::Link;
    use crate::wire::RoceVersion::{V1, V2};

    fn ip(text: &str) -> [u8; 16] {
        gid::of_ip(text.parse().unwrap())
    }

    /// The neighbours of two ports without an interface, changed.
    fn on_view(change: impl FnOnce(&mut Vec<Identity>)) -> Neighbours {
        let mut ports = identities(2, Link::Roce, 0);
        change(&mut ports);
        Neighbours { ports: ports.into(), carrier: None }
    }

    fn set(port: &mut Identity, addresses: &[&str]) {
        let addresses: Vec<[u8; 16]> = addresses.iter().map(|text| ip(text)).collect();
        port.gids = GidEntry::pairs(&addresses);
    }

    #[test]
    fn a_view_has_the_ports_of_the_machine_and_no_route() {
        let first = port_mac(0);
        let neighbours = on_view(|_| ());
        for (text, v1, v2) in [
            ("198.18.0.1", Ok(first), Ok(first)),
            ("198.18.0.16", Ok(port_mac(15)), Ok(port_mac(15))),
            ("198.18.0.17", Err(Unresolved::Neighbour), Err(Unresolved::Neighbour)),
            ("198.18.0.0", Err(Unresolved::Neighbour), Err(Unresolved::Neighbour)),
            ("10.9.9.9", Err(Unresolved::Route), Err(Unresolved::Route)),
            ("2001:db8::1", Err(Unresolved::Route), Err(Unresolved::Route)),
            ("fe80::526b:4bff:fec0:4e00", Ok(first), Ok(first)),
            // Linux makes the address of v1 from the GID alone.
            ("fe80::200:ff:fe00:9", Ok([0, 0, 0, 0, 0, 9]), Err(Unresolved::Neighbour)),
            ("224.0.0.9", Ok([1, 0, 0x5e, 0, 0, 9]), Ok([1, 0, 0x5e, 0, 0, 9])),
        ] {
            let own = if text.contains(':') { "fe80::526b:4bff:fec0:4e00" } else { "198.18.0.1" };
            let find = |it| neighbours.find(&GidEntry::new(ip(own), it), &ip(text), 0);
            assert_eq!([V1, V2].map(find), [v1, v2], "{text}");
        }
        let ipv4 = GidEntry::new(ip("198.18.0.1"), V2);
        assert_eq!(neighbours.find(&ipv4, &ip("2001:db8::1"), 0), Err(Unresolved::Family));
        assert_eq!(neighbours.address(&ip("10.9.9.9")), mac(&ip("10.9.9.9")));
    }

    #[test]
    fn a_view_has_the_addresses_that_its_ports_were_given() {
        let neighbours = on_view(|ports| {
            set(&mut ports[0], &["192.0.2.1"]);
            set(&mut ports[1], &["192.0.2.2"]);
        });
        let from = GidEntry::new(ip("192.0.2.1"), V2);
        for (text, found) in [
            ("192.0.2.2", Ok(port_mac(1))),
            ("192.0.2.3", Err(Unresolved::Neighbour)),
            ("192.0.3.1", Err(Unresolved::Route)),
            // The second port no longer has it. The third is another process's.
            ("198.18.0.2", Err(Unresolved::Neighbour)),
            ("198.18.0.3", Ok(port_mac(2))),
        ] {
            assert_eq!(neighbours.find(&from, &ip(text), 0), found, "{text}");
        }
    }

    #[test]
    fn a_port_on_an_interface_has_the_routes_of_the_machine() {
        let on = |carrier| {
            let mut ports = identities(1, Link::Roce, 0);
            set(&mut ports[0], &["127.0.0.1"]);
            Neighbours { ports: ports.into(), carrier: Some(carrier) }
        };
        let find = |neighbours: &Neighbours, to: &str, version| {
            neighbours.find(&GidEntry::new(ip("127.0.0.1"), version), &ip(to), 1)
        };
        let udp = on(Carrier::Udp);
        assert_eq!(find(&udp, "127.0.0.1", V1), Ok(port_mac(0)));
        assert_eq!(find(&udp, "127.0.0.2", V2), Ok(mac(&ip("127.0.0.2"))));
        assert_eq!(find(&udp, "127.0.0.2", V1), Err(Unresolved::Version));
        // No port has the address of all (RFC 919).
        let machine = on(Carrier::Machine);
        assert_eq!(find(&machine, "255.255.255.255", V2), Err(Unresolved::Route));
    }
}
