//! Decoded WQEs.

/// How a request is ordered after those before it (`fm_ce_se` bits 7:5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// No more than the queue's own order.
    None,
    /// Waits for local invalidations and UMRs before it.
    Small,
    /// Waits until every READ and atomic before it has its answer.
    Full,
    /// Strong ordering: waits until every request before it is complete.
    Strong,
}

/// When a request that succeeded writes a CQE (`fm_ce_se` bits 3:2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Only if it failed.
    OnError,
    /// Always.
    Always,
}

/// The address vector of a datagram or a request to a target, as its segment says it. What it means depends on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Q_Key, of a datagram.
    pub q_key: u32,
    /// Key of the target, of a dynamic connection: it begins where the Q_Key is.
    pub access_key: u64,
    /// Stream of the initiator, of a dynamic connection: the control segment has it.
    pub stream: u16,
    /// Destination queue pair or target, 24 bits.
    pub destination: u32,
    /// Static rate in bits 7:4, service level in 3:0 (Ethernet: priority in 3:1).
    pub rate_level: u8,
    /// Destination LID; Ethernet: UDP source port.
    pub lid: u16,
    /// What an extended address vector adds.
    pub extended: Option<Extended>,
}

/// The part of an address vector that is not in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Ethernet: destination address.
    pub mac: [u8; 6],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// InfiniBand: whether there is a GRH, which the rest is of.
    pub global: bool,
    /// Index of the source in the GID table.
    pub source_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Destination GID.
    pub gid: [u8; 16],
}

/// The remote address segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Virtual address at the peer.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
}

/// The atomic segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// What to swap in, or to add.
    pub swap_or_add: u64,
    /// What to compare with.
    pub compare: u64,
}

/// A piece of local memory, or the bytes themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Memory behind a local key.
    Pointer {
        /// Bytes; 2 GiB where the segment said 0.
        length: u32,
        /// Local key.
        key: u32,
        /// Virtual address.
        address: u64,
    },
    /// Inline payload.
    Inline(Vec<u8>),
}

impl Data {
    /// Bytes described.
    pub fn len(&self) -> u64 {
        match self {
            Self::Pointer { length, .. } => u64::from(*length),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it describes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Counter (not masked) of its first block: what its CQE names.
    pub index: u16,
    /// Blocks of 64 bytes it takes.
    pub blocks: u16,
    /// Opcode (`MLX5_OPCODE_*`).
    pub opcode: u8,
    /// Opcode modifier.
    pub modifier: u8,
    /// Order.
    pub fence: Fence,
    /// Completion.
    pub signal: Signal,
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
    /// Immediate data, or key to invalidate, as it goes on the wire.
    pub immediate: [u8; 4],
    /// Where it goes, for datagrams and dynamic connections.
    pub address: Option<Address>,
    /// Number of the peer's SRQ, for extended reliable connections.
    pub xrc_srq: Option<u32>,
    /// Remote address, for the operations that have one.
    pub remote: Option<Remote>,
    /// Atomic operands.
    pub atomic: Option<Atomic>,
    /// Operands of an atomic under masks.
    pub masked: Option<Box<super::Masked>>,
    /// What the card does by itself.
    pub local: Option<Box<super::Local>>,
    /// What only frames of Ethernet have.
    pub ethernet: Option<Box<super::EthernetSegment>>,
    /// How a memory key is to be changed.
    pub umr: Option<Box<super::Umr>>,
    /// Local memory to gather from or scatter to.
    pub data: Vec<Data>,
}

impl SendWqe {
    /// A request of which no more is known than where it lies and its opcode.
    pub fn bare(index: u16, opcode: u8, signal: Signal) -> Self {
        Self {
            index,
            blocks: 1,
            opcode,
            modifier: 0,
            fence: Fence::None,
            signal,
            solicited: false,
            immediate: [0; 4],
            address: None,
            remote: None,
            atomic: None,
            masked: None,
            local: None,
            ethernet: None,
            umr: None,
            xrc_srq: None,
            data: Vec::new(),
        }
    }

    /// Bytes of payload.
    pub fn length(&self) -> u64 {
        self.data.iter().map(Data::len).sum()
    }
}

/// What the keys of an access are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The protection domain.
    pub pd: u32,
    /// The queue pair, for keys that are bound to one.
    pub qp: u32,
}

/// A receive request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveWqe {
    /// What its CQE names: counter (not masked), or in an SRQ its index.
    pub index: u16,
    /// What the keys of that memory are checked against: of the SRQ, where it came from one.
    pub domain: Domain,
    /// The XRC SRQ it came from, which is where its completion goes.
    pub xrc_srq: Option<u32>,
    /// Memory to scatter to.
    pub data: Vec<Data>,
}

impl ReceiveWqe {
    /// What its completion names.
    pub fn taken(&self) -> Taken {
        Taken { index: self.index, xrc_srq: self.xrc_srq }
    }
}

/// Which receive was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// As [`ReceiveWqe::index`].
    pub index: u16,
    /// As [`ReceiveWqe::xrc_srq`].
    pub xrc_srq: Option<u32>,
}
