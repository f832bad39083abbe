//! Addresses: how packets find the peer, in the HCA's words (`ads`).

use mlx5_sys::ifc::{Field, ads, qpc};

use crate::devx::Command;
use crate::error::Result;
use crate::ib::{Gid, GidType};
use crate::verbs::{AddressHandle, AddressVector, Context, GlobalRoute, ProtectionDomain};

/// An address that has been looked up.
pub(super) struct Path {
    address: AddressVector,
    /// On Ethernet: the MAC address of the next hop, and whether packets have UDP headers.
    ethernet: Option<(u64, bool)>,
}

impl Path {
    /// Looks an address up: on RoCE the kernel is asked for the MAC address that belongs to the
    /// GID, by a passing address handle, as libmlx5 does for datagrams. (Of a connection that verbs
    /// make the kernel does it by itself, on the way to RTR.)
    pub(super) fn new(context: &Context, address: AddressVector) -> Result<Path> {
        let ethernet = match (context.port(address.port)?.is_ethernet(), address.global) {
            (true, Some(route)) => {
                let pd = ProtectionDomain::new(context)?;
                let handle = AddressHandle::new(&pd, &address)?;
                let mac = handle.vector().rmac;
                let mac = mac.iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
                let kind = context.gid(address.port, route.sgid_index.into())?.kind;
                Some((mac, kind == GidType::RoceV2))
            }
            _ => None,
        };
        Ok(Path { address, ethernet })
    }

    /// Sets it in the path at `at` of a command, all but P_Key index and timeout. `ends` are the
    /// numbers of both queue pairs, of which an Ethernet's switches are told a source port.
    pub(super) fn set(&self, command: Command, at: Field, ends: (u32, u32)) -> Command {
        let address = &self.address;
        let mut fields: Vec<(Field, u64)> = vec![
            (ads::VHCA_PORT_NUM, address.port.into()),
            (ads::STAT_RATE, stat_rate(address.static_rate)),
        ];
        if let Some(route) = &address.global {
            fields.extend([
                (ads::SRC_ADDR_INDEX, u64::from(route.sgid_index)),
                (ads::HOP_LIMIT, route.hop_limit.into()),
                (ads::TCLASS, route.traffic_class.into()),
                (ads::FLOW_LABEL, route.flow_label.into()),
            ]);
        }
        match self.ethernet {
            None => fields.extend([
                (ads::GRH, address.global.is_some().into()),
                (ads::RLID, address.dlid.into()),
                (ads::MLID, (address.src_path_bits & 0x7f).into()),
                (ads::SL, (address.service_level & 15).into()),
            ]),
            Some((mac, udp)) => {
                fields.extend([
                    (ads::RMAC_47_32, mac >> 32),
                    (ads::RMAC_31_0, mac & 0xffff_ffff),
                    (ads::ETH_PRIO, (address.service_level & 7).into()),
                ]);
                if let (true, Some(route)) = (udp, &address.global) {
                    fields.push((ads::DSCP, (route.traffic_class >> 2).into()));
                    fields.push((ads::UDP_SPORT, source_port(route.flow_label, ends).into()));
                }
            }
        }
        let command = command.fields(at, fields);
        match &address.global {
            Some(route) => command.bytes(ads::RGID_RIP.within(at), &route.dgid.0),
            None => command,
        }
    }
}

/// Rates as the HCA counts them: from the port's own, 0, on (`mlx5_ib.h`, `MLX5_STAT_RATE_OFFSET`).
fn stat_rate(rate: u8) -> u64 {
    if rate == 0 { 0 } else { u64::from(rate + 5) & 15 }
}

/// The UDP source port of a connection, which spreads connections over paths: from its flow label,
/// or where that is 0 from the numbers of both ends, as Linux chooses it (`ib_verbs.h`,
/// `rdma_get_udp_sport`).
fn source_port(flow_label: u32, (own, peer): (u32, u32)) -> u16 {
    let mixed = |product: u64| {
        let once = product ^ product >> 20;
        once ^ once >> 40
    };
    let label = match flow_label {
        0 => (mixed(u64::from(own) * u64::from(peer)) & 0xf_ffff) as u32,
        label => label,
    };
    (label & 0x3fff ^ (label & 0xf_c000) >> 14) as u16 | 0xc000
}

/// Returns whether the port of a context is one of Ethernet; of one without a port, it is not.
pub(super) fn is_ethernet(context: &Context, bytes: &[u8]) -> Result<bool> {
    match ads::VHCA_PORT_NUM.within(qpc::PRIMARY_ADDRESS_PATH).get(bytes) as u8 {
        0 => Ok(false),
        port => Ok(context.port(port)?.is_ethernet()),
    }
}

/// Reads an address back from the path at `at`.
pub(super) fn read(bytes: &[u8], at: Field, ethernet: bool) -> AddressVector {
    let get = |field: Field| field.within(at).get(bytes);
    let mut gid = Gid::default();
    gid.0.copy_from_slice(&bytes[ads::RGID_RIP.within(at).bytes()]);
    let global = (ethernet || get(ads::GRH) == 1).then(|| GlobalRoute {
        dgid: gid,
        sgid_index: get(ads::SRC_ADDR_INDEX) as u8,
        flow_label: get(ads::FLOW_LABEL) as u32,
        hop_limit: get(ads::HOP_LIMIT) as u8,
        traffic_class: get(ads::TCLASS) as u8,
    });
    let level = if ethernet { ads::ETH_PRIO } else { ads::SL };
    AddressVector {
        port: get(ads::VHCA_PORT_NUM) as u8,
        dlid: get(ads::RLID) as u16,
        service_level: get(level) as u8,
        src_path_bits: get(ads::MLID) as u8,
        static_rate: match get(ads::STAT_RATE) as u8 {
            0 => 0,
            rate => rate.wrapping_sub(5) & 15,
        },
        global,
    }
}

#[cfg(test)]
mod tests;
