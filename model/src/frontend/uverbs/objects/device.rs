//! The opened device: context and capabilities.

use std::sync::Arc;

use libc::c_int;
use mlx5_sys::ifc::{
    Field, alloc_transport_domain_in, alloc_transport_domain_out, atomic_caps, cmd_hca_cap,
    create_uctx_in, create_uctx_out, device_mem_cap, odp_cap, opcode,
    per_protocol_networking_offload_caps as ethernet, qos_cap, query_adapter_in, query_adapter_out,
    query_adapter_param_block, query_hca_cap_in, query_hca_cap_out, query_special_contexts_in,
    query_special_contexts_out,
};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::driver::event::EventQueue;
use super::super::driver::rates::QOS;
use super::super::driver::{clock, function};
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{ExQueryDevice, QueryDevice, Ucontext, UcontextReply};
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::super::request::legacy::Request;
use super::context::Context;
use super::file::CommandFile;
use super::{uar, wq};
use crate::card::Link;
use crate::transport::ethernet::LOG_MAX_LSO;

/// Lengths of `mlx5_ib_alloc_ucontext_req` and of its second version up to `max_cqe_version`.
const FIRST_VERSION: usize = 8;
const SECOND_VERSION: usize = 16;
/// `MLX5_IB_ALLOC_UCTX_DEVX`.
const DEVX: u32 = 1;
/// `MLX5_LIB_CAP_DYN_UAR`.
const DYNAMIC_UAR: u64 = 2;

/// `GET_CONTEXT`.
pub(crate) fn get_context(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let request = attributes.input(DRIVER_IN)?;
    let reply = open(file, &request, attributes.room(DRIVER_OUT))?;
    attributes.put(0, &(file.function().eqns.len() as u32).to_ne_bytes())?;
    // IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS
    attributes.put(1, &1u64.to_ne_bytes())?;
    attributes.put(DRIVER_OUT, reply.as_bytes())
}

/// `GET_CONTEXT`, legacy: makes the asynchronous event file too.
pub(crate) fn get_context_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    let reply = open(file, &request.driver, request.driver_room())?;
    let (events, fd) = EventQueue::events()?;
    listen(file, &events.0)?;
    let vectors = file.function().eqns.len() as u32;
    request.reply(&[(fd as u32).to_ne_bytes(), vectors.to_ne_bytes()].concat())?;
    request.reply_driver(reply.as_bytes())
}

fn open(file: &CommandFile, request: &[u8], room: usize) -> Result<UcontextReply> {
    if request.len() != FIRST_VERSION && request.len() < SECOND_VERSION {
        return Err(Errno::EINVAL);
    }
    let asked: Ucontext = user::lenient(request);
    if asked.flags & !DEVX != 0
        || asked.comp_mask != 0
        || asked.reserved0 != 0
        || asked.reserved1 != 0
        || asked.reserved2 != 0
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if asked.total_num_bfregs == 0 || asked.num_low_latency_bfregs >= asked.total_num_bfregs {
        return Err(Errno::EINVAL);
    }
    // Libraries older than version 28 want their registers all at once.
    if asked.lib_caps & DYNAMIC_UAR == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let function = file.function();
    let caps = &function.caps;
    let uid = if asked.flags & DEVX == 0 {
        0
    } else if caps.get(cmd_hca_cap::LOG_MAX_UCTX) == 0 {
        return Err(Errno::EINVAL);
    } else {
        let command =
            Command::new(opcode::CREATE_UCTX, create_uctx_in::SIZE, create_uctx_out::SIZE);
        create_uctx_out::UID.get(&function.run(command)?) as u16
    };
    let mut command = Command::new(
        opcode::ALLOC_TRANSPORT_DOMAIN,
        alloc_transport_domain_in::SIZE,
        alloc_transport_domain_out::SIZE,
    );
    command.set(alloc_transport_domain_in::UID, uid);
    let domain = alloc_transport_domain_out::TRANSPORT_DOMAIN.get(&function.run(command)?) as u32;
    let cqe_version = asked.max_cqe_version.min(caps.get(cmd_hca_cap::CQE_VERSION) as u8);
    let context = Context { uid, cqe_version, domain, events: None };
    if let Err(error) = file.state().set_context(Context { events: None, ..context }) {
        Context { uid, cqe_version, domain, events: None }.destroy(function);
        return Err(error);
    }
    describe_context(file, cqe_version, room)
}

/// Opens a device for a forked child as its parent had it, without the parent's DevX.
pub(crate) fn open_again(file: &CommandFile) -> Result<()> {
    let request = Ucontext {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        max_cqe_version: 1,
        lib_caps: DYNAMIC_UAR,
        ..Default::default()
    };
    open(file, request.as_bytes(), size_of::<UcontextReply>()).map(|_| ())
}

/// `QUERY_CONTEXT`: the reply of the context's creation, for a process that imports the context.
pub(crate) fn query_context(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    /// `MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX`
    const REPLY: u16 = 0x1000;
    let cqe_version = file.state().context()?.cqe_version;
    let reply = describe_context(file, cqe_version, attributes.room(REPLY))?;
    attributes.put(0, &(file.function().eqns.len() as u32).to_ne_bytes())?;
    // IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS
    attributes.put(1, &1u64.to_ne_bytes())?;
    attributes.put_whole(REPLY, reply.as_bytes())
}

/// Describes a context to libraries.
fn describe_context(file: &CommandFile, cqe_version: u8, room: usize) -> Result<UcontextReply> {
    let function = file.function();
    let caps = &function.caps;
    let ethernet = function.device.link == Link::Roce;
    let dump_fill_mkey = if caps.has(cmd_hca_cap::DUMP_FILL_MKEY) {
        let command = Command::new(
            opcode::QUERY_SPECIAL_CONTEXTS,
            query_special_contexts_in::SIZE,
            query_special_contexts_out::SIZE,
        );
        query_special_contexts_out::DUMP_FILL_MKEY.get(&function.run(command)?) as u32
    } else {
        0
    };
    Ok(UcontextReply {
        qp_tab_size: caps.power(cmd_hca_cap::LOG_MAX_QP),
        // As in Linux: 0 if stores to the registers are not combined.
        bf_reg_size: if uar::combining() { caps.blueflame() } else { 0 },
        tot_bfregs: 0,
        cache_line_size: 64,
        max_sq_desc_sz: caps.get(cmd_hca_cap::MAX_WQE_SZ_SQ) as u16,
        max_rq_desc_sz: caps.get(cmd_hca_cap::MAX_WQE_SZ_RQ) as u16,
        max_send_wqebb: caps.power(cmd_hca_cap::LOG_MAX_QP_SZ),
        max_recv_wr: caps.power(cmd_hca_cap::LOG_MAX_QP_SZ),
        max_srq_recv_wr: caps.power(cmd_hca_cap::LOG_MAX_SRQ_SZ),
        num_ports: caps.get(cmd_hca_cap::NUM_PORTS).max(1) as u16,
        flow_action_flags: 0,
        comp_mask: u32::from(clock::is_readable())
            | (caps.get(cmd_hca_cap::DUMP_FILL_MKEY) << 1)
            | (caps.get(cmd_hca_cap::ECE_SUPPORT) << 2)
            | 1 << 3,
        response_length: room.min(size_of::<UcontextReply>()) as u32,
        cqe_version,
        // MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE, _CREATE_AH
        cmds_supp_uhw: 3,
        // MLX5_USER_INLINE_MODE_NONE
        eth_min_inline: u8::from(ethernet),
        clock_info_versions: 1 << clock::VERSION,
        hca_core_clock_offset: 0,
        log_uar_size: 12,
        num_uars_per_page: 1,
        num_dyn_bfregs: 0,
        dump_fill_mkey,
    })
}

/// `ASYNC_EVENT_ALLOC`.
pub(crate) fn alloc_events(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    file.state().context()?;
    let (events, fd): (_, c_int) = EventQueue::events()?;
    listen(file, &events.0)?;
    attributes.put_handle(0, fd as u64)
}

fn listen(file: &CommandFile, queue: &Arc<EventQueue>) -> Result<()> {
    file.state().set_events(queue)?;
    let listeners: &std::sync::Mutex<function::Listeners> = file.function().listeners();
    super::super::process::lock(listeners).ports.push(queue.clone());
    Ok(())
}

/// `QUERY_DEVICE`.
pub(crate) fn query(file: &CommandFile, request: &Request) -> Result<()> {
    request.reply(describe(file)?.as_bytes())
}

/// `QUERY_DEVICE`, extended.
pub(crate) fn query_extended(file: &CommandFile, request: &Request) -> Result<()> {
    if request.core.iter().any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    let caps = &file.function().caps;
    let base = describe(file)?;
    let ethernet = caps.has(cmd_hca_cap::ETH_NET_OFFLOADS);
    let tables = if ethernet { caps.power(cmd_hca_cap::LOG_MAX_RQT) } else { 0 };
    let table = if ethernet { caps.power(cmd_hca_cap::LOG_MAX_RQT_SIZE) } else { 0 };
    let reply = ExQueryDevice {
        base,
        response_length: request.room().min(size_of::<ExQueryDevice>()) as u32,
        timestamp_mask: i64::MAX as u64,
        hca_core_clock: u64::from(caps.get(cmd_hca_cap::DEVICE_FREQUENCY_KHZ)),
        device_cap_flags_ex: u64::from(base.device_cap_flags),
        moderation_count: if caps.has(cmd_hca_cap::CQ_MODERATION) { u16::MAX } else { 0 },
        // Twelve bits of microseconds.
        moderation_period: if caps.has(cmd_hca_cap::CQ_MODERATION) { 0xfff } else { 0 },
        max_dm_size: group(file, DEVICE_MEMORY, device_mem_cap::MAX_MEMIC_SIZE)?,
        // IB_ODP_SUPPORT, IB_ODP_SUPPORT_IMPLICIT
        odp_general: if caps.has(cmd_hca_cap::PG) { 3 } else { 0 },
        odp_rc: on_demand(file, odp_cap::RC_ODP_CAPS)?,
        odp_uc: on_demand(file, odp_cap::UC_ODP_CAPS)?,
        odp_ud: on_demand(file, odp_cap::UD_ODP_CAPS)?,
        xrc_odp_caps: on_demand(file, odp_cap::XRC_ODP_CAPS)?,
        rss: [if ethernet { RAW_PACKETS } else { 0 }, tables, table, 0],
        max_wq_type_rq: if ethernet { caps.power(cmd_hca_cap::LOG_MAX_RQ) } else { 0 },
        raw_packet_caps: if ethernet { STRIPPING | CHECKSUMS } else { 0 },
        tm: tags(caps),
        ..Default::default()
    };
    request.reply_short(reply.as_bytes())?;
    request.reply_driver(&driver(file, request.driver_room())?)
}

/// `ib_uverbs_tm_caps`: header bytes of a message that is fetched, tags, flags, operations under way,
/// pieces of memory.
fn tags(caps: &super::super::driver::command::Caps) -> [u32; 6] {
    /// `IB_TM_CAP_RNDV_RC`
    const RELIABLE: u32 = 1;
    /// `MLX5_TM_MAX_RNDV_MSG_SIZE`, `MLX5_TM_MAX_SGE`
    const HEADERS: u32 = 64;
    const PIECES: u32 = 1;
    if !caps.has(cmd_hca_cap::TAG_MATCHING) {
        return [0; 6];
    }
    let fetches = caps.has(cmd_hca_cap::RNDV_OFFLOAD_RC);
    let (headers, flags) = if fetches { (HEADERS, RELIABLE) } else { (0, 0) };
    let tags = caps.power(cmd_hca_cap::LOG_TAG_MATCHING_LIST_SZ) - 1;
    [headers, tags, flags, caps.power(cmd_hca_cap::LOG_MAX_QP_SZ), PIECES, 0]
}

/// `mlx5_ib_query_device_resp`.
fn driver(file: &CommandFile, room: usize) -> Result<Vec<u8>> {
    /// Offsets in the structure.
    const LENGTH: usize = 104;
    const FLAGS: usize = 60;
    const COMPRESSION: usize = 32;
    const STREAMS: usize = 100;
    /// `MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT`
    const SCATTER_AT_TARGETS: u32 = 1 << 3;
    let caps = &file.function().caps;
    const SEGMENTATION: usize = 8;
    const SPREADING: usize = 16;
    const PACING: usize = 40;
    const SEVERAL: usize = 56;
    const STRIDING: usize = 72;
    /// `MLX5_IB_ALLOW_MPW`, `MLX5_IB_SUPPORT_EMPW`
    const ALLOWED: u32 = 1 << 1;
    const ENHANCED: u32 = 1 << 2;
    let mut reply = vec![0; LENGTH];
    let mut word = |at: usize, value: u32| reply[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    word(4, room.min(LENGTH) as u32);
    if caps.has(cmd_hca_cap::CQE_COMPRESSION) {
        word(COMPRESSION, caps.get(cmd_hca_cap::CQE_COMPRESSION_MAX_NUM));
        // Hash and checksum, and the latter with the stride.
        let stride = caps.has(cmd_hca_cap::MINI_CQE_RESP_STRIDE_INDEX);
        word(COMPRESSION + 4, 3 | u32::from(stride) << 2);
    }
    if caps.has(cmd_hca_cap::ETH_NET_OFFLOADS) {
        word(SEGMENTATION, 1 << LOG_MAX_LSO);
        word(SEGMENTATION + 4, RAW_PACKETS);
        // Addresses and ports of either protocol, and the flag for inner headers, which Linux tells of
        // every device; Toeplitz's hash.
        word(SPREADING, 0x8000_00ff);
        word(SPREADING + 8, 1);
        let flag = |field, flag| group(file, ETHERNET, field).map(|has| has.min(1) as u32 * flag);
        word(
            SEVERAL,
            flag(ethernet::MULTI_PKT_SEND_WQE, ALLOWED)?
                | flag(ethernet::ENHANCED_MULTI_PKT_SEND_WQE, ENHANCED)?,
        );
    }
    if caps.has(cmd_hca_cap::QOS) && group(file, QOS, qos_cap::PACKET_PACING)? != 0 {
        word(PACING, group(file, QOS, qos_cap::PACKET_PACING_MIN_RATE)? as u32);
        word(PACING + 4, group(file, QOS, qos_cap::PACKET_PACING_MAX_RATE)? as u32);
        word(PACING + 8, RAW_PACKETS);
        // `MLX5_IB_PP_SUPPORT_BURST`
        let burst = group(file, QOS, qos_cap::PACKET_PACING_BURST_BOUND)?
            & group(file, QOS, qos_cap::PACKET_PACING_TYPICAL_SIZE)?;
        word(PACING + 12, burst as u32);
    }
    if caps.has(cmd_hca_cap::STRIDING_RQ) {
        let ((bytes, most_bytes), (strides, most_strides)) = (wq::STRIDE_BYTES, wq::STRIDES);
        for (index, value) in
            [bytes, most_bytes, strides, most_strides, RAW_PACKETS].into_iter().enumerate()
        {
            word(STRIDING + 4 * index, value);
        }
    }
    word(
        FLAGS,
        caps.get(cmd_hca_cap::CQE_COMPRESSION_128)
            | caps.get(cmd_hca_cap::CQE_128_ALWAYS) << 1
            | SCATTER_AT_TARGETS,
    );
    reply[STREAMS] = caps.get(cmd_hca_cap::LOG_MAX_DCI_STREAM_CHANNELS) as u8;
    reply[STREAMS + 1] = caps.get(cmd_hca_cap::LOG_MAX_DCI_ERRORED_STREAMS) as u8;
    Ok(reply)
}

/// The bit of queue pairs for frames of Ethernet among types (`1 << IB_QPT_RAW_PACKET`).
const RAW_PACKETS: u32 = 1 << 8;
/// `IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING`, `IB_UVERBS_RAW_PACKET_CAP_IP_CSUM`
const STRIPPING: u32 = 1 << 0;
const CHECKSUMS: u32 = 1 << 2;

/// Flags of `ib_uverbs_device_cap_flags`.
mod flag {
    pub const BAD_PKEY_CNTR: u32 = 1 << 1;
    pub const BAD_QKEY_CNTR: u32 = 1 << 2;
    pub const AUTO_PATH_MIG: u32 = 1 << 4;
    pub const CHANGE_PHY_PORT: u32 = 1 << 5;
    pub const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    pub const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub const MEM_WINDOW: u32 = 1 << 17;
    pub const XRC: u32 = 1 << 20;
    pub const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    pub const RAW_IP_CSUM: u32 = 1 << 26;
    pub const MANAGED_FLOW_STEERING: u32 = 1 << 29;
}

/// Translates the capabilities to the attributes of verbs.
fn describe(file: &CommandFile) -> Result<QueryDevice> {
    let function = file.function();
    let caps = &function.caps;
    let command =
        Command::new(opcode::QUERY_ADAPTER, query_adapter_in::SIZE, query_adapter_out::SIZE);
    let adapter = function.run(command)?;
    let vendor = query_adapter_param_block::IEEE_VENDOR_ID
        .within(query_adapter_out::QUERY_ADAPTER_STRUCT)
        .get(&adapter) as u32;
    let max_rq_sg = caps.get(cmd_hca_cap::MAX_WQE_SZ_RQ) / 16;
    // Beside the control and remote address segments, of the 512 bytes that the kernel allows for.
    let max_sq_sg = (caps.get(cmd_hca_cap::MAX_WQE_SZ_SQ).min(512) - 32) / 16;
    let max_qp = caps.power(cmd_hca_cap::LOG_MAX_QP);
    let depth = caps.power(cmd_hca_cap::LOG_MAX_RA_REQ_QP);
    let windows = caps.has(cmd_hca_cap::IMAICL);
    let groups = caps.power(cmd_hca_cap::LOG_MAX_MCG);
    let attach = caps.get(cmd_hca_cap::MAX_QP_MCG);
    let mut flags = flag::CHANGE_PHY_PORT
        | flag::PORT_ACTIVE_EVENT
        | flag::SYS_IMAGE_GUID
        | flag::RC_RNR_NAK_GEN;
    for (cap, flag) in [
        (cmd_hca_cap::PKV, flag::BAD_PKEY_CNTR),
        (cmd_hca_cap::QKV, flag::BAD_QKEY_CNTR),
        (cmd_hca_cap::APM, flag::AUTO_PATH_MIG),
        (cmd_hca_cap::XRC, flag::XRC),
        (cmd_hca_cap::IMAICL, flag::MEM_WINDOW | flag::MEM_WINDOW_TYPE_2B),
        (cmd_hca_cap::IMAICL, flag::MEM_MGT_EXTENSIONS),
        (cmd_hca_cap::ETH_NET_OFFLOADS, flag::RAW_IP_CSUM),
        (cmd_hca_cap::NIC_FLOW_TABLE, flag::MANAGED_FLOW_STEERING),
    ] {
        if caps.has(cap) {
            flags |= flag;
        }
    }
    let [major, minor, number] = function.device.profile.firmware();
    Ok(QueryDevice {
        fw_ver: u64::from(major) << 32 | u64::from(minor) << 16 | u64::from(number),
        node_guid: function.device.guid.to_be(),
        sys_image_guid: function.device.guid.to_be(),
        max_mr_size: u64::MAX,
        page_size_cap: !((1u64 << caps.get(cmd_hca_cap::LOG_PG_SZ)) - 1),
        vendor_id: vendor,
        vendor_part_id: function.device.profile.device().into(),
        hw_ver: 0,
        max_qp,
        max_qp_wr: caps.power(cmd_hca_cap::LOG_MAX_QP_SZ),
        device_cap_flags: flags,
        max_sge: max_rq_sg.min(max_sq_sg),
        // MLX5_MAX_SGE_RD
        max_sge_rd: 30,
        max_cq: caps.power(cmd_hca_cap::LOG_MAX_CQ),
        max_cqe: caps.power(cmd_hca_cap::LOG_MAX_CQ_SZ) - 1,
        max_mr: caps.power(cmd_hca_cap::LOG_MAX_MKEY),
        max_pd: caps.power(cmd_hca_cap::LOG_MAX_PD),
        max_qp_rd_atom: depth,
        max_res_rd_atom: depth.saturating_mul(max_qp),
        max_qp_init_rd_atom: caps.power(cmd_hca_cap::LOG_MAX_RA_RES_QP),
        atomic_cap: u32::from(atomics(file)?),
        max_mw: if windows { caps.power(cmd_hca_cap::LOG_MAX_MKEY) } else { 0 },
        max_mcast_grp: groups,
        max_mcast_qp_attach: attach,
        max_total_mcast_qp_attach: attach.saturating_mul(groups),
        max_ah: i32::MAX as u32,
        max_srq: caps.power(cmd_hca_cap::LOG_MAX_SRQ),
        max_srq_wr: caps.power(cmd_hca_cap::LOG_MAX_SRQ_SZ) - 1,
        max_srq_sge: max_rq_sg.saturating_sub(1),
        // Of a table as the capability counts it, though a port on Ethernet has one entry.
        max_pkeys: PKEYS << caps.get(cmd_hca_cap::PKEY_TABLE_SIZE),
        local_ca_ack_delay: caps.get(cmd_hca_cap::LOCAL_CA_ACK_DELAY) as u8,
        phys_port_cnt: caps.get(cmd_hca_cap::NUM_PORTS).max(1) as u8,
        ..Default::default()
    })
}

/// Entries of the smallest table of partition keys (`MLX5_MIN_PKEY_TABLE_SIZE`).
const PKEYS: u16 = 128;

/// Groups of capabilities.
const ETHERNET: u32 = 1;
const ODP: u32 = 2;
const DEVICE_MEMORY: u32 = 0xf;

/// A field of a group of capabilities, current values; 0 where the card has no such group.
fn group(file: &CommandFile, group: u32, field: Field) -> Result<u64> {
    file.function().group(group, field)
}

/// Returns whether a send queue may send several packets by one WQE.
pub(super) fn sends_several(file: &CommandFile) -> Result<bool> {
    Ok(group(file, ETHERNET, ethernet::MULTI_PKT_SEND_WQE)? != 0)
}

/// Returns the operations of a transport that may use on-demand memory, as flags of verbs.
fn on_demand(file: &CommandFile, transport: Field) -> Result<u32> {
    if !file.function().caps.has(cmd_hca_cap::PG) {
        return Ok(0);
    }
    // Verbs counts the same services from the lowest bit up.
    Ok((group(file, ODP, transport)? as u32).reverse_bits())
}

/// Whether the card's atomics are atomic among queue pairs, and in the host's byte order: what
/// verbs calls `IBV_ATOMIC_HCA`.
fn atomics(file: &CommandFile) -> Result<bool> {
    /// Atomic capabilities, current values.
    const ATOMIC: u32 = 3 << 1 | 1;
    /// Compare and swap, fetch and add.
    const BOTH: u64 = 3;
    /// Operands of 8 bytes.
    const EIGHT: u64 = 8;
    let function = file.function();
    if !function.caps.has(cmd_hca_cap::ATOMIC) {
        return Ok(false);
    }
    let mut command =
        Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE, query_hca_cap_out::SIZE);
    command.set(query_hca_cap_in::OP_MOD, ATOMIC);
    let reply = function.run(command)?;
    let caps = &reply[query_hca_cap_out::CAPABILITY.bytes()];
    Ok(atomic_caps::ATOMIC_OPERATIONS.get(caps) & BOTH == BOTH
        && atomic_caps::ATOMIC_SIZE_QP.get(caps) & EIGHT != 0)
}
