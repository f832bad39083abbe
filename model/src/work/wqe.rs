//! Decoded WQEs.

use super::Syndrome;

/// The order of a request after those before it (`fm_ce_se` bits 7:5).
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

/// The condition for writing a CQE after success (`fm_ce_se` bits 3:2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// No CQE after success, only after an error.
    OnError,
    /// Always.
    Always,
}

/// The address vector of a datagram or of a request to a DCT, as its segment encodes it. Its
/// meaning depends on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Q_Key, of a datagram.
    pub q_key: u32,
    /// Key of the target (DCT), of a dynamic connection: its field overlaps the Q_Key.
    pub access_key: u64,
    /// Stream of the initiator, of a dynamic connection, from the control segment.
    pub stream: u16,
    /// Destination queue pair or target, 24 bits.
    pub destination: u32,
    /// Static rate in bits 7:4, service level in 3:0 (Ethernet: priority in 3:1).
    pub rate_level: u8,
    /// Destination LID; Ethernet: UDP source port.
    pub lid: u16,
    /// The fields of an extended address vector.
    pub extended: Option<Extended>,
}

/// The part of an address vector that only extended ones have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Ethernet: destination address.
    pub mac: [u8; 6],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// InfiniBand: whether there is a GRH. The fields below belong to it.
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
    /// The value to swap in or to add.
    pub swap_or_add: u64,
    /// The value to compare with.
    pub compare: u64,
}

/// A range of local memory, or inline bytes.
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
    /// Returns the number of bytes described.
    pub fn len(&self) -> u64 {
        match self {
            Self::Pointer { length, .. } => u64::from(*length),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Returns whether it describes no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Counter (not masked) of its first block, which its CQE reports.
    pub index: u16,
    /// Blocks of 64 bytes it takes.
    pub blocks: u16,
    /// Opcode (`MLX5_OPCODE_*`).
    pub opcode: u8,
    /// Opcode modifier.
    pub modifier: u8,
    /// Order after earlier requests.
    pub fence: Fence,
    /// Condition for a CQE.
    pub signal: Signal,
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
    /// Immediate data, or key to invalidate, as it goes on the wire.
    pub immediate: [u8; 4],
    /// Destination, for datagrams and dynamic connections.
    pub address: Option<Address>,
    /// Number of the peer's SRQ, for extended reliable connections.
    pub xrc_srq: Option<u32>,
    /// Remote address, for the operations that have one.
    pub remote: Option<Remote>,
    /// Atomic operands.
    pub atomic: Option<Atomic>,
    /// Operands of a masked atomic.
    pub masked: Option<Box<super::Masked>>,
    /// Operation that the device executes without a peer.
    pub local: Option<Box<super::Local>>,
    /// Ethernet segment, of an Ethernet queue.
    pub ethernet: Option<Box<super::EthernetSegment>>,
    /// Change of a memory key.
    pub umr: Option<Box<super::Umr>>,
    /// Local memory to gather from or scatter to.
    pub data: Vec<Data>,
}

/// A send WQE that failed in execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedWqe {
    /// Its counter.
    pub index: u16,
    /// Its opcode.
    pub opcode: u8,
    /// What its CQE reports.
    pub syndrome: Syndrome,
}

impl SendWqe {
    /// Returns it as one that failed.
    pub fn failed(&self, syndrome: Syndrome) -> FailedWqe {
        FailedWqe { index: self.index, opcode: self.opcode, syndrome }
    }

    /// Returns a request with its position and opcode only.
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

    /// Returns the number of payload bytes.
    pub fn length(&self) -> u64 {
        self.data.iter().map(Data::len).sum()
    }
}

/// The protection domain and queue pair that an access's keys are checked against.
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
    /// Index that its CQE reports: counter (not masked), or the SRQ's WQE index.
    pub index: u16,
    /// PD and queue pair for checking the keys of that memory. For a WQE of an SRQ, the SRQ's.
    pub domain: Domain,
    /// The XRC SRQ that the WQE came from, which gets its completion.
    pub xrc_srq: Option<u32>,
    /// Memory to scatter to.
    pub data: Vec<Data>,
}

impl ReceiveWqe {
    /// Returns the identification that its completion reports.
    pub fn taken(&self) -> Taken {
        Taken { index: self.index, xrc_srq: self.xrc_srq }
    }
}

/// The identification of a taken receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The index that the CQE reports: [`ReceiveWqe::index`].
    pub index: u16,
    /// The XRC SRQ that the WQE came from: [`ReceiveWqe::xrc_srq`].
    pub xrc_srq: Option<u32>,
}
