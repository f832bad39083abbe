//! The reason for refusing a command: status and syndrome.

use mlx5_sys::ifc::opcode;

/// Status byte of a reply (`device.h`, `MLX5_CMD_STAT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Status {
    BadOperation = 0x02,
    BadParameter = 0x03,
    BadSystemState = 0x04,
    BadResource = 0x05,
    ResourceBusy = 0x06,
    LimitExceeded = 0x08,
    BadResourceState = 0x09,
    BadIndex = 0x0a,
    NoResources = 0x0f,
    BadQpState = 0x10,
    BadSize = 0x40,
    BadInputLength = 0x50,
    BadOutputLength = 0x51,
}

macro_rules! refusals {
    ($($name:ident = $syndrome:literal, $status:ident, $sentence:literal;)*) => {
        /// Why a command is refused. Each has a syndrome of the model's own; a reply has that of
        /// devices where it is public ([`reply`](Self::reply)).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[repr(u32)]
        pub enum Refusal {
            $(
                #[doc = $sentence]
                #[error($sentence)]
                $name = $syndrome,
            )*
        }

        impl Refusal {
            /// Every refusal, in order of syndrome.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Status byte of the reply, where that of devices is not known.
            const fn status(self) -> Status {
                match self {
                    $(Self::$name => Status::$status,)*
                }
            }

            /// The model's own syndrome.
            pub const fn syndrome(self) -> u32 {
                self as u32
            }

            /// Status and syndrome of the reply to a command.
            pub fn reply(self, opcode: u16) -> (Status, u32) {
                let known = OF_DEVICES.iter().find(|known| {
                    known.refusal == self && known.opcode.is_none_or(|known| known == opcode)
                });
                match known {
                    Some(known) => (known.status.unwrap_or(self.status()), known.syndrome),
                    None => (self.status(), self.syndrome()),
                }
            }

            /// The refusal a reply's syndrome stands for.
            pub fn from_syndrome(syndrome: u32) -> Option<Self> {
                let of_devices = OF_DEVICES.iter().find(|known| known.syndrome == syndrome);
                let own = || Self::ALL.iter().copied().find(|own| own.syndrome() == syndrome);
                of_devices.map(|known| known.refusal).or_else(own)
            }
        }
    };
}

/// A syndrome of devices.
pub(super) struct OfDevices {
    refusal: Refusal,
    /// The command; none where devices give it to every command.
    opcode: Option<u16>,
    /// The status, where it is known and not that of the refusal.
    status: Option<Status>,
    syndrome: u32,
}

const fn device(refusal: Refusal, opcode: u16, syndrome: u32) -> OfDevices {
    OfDevices { refusal, opcode: Some(opcode), status: None, syndrome }
}

/// The syndromes of devices whose cause is public (`evidence/tables/command-syndromes.csv`), where the model
/// makes the same check.
pub(super) const OF_DEVICES: &[OfDevices] = &[
    OfDevices { refusal: Refusal::User, opcode: None, status: None, syndrome: 0x76_555f },
    device(Refusal::Capability, opcode::QUERY_HCA_CAP, 0x5a_dd95),
    device(Refusal::RoceVersion, opcode::SET_ROCE_ADDRESS, 0x12_822d),
    device(Refusal::Exhausted, opcode::ALLOC_UAR, 0x5a_7939),
    device(Refusal::PdBusy, opcode::DEALLOC_PD, 0xef_0c8a),
    device(Refusal::PdKeys, opcode::DEALLOC_PD, 0x31_b635),
    // A program made queue pairs until this.
    OfDevices {
        refusal: Refusal::Exhausted,
        opcode: Some(opcode::CREATE_QP),
        status: Some(Status::LimitExceeded),
        syndrome: 0x65_b500,
    },
    device(Refusal::MkeyEmpty, opcode::CREATE_MKEY, 0x03_bf6f),
    device(Refusal::CountersOfUser, opcode::ALLOC_Q_COUNTER, 0x89_75f1),
    device(Refusal::CqBusy, opcode::DESTROY_CQ, 0x18_70ad),
    device(Refusal::QpPages, opcode::CREATE_QP, 0x2f_50ca),
    OfDevices {
        refusal: Refusal::NoQp,
        opcode: Some(opcode::QP_2RST),
        status: Some(Status::BadResourceState),
        syndrome: 0x7e_a02d,
    },
    device(Refusal::QpPrimaryPath, opcode::RTS2RTS_QP, 0x49_8c8b),
    device(Refusal::WorkQueueTimestamp, opcode::CREATE_SQ, 0xd6_1c0b),
    device(Refusal::WorkQueueTimestamp, opcode::CREATE_RQ, 0x43_d98f),
    device(Refusal::FlowCriteriaEmpty, opcode::CREATE_FLOW_GROUP, 0x7e_1580),
    device(Refusal::FlowInnerUnset, opcode::CREATE_FLOW_GROUP, 0x17_faa8),
    device(Refusal::FlowAction, opcode::SET_FLOW_TABLE_ENTRY, 0x14_4b7a),
    device(Refusal::FlowValue, opcode::SET_FLOW_TABLE_ENTRY, 0x3a_d328),
    device(Refusal::FlowTwice, opcode::SET_FLOW_TABLE_ENTRY, 0x0d_5ef2),
];

refusals! {
    InputLength = 0x5c_0001, BadInputLength, "the command is shorter than its opcode and page list ask for";
    OutputLength = 0x5c_0002, BadOutputLength, "the reply does not fit the buffer given for it";
    Opcode = 0x5c_0003, BadOperation, "the model does not know this opcode";
    OpModifier = 0x5c_0004, BadParameter, "the opcode has no such op_mod";
    User = 0x5c_0005, BadParameter, "uid names no user context";
    Owner = 0x5c_0006, BadResource, "the object belongs to another user context";
    OtherFunction = 0x5c_0007, BadParameter, "the card has no other functions or virtual ports";
    Capability = 0x5c_0008, BadParameter, "there is no such group of capabilities";
    Port = 0x5c_0009, BadParameter, "the card has no port of that number";
    GidIndex = 0x5c_000a, BadIndex, "the GID table has no such index";
    PkeyIndex = 0x5c_000b, BadIndex, "the P_Key table has no such index";
    NotRoce = 0x5c_000c, BadOperation, "the port is not an Ethernet port";
    RoceVersion = 0x5c_000d, BadParameter, "a GID entry must be RoCE v1, RoCEv2 over IPv4 or IPv6, or empty";
    Exhausted = 0x5c_000e, NoResources, "every number of this kind of object is in use";
    UserBusy = 0x5c_000f, ResourceBusy, "the user context still owns objects";
    UserFromUser = 0x5c_0010, BadParameter, "only the driver itself makes and frees user contexts";
    VportList = 0x5c_0011, BadParameter, "a virtual port has lists of unicast, multicast and VLAN addresses";
    SystemState = 0x5c_0012, BadSystemState, "the HCA is not in a state in which it accepts the command";
    ForDriver = 0x5c_0013, BadParameter, "only the driver itself controls the function";
    NotInfiniBand = 0x5c_0014, BadOperation, "the port is not an InfiniBand port";
    VportField = 0x5c_0015, BadParameter, "a selected field of the virtual port cannot be set";
    VportMtu = 0x5c_0016, BadParameter, "mtu is above that of the port";
    VportListLength = 0x5c_0017, BadSize, "a list of the virtual port has at most 128 entries";
    CongestionProtocol = 0x5c_0018, BadParameter, "congestion is answered by protocols 1 and 2, for priorities 0 to 7";
    L2Index = 0x5c_0019, BadIndex, "table_index is above the capability";
    NoL2Entry = 0x5c_001a, BadResource, "the table of Ethernet addresses has no such entry";
    NoRoom = 0x5c_001b, NoResources, "the card has no memory left for the lists of pages and keys";
    Disabled = 0x5c_001c, BadResourceState, "the HCA is not enabled";
    RoceVlan = 0x5c_001d, BadParameter, "vlan_id is 4095, and no VLAN has this number";

    NoUar = 0x5c_0101, BadResource, "there is no such UAR page";
    UarBusy = 0x5c_0102, BadResourceState, "queues still have their doorbells on the UAR page";
    NoPd = 0x5c_0103, BadResource, "there is no such protection domain";
    PdBusy = 0x5c_0104, BadResourceState, "queues or PSVs still belong to the protection domain";
    NoXrcd = 0x5c_0105, BadResource, "there is no such XRC domain";
    NoTransportDomain = 0x5c_0106, BadResource, "there is no such transport domain";
    XrcdBusy = 0x5c_0107, BadResourceState, "queue pairs or shared receive queues still belong to the XRC domain";
    TransportDomainBusy = 0x5c_0108, BadResourceState, "a TIS or TIR still belongs to the transport domain";
    PdKeys = 0x5c_0109, BadResourceState, "memory keys still belong to the protection domain";

    PageOffset = 0x5c_0201, BadParameter, "page_offset leads out of the first page or breaks the entries' alignment";
    PageAddress = 0x5c_0202, BadParameter, "a page address is not a multiple of the page size";
    Umem = 0x5c_0203, BadParameter, "buffers and doorbell records by umem are not offered for this kind of object";
    Record = 0x5c_0204, BadParameter, "a doorbell record lies on a multiple of eight bytes";
    NoUmem = 0x5c_0205, BadResource, "there is no such umem";
    UmemBusy = 0x5c_0206, BadResourceState, "queues or keys still stand on the umem";
    UmemRange = 0x5c_0207, BadParameter, "a buffer or doorbell record does not lie inside the umem";
    UmemShape = 0x5c_0208, BadParameter, "a umem has pages of up to 1 GiB, at least one, starts in the first, and no ATS";
    UmemOfDriver = 0x5c_0209, BadParameter, "umems belong to user contexts";

    MkeyAccessMode = 0x5c_0301, BadParameter, "the key's access mode is not offered";
    MkeyPageAccess = 0x5c_0302, BadParameter, "page access rights per page are not offered";
    MkeyPageSize = 0x5c_0303, BadParameter, "log_page_size must be 12 or more";
    MkeyLength = 0x5c_0304, BadSize, "a region has at least one byte, ends below 2^64 and within 2^47";
    MkeyTranslation = 0x5c_0305, BadSize, "the translation entries are fewer than the region needs, or not as many as the command says";
    MkeyQp = 0x5c_0306, BadParameter, "keys bound to one queue pair are not offered";
    MkeySignature = 0x5c_0307, BadParameter, "signature and BSF are not offered";
    NoMkey = 0x5c_0308, BadResource, "there is no such memory key";
    MkeyPhysicalUser = 0x5c_0309, BadParameter, "only the driver itself makes keys over bus addresses";
    MkeyIndex = 0x5c_030a, BadIndex, "input_mkey_index is taken, or no index a key can have";
    MkeyMemic = 0x5c_030b, BadParameter, "a key over device memory lies outside of what was allocated";
    MkeyUmem = 0x5c_030c, BadParameter, "only keys with an MTT lie in umems, and start as far into a page as their bytes there do";
    MkeyEntity = 0x5c_030d, BadSize, "each key in a list of equal pieces stands for 4 KiB to 2 GiB";
    MkeyEmpty = 0x5c_030e, BadParameter, "the key has no translation entries";

    EqSize = 0x5c_0401, BadSize, "log_eq_size is above the capability";
    NoEq = 0x5c_0402, BadResource, "there is no such event queue";
    EqBusy = 0x5c_0403, BadResourceState, "completion queues still report to the event queue";
    EqEvents = 0x5c_0404, BadParameter, "another event queue has one of these events already";

    CqSize = 0x5c_0501, BadSize, "log_cq_size is above the capability";
    CqeSize = 0x5c_0502, BadParameter, "a CQE has 64 or 128 bytes";
    CqCompression = 0x5c_0503, BadParameter, "this way of CQE compression is not offered";
    NoCq = 0x5c_0504, BadResource, "there is no such completion queue";
    CqBusy = 0x5c_0505, BadResourceState, "queue pairs still complete to the completion queue";
    CqModify = 0x5c_0506, BadParameter, "a field that is to be modified cannot be";
    CqResize = 0x5c_0507, BadSize, "the CQEs not yet taken do not fit the new size";
    CqFailed = 0x5c_0508, BadResourceState, "the completion queue has failed";
    CqKind = 0x5c_0509, BadParameter, "APU completion queues are not offered";
    CqLayout = 0x5c_050a, BadParameter, "a completion queue that is collapsed, or of the enhanced layout, keeps its ring";

    QpService = 0x5c_0601, BadParameter, "the transport service is not offered";
    QpMigration = 0x5c_0602, BadParameter, "pm_state has no such value";
    QpReceiveType = 0x5c_0603, BadParameter, "receive queues of this type are not offered";
    QpReceiveStride = 0x5c_0604, BadSize, "a receive WQE is longer than the capability";
    QpSignature = 0x5c_0605, BadParameter, "WQE signatures are not offered";
    QpScatter = 0x5c_0606, BadParameter, "cs_req or cs_res has no such value, or does not fit the CQE size";
    QpTimestamp = 0x5c_0607, BadParameter, "ts_format is neither free running, the default, nor an offered real time";
    QpNumber = 0x5c_0608, BadParameter, "the number of a new queue pair cannot be chosen";
    NoQp = 0x5c_0609, BadResource, "there is no such queue pair";
    QpState = 0x5c_060a, BadQpState, "the transition does not start from this state";
    QpOptional = 0x5c_060b, BadParameter, "opt_param_mask has a parameter that the transition does not take";
    QpMtu = 0x5c_060c, BadParameter, "mtu is none of 256 to 4096 bytes";
    QpMessage = 0x5c_060d, BadParameter, "log_msg_max is above the capability";
    QpReadDepth = 0x5c_060e, BadParameter, "log_rra_max or log_sra_max is above the capability";
    QpAtomicMode = 0x5c_060f, BadParameter, "atomic_mode must be 1 to 5 (at most 32 bytes) where rae is set";
    QpPadding = 0x5c_0611, BadParameter, "padding of received packets is not offered";
    QpStreams = 0x5c_0618, BadSize, "log_num_dci_stream_channels or log_num_dci_errored_streams is above the capability";
    QpStream = 0x5c_0619, BadParameter, "the stream of the initiator has not failed, or it has no streams";
    QpRecordless = 0x5c_061c, BadParameter, "send_dbr_mode is offered for send queues whose doorbells software rings, up to the capability's size";
    QpOfDriver = 0x5c_061d, BadParameter, "queue pairs 0 and 1, queues for UMR alone, and other numbers in datagrams are for the driver alone";
    QpSpecial = 0x5c_061e, ResourceBusy, "the port has its queue pair 0 or 1 already";
    QpPathMtu = 0x5c_061f, BadParameter, "mtu is above that of the port";
    QpPrimaryPath = 0x5c_0620, BadParameter, "the primary path of a queue pair that sends cannot be changed";
    QpPages = 0x5c_0621, BadParameter, "the page list is shorter than the queues' sizes ask for";

    NoSrq = 0x5c_0701, BadResource, "there is no such shared receive queue, or it is of another kind";
    SrqBusy = 0x5c_0702, BadResourceState, "queue pairs still take from the shared receive queue";
    SrqType = 0x5c_0703, BadParameter, "shared receive queues are linked lists or rings of whole WQEs, each with the segment that names the next";
    SrqSize = 0x5c_0704, BadSize, "the shared receive queue has more WQEs than the capability";
    SrqStride = 0x5c_0705, BadSize, "a shared receive queue's WQE has 32 bytes at least, and no more than the capability";
    SrqState = 0x5c_0706, BadParameter, "the state given is none that the shared receive queue can be put in";
    SrqModify = 0x5c_0707, BadParameter, "a field that is to be modified cannot be";
    SrqOfUser = 0x5c_0708, BadParameter, "a shared receive queue whose context cannot name a umem is made by the driver alone";

    MemicSize = 0x5c_0801, BadSize, "device memory is allocated in multiples of 64 bytes";
    MemicRange = 0x5c_0802, BadParameter, "the range does not lie in the window of device memory";
    MemicAlignment = 0x5c_0803, BadParameter, "log_memic_addr_alignment is above the capability";
    MemicExhausted = 0x5c_0804, NoResources, "there is no room in that range, or no device memory left";
    NoMemic = 0x5c_0805, BadResource, "no device memory of this length starts there";
    MemicBusy = 0x5c_0806, ResourceBusy, "keys over the device memory are left";

    NoDct = 0x5c_0901, BadResource, "there is no such target of dynamic connections";
    DctState = 0x5c_0902, BadParameter, "a new target of dynamic connections is active";
    DctScatter = 0x5c_0903, BadParameter, "cs_res is 0, or stands for 64 bytes in a CQE of 128";
    DctDrained = 0x5c_0904, BadResourceState, "the target of dynamic connections is not active any more";

    GroupGid = 0x5c_0a01, BadParameter, "the GID is not that of a multicast group";
    GroupMember = 0x5c_0a02, BadResourceState, "the queue pair is attached to the multicast group already";
    NotGroupMember = 0x5c_0a03, BadParameter, "the queue pair is not attached to the multicast group";
    GroupsFull = 0x5c_0a04, LimitExceeded, "the group has as many queue pairs as it can, or there are as many groups as can be";
    QpAttached = 0x5c_0a05, ResourceBusy, "the queue pair is attached to a multicast group";

    NoCounters = 0x5c_0d01, BadResource, "there is no such set of counters";
    CountersBusy = 0x5c_0d02, BadResourceState, "queues are still counted in the set";
    NoPsv = 0x5c_0d03, BadResource, "there is no such PSV";
    PsvCount = 0x5c_0d04, BadParameter, "one to four PSVs are made at once";
    CountersOfUser = 0x5c_0d05, BadParameter, "only the driver itself gets sets of counters";

    NoSq = 0x5c_0e01, BadResource, "there is no such send queue";
    NoRq = 0x5c_0e02, BadResource, "there is no such receive queue";
    RqBusy = 0x5c_0e03, BadResourceState, "a TIR or a table still leads to the receive queue";
    WorkQueueState = 0x5c_0e04, BadParameter, "the state given is not the queue's, or the queue cannot be put in the other";
    WorkQueueFeature = 0x5c_0e05, BadParameter, "hairpins, own parsing, large receives and the like are not offered";
    WorkQueueType = 0x5c_0e06, BadParameter, "queues of Ethernet are cyclic, of whole WQEs or of strides";
    WorkQueueSize = 0x5c_0e07, BadSize, "the queue's WQEs are more or larger than the capability";
    NoTis = 0x5c_0e08, BadResource, "there is no such TIS, or not exactly one";
    TisBusy = 0x5c_0e09, BadResourceState, "send queues still send by the TIS";
    NoTir = 0x5c_0e0a, BadResource, "there is no such TIR";
    TirBusy = 0x5c_0e0b, BadResourceState, "flows still lead to the TIR";
    TirType = 0x5c_0e0c, BadParameter, "a TIR leads to one queue, or to those of a table by Toeplitz's hash";
    NoRqt = 0x5c_0e0d, BadResource, "there is no such table of receive queues";
    RqtBusy = 0x5c_0e0e, BadResourceState, "a TIR still leads to the table of receive queues";
    RqtSize = 0x5c_0e0f, BadSize, "a table has a power of two of receive queues, within what it says and the capability";
    EthernetModify = 0x5c_0e10, BadParameter, "a field that is to be modified cannot be";
    WorkQueueTimestamp = 0x5c_0e11, BadParameter, "ts_format is neither free running, the default, nor an offered real time";
    NoRate = 0x5c_0e12, BadResource, "the table of rates has no such entry";
    RateIndex = 0x5c_0e13, BadIndex, "the table of rates has the entries 1 to 127";
    RateRange = 0x5c_0e14, BadParameter, "the rate is beyond the capability";

    NoFlowTable = 0x5c_0f01, BadResource, "there is no such flow table";
    FlowTableType = 0x5c_0f02, BadParameter, "the flow table's type is not offered, or not the one given";
    FlowTableSize = 0x5c_0f03, BadSize, "the flow table is larger or of a greater level than the capability";
    FlowTableLevel = 0x5c_0f04, BadParameter, "packets go to tables of greater levels only";
    FlowTableBusy = 0x5c_0f05, BadResourceState, "the flow table has groups, or others lead to it";
    FlowCriteria = 0x5c_0f06, BadParameter, "matching on other than the outer headers and registers of metadata is not offered";
    FlowRange = 0x5c_0f07, BadIndex, "the index lies outside the table or group, or is taken, or is free where it should be taken";
    NoFlowGroup = 0x5c_0f08, BadResource, "there is no such flow group";
    FlowGroupBusy = 0x5c_0f09, BadResourceState, "the flow group has entries";
    FlowAction = 0x5c_0f0a, BadParameter, "flows are either forwarded or dropped, or allowed where they are sent; second tags come with first ones, and sniffers change nothing";
    FlowDestination = 0x5c_0f0b, BadParameter, "flows lead to TIRs and tables, those of sent packets to tables alone";
    NoFlowCounter = 0x5c_0f0c, BadResource, "there is no such counter of flows";
    FlowCounterBusy = 0x5c_0f0d, BadResourceState, "flows are still counted by the counter";
    FlowCounterBulk = 0x5c_0f0e, BadParameter, "counters of flows are made one by one or as a bulk of 512, freed by the number of the first, and up to 1024 are shown in the reply";
    FlowCounterList = 0x5c_0f0f, BadSize, "a flow that is counted names one to four counters";
    FlowDestinations = 0x5c_0f10, BadSize, "a flow that is forwarded leads to one to 256 destinations, where it is sent to one";
    FlowCriteriaEmpty = 0x5c_0f11, BadParameter, "match_criteria_enable has the bit of outer headers, and no field of these is matched";
    FlowInnerUnset = 0x5c_0f12, BadParameter, "inner headers are matched, and match_criteria_enable does not have their bit";
    FlowOuterUnset = 0x5c_0f13, BadParameter, "outer headers are matched, and match_criteria_enable does not have their bit";
    FlowValue = 0x5c_0f14, BadParameter, "match_value has bits that the group does not match";
    FlowTwice = 0x5c_0f15, BadParameter, "the group has an entry with this value already";

    FlowTunnel = 0x5c_0f16, BadParameter, "the flow table was not made for this action on tunnels, or has sent packets, which leave none";
    NoModifyHeader = 0x5c_0f17, BadResource, "there is no such context of changed headers";
    ModifyHeaderBusy = 0x5c_0f18, BadResourceState, "flows still name the context of changed headers";
    ModifyHeaderActions = 0x5c_0f19, BadSize, "a context of changed headers has one to 16 actions";
    ModifyHeaderType = 0x5c_0f1a, BadParameter, "header fields are set, added to or copied";
    ModifyHeaderField = 0x5c_0f1b, BadParameter, "there is no such header field, or it cannot be changed";
    ModifyHeaderRange = 0x5c_0f1c, BadParameter, "offset and length lead out of the header field";
    NoReformat = 0x5c_0f1d, BadResource, "there is no such context of reformatting";
    ReformatBusy = 0x5c_0f1e, BadResourceState, "flows still name the context of reformatting";
    ReformatType = 0x5c_0f1f, BadParameter, "there is no such type of reformatting";
    ReformatSize = 0x5c_0f20, BadSize, "reformat_data_size does not suit the type: at most 128 bytes, and Ethernet headers are whole";
    ReformatAnchor = 0x5c_0f21, BadParameter, "bytes are put in and taken off up to 127 bytes from the start of the frame";

    Issi = 0x5c_1001, BadParameter, "the function offers version 1 of the command interface alone";
    IssiUnset = 0x5c_1002, BadSystemState, "the driver has not set the version of the command interface";
    PagesMissing = 0x5c_1003, BadSystemState, "the driver has not given the pages that the function asks for";
    PagesUnasked = 0x5c_1004, LimitExceeded, "the driver gives more pages than the function asks for";
    PagesTwice = 0x5c_1005, BadParameter, "the driver gives a page that the function has already";
    TeardownProfile = 0x5c_1006, BadParameter, "the HCA is torn down gracefully; nothing else is offered";
    CapabilityFixed = 0x5c_1007, BadParameter, "the driver cannot set this group of capabilities";
    CapabilityMaximum = 0x5c_1008, BadParameter, "a capability is set above its maximum";
    NoRegister = 0x5c_1009, BadParameter, "there is no such access register";
    RegisterValue = 0x5c_100a, BadParameter, "the access register cannot have this value, or has no such group";
}

#[cfg(test)]
mod tests;
