//! Findings: a defect and its place.

use core::fmt;

use mlx5_sys::wqe::opcode;

use super::{Defect, Severity};

/// Which part of a queue a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The ctrl segment.
    Ctrl,
    /// The address vector of a datagram or of a request to a target.
    Address,
    /// The number of an XRC message's shared receive queue.
    Xrc,
    /// The Ethernet segment, with the headers in it.
    Ethernet,
    /// The remote address.
    Remote,
    /// Operands of an atomic.
    Atomic,
    /// A data segment.
    Data,
    /// Inline data.
    Inline,
    /// The UMR control segment.
    UmrControl,
    /// The context of a key.
    Mkey,
    /// The translation of a key, and its signature or encryption.
    Translation,
    /// A protection signature value.
    Psv,
    /// A change of a list of tags.
    TagMatching,
    /// A copy by the HCA.
    Copy,
    /// The queue that a WQE waits for or releases.
    Queue,
    /// The WQE as a whole.
    Whole,
    /// The doorbell record.
    Record,
    /// The value that was stored to the doorbell register.
    Register,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Segment::Ctrl => "ctrl segment",
            Segment::Address => "address vector",
            Segment::Xrc => "XRC segment",
            Segment::Ethernet => "Ethernet segment",
            Segment::Remote => "remote address segment",
            Segment::Atomic => "atomic segment",
            Segment::Data => "data segment",
            Segment::Inline => "inline data",
            Segment::UmrControl => "UMR control segment",
            Segment::Mkey => "mkey context segment",
            Segment::Translation => "translation",
            Segment::Psv => "PSV segment",
            Segment::TagMatching => "tag matching segment",
            Segment::Copy => "copy segment",
            Segment::Queue => "wait/enable segment",
            Segment::Whole => "WQE",
            Segment::Record => "doorbell record",
            Segment::Register => "doorbell register",
        })
    }
}

/// Something that is wrong, and where. `Display` says it whole, cure included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Counter of the WQE's first block modulo 2^16, by its place in the queue: what its ctrl
    /// segment should say.
    pub wqe: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Which part.
    pub segment: Segment,
    /// Byte of the WQE that is wrong, from its start.
    pub offset: u16,
    /// The defect.
    pub defect: Defect,
}

impl Finding {
    /// Returns how bad it is.
    pub fn severity(&self) -> Severity {
        self.defect.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { wqe, opcode: code, segment, offset, defect } = self;
        write!(f, "{} {}: WQE {wqe:#06x}", self.severity(), defect.name())?;
        if !matches!(segment, Segment::Record | Segment::Register) {
            match opcode::name(*code) {
                Some(name) => write!(f, " ({name})")?,
                None => write!(f, " (opcode {code:#04x})")?,
            }
        }
        write!(f, ", {segment}")?;
        if !matches!(segment, Segment::Whole | Segment::Record | Segment::Register) {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {defect}; {}", defect.cure())
    }
}
