//! Peers' addresses: converted from the form in queue pairs and address handles to the device's
//! form.

use std::sync::{Arc, Once};

use mlx5_sys::ifc::{Field, ads};

use super::super::process::errno::{Errno, Result};
use super::super::request::abi::QpDestination;
use super::file::CommandFile;
use crate::card::{GidEntry, Link};
use crate::engine::Unresolved;
use crate::private::complain;

/// An entry of a GID table that an object sends from. Its place in the table stays taken while an object
/// holds it.
pub(crate) type Sender = Arc<GidEntry>;

/// Refuses an address that cannot be one: no such port, or a GID index outside the table (EINVAL) or
/// of an empty entry (ENODATA). Returns the entry that packets to it are sent from, if they have one.
pub(super) fn check(file: &CommandFile, path: &QpDestination) -> Result<Option<Sender>> {
    let mut from = None;
    let device = file.function().device;
    if path.port_num != 1 {
        let port = path.port_num;
        return Err(Errno::EINVAL.because(format_args!(
            "an address refused: port_num is {port}, and the device has port 1"
        )));
    }
    if path.is_global != 0 {
        let index = usize::from(path.sgid_index);
        let size = device.gid_table_size();
        if index >= size {
            return Err(Errno::EINVAL.because(format_args!(
                "an address refused: sgid_index is {index}, and the GID table has {size} entries"
            )));
        }
        from = Some(file.function().gid(index).ok_or_else(|| {
            Errno::ENODATA.because(format_args!(
                "an address refused: entry {index} of the GID table, sgid_index, is empty"
            ))
        })?);
    } else if device.link == Link::Roce {
        return Err(Errno::EINVAL.because(format_args!(
            "an address refused: on Ethernet it needs is_global of 1, with sgid_index and dgid"
        )));
    }
    // Rates are codes of four bits; 0 is whatever the port has.
    if path.static_rate > 20 {
        return Err(Errno::EINVAL.because(format_args!(
            "an address refused: static_rate is {}, and an enum ibv_rate is 20 at most",
            path.static_rate
        )));
    }
    Ok(from)
}

/// Finds the port that has a GID, as `rdma_addr_find_l2_eth_by_grh` of Linux does, with its errors:
/// addresses of two families (EINVAL), no route to the network (ENETUNREACH), no answer from a neighbour
/// (ETIMEDOUT, here without the second that Linux waits). Linux asks for an address handle and the path
/// of a connected queue pair (`is_qp_type_connected`), not for a target of dynamic connections.
pub(super) fn resolve(
    file: &CommandFile,
    from: Option<&Sender>,
    path: &QpDestination,
) -> Result<()> {
    let (function, device) = (file.function(), file.function().device);
    let Some(from) = from.filter(|_| device.link == Link::Roce) else { return Ok(()) };
    let interface = function.interface_of(from);
    match function.engine().neighbours().find(from, &path.dgid, interface) {
        Ok(_) => Ok(()),
        Err(Unresolved::Family) => Err(Errno::EINVAL.because(format_args!(
            "an address refused: the GIDs of sgid_index and dgid are of two families, IPv4 and IPv6"
        ))),
        Err(Unresolved::Route) => Err(Errno::ENETUNREACH
            .because(format_args!("an address refused: there is no route to dgid"))),
        Err(Unresolved::Neighbour) => Err(Errno::ETIMEDOUT
            .because(format_args!("an address refused: no neighbour answers for dgid"))),
        Err(Unresolved::Version) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                complain!(
                    "packets of RoCE v1 do not leave this machine: MLX5_MODEL_NETWORK=udp: carries IP. \
                     Use the GID index of the same address with type RoCE v2"
                );
            });
            Err(Errno::EOPNOTSUPP)
        }
    }
}

/// Returns the Ethernet address that packets from an entry to a path's GID are sent to.
pub(super) fn mac_of(file: &CommandFile, from: Option<&Sender>, path: &QpDestination) -> [u8; 6] {
    let vlan = from.and_then(|entry| entry.vlan);
    file.function().engine().neighbours().address(&path.dgid, vlan)
}

/// Fills an address path of a queue pair's context, which lies at `at` in `bytes`. `mac` is the Ethernet
/// address that it leads to, on RoCE.
pub(super) fn encode(bytes: &mut [u8], at: Field, link: Link, mac: [u8; 6], path: &QpDestination) {
    let mut set = |field: Field, value: u64| field.within(at).set(bytes, value);
    set(ads::VHCA_PORT_NUM, u64::from(path.port_num));
    // The card counts rates from the port's own on.
    set(
        ads::STAT_RATE,
        if path.static_rate == 0 { 0 } else { u64::from(path.static_rate + 5) & 15 },
    );
    if path.is_global != 0 {
        set(ads::SRC_ADDR_INDEX, u64::from(path.sgid_index));
        set(ads::HOP_LIMIT, u64::from(path.hop_limit));
        set(ads::TCLASS, u64::from(path.traffic_class));
        set(ads::FLOW_LABEL, u64::from(path.flow_label & 0xf_ffff));
    }
    match link {
        Link::InfiniBand => {
            set(ads::GRH, u64::from(path.is_global != 0));
            set(ads::RLID, u64::from(path.dlid));
            set(ads::MLID, u64::from(path.src_path_bits & 0x7f));
            set(ads::SL, u64::from(path.sl & 15));
        }
        Link::Roce => {
            set(ads::RMAC_47_32, u64::from(u16::from_be_bytes([mac[0], mac[1]])));
            set(ads::RMAC_31_0, u64::from(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])));
            set(ads::ETH_PRIO, u64::from(path.sl & 7));
            set(ads::DSCP, u64::from(path.traffic_class >> 2));
            set(ads::UDP_SPORT, source_port(path.flow_label).map_or(0, u64::from));
        }
    }
    if path.is_global != 0 {
        let from = ads::RGID_RIP.within(at).bit_offset() / 8;
        bytes[from..from + 16].copy_from_slice(&path.dgid);
    }
}

/// Reads an address path back.
pub(super) fn decode(bytes: &[u8], at: Field, link: Link) -> QpDestination {
    let get = |field: Field| field.within(at).get(bytes);
    let mut path = QpDestination {
        port_num: get(ads::VHCA_PORT_NUM) as u8,
        sgid_index: get(ads::SRC_ADDR_INDEX) as u8,
        hop_limit: get(ads::HOP_LIMIT) as u8,
        traffic_class: get(ads::TCLASS) as u8,
        flow_label: get(ads::FLOW_LABEL) as u32,
        static_rate: match get(ads::STAT_RATE) as u8 {
            0 => 0,
            rate => rate.wrapping_sub(5) & 15,
        },
        ..Default::default()
    };
    match link {
        Link::InfiniBand => {
            path.is_global = get(ads::GRH) as u8;
            path.dlid = get(ads::RLID) as u16;
            path.src_path_bits = get(ads::MLID) as u8;
            path.sl = get(ads::SL) as u8;
        }
        Link::Roce => {
            path.is_global = 1;
            path.sl = get(ads::ETH_PRIO) as u8;
        }
    }
    if path.is_global != 0 {
        let from = ads::RGID_RIP.within(at).bit_offset() / 8;
        path.dgid.copy_from_slice(&bytes[from..from + 16]);
    }
    path
}

/// Returns the UDP source port that the kernel derives from a flow label: 14 bits of it above
/// 0xc000. Without a label, the device derives the port from the numbers of both queue pairs, as
/// Linux's driver does.
fn source_port(flow_label: u32) -> Option<u16> {
    let label = flow_label & 0xf_ffff;
    let folded = (label & 0x3fff) ^ (label & 0xf_c000) >> 14;
    (label != 0).then_some(0xc000 | folded as u16)
}
