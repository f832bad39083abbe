//! Actions of flows on headers: libmlx5's `mlx5dv_create_flow_action_modify_header` and
//! `mlx5dv_create_flow_action_packet_reformat`. Each is a context of the card.

use mlx5_sys::ifc::{
    Field, alloc_modify_header_context_in, alloc_modify_header_context_out,
    alloc_packet_reformat_context_in, alloc_packet_reformat_context_out,
    dealloc_modify_header_context_in, dealloc_modify_header_context_out,
    dealloc_packet_reformat_context_in, dealloc_packet_reformat_context_out, flow_table_nic_cap,
    flow_table_prop_layout, opcode, packet_reformat_context_in, set_action_in,
};

use super::super::driver::command::Command;
use super::super::driver::steering::HeaderChanges;
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::file::{CommandFile, Object, Turn};
use crate::object::{NIC_RX, NIC_TX};

/// An action of flows on headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowAction {
    /// Fields change, by this context.
    ModifyHeader(u32),
    /// Headers are put before the packet, or those of a tunnel are replaced, by this context.
    Reformat(u32),
    /// A tunnel around an Ethernet frame is taken off.
    Decapsulate,
}

/// Returns the type of table that a number stands for (`enum mlx5_ib_uapi_flow_table_type`).
pub(super) fn table_kind(number: u64) -> Result<u8> {
    const RX: u64 = 0;
    const TX: u64 = 1;
    /// Tables of the switch in the card, and of RoCE packets.
    const FDB: u64 = 2;
    const RDMA_TX: u64 = 4;
    match number {
        RX => Ok(NIC_RX),
        TX => Ok(NIC_TX),
        FDB..=RDMA_TX => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// `FLOW_ACTION_CREATE_MODIFY_HEADER`.
pub(crate) fn create_modify_header(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    use alloc_modify_header_context_in as a;
    let actions = attributes.input(0x1001)?;
    if actions.len() % set_action_in::SIZE != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = table_kind(attributes.number(0x1002)?)?;
    let most = capability(file, flow_table_prop_layout::MAX_MODIFY_HEADER_ACTIONS, kind)?;
    let count = actions.len() / set_action_in::SIZE;
    if count as u64 > most {
        return Err(Errno::EOPNOTSUPP.because(format_args!(
            "creating an action to modify headers refused: it has {count} changes, and the device takes {most}"
        )));
    }
    let (input, output) = (a::SIZE, alloc_modify_header_context_out::SIZE);
    let mut command = Command::new(opcode::ALLOC_MODIFY_HEADER_CONTEXT, input, output);
    command.set(a::TABLE_TYPE, kind);
    command.set(a::NUM_OF_ACTIONS, count as u64);
    command.bytes().extend_from_slice(&actions);
    let id = alloc_modify_header_context_out::MODIFY_HEADER_ID;
    enter(file, attributes, |file| {
        let reply = file.function().run(command)?;
        Ok(FlowAction::ModifyHeader(id.get(&reply) as u32))
    })
}

/// The ways of reformatting that libmlx5 names (`enum mlx5_ib_uapi_flow_action_packet_reformat_type`).
const FROM_L2_TUNNEL: u64 = 0;
const TO_L2_TUNNEL: u64 = 1;
const FROM_L3_TUNNEL: u64 = 2;
const TO_L3_TUNNEL: u64 = 3;

/// `FLOW_ACTION_CREATE_PACKET_REFORMAT`.
pub(crate) fn create_packet_reformat(
    file: &CommandFile,
    attributes: &mut Attributes,
) -> Result<()> {
    /// `MLX5_REFORMAT_TYPE_*`
    const PRM_L2_TUNNEL: u64 = 2;
    const PRM_FROM_L3_TUNNEL: u64 = 3;
    const PRM_L3_TUNNEL: u64 = 4;
    let kind = table_kind(attributes.number(0x1002)?)?;
    // Linux has each for one direction (`fs.c`, mlx5_ib_flow_action_packet_reformat_valid).
    let form = match (attributes.number(0x1001)?, kind) {
        (FROM_L2_TUNNEL, NIC_RX) => None,
        (TO_L2_TUNNEL, NIC_TX) => Some(PRM_L2_TUNNEL),
        (FROM_L3_TUNNEL, NIC_RX) => Some(PRM_FROM_L3_TUNNEL),
        (TO_L3_TUNNEL, NIC_TX) => Some(PRM_L3_TUNNEL),
        (FROM_L2_TUNNEL..=TO_L3_TUNNEL, _) => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    };
    let Some(form) = form else {
        return enter(file, attributes, |_| Ok(FlowAction::Decapsulate));
    };
    if !attributes.has(0x1003) {
        return Err(Errno::ENOENT);
    }
    let data = attributes.input(0x1003)?;
    let command = reformat_command(file, form, &data)?;
    let id = alloc_packet_reformat_context_out::PACKET_REFORMAT_ID;
    enter(file, attributes, |file| {
        let reply = file.function().run(command)?;
        Ok(FlowAction::Reformat(id.get(&reply) as u32))
    })
}

/// Returns the command for a context of reformatting with these headers.
fn reformat_command(file: &CommandFile, form: u64, data: &[u8]) -> Result<Command> {
    use alloc_packet_reformat_context_in as a;
    use packet_reformat_context_in as r;
    let most = capability_of(file, flow_table_nic_cap::MAX_ENCAP_HEADER_SIZE)?;
    if data.len() as u64 > most {
        return Err(Errno::EINVAL.because(format_args!(
            "creating an action to reformat packets refused: its headers have {} bytes, and the device takes {most}",
            data.len()
        )));
    }
    let place = r::REFORMAT_DATA.within(a::PACKET_REFORMAT_CONTEXT).bytes().start;
    let input = a::SIZE.max(place + data.len());
    let output = alloc_packet_reformat_context_out::SIZE;
    let mut command = Command::new(opcode::ALLOC_PACKET_REFORMAT_CONTEXT, input, output);
    command.set(r::REFORMAT_TYPE.within(a::PACKET_REFORMAT_CONTEXT), form);
    command.set(r::REFORMAT_DATA_SIZE.within(a::PACKET_REFORMAT_CONTEXT), data.len() as u64);
    command.bytes()[place..place + data.len()].copy_from_slice(data);
    Ok(command)
}

/// Returns a capability of tables of a type.
fn capability(file: &CommandFile, field: Field, kind: u8) -> Result<u64> {
    let properties = match kind {
        NIC_TX => flow_table_nic_cap::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT,
        _ => flow_table_nic_cap::FLOW_TABLE_PROPERTIES_NIC_RECEIVE,
    };
    capability_of(file, field.within(properties))
}

/// Returns a capability of flow tables.
fn capability_of(file: &CommandFile, field: Field) -> Result<u64> {
    /// `MLX5_CAP_FLOW_TABLE`
    const FLOW_TABLE: u32 = 7;
    file.function().group(FLOW_TABLE, field)
}

/// Creates an action, and gives its handle.
fn enter(
    file: &CommandFile,
    attributes: &mut Attributes,
    create: impl FnOnce(&CommandFile) -> Result<FlowAction>,
) -> Result<()> {
    let mut state = file.state();
    state.context()?;
    let action = create(file)?;
    let handle = state.enter(action);
    attributes.put_handle(0x1000, u64::from(handle))
}

/// Adds the action of a handle to the changes that a flow makes.
pub(super) fn add(changes: &mut HeaderChanges, action: FlowAction) -> Result<()> {
    let twice = match action {
        FlowAction::ModifyHeader(number) => changes.modify.replace(number).is_some(),
        FlowAction::Reformat(number) => changes.reformat.replace(number).is_some(),
        FlowAction::Decapsulate => std::mem::replace(&mut changes.decapsulates, true),
    };
    if twice { Err(Errno::EINVAL) } else { Ok(()) }
}

impl Object for FlowAction {
    fn turn(&self) -> Turn {
        Turn::Domains
    }

    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        let command = match *self {
            Self::ModifyHeader(number) => {
                use dealloc_modify_header_context_in as d;
                let (input, output) = (d::SIZE, dealloc_modify_header_context_out::SIZE);
                let code = opcode::DEALLOC_MODIFY_HEADER_CONTEXT;
                let mut command = Command::new(code, input, output);
                command.set(d::MODIFY_HEADER_ID, number);
                command
            }
            Self::Reformat(number) => {
                use dealloc_packet_reformat_context_in as d;
                let (input, output) = (d::SIZE, dealloc_packet_reformat_context_out::SIZE);
                let code = opcode::DEALLOC_PACKET_REFORMAT_CONTEXT;
                let mut command = Command::new(code, input, output);
                command.set(d::PACKET_REFORMAT_ID, number);
                command
            }
            Self::Decapsulate => return Ok(Vec::new()),
        };
        file.function().run(command).map(|_| Vec::new())
    }
}
