//! The port: state, addressing, GID table.

use mlx5_sys::ifc::{
    cmd_hca_cap, hca_vport_context, opcode, query_hca_vport_context_in, query_hca_vport_context_out,
};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::process::errno::{Errno, Result};
use super::super::request::abi::{GidEntry, QueryPort};
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;
use super::super::tree::identity::{SM_LID, capabilities};
use super::file::CommandFile;
use crate::card::Link;
use crate::wire::RoceVersion;

/// Four lanes, as the port information counts.
const WIDTH: u8 = 2;
/// HDR, as the port information counts.
const SPEED: u8 = 64;

fn check(file: &CommandFile, port: u64) -> Result<()> {
    let ports = file.function().caps.get(cmd_hca_cap::NUM_PORTS).max(1);
    if (1..=u64::from(ports)).contains(&port) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `QUERY_PORT`.
pub(crate) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let port = attributes.number(0)?;
    let reply = describe(file, port)?;
    attributes.put_whole(1, reply.as_bytes())
}

/// `QUERY_PORT`, legacy.
pub(crate) fn query_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    let port = *request.core.get(8).ok_or(Errno::EINVAL)?;
    let reply = describe(file, u64::from(port))?;
    request.reply(&reply.as_bytes()[..40])
}

fn describe(file: &CommandFile, port: u64) -> Result<QueryPort> {
    check(file, port)?;
    let function = file.function();
    let device = function.device;
    let mut reply = QueryPort {
        port_cap_flags: capabilities(device.link),
        max_msg_sz: function.caps.power(cmd_hca_cap::LOG_MAX_MSG),
        gid_tbl_len: device.gid_table_size() as u32,
        pkey_tbl_len: device.pkey_table_size() as u16,
        // IB_PORT_ACTIVE, LinkUp
        state: 4,
        phys_state: 5,
        // 4096
        max_mtu: 5,
        // 1 is 256
        active_mtu: (device.log_mtu - 7) as u8,
        active_width: WIDTH,
        active_speed: SPEED,
        ..Default::default()
    };
    match device.link {
        Link::InfiniBand => {
            let mut command = Command::new(
                opcode::QUERY_HCA_VPORT_CONTEXT,
                query_hca_vport_context_in::SIZE,
                query_hca_vport_context_out::SIZE,
            );
            command.set(query_hca_vport_context_in::PORT_NUM, port);
            let answer = function.run(command)?;
            let context = &answer[query_hca_vport_context_out::HCA_VPORT_CONTEXT.bytes()];
            reply.lid = hca_vport_context::LID.get(context) as u16;
            reply.lmc = hca_vport_context::LMC.get(context) as u8;
            reply.state = hca_vport_context::PORT_STATE.get(context) as u8;
            reply.phys_state = hca_vport_context::PORT_PHYSICAL_STATE.get(context) as u8;
            reply.qkey_viol_cntr = hca_vport_context::QKEY_VIOLATION_COUNTER.get(context) as u32;
            reply.bad_pkey_cntr = hca_vport_context::PKEY_VIOLATION_COUNTER.get(context) as u32;
            // The card knows that there is one; its LID is the model's choice.
            let managed = hca_vport_context::SM_LID.get(context) != 0;
            reply.sm_lid = if managed { SM_LID } else { 0 };
            reply.subnet_timeout = 18;
            // Four data lanes.
            reply.max_vl_num = 3;
            reply.link_layer = 1;
        }
        Link::Roce => {
            if !function.enter(|card| card.port_up()) {
                // IB_PORT_DOWN, Disabled
                (reply.state, reply.phys_state) = (1, 3);
            }
            reply.link_layer = 2;
        }
    }
    Ok(reply)
}

/// Flags are reserved, so far.
fn no_flags(attributes: &Attributes, id: u16) -> Result<()> {
    if attributes.number(id)? == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

fn entry(file: &CommandFile, port: u32, index: usize) -> Option<GidEntry> {
    let device = file.function().device;
    let known = file.function().gid(index)?;
    Some(GidEntry {
        gid: known.gid,
        gid_index: index as u32,
        port_num: port,
        // IB_UVERBS_GID_TYPE_IB, _ROCE_V1, _ROCE_V2
        gid_type: match (device.link, known.version) {
            (Link::InfiniBand, _) => 0,
            (Link::Roce, RoceVersion::V1) => 1,
            (Link::Roce, RoceVersion::V2) => 2,
        },
        netdev_ifindex: file.function().interface_of(&known),
    })
}

/// `QUERY_GID_TABLE`.
pub(crate) fn gid_table(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    no_flags(attributes, 1)?;
    let size = attributes.number(0)? as usize;
    if size == 0 {
        return Err(Errno::EINVAL);
    }
    let entries: Vec<GidEntry> = (0..file.function().device.gid_table_size())
        .filter_map(|index| entry(file, 1, index))
        .collect();
    if entries.len() > attributes.room(2) / size {
        return Err(Errno::EINVAL);
    }
    let mut bytes = Vec::new();
    for entry in &entries {
        let mut one = entry.as_bytes().to_vec();
        one.resize(size, 0);
        bytes.extend(one);
    }
    attributes.put(2, &bytes)?;
    attributes.put(3, &(entries.len() as u64).to_ne_bytes())
}

/// `QUERY_GID_ENTRY`.
pub(crate) fn gid_entry(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    no_flags(attributes, 2)?;
    let (port, index) = (attributes.number(0)?, attributes.number(1)? as usize);
    check(file, port)?;
    if index >= file.function().device.gid_table_size() {
        return Err(Errno::EINVAL);
    }
    let found = entry(file, port as u32, index).ok_or(Errno::ENODATA)?;
    attributes.put_whole(3, found.as_bytes())
}
