//! Multicast groups.
//!
//! A join only computes the group's addresses: the device delivers a group's packets to the queue
//! pairs that are attached to it, and every port is reached. librdmacm attaches the queue pair when
//! it gets the event.

use std::net::IpAddr;

use super::super::uverbs::process::errno::{Errno, Result};
use super::address::Address;
use super::connect::Q_KEY;
use super::state::{Contents, Stage, State};
use crate::card::Link;
use crate::management::subnet::{Path, Signature, group, group_lid};
use crate::wire::MULTICAST;

/// `RDMA_PS_UDP`
const UDP: u16 = 0x0111;
/// Q_Key of groups of IP over InfiniBand.
const IP_Q_KEY: u32 = 0x0b1b;

/// A join of a group.
pub(super) struct Group {
    /// The id that has joined.
    pub id: u32,
    /// The program's name for the join.
    pub uid: u64,
    /// Address.
    address: Address,
    /// Events that the program has read.
    pub reported: u32,
}

impl State {
    /// `JOIN_MCAST`: reports the group's addresses in an event. Returns the number of the join.
    pub fn join(&mut self, file: u64, number: u32, uid: u64, address: Address) -> Result<u32> {
        let joined = self.groups.values();
        if joined.clone().any(|other| other.id == number && other.address == address) {
            return Err(Errno::EINVAL);
        }
        let id = self.id(file, number)?;
        let ready = !matches!(id.stage, Stage::Idle | Stage::Listening | Stage::Ended);
        let (Some(place), true) = (id.place, ready && id.is_datagram()) else {
            return Err(Errno::EINVAL);
        };
        let rdma = id.space == UDP;
        if id.q_key == 0 {
            id.q_key = if rdma { Q_KEY } else { IP_Q_KEY };
        }
        let (q_key, traffic_class) = (id.q_key, id.type_of_service);
        let link = self.ports()[place.card].link;
        // Linux announces groups of RoCEv2 by IGMP, which only IPv4 has.
        let is_ipv4 = matches!(address, Address::Ip(address) if address.is_ipv4());
        if link == Link::Roce && !is_ipv4 {
            return Err(Errno::ENOTSUPP);
        }
        let gid = match address {
            Address::Ip(address) => {
                let signature = if rdma { Signature::Rdma } else { Signature::Ip };
                group(link, ip(address.ip()), 0xffff, signature)
            }
            Address::Ib { gid, .. } => gid,
        };
        if gid == [0; 16] || !crate::wire::gid::is_multicast(&gid) {
            return Err(Errno::EINVAL);
        }
        let join = self.number();
        self.groups.insert(join, Group { id: number, uid, address, reported: 0 });
        let path = Path {
            source: place.gid(self.ports()),
            destination: gid,
            destination_lid: if link == Link::InfiniBand { group_lid(&gid) } else { 0 },
            hop_limit: 1,
            traffic_class,
            ..Path::default()
        };
        let mut to = self.destination(&path, &place);
        to.is_global = 1;
        let contents = Contents::datagram(MULTICAST, q_key, to, &[]);
        self.report_join(join, 0, &contents);
        Ok(join)
    }

    /// `LEAVE_MCAST`. Returns the number of the join's events that were read.
    pub fn leave(&mut self, file: u64, join: u32) -> Result<u32> {
        let id = self.groups.get(&join).ok_or(Errno::ENOENT)?.id;
        self.id(file, id)?;
        self.drop_events(join);
        self.groups.remove(&join).map(|group| group.reported).ok_or(Errno::ENOENT)
    }
}

/// An IPv4 address that is written as one of IPv6 is one of IPv4.
fn ip(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
