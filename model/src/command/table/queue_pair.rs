//! Commands on queue pairs, their states and multicast groups.

use mlx5_sys::ifc::opt_param::{
    ALT_ADDR_PATH, PM_STATE, PRIMARY_ADDR_PATH, Q_KEY, RNR_TIMEOUT, RRE,
};
use mlx5_sys::ifc::{
    Field, ads, attach_to_mcg_in, create_qp_in, create_qp_out, create_rmp_out, create_xrc_srq_out,
    create_xrq_out, destroy_qp_in, opcode, qpc, qpc_ext, query_qp_in, rst2init_qp_in,
    rts2rts_qp_ext_in,
};

use super::super::Refusal;
use super::super::capability::{LOG_MAX_GROUPS, MAX_GROUP_MEMBERS};
use super::dynamic::dct;
use super::memory::umem;
use super::queues::PAGE;
use super::{Case, Command, Rig, Row};
use crate::object::State;

pub const ROWS: &[Row] = &[
    Row::new(create_qp),
    Row::users(create_qp_in_umem),
    Row::new(create_sharing_qp),
    Row::new(create_target),
    Row::new(create_initiator),
    Row::drivers(create_management),
    Row::drivers(create_key_changer),
    Row::new(|rig| on(rig, opcode::QUERY_QP, query_qp_in::QPN)),
    Row::new(|rig| {
        let (number, queue) = (query_qp_in::QPN, super::ethernet::sq(rig));
        on(rig, opcode::QUERY_QP, number).refuses(number, queue, Refusal::NoQp)
    })
    .roce(),
    Row::new(destroy_qp),
    Row::new(rst2init),
    Row::new(init2init),
    Row::new(init2rtr),
    Row::new(rtr2rts),
    Row::new(|rig| while_sending(rig, opcode::RTS2RTS_QP, State::Rts)),
    Row::new(reset_stream),
    Row::new(|rig| while_sending(rig, opcode::SQD_RTS_QP, State::Sqd)),
    Row::new(|rig| while_sending(rig, opcode::SQERR2RTS_QP, State::SqError)),
    Row::new(|rig| on(rig, opcode::QP_2ERR, rst2init_qp_in::QPN)),
    Row::new(|rig| on(rig, opcode::QP_2RST, rst2init_qp_in::QPN)),
    Row::new(attach),
    Row::new(detach),
];

fn field(field: Field) -> Field {
    field.within(create_qp_in::QPC)
}

/// Creates a case with the refusals common to all new queue pairs.
fn qp_case(rig: &mut Rig, create: Command) -> Case {
    let (pd, counters) = (rig.foreign_pd(), rig.foreign(Rig::counters));
    let mut case = Case::new(create.clone());
    if rig.user != 0 {
        case = case.refuses(field(qpc::DETH_SQPN), 1u64, Refusal::QpOfDriver);
        for st in [7u64, 8, 0xc] {
            case = case.otherwise(create.clone().set(field(qpc::ST), st), Refusal::QpOfDriver);
        }
    }
    case.refuses(field(qpc::COUNTER_SET_ID), 0xffu64, Refusal::NoCounters)
        .foreign(field(qpc::COUNTER_SET_ID), counters)
        .refuses(create_qp_in::INPUT_QPN, 9u64, Refusal::QpNumber)
        .refuses(field(qpc::ST), 9u64, Refusal::QpService)
        .refuses(field(qpc::PM_STATE), 2u64, Refusal::QpMigration)
        .refuses(field(qpc::WQ_SIGNATURE), 1u64, Refusal::QpSignature)
        .refuses(field(qpc::END_PADDING_MODE), 1u64, Refusal::QpPadding)
        .refuses(field(qpc::TS_FORMAT), 2u64, Refusal::QpTimestamp)
        .refuses(field(qpc::PD), 5u64, Refusal::NoPd)
        .foreign(field(qpc::PD), pd)
        .refuses(field(qpc::RQ_TYPE), 2u64, Refusal::QpReceiveType)
        .refuses(field(qpc::CS_REQ), 0x12u64, Refusal::QpScatter)
        .refuses(field(qpc::CS_RES), 3u64, Refusal::QpScatter)
        .refuses(field(qpc::SEND_DBR_MODE), 2u64, Refusal::QpRecordless)
        .refuses(field(qpc::SEND_DBR_MODE), 3u64, Refusal::QpRecordless)
        .refuses(field(qpc::LOG_NUM_DCI_STREAM_CHANNELS), 31u64, Refusal::QpStreams)
        .refuses(field(qpc::LOG_NUM_DCI_ERRORED_STREAMS), 31u64, Refusal::QpStreams)
}

/// Adds the refusals of a send queue's fields.
fn sends(rig: &mut Rig, case: Case) -> Case {
    let (uar, cq) = (rig.foreign_uar(), rig.foreign_cq());
    case.refuses(field(qpc::CQN_SND), 1u64, Refusal::NoCq)
        .foreign(field(qpc::CQN_SND), cq)
        .refuses(field(qpc::CS_REQ), 0x22u64, Refusal::QpScatter)
        .refuses(field(qpc::UAR_PAGE), 0u64, Refusal::NoUar)
        .foreign(field(qpc::UAR_PAGE), uar)
}

/// Adds the refusals of the receive completions' fields.
fn receives(rig: &mut Rig, case: Case) -> Case {
    let cq = rig.foreign_cq();
    case.refuses(field(qpc::CQN_RCV), 1u64, Refusal::NoCq).foreign(field(qpc::CQN_RCV), cq).refuses(
        field(qpc::CS_RES),
        2u64,
        Refusal::QpScatter,
    )
}

/// Adds the refusals of a buffer on pages that the command lists.
fn on_pages(case: Case) -> Case {
    case.refuses(create_qp_in::WQ_UMEM_VALID, 1u64, Refusal::NoUmem)
        .refuses(field(qpc::DBR_UMEM_VALID), 1u64, Refusal::NoUmem)
        .refuses(field(qpc::DBR_ADDR), 0x10_0004u64, Refusal::Record)
        .refuses(field(qpc::LOG_PAGE_SIZE), 31u64, Refusal::PageAddress)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn create_qp(rig: &mut Rig) -> Case {
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq);
    let case = qp_case(rig, create);
    let case = sends(rig, case);
    on_pages(receives(rig, case))
        .refuses(field(qpc::RQ_TYPE), 1u64, Refusal::NoSrq)
        .refuses(field(qpc::LOG_RQ_STRIDE), 6u64, Refusal::QpReceiveStride)
        .refuses(field(qpc::LOG_RQ_SIZE), 7u64, Refusal::QpPages)
        .refuses(field(qpc::LOG_SQ_SIZE), 7u64, Refusal::QpPages)
        .refuses(field(qpc::PAGE_OFFSET), 60u64, Refusal::QpPages)
        .after(|rig, create| while rig.run(create).is_ok() {}, Refusal::Exhausted)
}

fn create_qp_in_umem(rig: &mut Rig) -> Case {
    use create_qp_in as c;
    let (own, others, cq) = (umem(rig), rig.as_stranger(umem), rig.cq());
    let mut create = rig
        .create_qp(cq, cq)
        .set(c::WQ_UMEM_VALID, 1u64)
        .set(c::WQ_UMEM_ID, own)
        .set(c::WQ_UMEM_OFFSET, 64u64)
        .set(field(qpc::DBR_UMEM_VALID), 1u64)
        .set(field(qpc::DBR_UMEM_ID), own)
        .set(field(qpc::DBR_ADDR), 0x1ff8u64)
        .set(field(qpc::PAGE_OFFSET), 1u64)
        .set(field(qpc::LOG_PAGE_SIZE), 1u64);
    create.0.truncate(c::SIZE);
    let case = qp_case(rig, create);
    let case = sends(rig, case);
    receives(rig, case)
        .refuses(c::WQ_UMEM_VALID, 0u64, Refusal::QpPages)
        .refuses(c::WQ_UMEM_ID, 1u64, Refusal::NoUmem)
        .refuses(c::WQ_UMEM_ID, others, Refusal::Owner)
        .refuses(c::WQ_UMEM_OFFSET, 32u64, Refusal::PageOffset)
        .refuses(c::WQ_UMEM_OFFSET, 0x2000u64, Refusal::UmemRange)
        .refuses(field(qpc::DBR_UMEM_ID), 1u64, Refusal::NoUmem)
        .refuses(field(qpc::DBR_UMEM_ID), others, Refusal::Owner)
        .refuses(field(qpc::DBR_ADDR), 0x2000u64, Refusal::UmemRange)
        .refuses(field(qpc::DBR_ADDR), 0x1ffcu64, Refusal::Record)
        .refuses(field(qpc::RQ_TYPE), 1u64, Refusal::NoSrq)
        .refuses(field(qpc::LOG_RQ_STRIDE), 6u64, Refusal::QpReceiveStride)
        .refuses(field(qpc::LOG_RQ_SIZE), 15u64, Refusal::UmemRange)
        .refuses(field(qpc::LOG_SQ_SIZE), 15u64, Refusal::UmemRange)
        .refuses(field(qpc::PAGE_OFFSET), 63u64, Refusal::UmemRange)
        .refuses(field(qpc::LOG_PAGE_SIZE), 31u64, Refusal::UmemRange)
}

fn create_sharing_qp(rig: &mut Rig) -> Case {
    let cq = rig.cq();
    let pool = |rig: &mut Rig| {
        let create = rig.create_rmp();
        rig.number(&create, create_rmp_out::RMPN)
    };
    let (own, foreign) = (pool(rig), rig.foreign(pool));
    let domain = rig.xrc_domain();
    let extended = rig.create_xrc_srq(domain, cq);
    let extended = rig.number(&extended, create_xrc_srq_out::XRC_SRQN);
    // Only reliable connections match tags.
    let matching = rig.create_xrq(cq);
    let matching = rig.number(&matching, create_xrq_out::XRQN);
    let unreliable = rig.create_sharing_qp(cq, matching).set(field(qpc::ST), 1u64);
    let create = rig.create_sharing_qp(cq, own);
    let case = qp_case(rig, create);
    let case = sends(rig, case);
    on_pages(receives(rig, case))
        .refuses(field(qpc::SRQN_RMPN_XRQN), 1u64, Refusal::NoSrq)
        .refuses(field(qpc::SRQN_RMPN_XRQN), extended, Refusal::NoSrq)
        .otherwise(unreliable, Refusal::NoSrq)
        .foreign(field(qpc::SRQN_RMPN_XRQN), foreign)
        .refuses(field(qpc::LOG_SQ_SIZE), 7u64, Refusal::QpPages)
        .refuses(field(qpc::PAGE_OFFSET), 63u64, Refusal::QpPages)
}

/// The receiving side of an extended reliable connection.
fn create_target(rig: &mut Rig) -> Case {
    let (own, foreign) = (rig.xrc_domain(), rig.foreign(Rig::xrc_domain));
    let (create, foreign_cq) = (rig.create_target(own), rig.foreign_cq());
    qp_case(rig, create)
        .refuses(field(qpc::RQ_TYPE), 0u64, Refusal::QpReceiveType)
        .refuses(field(qpc::XRCD), 5u64, Refusal::NoXrcd)
        .foreign(field(qpc::XRCD), foreign)
        .refuses(field(qpc::NO_SQ), 0u64, Refusal::NoCq)
        .refuses(field(qpc::SEND_DBR_MODE), 1u64, Refusal::QpRecordless)
        .refuses(field(qpc::CS_RES), 2u64, Refusal::QpScatter)
        .refuses(create_qp_in::WQ_UMEM_VALID, 1u64, Refusal::NoUmem)
        .refuses(field(qpc::DBR_UMEM_VALID), 1u64, Refusal::NoUmem)
        .refuses(field(qpc::DBR_ADDR), 4u64, Refusal::Record)
        .refuses(field(qpc::PAGE_OFFSET), 63u64, Refusal::QpPages)
        // CQs that do not exist are not missed.
        .foreign(field(qpc::CQN_SND), foreign_cq)
}

/// An initiator of dynamic connections.
fn create_initiator(rig: &mut Rig) -> Case {
    let cq = rig.cq();
    let create = rig
        .create_qp(cq, cq)
        .set(field(qpc::ST), 5u64)
        .set(field(qpc::RQ_TYPE), 3u64)
        .set(field(qpc::LOG_NUM_DCI_STREAM_CHANNELS), 2u64);
    let case = qp_case(rig, create);
    on_pages(sends(rig, case))
        .refuses(field(qpc::RQ_TYPE), 0u64, Refusal::QpReceiveType)
        .refuses(field(qpc::CS_RES), 2u64, Refusal::QpScatter)
        .refuses(field(qpc::LOG_SQ_SIZE), 7u64, Refusal::QpPages)
        .refuses(field(qpc::PAGE_OFFSET), 63u64, Refusal::QpPages)
}

/// The queue pair of general services: the driver has one.
fn create_management(rig: &mut Rig) -> Case {
    let mut case = create_qp(rig);
    case.accepted = case.accepted.set(field(qpc::ST), 8u64);
    case.stranger = Some(Refusal::QpOfDriver);
    case.twice(Refusal::QpSpecial)
}

/// A queue for UMR alone: of those the driver may have many.
fn create_key_changer(rig: &mut Rig) -> Case {
    let mut case = create_qp(rig);
    case.accepted = case.accepted.set(field(qpc::ST), 0xcu64);
    case.stranger = Some(Refusal::QpOfDriver);
    case
}

/// Creates a queue pair.
pub fn qp(rig: &mut Rig) -> u32 {
    let cq = rig.cq();
    rig.qp(cq, cq)
}

/// A queue pair of the datagram service.
fn datagram(rig: &mut Rig) -> u32 {
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq).set(field(qpc::ST), 2u64);
    rig.number(&create, create_qp_out::QPN)
}

/// A command of 16 bytes on a queue pair.
fn on(rig: &mut Rig, opcode: u16, number: Field) -> Case {
    let (own, foreign, target) = (qp(rig), rig.foreign(qp), dct(rig));
    Case::new(Command::new(opcode, 0x10).set(number, own))
        .refuses(number, 5u64, Refusal::NoQp)
        .refuses(number, target, Refusal::NoQp)
        .foreign(number, foreign)
}

fn destroy_qp(rig: &mut Rig) -> Case {
    let member = datagram(rig);
    let attach = group_command(opcode::ATTACH_TO_MCG, member, 1);
    rig.run(&attach).expect("a member");
    let number = destroy_qp_in::QPN;
    let detach = group_command(opcode::DETACH_FROM_MCG, member, 1);
    on(rig, opcode::DESTROY_QP, number)
        .held(number, member, Refusal::QpAttached, [detach])
        .twice(Refusal::NoQp)
}

/// A queue pair in a state.
fn at(rig: &mut Rig, state: State) -> u32 {
    let number = qp(rig);
    let ups = [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP];
    let steps = match state {
        State::Reset | State::Error => 0,
        State::Init => 1,
        State::Rtr => 2,
        State::Rts | State::SqError | State::Sqd => 3,
    };
    for up in &ups[..steps] {
        let command = rig.transition(*up, number);
        rig.run(&command).expect("a transition");
    }
    rig.card.objects.qps.get_mut(&number).expect("the queue pair").state = state;
    number
}

/// The primary path of a transition's context.
fn path(inner: Field) -> Field {
    field(inner.within(qpc::PRIMARY_ADDRESS_PATH))
}

const MASK: Field = rst2init_qp_in::OPT_PARAM_MASK;

/// Creates a case with the refusals common to all transitions: `from` is the state it starts in,
/// and `never` an optional parameter bit that it refuses.
fn transition(rig: &mut Rig, opcode: u16, from: State, never: u32) -> Case {
    assert_eq!(rst2init_qp_in::QPC, create_qp_in::QPC, "`field` serves both");
    let (own, target) = (at(rig, from), dct(rig));
    let foreign = rig.foreign(|rig| at(rig, from));
    let elsewhere = at(rig, if from == State::Error { State::Reset } else { State::Error });
    let number = rst2init_qp_in::QPN;
    Case::new(rig.transition(opcode, own))
        .refuses(number, 5u64, Refusal::NoQp)
        .refuses(number, target, Refusal::NoQp)
        .refuses(number, elsewhere, Refusal::QpState)
        .foreign(number, foreign)
        .refuses(MASK, never, Refusal::QpOptional)
}

fn rst2init(rig: &mut Rig) -> Case {
    transition(rig, opcode::RST2INIT_QP, State::Reset, RRE)
        .refuses(field(qpc::COUNTER_SET_ID), 0xffu64, Refusal::NoCounters)
        .refuses(field(qpc::PM_STATE), 2u64, Refusal::QpMigration)
        .refuses(field(qpc::ATOMIC_MODE), 0u64, Refusal::QpAtomicMode)
        .refuses(path(ads::PKEY_INDEX), 128u64, Refusal::PkeyIndex)
        .refuses(path(ads::VHCA_PORT_NUM), 2u64, Refusal::Port)
        .refuses(path(ads::VHCA_PORT_NUM), 0u64, Refusal::Port)
}

fn init2init(rig: &mut Rig) -> Case {
    let case = transition(rig, opcode::INIT2INIT_QP, State::Init, ALT_ADDR_PATH);
    let access = case.accepted.clone().set(MASK, 0b1110u64).set(field(qpc::ATOMIC_MODE), 0u64);
    case.otherwise(access, Refusal::QpAtomicMode)
}

/// Adds the refusals of a transition that takes an address path.
fn takes_path(case: Case) -> Case {
    let alternate = case
        .accepted
        .clone()
        .set(MASK, ALT_ADDR_PATH)
        .set(field(ads::SRC_ADDR_INDEX.within(qpc::SECONDARY_ADDRESS_PATH)), 8u64);
    case.refuses(path(ads::SRC_ADDR_INDEX), 8u64, Refusal::GidIndex)
        .refuses(path(ads::PKEY_INDEX), 128u64, Refusal::PkeyIndex)
        .refuses(path(ads::VHCA_PORT_NUM), 2u64, Refusal::Port)
        .otherwise(alternate, Refusal::GidIndex)
}

fn init2rtr(rig: &mut Rig) -> Case {
    // 2,048 bytes.
    rig.card.identity.log_mtu = Some(11);
    takes_path(transition(rig, opcode::INIT2RTR_QP, State::Init, PM_STATE))
        .refuses(MASK, RNR_TIMEOUT, Refusal::QpOptional)
        .refuses(field(qpc::MTU), 0u64, Refusal::QpMtu)
        .refuses(field(qpc::MTU), 6u64, Refusal::QpMtu)
        .refuses(field(qpc::MTU), 5u64, Refusal::QpPathMtu)
        .refuses(field(qpc::LOG_MSG_MAX), 31u64, Refusal::QpMessage)
        .refuses(field(qpc::LOG_RRA_MAX), 5u64, Refusal::QpReadDepth)
}

fn rtr2rts(rig: &mut Rig) -> Case {
    transition(rig, opcode::RTR2RTS_QP, State::Rtr, Q_KEY).refuses(
        field(qpc::LOG_SRA_MAX),
        5u64,
        Refusal::QpReadDepth,
    )
}

fn while_sending(rig: &mut Rig, opcode: u16, from: State) -> Case {
    let case = transition(rig, opcode, from, Q_KEY);
    let short = opcode == opcode::RTS2RTS_QP;
    let case = if short {
        // The extension of the context asks for a longer command.
        case.refuses(rts2rts_qp_ext_in::QPC_EXT, 1u64, Refusal::InputLength).refuses(
            MASK,
            PRIMARY_ADDR_PATH,
            Refusal::QpPrimaryPath,
        )
    } else {
        case
    };
    let access = case.accepted.clone().set(MASK, 0b1110u64).set(field(qpc::ATOMIC_MODE), 0u64);
    case.otherwise(access, Refusal::QpAtomicMode)
}

/// RTS to RTS with the extension of the context, by which a stream that has failed goes on.
fn reset_stream(rig: &mut Rig) -> Case {
    use rts2rts_qp_ext_in as x;
    let initiator = |rig: &mut Rig| {
        let cq = rig.cq();
        let create = rig
            .create_qp(cq, cq)
            .set(field(qpc::ST), 5u64)
            .set(field(qpc::RQ_TYPE), 3u64)
            .set(field(qpc::LOG_NUM_DCI_STREAM_CHANNELS), 2u64);
        let number = rig.number(&create, create_qp_out::QPN);
        for opcode in [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP] {
            let command = rig.transition(opcode, number).set(field(qpc::ST), 5u64);
            rig.run(&command).expect("a transition");
        }
        let qp = rig.card.objects.qps.get_mut(&number).expect("the initiator");
        crate::transport::QueuePair::fail_stream(qp, 1);
        number
    };
    let (own, foreign) = (initiator(rig), rig.foreign(initiator));
    let (elsewhere, target) = (at(rig, State::Rtr), dct(rig));
    let stream = qpc_ext::DCI_STREAM_CHANNEL_ID.within(x::QPC_DATA_EXT);
    let reset = Command::new(opcode::RTS2RTS_QP, x::SIZE)
        .set(x::QPN, own)
        .set(x::QPC_EXT, 1u64)
        .set(x::OPT_PARAM_MASK_95_32, 1u64)
        .set(stream, 1u64);
    let mut short = reset.clone();
    short.0.truncate(x::SIZE - 1);
    Case::new(reset)
        .refuses(x::QPN, 5u64, Refusal::NoQp)
        .refuses(x::QPN, target, Refusal::NoQp)
        .refuses(x::QPN, elsewhere, Refusal::QpState)
        .foreign(x::QPN, foreign)
        .kind(x::QPC_EXT)
        .refuses(x::OPT_PARAM_MASK_95_32, 2u64, Refusal::QpOptional)
        .refuses(MASK, 1u64, Refusal::QpOptional)
        .refuses(stream, 2u64, Refusal::QpStream)
        .otherwise(short, Refusal::InputLength)
}

const GROUP: Field = Field::new(0x1c, 31, 32);
const GROUP_PREFIX: Field = Field::new(0x10, 31, 8);

/// A command on a member of a group.
fn group_command(opcode: u16, qp: u32, group: u32) -> Command {
    Command::new(opcode, 0x20)
        .set(attach_to_mcg_in::QPN, qp)
        .set(GROUP_PREFIX, 0xffu64)
        .set(GROUP, group)
}

fn group(number: u32) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[0] = 0xff;
    gid[12..].copy_from_slice(&number.to_be_bytes());
    gid
}

/// Creates a case with the refusals common to attaching and detaching a queue pair.
fn member(rig: &mut Rig, command: Command) -> Case {
    let (connection, foreign) = (qp(rig), rig.foreign(datagram));
    Case::new(command)
        .refuses(attach_to_mcg_in::QPN, 5u64, Refusal::NoQp)
        .refuses(attach_to_mcg_in::QPN, connection, Refusal::QpService)
        .foreign(attach_to_mcg_in::QPN, foreign)
        .refuses(GROUP_PREFIX, 0xfeu64, Refusal::GroupGid)
}

fn attach(rig: &mut Rig) -> Case {
    let (own, member_already) = (datagram(rig), datagram(rig));
    let already = group_command(opcode::ATTACH_TO_MCG, member_already, 1);
    rig.run(&already).expect("a member");
    for stranger in 0..MAX_GROUP_MEMBERS {
        rig.card.objects.groups.attach(group(2), 1 << 20 | stranger);
    }
    member(rig, group_command(opcode::ATTACH_TO_MCG, own, 1))
        .refuses(attach_to_mcg_in::QPN, member_already, Refusal::GroupMember)
        .refuses(GROUP, 2u64, Refusal::GroupsFull)
        .after(full_of_groups, Refusal::GroupsFull)
}

/// Detaches the two members of the group and fills the table with other groups.
fn full_of_groups(rig: &mut Rig, attached: &Command) {
    let mut detach = attached.clone();
    super::OPCODE.set(&mut detach.0, opcode::DETACH_FROM_MCG.into());
    rig.run(&detach).expect("no member any more");
    let member = attach_to_mcg_in::QPN.get(&attached.0) as u32 + 1;
    let other = group_command(opcode::DETACH_FROM_MCG, member, 1);
    rig.run(&other).expect("no member any more");
    for number in 2..=1 + (1 << LOG_MAX_GROUPS) {
        rig.card.objects.groups.attach(group(number), 5);
    }
}

fn detach(rig: &mut Rig) -> Case {
    let own = datagram(rig);
    let attach = group_command(opcode::ATTACH_TO_MCG, own, 1);
    rig.run(&attach).expect("a member");
    member(rig, group_command(opcode::DETACH_FROM_MCG, own, 1))
        .refuses(GROUP, 2u64, Refusal::NotGroupMember)
        .refuses(Field::new(0x10, 23, 56), 1u64, Refusal::NotGroupMember)
        .refuses(Field::new(0x18, 31, 32), 1u64, Refusal::NotGroupMember)
        .twice(Refusal::NotGroupMember)
}
