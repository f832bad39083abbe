//! Firmware commands: the only way to create objects.
//!
//! [`Card::execute`](crate::card::Card::execute) looks the opcode up in a table and checks what all
//! commands share (lengths, uid, op_mod). Then it calls the module of the object:
//!
//! - `hca`: the life cycle of the HCA. Until it runs, other commands are refused.
//! - `capability`, `register` and `port`: the function itself.
//! - `resource`: objects that are only numbers.
//! - `mkey`, `eq`, `cq`, `srq`, `dct`, `qp`, and `transition` for a queue pair's state.
//! - `ethernet` and `steering`: Ethernet queues, and the objects that direct packets to them.
//! - `flow_action`: contexts by which entries of flow tables change packets.
//!
//! A refused command returns a [`Refusal`], which has a status and a syndrome, and changes nothing.

mod buffer;
pub mod capability;
mod congestion;
mod counter;
mod cq;
mod dct;
mod eq;
pub(crate) mod ethernet;
mod flow_action;
mod flow_counter;
mod hca;
mod l2_table;
mod mad;
mod memic;
mod mkey;
mod multicast;
mod nic_vport;
mod port;
mod psv;
mod qp;
mod rate;
mod refusal;
mod register;
mod resource;
mod srq;
pub(crate) mod steering;
#[cfg(test)]
mod table;
mod take;
#[cfg(test)]
pub(crate) mod test;
mod transition;
mod umem;
mod vport;
mod xrq;

use mlx5_sys::ifc::{Field, cmd_out, create_mkey_in, destroy_mkey_in, mkc, opcode};

use crate::card::Card;
use crate::function::Life;
use crate::object::{Mkey, Translation};
use hca::lives;
#[cfg(test)]
pub(crate) use hca::tests as hca_test;
pub use refusal::{Refusal, Status};

/// The function that executes a command. Input and output are at least as long as the table says.
type Run = fn(&mut Card, &[u8], &mut [u8]) -> Result<(), Refusal>;

/// A command: opcode, least length of input and of output, and what it does.
struct Command {
    opcode: u16,
    input: usize,
    output: usize,
    /// Whether the command uses op_mod. If not, op_mod must be zero.
    modifier: bool,
    /// The states of the HCA in which it is accepted.
    lives: &'static [Life],
    run: Run,
}

const fn command(opcode: u16, input: usize, output: usize, run: Run) -> Command {
    Command { opcode, input, output, modifier: false, lives: lives::RUNNING, run }
}

/// Moves a command to these states of the HCA.
const fn during(lives: &'static [Life], command: Command) -> Command {
    Command { lives, ..command }
}

/// Lets a command use op_mod.
const fn modified(command: Command) -> Command {
    Command { modifier: true, ..command }
}

const COMMANDS: &[Command] = &[
    during(lives::DISABLED, command(opcode::ENABLE_HCA, 0x10, 0xc, hca::enable)),
    during(lives::ENABLED, command(opcode::DISABLE_HCA, 0x10, 0xc, hca::disable)),
    during(lives::ENABLED, command(opcode::INIT_HCA, 0x10, 0x10, hca::init)),
    command(opcode::TEARDOWN_HCA, 0x10, 0x10, hca::teardown),
    during(lives::SINCE_ENABLED, command(opcode::QUERY_ISSI, 0x10, 0x70, hca::query_issi)),
    during(lives::ENABLED, command(opcode::SET_ISSI, 0x10, 0x10, hca::set_issi)),
    during(
        lives::SINCE_ENABLED,
        modified(command(opcode::QUERY_PAGES, 0x10, 0x10, hca::query_pages)),
    ),
    during(
        lives::SINCE_ENABLED,
        modified(command(opcode::MANAGE_PAGES, 0x10, 0x10, hca::manage_pages)),
    ),
    during(
        lives::SINCE_ENABLED,
        modified(command(opcode::QUERY_HCA_CAP, 0x10, 0x110, capability::query_hca_cap)),
    ),
    during(
        lives::ENABLED,
        modified(command(opcode::SET_HCA_CAP, 0x110, 0x10, capability::set_hca_cap)),
    ),
    during(
        lives::SINCE_ENABLED,
        command(opcode::QUERY_ADAPTER, 0x10, 0x110, capability::query_adapter),
    ),
    during(
        lives::SINCE_ENABLED,
        modified(command(opcode::ACCESS_REG, 0x10, 0x10, register::access)),
    ),
    modified(command(opcode::ACCESS_REGISTER_USER, 0x10, 0x10, register::access_by_user)),
    during(lives::SINCE_ENABLED, command(opcode::NOP, 0x10, 0x10, |_, _, _| Ok(()))),
    modified(command(opcode::QUERY_VPORT_STATE, 0x10, 0x10, vport::query_state)),
    command(opcode::QUERY_NIC_VPORT_CONTEXT, 0x10, 0x110, nic_vport::query),
    command(opcode::MODIFY_NIC_VPORT_CONTEXT, 0x200, 0x10, nic_vport::modify),
    command(opcode::QUERY_VPORT_COUNTER, 0x20, 0x210, vport::query_counter),
    command(opcode::QUERY_VNIC_ENV, 0x10, 0x210, vport::query_environment),
    command(opcode::QUERY_LAG, 0x10, 0x10, vport::query_lag),
    command(opcode::QUERY_CONG_STATUS, 0x10, 0x10, congestion::query_status),
    command(opcode::QUERY_CONG_PARAMS, 0x10, 0x110, congestion::query_parameters),
    command(opcode::QUERY_CONG_STATISTICS, 0x10, 0x110, congestion::query_statistics),
    command(opcode::SET_L2_TABLE_ENTRY, 0x40, 0x10, l2_table::set),
    command(opcode::QUERY_L2_TABLE_ENTRY, 0x40, 0x40, l2_table::query),
    command(opcode::DELETE_L2_TABLE_ENTRY, 0x40, 0x10, l2_table::delete),
    modified(command(opcode::MAD_IFC, 0x110, 0x110, mad::ask)),
    command(opcode::QUERY_HCA_VPORT_CONTEXT, 0x10, 0x210, port::query_context),
    command(opcode::QUERY_HCA_VPORT_GID, 0x10, 0x20, port::query_gid),
    command(opcode::QUERY_HCA_VPORT_PKEY, 0x10, 0x14, port::query_pkey),
    command(opcode::QUERY_ROCE_ADDRESS, 0x10, 0x30, port::query_roce_address),
    command(opcode::SET_ROCE_ADDRESS, 0x30, 0x10, port::set_roce_address),
    command(opcode::CREATE_UCTX, 0x40, 0x10, resource::create_uctx),
    command(opcode::DESTROY_UCTX, 0x10, 0x10, resource::destroy_uctx),
    command(opcode::ALLOC_UAR, 0x10, 0x10, resource::alloc_uar),
    command(opcode::DEALLOC_UAR, 0x10, 0x10, resource::dealloc_uar),
    command(opcode::CREATE_UMEM, 0x30, 0x10, umem::create),
    command(opcode::DESTROY_UMEM, 0x10, 0x10, umem::destroy),
    command(opcode::ALLOC_PD, 0x10, 0x10, resource::alloc_pd),
    command(opcode::DEALLOC_PD, 0x10, 0x10, resource::dealloc_pd),
    command(opcode::ALLOC_XRCD, 0x10, 0x10, resource::alloc_xrcd),
    command(opcode::DEALLOC_XRCD, 0x10, 0x10, resource::dealloc_xrcd),
    command(opcode::ALLOC_TRANSPORT_DOMAIN, 0x10, 0x10, resource::alloc_transport_domain),
    command(opcode::DEALLOC_TRANSPORT_DOMAIN, 0x10, 0x10, resource::dealloc_transport_domain),
    command(opcode::ALLOC_Q_COUNTER, 0x10, 0x10, counter::alloc),
    command(opcode::QUERY_Q_COUNTER, 0x20, 0x100, counter::query),
    command(opcode::DEALLOC_Q_COUNTER, 0x10, 0x10, counter::dealloc),
    command(opcode::CREATE_PSV, 0x10, 0x20, psv::create),
    command(opcode::DESTROY_PSV, 0x10, 0x10, psv::destroy),
    command(opcode::ALLOC_MEMIC, 0x20, 0x10, memic::alloc),
    command(opcode::DEALLOC_MEMIC, 0x20, 0x10, memic::dealloc),
    command(opcode::QUERY_SPECIAL_CONTEXTS, 0x10, 0x14, memic::query_special_contexts),
    command(opcode::CREATE_MKEY, 0x110, 0x10, mkey::create),
    command(opcode::QUERY_MKEY, 0x10, 0x110, mkey::query),
    command(opcode::DESTROY_MKEY, 0x10, 0x10, mkey::destroy),
    command(opcode::CREATE_EQ, 0x110, 0x10, eq::create),
    command(opcode::QUERY_EQ, 0x10, 0x110, eq::query),
    command(opcode::DESTROY_EQ, 0x10, 0x10, eq::destroy),
    command(opcode::CREATE_CQ, 0x110, 0x10, cq::create),
    command(opcode::QUERY_CQ, 0x10, 0x110, cq::query),
    modified(command(opcode::MODIFY_CQ, 0x110, 0x10, cq::modify)),
    command(opcode::DESTROY_CQ, 0x10, 0x10, cq::destroy),
    command(opcode::CREATE_RMP, 0x110, 0x10, srq::rmp::create),
    command(opcode::MODIFY_RMP, 0x110, 0x10, srq::rmp::modify),
    command(opcode::QUERY_RMP, 0x10, 0x110, srq::rmp::query),
    command(opcode::DESTROY_RMP, 0x10, 0x10, srq::rmp::destroy),
    command(opcode::CREATE_XRQ, 0x150, 0x10, xrq::create),
    command(opcode::QUERY_XRQ, 0x10, 0x150, xrq::query),
    command(opcode::ARM_XRQ, 0x10, 0x10, xrq::arm),
    command(opcode::DESTROY_XRQ, 0x10, 0x10, xrq::destroy),
    command(opcode::CREATE_XRC_SRQ, 0x110, 0x10, srq::xrc::create),
    command(opcode::QUERY_XRC_SRQ, 0x10, 0x110, srq::xrc::query),
    modified(command(opcode::ARM_XRC_SRQ, 0x10, 0x10, srq::xrc::arm)),
    command(opcode::DESTROY_XRC_SRQ, 0x10, 0x10, srq::xrc::destroy),
    command(opcode::CREATE_SRQ, 0x110, 0x10, srq::legacy::create),
    command(opcode::QUERY_SRQ, 0x10, 0x110, srq::legacy::query),
    modified(command(opcode::ARM_RQ, 0x10, 0x10, srq::legacy::arm)),
    command(opcode::DESTROY_SRQ, 0x10, 0x10, srq::legacy::destroy),
    command(opcode::SET_PP_RATE_LIMIT, 0x40, 0x10, rate::set),
    command(opcode::CREATE_SQ, 0x110, 0x10, ethernet::create_sq),
    command(opcode::MODIFY_SQ, 0x110, 0x10, ethernet::modify_sq),
    command(opcode::QUERY_SQ, 0x10, 0x110, ethernet::query_sq),
    command(opcode::DESTROY_SQ, 0x10, 0x10, ethernet::destroy_sq),
    command(opcode::CREATE_RQ, 0x110, 0x10, ethernet::create_rq),
    command(opcode::MODIFY_RQ, 0x110, 0x10, ethernet::modify_rq),
    command(opcode::QUERY_RQ, 0x10, 0x110, ethernet::query_rq),
    command(opcode::DESTROY_RQ, 0x10, 0x10, ethernet::destroy_rq),
    command(opcode::CREATE_TIS, 0xc0, 0x10, ethernet::create_tis),
    command(opcode::QUERY_TIS, 0x10, 0xb0, ethernet::query_tis),
    command(opcode::MODIFY_TIS, 0xc0, 0x10, ethernet::modify_tis),
    command(opcode::DESTROY_TIS, 0x10, 0x10, ethernet::destroy_tis),
    command(opcode::CREATE_TIR, 0x110, 0x10, ethernet::create_tir),
    command(opcode::QUERY_TIR, 0x10, 0x110, ethernet::query_tir),
    command(opcode::MODIFY_TIR, 0x110, 0x10, ethernet::modify_tir),
    command(opcode::DESTROY_TIR, 0x10, 0x10, ethernet::destroy_tir),
    command(opcode::CREATE_RQT, 0x110, 0x10, ethernet::create_rqt),
    command(opcode::QUERY_RQT, 0x10, 0x110, ethernet::query_rqt),
    command(opcode::MODIFY_RQT, 0x110, 0x10, ethernet::modify_rqt),
    command(opcode::DESTROY_RQT, 0x10, 0x10, ethernet::destroy_rqt),
    command(opcode::CREATE_FLOW_TABLE, 0x40, 0x10, steering::create_table),
    command(opcode::MODIFY_FLOW_TABLE, 0x40, 0x10, steering::modify_table),
    command(opcode::DESTROY_FLOW_TABLE, 0x40, 0x10, steering::destroy_table),
    command(opcode::SET_FLOW_TABLE_ROOT, 0x40, 0x10, steering::set_root),
    command(opcode::CREATE_FLOW_GROUP, 0x400, 0x10, steering::create_group),
    command(opcode::DESTROY_FLOW_GROUP, 0x40, 0x10, steering::destroy_group),
    modified(command(opcode::SET_FLOW_TABLE_ENTRY, 0x340, 0x10, steering::set_entry)),
    command(opcode::DELETE_FLOW_TABLE_ENTRY, 0x40, 0x10, steering::delete_entry),
    command(opcode::ALLOC_MODIFY_HEADER_CONTEXT, 0x10, 0x10, flow_action::alloc_modify_header),
    command(opcode::DEALLOC_MODIFY_HEADER_CONTEXT, 0x10, 0x10, flow_action::dealloc_modify_header),
    command(opcode::ALLOC_PACKET_REFORMAT_CONTEXT, 0x24, 0x10, flow_action::alloc_reformat),
    command(opcode::DEALLOC_PACKET_REFORMAT_CONTEXT, 0x10, 0x10, flow_action::dealloc_reformat),
    command(opcode::ALLOC_FLOW_COUNTER, 0x10, 0x10, flow_counter::alloc),
    command(opcode::QUERY_FLOW_COUNTER, 0x20, 0x20, flow_counter::query),
    command(opcode::DEALLOC_FLOW_COUNTER, 0x10, 0x10, flow_counter::dealloc),
    command(opcode::CREATE_QP, 0x110, 0x10, qp::create),
    command(opcode::QUERY_QP, 0x10, 0x110, qp::query),
    command(opcode::DESTROY_QP, 0x10, 0x10, qp::destroy),
    command(opcode::CREATE_DCT, 0x80, 0x10, dct::create),
    command(opcode::QUERY_DCT, 0x10, 0x80, dct::query),
    command(opcode::DRAIN_DCT, 0x10, 0x10, dct::drain),
    command(opcode::ARM_DCT_FOR_KEY_VIOLATION, 0x10, 0x10, dct::arm),
    command(opcode::DESTROY_DCT, 0x10, 0x10, dct::destroy),
    command(opcode::RST2INIT_QP, 0x100, 0x10, transition::rst2init),
    command(opcode::INIT2INIT_QP, 0x100, 0x10, transition::init2init),
    command(opcode::INIT2RTR_QP, 0x100, 0x10, transition::init2rtr),
    command(opcode::RTR2RTS_QP, 0x100, 0x10, transition::rtr2rts),
    command(opcode::RTS2RTS_QP, 0x100, 0x10, transition::rts2rts),
    command(opcode::SQD_RTS_QP, 0x100, 0x10, transition::sqd2rts),
    command(opcode::SQERR2RTS_QP, 0x100, 0x10, transition::sqerr2rts),
    command(opcode::QP_2ERR, 0x10, 0x10, transition::to_error),
    command(opcode::QP_2RST, 0x10, 0x10, transition::to_reset),
    command(opcode::ATTACH_TO_MCG, 0x20, 0x10, multicast::attach),
    command(opcode::DETACH_FROM_MCG, 0x20, 0x10, multicast::detach),
];

/// Fields every command has (`mlx5_ifc.h`, `cmd_in`, and `uid` where DevX puts it).
const OPCODE: Field = Field::new(0, 31, 16);
const UID: Field = Field::new(0, 15, 16);
const OP_MOD: Field = Field::new(4, 15, 16);
/// The uid that the driver gives objects that all user contexts may use (Linux,
/// `MLX5_SHARED_RESOURCE_UID`).
const SHARED: u16 = 0xffff;

impl Card {
    /// Executes a firmware command: `input` is the command, big-endian, as `mlx5_ifc.h` lays it
    /// out; the reply fills `output` (status byte 0, syndrome at 4). What does not fit the
    /// command, the object it names or the state it is in is refused with a status and syndrome.
    pub fn execute(&mut self, input: &[u8], output: &mut [u8]) {
        self.port.pace.commanded(|| self.work_of(input));
        self.enter_command(input, output, |card, output| card.reply(input, output));
    }

    /// Returns a command's opcode, and the bytes of memory whose pages it gives to a key or takes from
    /// one: what its time depends on.
    fn work_of(&self, input: &[u8]) -> (u16, u64) {
        /// `MLX5_MKC_ACCESS_MODE_MTT`: a list of pages.
        const PAGES: u32 = 1;
        if input.len() < 8 {
            return (opcode::NOP, 0);
        }
        let opcode = get(input, OPCODE) as u16;
        let bytes = match opcode {
            opcode::CREATE_MKEY if input.len() >= create_mkey_in::SIZE => {
                let context = &input[create_mkey_in::MEMORY_KEY_MKEY_ENTRY.bytes()];
                let mode =
                    get(context, mkc::ACCESS_MODE_4_2) << 2 | get(context, mkc::ACCESS_MODE_1_0);
                if mode == PAGES { mkc::LEN.get(context).min(Mkey::MAX_LENGTH) } else { 0 }
            }
            opcode::DESTROY_MKEY if input.len() >= destroy_mkey_in::SIZE => {
                let mkey = self.objects.mkeys.get(get(input, destroy_mkey_in::MKEY_INDEX));
                let mkey = mkey.filter(|mkey| matches!(mkey.translation, Translation::Pages(_)));
                mkey.map_or(0, |mkey| mkc::LEN.get(&mkey.context[..]))
            }
            _ => 0,
        };
        (opcode, bytes)
    }

    fn reply(&mut self, input: &[u8], output: &mut [u8]) {
        output.fill(0);
        self.software_came_by();
        self.place_all();
        if let Err(refusal) = self.dispatch(input, output) {
            let opcode = input.get(..2).map_or(0, |_| get(input, OPCODE) as u16);
            let (status, syndrome) = refusal.reply(opcode);
            self.explain_command(opcode, (status as u8, syndrome), &refusal);
            output.fill(0);
            let mut reply = [0; 8];
            cmd_out::STATUS.set(&mut reply, status as u64);
            cmd_out::SYNDROME.set(&mut reply, syndrome.into());
            let n = output.len().min(reply.len());
            output[..n].copy_from_slice(&reply[..n]);
        }
    }

    fn dispatch(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
        if input.len() < 8 {
            return Err(Refusal::InputLength);
        }
        let opcode = get(input, OPCODE) as u16;
        let command =
            COMMANDS.iter().find(|command| command.opcode == opcode).ok_or(Refusal::Opcode)?;
        let life = self.function.life();
        if !command.lives.contains(&life) {
            // Measured on ConnectX-4 Lx: F132 of evidence/facts/commands.toml.
            let disabled = life == Life::Disabled;
            return Err(if disabled { Refusal::Disabled } else { Refusal::SystemState });
        }
        if input.len() < command.input {
            return Err(Refusal::InputLength);
        }
        if output.len() < command.output {
            return Err(Refusal::OutputLength);
        }
        let uid = uid(input);
        if uid != 0 && self.objects.uctxs.get(uid.into()).is_none() {
            return Err(Refusal::User);
        }
        if !command.modifier && get(input, OP_MOD) != 0 {
            return Err(Refusal::OpModifier);
        }
        (command.run)(self, input, output)
    }
}

/// A field of a command, at most 32 bits wide. The table has the lengths that make it lie inside.
fn get(input: &[u8], field: Field) -> u32 {
    field.get(input) as u32
}

/// The user context that issues a command; 0 is the driver.
fn uid(input: &[u8]) -> u16 {
    match get(input, UID) as u16 {
        SHARED => 0,
        uid => uid,
    }
}

/// Checks that the driver itself issues a command.
fn by_driver(input: &[u8]) -> Result<(), Refusal> {
    if uid(input) == 0 { Ok(()) } else { Err(Refusal::ForDriver) }
}

/// Whether a command of user context `user` may touch an object of user context `owner`: the
/// driver itself may touch everything.
fn owned(owner: u16, user: u16) -> Result<(), Refusal> {
    if user == 0 || owner == user { Ok(()) } else { Err(Refusal::Owner) }
}

/// Copies a context out of a command.
fn context<const N: usize>(input: &[u8], field: Field) -> Result<Box<[u8; N]>, Refusal> {
    let bytes = input.get(field.bytes()).ok_or(Refusal::InputLength)?;
    let bytes: [u8; N] =
        bytes.get(..N).and_then(|b| b.try_into().ok()).ok_or(Refusal::InputLength)?;
    Ok(Box::new(bytes))
}

#[cfg(test)]
mod tests;
