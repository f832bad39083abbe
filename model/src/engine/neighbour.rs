//! The Ethernet addresses of ports and groups that have a GID, as the host's network stack finds them.

use std::sync::OnceLock;

use super::config::{DEVICES, NETWORK, link_local, port_mac};
use crate::fabric::Carrier;
use crate::fabric::udp::{self, Interface};
use crate::identity::GidEntry;
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

/// The network of ports that are on interfaces.
struct Own {
    carrier: Carrier,
    /// GIDs and Ethernet addresses of this machine's ports.
    addresses: Vec<([u8; 16], [u8; 6])>,
}

/// A process has one network.
static OWN: OnceLock<Own> = OnceLock::new();

/// Remembers the addresses of this machine's ports, which are on these interfaces. Without any, or at a
/// later call, nothing is remembered.
pub(crate) fn remember(carrier: Carrier, ports: &[Interface]) {
    if ports.is_empty() {
        return;
    }
    let each = |port: &Interface| {
        let mac = port.port_mac();
        port.gids.iter().map(move |gid| (*gid, mac)).collect::<Vec<_>>()
    };
    let addresses = ports.iter().flat_map(each).collect();
    let _ = OWN.set(Own { carrier, addresses });
}

/// Returns the Ethernet address of the port or group that has a GID. `from` is the sender's entry, of a
/// port on the interface of this number. The address of another host's port is not known: the one that
/// follows from the GID stands for it.
///
/// # Errors
/// Those of Linux (`ib_resolve_unicast_gid_dmac`): a link-local GID of RoCE v1 is always resolved, and any
/// other only if there is a route, and a port of the network has it.
pub(crate) fn neighbour(
    from: &GidEntry,
    gid: &[u8; 16],
    interface: u32,
) -> Result<[u8; 6], Unresolved> {
    let of_link = from.version == RoceVersion::V1 && gid::is_link_local(gid);
    if gid::is_multicast(gid) || of_link {
        return Ok(address(gid));
    }
    if gid::is_ipv4(&from.gid) != gid::is_ipv4(gid) {
        return Err(Unresolved::Family);
    }
    match OWN.get() {
        Some(own) => own.find(gid, from.version, interface),
        None => on_view(gid),
    }
}

/// Returns the Ethernet address of the port or group that has a GID, whether there is one or not.
pub(crate) fn address(gid: &[u8; 16]) -> [u8; 6] {
    let known = match OWN.get() {
        Some(own) => own.known(gid),
        None => on_view(gid).ok(),
    };
    known.unwrap_or_else(|| mac(gid))
}

impl Own {
    fn known(&self, gid: &[u8; 16]) -> Option<[u8; 6]> {
        self.addresses.iter().find_map(|(own, mac)| (own == gid).then_some(*mac))
    }

    fn find(
        &self,
        gid: &[u8; 16],
        version: RoceVersion,
        interface: u32,
    ) -> Result<[u8; 6], Unresolved> {
        match (self.known(gid), self.carrier, version) {
            (Some(mac), ..) => Ok(mac),
            (None, Carrier::Udp, RoceVersion::V1) => Err(Unresolved::Version),
            _ if udp::has_route(gid, interface) => Ok(mac(gid)),
            _ => Err(Unresolved::Route),
        }
    }
}

/// Finds a port on the network of ports without an interface, which has those that any process of the
/// machine may have.
fn on_view(gid: &[u8; 16]) -> Result<[u8; 6], Unresolved> {
    let [network @ .., host] = gid;
    if *network == NETWORK {
        let number = usize::from(*host).checked_sub(1).filter(|number| *number < DEVICES);
        return number.map(port_mac).ok_or(Unresolved::Neighbour);
    }
    if gid::is_link_local(gid) {
        let is_port = (0..DEVICES).any(|number| link_local(port_mac(number)) == *gid);
        return if is_port { Ok(mac(gid)) } else { Err(Unresolved::Neighbour) };
    }
    Err(Unresolved::Route)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RoceVersion::{V1, V2};

    fn ip(text: &str) -> [u8; 16] {
        gid::of_ip(text.parse().unwrap())
    }

    #[test]
    fn a_view_has_the_ports_of_the_machine_and_no_route() {
        let first = port_mac(0);
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
            let found = [V1, V2].map(|it| neighbour(&GidEntry::new(ip(own), it), &ip(text), 0));
            assert_eq!(found, [v1, v2], "{text}");
        }
        let ipv4 = GidEntry::new(ip("198.18.0.1"), V2);
        assert_eq!(neighbour(&ipv4, &ip("2001:db8::1"), 0), Err(Unresolved::Family));
        assert_eq!(address(&ip("10.9.9.9")), mac(&ip("10.9.9.9")));
    }

    #[test]
    fn a_port_on_an_interface_has_the_routes_of_the_machine() {
        let ports = vec![(ip("127.0.0.1"), [7; 6])];
        let own = |carrier| Own { carrier, addresses: ports.clone() };
        let udp = own(Carrier::Udp);
        assert_eq!(udp.find(&ip("127.0.0.1"), V1, 1), Ok([7; 6]));
        assert_eq!(udp.find(&ip("127.0.0.2"), V2, 1), Ok(mac(&ip("127.0.0.2"))));
        assert_eq!(udp.find(&ip("127.0.0.2"), V1, 1), Err(Unresolved::Version));
        // No port has the address of all (RFC 919).
        let nowhere = own(Carrier::Machine).find(&ip("255.255.255.255"), V2, 1);
        assert_eq!(nowhere, Err(Unresolved::Route));
    }
}
