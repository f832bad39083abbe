//! Capabilities of the device: QUERY_HCA_CAP, SET_HCA_CAP and QUERY_ADAPTER.
//!
//! The device is a fifth-generation ConnectX without the parts that the model lacks. Every
//! capability that it reports is implemented. Sizes are those of a ConnectX-6 Dx
//! (`evidence/tables/caps-cx6dx.csv`), where the model has no smaller limit; for other generations they
//! are assumed to be the same, unless the [`Profile`] has another value.

mod flow_table;

use mlx5_sys::ifc::{
    Field, atomic_caps, cmd_hca_cap, cmd_hca_cap_2, device_event_cap, device_mem_cap, event_type,
    odp_cap, odp_per_transport_service_cap, per_protocol_networking_offload_caps as ethernet,
    qos_cap, query_adapter_out, query_adapter_param_block, query_hca_cap_in, query_hca_cap_out,
    roce_cap, set_hca_cap_in,
};

use super::flow_action::{MAX_HEADERS, MAX_OFFSET};
use super::flow_counter::{BULK, LOG_MAX_QUERIED, MAX_COUNTERS};
use super::l2_table::LOG_MAX_L2_TABLE;
use super::rate::{RATE_RANGE, RATES};
use super::{OP_MOD, Refusal, get};
use crate::card::{Bus, Card, Feature, Link, Profile};
use crate::function::LONGEST_LIST;
use crate::object::Memic;
use crate::queue::{INDIRECTION, MAX_BLOCK};
use crate::transport::ethernet::LOG_MAX_LSO;

/// Limits that commands are held to.
pub const LOG_MAX_EQ_SIZE: u32 = 22;
/// log2 of CQEs in a CQ.
pub const LOG_MAX_CQ_SIZE: u32 = 22;
/// log2 of WQEs in a shared receive queue.
pub const LOG_MAX_SRQ_SIZE: u32 = 15;
/// log2 of entries in a list of tags.
pub const LOG_MAX_TAGS: u32 = 7;
/// log2 of entries in a list of keys behind another key.
pub const LOG_MAX_KLMS: u32 = 16;
/// log2 of the least bytes that an entry of a list of equal pieces stands for.
pub const LOG_MIN_ENTITY: u32 = 12;
/// log2 of the longest message.
pub const LOG_MAX_MESSAGE: u32 = 30;
/// log2 of READs and atomics in flight, either way.
pub const LOG_MAX_READS: u32 = 4;
/// log2 of streams of an initiator of dynamic connections.
pub const LOG_MAX_STREAMS: u32 = 5;
/// log2 of blocks in a send queue without a doorbell record.
pub const LOG_MAX_RECORDLESS_SQ: u32 = 15;
/// log2 of multicast groups.
pub const LOG_MAX_GROUPS: u32 = 13;
/// Queue pairs in a multicast group.
pub const MAX_GROUP_MEMBERS: u32 = 240;
/// Bytes of the longest receive WQE.
pub const MAX_RQ_WQE: usize = 512;
/// log2 of receive queues in a table of them.
pub const LOG_MAX_RQT: u32 = 11;
/// log2 of the most WQEs of a queue of packets.
pub const LOG_MAX_WORK_QUEUE: u32 = 15;
/// log2 of entries in a flow table.
pub const LOG_MAX_FLOW_TABLE: u32 = 20;
/// The greatest level of a flow table. Linux 6.12 creates one of level 66.
pub const MAX_FLOW_LEVEL: u32 = 128;
/// Entries of the P_Key table.
pub const PKEYS: usize = 128;
/// Entries of the GID table of an InfiniBand port, and of an Ethernet port: the latter of a ConnectX-6 Dx.
const GIDS: usize = 8;
const ETHERNET_GIDS: usize = 255;

/// Groups of capabilities (`device.h`, `enum mlx5_cap_type`).
pub(super) mod group {
    pub const GENERAL: u32 = 0;
    pub const ETHERNET: u32 = 1;
    pub const ODP: u32 = 2;
    pub const ATOMIC: u32 = 3;
    pub const ROCE: u32 = 4;
    pub const DEVICE_MEMORY: u32 = 0xf;
    pub const EVENT: u32 = 0x14;
    pub const FLOW_TABLE: u32 = 7;
    pub const QOS: u32 = 0xc;
    pub const GENERAL_2: u32 = 0x20;
}

/// Events of objects that users may ask for: all that there are, but completions, which every CQ has.
const AFFILIATED: &[u8] = &[
    event_type::PATH_MIG,
    event_type::COMM_EST,
    event_type::SQ_DRAINED,
    event_type::CQ_ERROR,
    event_type::WQ_CATAS_ERROR,
    event_type::PATH_MIG_FAILED,
    event_type::WQ_INVAL_REQ_ERROR,
    event_type::WQ_ACCESS_ERROR,
    event_type::SRQ_CATAS_ERROR,
    event_type::SRQ_LAST_WQE,
    event_type::SRQ_RQ_LIMIT,
    event_type::DCT_DRAINED,
    event_type::DCT_KEY_VIOLATION,
];

impl Card {
    /// Entries of the port's GID table; those the identity does not fill are empty.
    pub fn gid_table_size(&self) -> usize {
        match self.identity.link {
            Link::InfiniBand => GIDS,
            Link::Roce => ETHERNET_GIDS,
        }
    }
}

fn general(card: &Card) -> Vec<(Field, u64)> {
    use cmd_hca_cap as c;
    let roce = card.identity.link == Link::Roce;
    let profile = card.identity.profile;
    let has = |feature| u64::from(profile.has(feature));
    let streams = has(Feature::DciStreams) * u64::from(LOG_MAX_STREAMS);
    vec![
        (c::HCA_CAP_2, 1),
        (c::VHCA_ID, 1),
        (c::LOG_MAX_QP_SZ, 15),
        (c::LOG_MAX_QP, profile.log_max_qp().into()),
        (c::LOG_MAX_SRQ_SZ, LOG_MAX_SRQ_SIZE.into()),
        (c::LOG_MAX_SRQ, 23),
        (c::LOG_MAX_RMP, 23),
        // Tags, matched on reliable connections, and messages that the card fetches.
        (c::LOG_MAX_XRQ, has(Feature::TagMatching) * 23),
        (c::TAG_MATCHING, has(Feature::TagMatching)),
        (c::RNDV_OFFLOAD_RC, has(Feature::TagMatching)),
        (c::LOG_TAG_MATCHING_LIST_SZ, has(Feature::TagMatching) * u64::from(LOG_MAX_TAGS)),
        (c::WAIT_ON_TIME, has(Feature::WaitOnTime)),
        (c::ACCESS_REGISTER_USER, 1),
        (c::LOG_MAX_CQ_SZ, LOG_MAX_CQ_SIZE.into()),
        (c::LOG_MAX_CQ, 24),
        (c::LOG_MAX_EQ_SZ, LOG_MAX_EQ_SIZE.into()),
        (c::LOG_MAX_EQ, 7),
        (c::LOG_MAX_MKEY, 24),
        (c::MAX_INDIRECTION, INDIRECTION.into()),
        (c::FIXED_BUFFER_SIZE, 1),
        (c::LOG_MAX_KLM_LIST_SIZE, LOG_MAX_KLMS.into()),
        (c::LOG_MAX_MRW_SZ, 47),
        (c::LOG_MAX_RA_REQ_QP, LOG_MAX_READS.into()),
        (c::LOG_MAX_RA_RES_QP, LOG_MAX_READS.into()),
        // 8 << n entries; that of an Ethernet port is in the group of RoCE.
        (c::GID_TABLE_SIZE, 0),
        // 128 << n entries.
        (c::PKEY_TABLE_SIZE, 0),
        (c::VPORT_GROUP_MANAGER, 1),
        (c::VPORT_COUNTERS, 1),
        (c::IB_VIRT, u64::from(!roce)),
        (c::LOCAL_CA_ACK_DELAY, 16),
        (c::PORT_TYPE, u64::from(roce)),
        (c::NUM_PORTS, 1),
        (c::NUM_VHCA_PORTS, 1),
        (c::NATIVE_PORT_NUM, 1),
        (c::LOG_MAX_MSG, LOG_MAX_MESSAGE.into()),
        (c::CQE_VERSION, 1),
        (c::SCTR_DATA_CQE, 1),
        (c::ATOMIC, 1),
        (c::ROCE, u64::from(roce)),
        (c::ROCE_RW_SUPPORTED, u64::from(roce)),
        // Memory windows: keys of one queue pair, bound by UMR and invalidated from afar.
        (c::IMAICL, 1),
        (c::APM, 1),
        (c::CQ_OI, 1),
        // Events of users' objects, named by type.
        (c::EVENT_CAP, 1),
        // Queues that wait for others and let others run.
        (c::CD, 1),
        // Copies by the card, of up to 2 GiB.
        (c::DMA_MMO_SQ, has(Feature::DmaCopy)),
        (c::LOG_DMA_MMO_MAX_SIZE, has(Feature::DmaCopy) * 31),
        (c::CQ_RESIZE, 1),
        (c::CQ_MODERATION, 1),
        (c::CQE_COMPRESSION, 1),
        (c::CQE_COMPRESSION_128, 1),
        (c::ENHANCED_CQE_COMPRESSION, has(Feature::EnhancedCqes)),
        (c::MINI_CQE_RESP_STRIDE_INDEX, 1),
        (c::CQE_COMPRESSION_MAX_NUM, MAX_BLOCK as u64),
        // In a unit that is not public. The model closes a block when the queue has nothing more to do.
        (c::CQE_COMPRESSION_TIMEOUT, 2),
        (c::CQE_128_ALWAYS, 1),
        (c::RC, 1),
        (c::UC, 1),
        (c::UD, 1),
        (c::XRC, 1),
        (c::DCT, 1),
        (c::LOG_MAX_RA_REQ_DC, LOG_MAX_READS.into()),
        (c::LOG_MAX_RA_RES_DC, LOG_MAX_READS.into()),
        (c::DC_REQ_SCAT_DATA_CQE, 1),
        (c::LOG_MAX_DCI_STREAM_CHANNELS, streams),
        (c::LOG_MAX_DCI_ERRORED_STREAMS, streams),
        // Streams of initiators are reset by the extension of the context, which also says why a
        // queue pair failed.
        (c::QPC_EXTENSION, 1),
        (c::QP_ERROR_SYNDROME, 1),
        (c::ETH_NET_OFFLOADS, u64::from(roce)),
        // Rates of send queues.
        (c::QOS, u64::from(roce)),
        (c::NIC_FLOW_TABLE, u64::from(roce)),
        (c::STRIDING_RQ, u64::from(roce)),
        (c::LOG_MAX_RQT_SIZE, if roce { LOG_MAX_RQT.into() } else { 0 }),
        (c::LOG_MAX_RQT, if roce { 20 } else { 0 }),
        (c::LOG_MAX_TIR, if roce { 16 } else { 0 }),
        (c::LOG_MAX_TIS, if roce { 23 } else { 0 }),
        (c::LOG_MAX_CURRENT_UC_LIST, if roce { LONGEST_LIST.ilog2().into() } else { 0 }),
        (c::LOG_MAX_CURRENT_MC_LIST, if roce { LONGEST_LIST.ilog2().into() } else { 0 }),
        (c::LOG_MAX_VLAN_LIST, if roce { LONGEST_LIST.ilog2().into() } else { 0 }),
        (c::LOG_MAX_L2_TABLE, if roce { LOG_MAX_L2_TABLE.into() } else { 0 }),
        // Counters of flows.
        (c::MAX_FLOW_COUNTER_15_0, if roce { MAX_COUNTERS.into() } else { 0 }),
        (c::FLOW_COUNTER_BULK_ALLOC, if roce { BULK.into() } else { 0 }),
        (c::LOG_MAX_FLOW_COUNTER_BULK, if roce { LOG_MAX_QUERIED.into() } else { 0 }),
        // What the port does about congestion can be asked and not changed.
        (c::CC_QUERY_ALLOWED, u64::from(roce)),
        (c::LOG_MAX_RQ, if roce { 23 } else { 0 }),
        (c::LOG_MAX_WQ_SZ, LOG_MAX_WORK_QUEUE.into()),
        // On InfiniBand the driver has one of its own, with which it tests write-combining.
        (c::LOG_MAX_SQ, 23),
        (c::SQ_TS_FORMAT, timestamp_formats(card)),
        (c::RQ_TS_FORMAT, timestamp_formats(card)),
        // Counters, of which zero is none.
        (c::MAX_QP_CNT, 127),
        (c::OUT_OF_SEQ_CNT, 1),
        (c::RETRANSMISSION_Q_COUNTERS, 1),
        (c::ENHANCED_ERROR_Q_COUNTERS, 1),
        (c::MODIFY_RQ_COUNTER_SET_ID, u64::from(roce)),
        (c::RTS2RTS_QP_COUNTERS_SET_ID, 1),
        (c::LOG_MAX_MCG, LOG_MAX_GROUPS.into()),
        (c::MAX_QP_MCG, MAX_GROUP_MEMBERS.into()),
        // What a queue pair multicasts need not come back to itself.
        (c::BLOCK_LB_MC, 1),
        // The driver's datagrams may name another sender.
        (c::SET_DETH_SQPN, 1),
        (c::UAR_4K, 1),
        (c::UAR_SZ, 5),
        (c::LOG_PG_SZ, 12),
        (c::LOG_UAR_PAGE_SZ, 0),
        (c::BF, 1),
        (c::DEVICE_MEMORY, u64::from(card.memic.is_there())),
        (c::DUMP_FILL_MKEY, 1),
        (c::NULL_MKEY, 1),
        (c::PG, u64::from(card.identity.bus == Bus::Process)),
        (c::MKEY_BY_NAME, 1),
        (c::LOG_BF_REG_SIZE, 9),
        (c::NUM_OF_UARS_PER_PAGE, 1),
        (c::MAX_WQE_SZ_SQ, 1024),
        (c::MAX_WQE_SZ_RQ, MAX_RQ_WQE as u64),
        (c::LOG_MAX_PD, profile.log_max_pd().into()),
        (c::LOG_MAX_XRCD, 24),
        (c::LOG_MAX_TRANSPORT_DOMAIN, 16),
        (c::LOG_MAX_UCTX, if card.identity.user_contexts { 16 } else { 0 }),
        (c::DEVICE_FREQUENCY_MHZ, u64::from(profile.clock_khz()) / 1000),
        (c::DEVICE_FREQUENCY_KHZ, profile.clock_khz().into()),
    ]
}

/// Returns the operations that each transport may do on on-demand memory.
fn on_demand(profile: Profile) -> Vec<(Field, u64)> {
    use odp_per_transport_service_cap as c;
    let receiving = [c::SEND, c::RECEIVE];
    let reliable = match profile.has(Feature::OnDemandAtomics) {
        true => vec![c::WRITE, c::READ, c::ATOMIC],
        false => vec![c::WRITE, c::READ],
    };
    let mut caps = vec![(odp_cap::SIG, 1)];
    for (transport, services) in [
        (odp_cap::RC_ODP_CAPS, [&receiving[..], &reliable, &[c::SRQ_RECEIVE]].concat()),
        (odp_cap::XRC_ODP_CAPS, [&[c::SEND][..], &reliable, &[c::SRQ_RECEIVE]].concat()),
        (odp_cap::UD_ODP_CAPS, vec![c::SEND]),
        (odp_cap::DC_ODP_CAPS, [&[c::SEND][..], &reliable, &[c::SRQ_RECEIVE]].concat()),
    ] {
        caps.extend(services.into_iter().map(|service| (service.within(transport), 1)));
    }
    caps
}

/// Values of `ts_format`: free running, the default, which is that here, and real time.
const DEFAULT_FORMAT: u32 = 1;
const REAL_TIME_FORMAT: u32 = 2;
/// A capability: both formats.
const BOTH_FORMATS: u64 = 2;

/// Returns the formats that the times of queues may have.
fn timestamp_formats(card: &Card) -> u64 {
    let offered = card.identity.profile.has(Feature::RealTime) && card.identity.link == Link::Roce;
    if offered { BOTH_FORMATS } else { 0 }
}

/// Returns whether a queue may have this `ts_format`.
pub fn may_stamp(card: &Card, format: u32) -> bool {
    format <= DEFAULT_FORMAT
        || format == REAL_TIME_FORMAT && timestamp_formats(card) == BOTH_FORMATS
}

/// Returns 1 if send queues need no doorbell record.
fn recordless(card: &Card) -> u64 {
    card.identity.profile.has(Feature::Recordless).into()
}

/// Returns a value on Ethernet, and zero on InfiniBand.
fn on_ethernet(card: &Card, value: u32) -> u64 {
    if card.identity.link == Link::Roce { value.into() } else { 0 }
}

/// Capabilities, each with its greatest value.
type Values = Vec<(Field, u64)>;

/// Returns a group of capabilities.
fn greatest(card: &Card, group: u32) -> Result<Values, Refusal> {
    Ok(match group {
        group::GENERAL => general(card),
        group::GENERAL_2 => vec![
            // What entries of flow tables put in and take off, counted in bytes.
            (cmd_hca_cap_2::MAX_REFORMAT_INSERT_SIZE, on_ethernet(card, MAX_HEADERS)),
            (cmd_hca_cap_2::MAX_REFORMAT_INSERT_OFFSET, on_ethernet(card, MAX_OFFSET)),
            (cmd_hca_cap_2::MAX_REFORMAT_REMOVE_SIZE, on_ethernet(card, MAX_HEADERS)),
            (cmd_hca_cap_2::MAX_REFORMAT_REMOVE_OFFSET, on_ethernet(card, MAX_OFFSET)),
            // Has to say something true, whatever else is offered.
            (cmd_hca_cap_2::LOG_MIN_MKEY_ENTITY_SIZE, LOG_MIN_ENTITY.into()),
            (cmd_hca_cap_2::SEND_DBR_MODE_NO_DBR_EXT, recordless(card)),
            (
                cmd_hca_cap_2::LOG_MAX_SEND_DBR_LESS_QP_SQ,
                recordless(card) * u64::from(LOG_MAX_RECORDLESS_SQ),
            ),
        ],
        group::ODP if card.identity.bus == Bus::Process => on_demand(card.identity.profile),
        group::DEVICE_MEMORY if card.memic.is_there() => vec![
            (device_mem_cap::MEMIC, 1),
            (device_mem_cap::LOG_MIN_MEMIC_ALLOC_SIZE, Memic::GRAIN.ilog2().into()),
            // Counted from the smallest.
            (
                device_mem_cap::LOG_MAX_MEMIC_ADDR_ALIGNMENT,
                (Memic::LOG_ALIGNMENT - Memic::GRAIN.ilog2()).into(),
            ),
            (device_mem_cap::MEMIC_BAR_START_ADDR, Memic::WINDOW),
            (device_mem_cap::MEMIC_BAR_SIZE, Memic::PAGES << 12),
            (device_mem_cap::MAX_MEMIC_SIZE, Memic::SIZE),
        ],
        group::EVENT => {
            // All are among the first 64 types.
            let mask = |mask: Field, events: &[u8]| {
                let first = Field::new(0, 31, 64).within(mask);
                (first, events.iter().fold(0, |mask, event| mask | 1u64 << event))
            };
            vec![
                mask(device_event_cap::USER_AFFILIATED_EVENTS, AFFILIATED),
                mask(device_event_cap::USER_UNAFFILIATED_EVENTS, &[event_type::PORT_CHANGE]),
            ]
        }
        group::ATOMIC => vec![
            // Eight bytes, read and written in the host's byte order.
            (atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE, 1),
            (atomic_caps::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1, 1),
            // Compare and swap, fetch and add, and both under masks.
            (atomic_caps::ATOMIC_OPERATIONS, 0b1111),
            // The sizes themselves, as bits: 4, 8, 16 and 32 bytes.
            (atomic_caps::ATOMIC_SIZE_QP, 4 | 8 | 16 | 32),
            (atomic_caps::ATOMIC_SIZE_DC, 4 | 8 | 16 | 32),
        ],
        group::ETHERNET if card.identity.link == Link::Roce => vec![
            (ethernet::CSUM_CAP, 1),
            (ethernet::VLAN_CAP, 1),
            (ethernet::WQE_VLAN_INSERT, card.identity.profile.has(Feature::VlanInsertion).into()),
            (ethernet::MAX_LSO_CAP, LOG_MAX_LSO.into()),
            // Several packets in a WQE: drivers ask for both. Only the enhanced form is executed.
            (ethernet::MULTI_PKT_SEND_WQE, 1),
            (ethernet::ENHANCED_MULTI_PKT_SEND_WQE, 1),
            // No bytes of a header have to be in the WQE.
            (ethernet::WQE_INLINE_MODE, 2),
            (ethernet::RSS_IND_TBL_CAP, LOG_MAX_RQT.into()),
        ],
        group::FLOW_TABLE if card.identity.link == Link::Roce => flow_table::flow_table(),
        group::ROCE if card.identity.link == Link::Roce => vec![
            // Bit 0 is a GRH, bit 1 IPv4, bit 2 IPv6.
            (roce_cap::L3_TYPE, 0b111),
            // Bit 0 is RoCE v1, bit 2 RoCE v2.
            (roce_cap::ROCE_VERSION, 0b101),
            (roce_cap::R_ROCE_DEST_UDP_PORT, 4791),
            (roce_cap::R_ROCE_MIN_SRC_UDP_PORT, 0xc000),
            (roce_cap::R_ROCE_MAX_SRC_UDP_PORT, 0xffff),
            (roce_cap::ROCE_ADDRESS_TABLE_SIZE, card.gid_table_size() as u64),
            (roce_cap::QP_TS_FORMAT, timestamp_formats(card)),
        ],
        // A group that programs read before they decide what to do. The device has nothing of it.
        group::QOS if card.identity.link == Link::Roce => vec![
            (qos_cap::PACKET_PACING, 1),
            (qos_cap::PACKET_PACING_BURST_BOUND, 1),
            (qos_cap::PACKET_PACING_TYPICAL_SIZE, 1),
            (qos_cap::PACKET_PACING_MIN_RATE, RATE_RANGE.0.into()),
            (qos_cap::PACKET_PACING_MAX_RATE, RATE_RANGE.1.into()),
            (qos_cap::PACKET_PACING_RATE_TABLE_SIZE, RATES.into()),
        ],
        group::FLOW_TABLE | group::QOS => Vec::new(),
        _ => return Err(Refusal::Capability),
    })
}

/// Returns the capabilities of a group that the driver may set. It cannot set others of the group,
/// which SET_HCA_CAP ignores.
fn settable(card: &Card, group: u32) -> Result<Values, Refusal> {
    let mut values = greatest(card, group)?;
    match group {
        group::GENERAL | group::GENERAL_2 | group::ODP | group::ROCE => {}
        // Linux's driver writes zero to the others.
        group::ATOMIC => {
            values.retain(|(field, _)| *field == atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE)
        }
        _ => return Err(Refusal::CapabilityFixed),
    }
    Ok(values)
}

/// QUERY_HCA_CAP: one group of capabilities.
pub fn query_hca_cap(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_hca_cap_in as q;
    here(input, q::OTHER_FUNCTION, q::FUNCTION_ID)?;
    let group = get(input, OP_MOD) >> 1;
    let output = &mut output[query_hca_cap_out::CAPABILITY.bytes().start..];
    for (field, value) in greatest(card, group)? {
        field.set(output, value);
    }
    // Bit 0 asks for the current values rather than the greatest.
    let current = get(input, OP_MOD) & 1 == 1;
    if let Some(chosen) = card.function.chosen(group).filter(|_| current) {
        for (field, _) in settable(card, group)? {
            field.set(output, field.get(chosen));
        }
    }
    Ok(())
}

/// SET_HCA_CAP: the driver sets the current values of one group, none above its greatest.
pub fn set_hca_cap(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use set_hca_cap_in as q;
    super::by_driver(input)?;
    here(input, q::OTHER_FUNCTION, q::FUNCTION_ID)?;
    let group = get(input, OP_MOD) >> 1;
    let chosen = &input[q::CAPABILITY.bytes().start..];
    if settable(card, group)?.into_iter().any(|(field, value)| field.get(chosen) > value) {
        return Err(Refusal::CapabilityMaximum);
    }
    card.function.choose(group, chosen[..cmd_hca_cap::SIZE].to_vec());
    Ok(())
}

/// Checks the fields by which a command could name another function.
pub fn here(input: &[u8], other: Field, function: Field) -> Result<(), Refusal> {
    if get(input, other) == 1 || get(input, function) != 0 {
        return Err(Refusal::OtherFunction);
    }
    Ok(())
}

/// Board identifier, which sysfs shows as `board_id`.
const PSID: &[u8; 16] = b"MLX5-MODEL\0\0\0\0\0\0";

/// QUERY_ADAPTER: who made the board.
pub fn query_adapter(_: &mut Card, _: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let block = &mut output[query_adapter_out::QUERY_ADAPTER_STRUCT.bytes()];
    query_adapter_param_block::IEEE_VENDOR_ID.set(block, 0x00_02c9);
    query_adapter_param_block::VSD_VENDOR_ID.set(block, 0x15b3);
    let psid = query_adapter_param_block::VSD_CONTD_PSID.bytes().start;
    block[psid..psid + PSID.len()].copy_from_slice(PSID);
    Ok(())
}

#[cfg(test)]
mod tests;
