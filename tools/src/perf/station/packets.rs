//! Ethernet packets: UDP over IPv4, whose headers the program writes itself. A flow of the HCA leads
//! each queue pair's packets to it, by Ethernet address and UDP port.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use mlx5::devx::{FlowCounter, QueueCounters};
use mlx5::ib::RawPacket;
use mlx5::packet::Group;
use mlx5::ring::{CqReader, PacketRq, ReceiveConfig, Srq};
use mlx5::verbs::{CompletionQueue, Context, Flow, FlowBuilder, QueuePair, Reset, Rts};
use serde::{Deserialize, Serialize};

use super::connect::{Connects, Making, Way};
use super::{Answerer, Destination, Endpoint, Linked, Role, Taken};
use crate::outcome::{Error, Result};
use crate::perf::plan::{Header, Layout, Plan};

/// Bytes of the header: Ethernet, IPv4, UDP.
const LENGTH: usize = Layout::FRAME;

/// The destination of packets to one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameAddress {
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// The IP address.
    pub ip: Ipv4Addr,
    /// The UDP port.
    pub port: u16,
}

/// The headers of a queue pair's packets: one for each group, which packets have in turn, or one for all.
#[derive(Clone, Debug)]
pub struct FrameHeaders(Vec<[u8; LENGTH]>);

impl FrameHeaders {
    /// Returns the header of a message.
    #[inline(always)]
    #[must_use]
    pub fn of(&self, sequence: u64) -> &[u8; LENGTH] {
        match &self.0[..] {
            [one] => one,
            many => &many[(sequence % many.len() as u64) as usize],
        }
    }
}

impl FrameAddress {
    /// Returns the address of a queue pair of this port.
    fn of(making: &Making<'_>, pair: &Packets) -> Result<FrameAddress> {
        let port = making.side.port.attributes().port;
        let (mac, ip) = addresses(&making.side.context, port)?;
        let port = pair.udp.local_addr().map_err(|error| no_udp_port(&error))?.port();
        Ok(FrameAddress { mac, ip, port })
    }

    /// Returns the address of the same port in a multicast group; `None` for an address of no group.
    fn in_group(self, group: Ipv4Addr) -> Option<FrameAddress> {
        let mac = Group::mac_of(IpAddr::V4(group))?;
        Some(FrameAddress { mac, ip: group, ..self })
    }

    fn is_of_group(&self) -> bool {
        self.mac[0] & 1 == 1
    }

    /// Returns this address, or if it is of a group, that of the same port in each group of the plan.
    fn each(self, plan: &Plan) -> Vec<FrameAddress> {
        match self.is_of_group() {
            true => plan.group_addresses().filter_map(|group| self.in_group(group)).collect(),
            false => vec![self],
        }
    }

    /// Returns a rule for the packets to it.
    fn rule(&self, port: u8) -> FlowBuilder {
        let rule = Flow::builder(port).udp_port(self.port);
        match self.is_of_group() {
            true => rule.group(IpAddr::V4(self.ip)),
            false => rule.destination(self.mac),
        }
    }

    /// Returns the header of packets of `plan` from here to there.
    fn header(self, to: FrameAddress, plan: &Plan) -> [u8; LENGTH] {
        let Header { traffic_class, hop_limit } = plan.header;
        let total = (LENGTH - 14 + plan.size as usize) as u16;
        let mut ip = [0; 20];
        ip[0] = 0x45;
        ip[1] = traffic_class.unwrap_or(0);
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[6] = 0x40; // don't fragment
        ip[8] = hop_limit.unwrap_or(64);
        ip[9] = 17; // UDP
        ip[12..16].copy_from_slice(&self.ip.octets());
        ip[16..20].copy_from_slice(&to.ip.octets());
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut header = [0; LENGTH];
        header[..6].copy_from_slice(&to.mac);
        header[6..12].copy_from_slice(&self.mac);
        header[12..14].copy_from_slice(&[8, 0]);
        header[14..34].copy_from_slice(&ip);
        header[34..36].copy_from_slice(&self.port.to_be_bytes());
        header[36..38].copy_from_slice(&to.port.to_be_bytes());
        header[38..40].copy_from_slice(&(total - 20).to_be_bytes());
        // No checksum of UDP, as RFC 768 permits over IPv4.
        header
    }
}

/// The checksum of an IPv4 header (RFC 791) whose own field is zero.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Returns the Ethernet and IP address of a port, from its GIDs. The kernel makes the first from the
/// Ethernet address (EUI-64), and one from each IP address.
fn addresses(context: &Context, port: u8) -> Result<([u8; 6], Ipv4Addr)> {
    let gids = context.gids(port)?;
    let of_eui = |bytes: &[u8; 16]| match *bytes {
        [0xfe, 0x80, .., a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
        _ => None,
    };
    let mac = gids.iter().find_map(|entry| of_eui(&entry.gid.0)).ok_or_else(|| {
        Error::Told(format!(
            "raw: port {port} has no GID of its Ethernet address (fe80::…ff:fe…): it is not a port \
             of Ethernet, or its interface is down"
        ))
    })?;
    let ip = gids.iter().find_map(|entry| entry.gid.ipv4());
    Ok((mac, ip.unwrap_or(Ipv4Addr::new(169, 254, mac[4], mac[5]))))
}

/// A queue pair of packets, and the CQ of its receives. Their CQEs do not name the queue pair, so
/// that each has one of its own.
pub struct Packets {
    qp: QueuePair<RawPacket, Reset>,
    cq: CompletionQueue,
    /// Keeps its UDP port from other programs of this host, whose flows would take the packets too.
    udp: UdpSocket,
}

fn no_udp_port(error: &std::io::Error) -> Error {
    Error::Told(format!("raw: the system gives no UDP port to a queue pair: {error}"))
}

impl Connects for RawPacket {
    type Address = FrameHeaders;
    type Pair = Packets;

    /// The port counts packets for which there is no receive.
    fn count(_: &QueueCounters, _: &QueuePair<Self, Rts>) -> Option<mlx5::Result<()>> {
        None
    }

    fn make(making: &Making<'_>) -> Result<Packets> {
        let Making { side, plan, pd, .. } = making;
        // Says what a port lacks that is none of Ethernet.
        addresses(&side.context, side.port.attributes().port)?;
        let cq = side.cq(pd, plan.receives(), making.channel)?;
        let builder = making.builder::<RawPacket>().receive_cq(&cq);
        // The header is in the WQE, too.
        let inline = plan.max_inline() + LENGTH as u32;
        let qp = builder.max_inline_data(inline).max_recv_wr(plan.receives()).build();
        let qp = qp.map_err(|error| making.because(&error))?;
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        Ok(Packets { qp, cq, udp: udp.map_err(|error| no_udp_port(&error))? })
    }

    fn endpoint(pair: &Packets, making: &Making<'_>) -> Result<Endpoint> {
        let own = FrameAddress::of(making, pair)?;
        let frame = match (making.role, making.plan.group) {
            (Role::Server, Some(group)) => own.in_group(group),
            _ => Some(own),
        };
        Ok(Endpoint { frame, ..making.endpoint(pair.qp.number()) })
    }

    fn connect(
        pair: Packets,
        way: &Way<'_>,
        mine: &Endpoint,
        theirs: &Endpoint,
    ) -> Result<(Linked<RawPacket>, FrameHeaders)> {
        let missing = || Error::Told("the peer tells no Ethernet address".to_owned());
        let (here, there) = mine.frame.zip(theirs.frame).ok_or_else(missing)?;
        let port = way.port.attributes().port;
        let qp = pair.qp.init(port).map_err(|failed| failed.error)?;
        let qp = qp.rtr().map_err(|failed| failed.error)?;
        let qp = qp.rts().map_err(|failed| failed.error)?;
        // Some kernels and devices give a program none.
        let counter = FlowCounter::new(qp.context()).ok();
        let rule = |address: &FrameAddress| {
            let rule = address.rule(port);
            let rule = counter.iter().fold(rule, |rule, counter| rule.counter(counter));
            rule.build(&qp)
        };
        let flows = here.each(way.plan).iter().map(rule).collect::<mlx5::Result<_>>()?;
        let answerer = Answerer::Packets { cq: pair.cq, counter, _flows: flows, _udp: pair.udp };
        // Packets of a group come from an address of one host.
        let from = match here.is_of_group() {
            false => here,
            true => {
                let (mac, ip) = addresses(qp.context(), port)?;
                FrameAddress { mac, ip, ..here }
            }
        };
        let to = there.each(way.plan).into_iter();
        let headers: Vec<_> = to.map(|to| from.header(to, way.plan)).collect();
        if headers.is_empty() {
            return Err(Error::Told("the peer tells a group that the plan has not".to_owned()));
        }
        let link = Linked { qp, answerer, destination: Destination::Peer };
        Ok((link, FrameHeaders(headers)))
    }

    fn receives(link: &Linked<RawPacket>, _: &mut CqReader, _: Option<&mut Srq>) -> Result<Taken> {
        match &link.answerer {
            Answerer::Packets { cq, .. } => {
                let packets = PacketRq::new(&link.qp, cq, ReceiveConfig::default())?;
                Ok(Taken::Packets(Box::new(packets)))
            }
            _ => Ok(Taken::Shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::tests::plan;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        // An example of a header of 20 bytes, whose checksum is 0xb861.
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }

    #[test]
    fn a_header_has_all_addresses_lengths_and_marks() {
        let address = |last: u8, port| FrameAddress {
            mac: [2, 0, 0, 0, 0, last],
            ip: Ipv4Addr::new(10, 0, 0, last),
            port,
        };
        let mut plan = plan();
        plan.header = Header { traffic_class: Some(104), hop_limit: Some(3) };
        let to = address(2, 0xc002).in_group(Ipv4Addr::new(239, 129, 2, 3)).unwrap();
        let header = address(1, 0xc001).header(to, &plan);
        assert_eq!(header[..6], [1, 0, 0x5e, 1, 2, 3], "23 bits of the group");
        assert_eq!(header[6..14], [2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(header[15], 104);
        assert_eq!(header[16..18], (28_u16 + 64).to_be_bytes());
        assert_eq!(header[22], 3);
        assert_eq!(checksum(&header[14..34]), 0, "the sum over a right header");
        assert_eq!(header[26..34], [10, 0, 0, 1, 239, 129, 2, 3]);
        assert_eq!(header[34..38], [0xc0, 1, 0xc0, 2]);
        assert_eq!(header[38..40], (8_u16 + 64).to_be_bytes());
    }
    #[test]
    fn packets_have_the_groups_of_the_plan_in_turn() {
        let mut plan = plan();
        (plan.group, plan.groups) = (Some(Ipv4Addr::new(239, 1, 1, 254)), 3);
        let own = FrameAddress { mac: [2; 6], ip: Ipv4Addr::new(10, 0, 0, 1), port: 7 };
        assert_eq!(own.each(&plan), [own]);
        assert_eq!(own.in_group(own.ip), None);
        let groups = own.in_group(Ipv4Addr::new(239, 1, 1, 254)).unwrap().each(&plan);
        let ends: Vec<[u8; 2]> = groups.iter().map(|at| [at.mac[4], at.mac[5]]).collect();
        assert_eq!(ends, [[1, 254], [1, 255], [2, 0]]);
        let headers = groups.iter().map(|to| own.header(*to, &plan)).collect();
        let headers = FrameHeaders(headers);
        for sequence in 0..7 {
            assert_eq!(headers.of(sequence)[30..34], groups[sequence as usize % 3].ip.octets());
        }
    }
}
