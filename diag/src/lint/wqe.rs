//! One WQE: its ctrl segment, and which segments its operation has.

use mlx5_sys::wqe::{
    CE_ALWAYS, CE_MASK, CtrlSeg, DataSeg, FENCE_MASK, SEGMENT_SIZE, SOLICITED, WQEBB_SIZE, opcode,
};
use zerocopy::FromBytes;

use super::facts::Capabilities;
use super::{Defect, Facts, Finding, Segment, Transport, data, keys};

/// The contents of a ctrl segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ctrl {
    /// Its first eight bytes, as a number.
    pub(super) doorbell: u64,
    pub(super) opcode: u8,
    pub(super) modifier: u8,
    pub(super) index: u16,
    pub(super) qpn: u32,
    pub(super) ds: u32,
    /// Bits 7-6 beside the size.
    size_reserved: u8,
    signature: u8,
    stream: u16,
    flags: u8,
    pub(super) immediate: u32,
}

impl Ctrl {
    pub(super) fn read(bytes: [u8; SEGMENT_SIZE]) -> Ctrl {
        let ctrl: CtrlSeg = zerocopy::transmute!(bytes);
        let (first, second) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        Ctrl {
            doorbell: u64::from(first) << 32 | u64::from(second),
            opcode: first as u8,
            modifier: (first >> 24) as u8,
            index: (first >> 8) as u16,
            qpn: second >> 8,
            ds: second & 0x3f,
            size_reserved: second as u8 & 0xc0,
            signature: ctrl.signature,
            stream: ctrl.dci_stream_channel_id.get(),
            flags: ctrl.fm_ce_se,
            immediate: ctrl.imm.get(),
        }
    }

    /// Returns whether it asks for a CQE in any case.
    pub(super) fn is_signaled(&self) -> bool {
        // Both modes that do have this bit.
        self.flags & CE_MASK & CE_ALWAYS != 0
    }

    /// Returns the fence mode.
    pub(super) fn fence(&self) -> u8 {
        (self.flags & FENCE_MASK) >> 5
    }
}

/// A WQE whose size can be.
pub(super) struct Checked<'a> {
    pub(super) facts: &'a Facts,
    pub(super) ctrl: Ctrl,
    /// Its counter.
    pub(super) wqe: u16,
    /// Its bytes, no more than its size says.
    pub(super) bytes: &'a [u8],
    /// Bytes that it should have.
    pub(super) size: usize,
}

/// A place in a WQE, and where findings go.
pub(super) struct Reader<'a, 'r> {
    pub(super) facts: &'a Facts,
    pub(super) opcode: u8,
    pub(super) modifier: u8,
    wqe: u16,
    bytes: &'a [u8],
    at: usize,
    /// Blocks that begin with a data segment, a bit for each.
    listed: u16,
    report: &'r mut dyn FnMut(Finding),
    /// Gets each data segment that is right in itself, with its byte of the WQE.
    entry: &'r mut dyn FnMut(&DataSeg, usize),
}

impl<'a> Reader<'a, '_> {
    /// Byte of the WQE that comes next.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the rest of the WQE.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Goes on, so many bytes further, no further than the end.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.bytes.len());
    }

    /// A data segment begins at this byte of the WQE.
    pub(super) fn lists(&mut self, at: usize) {
        if at % WQEBB_SIZE == 0 {
            // A WQE has at most 16 blocks.
            self.listed |= 1u16.checked_shl((at / WQEBB_SIZE) as u32).unwrap_or(0);
        }
    }

    /// Reports a defect of the segment, or at a byte of the WQE within it.
    pub(super) fn report(&mut self, segment: Segment, offset: usize, defect: Defect) {
        let Reader { wqe, opcode, .. } = *self;
        (self.report)(Finding { wqe, opcode, segment, offset: offset as u16, defect });
    }

    /// Goes over a data segment that is right in itself, at a byte of the WQE.
    pub(super) fn entry(&mut self, data: &DataSeg, at: usize) {
        (self.entry)(data, at);
    }

    /// Whether so many bytes are left; says so if not, and then nothing is left.
    pub(super) fn needs(&mut self, segment: Segment, bytes: usize) -> bool {
        let left = self.rest().len();
        if left >= bytes {
            return true;
        }
        let defect = Defect::SegmentMissing { needed: bytes as u16, left: left as u16 };
        self.report(segment, self.at, defect);
        self.at = self.bytes.len();
        false
    }

    /// The next segment, and where it begins.
    pub(super) fn take<S: FromBytes>(&mut self, segment: Segment) -> Option<(S, usize)> {
        if !self.needs(segment, size_of::<S>()) {
            return None;
        }
        let at = self.at;
        let (read, _) = S::read_from_prefix(self.rest()).ok()?;
        self.at += size_of::<S>();
        Some((read, at))
    }

    /// Reports reserved bytes that are not zero: the first of them, as a number of up to four.
    pub(super) fn reserved(&mut self, segment: Segment, at: usize, bytes: &[u8]) {
        if let Some(first) = bytes.iter().position(|byte| *byte != 0) {
            let some = bytes[first..].iter().take(4);
            let found = some.fold(0, |word, byte| word << 8 | u32::from(*byte));
            self.report(segment, at + first, Defect::ReservedField { found });
        }
    }

    /// Checks bytes like [`reserved`](Self::reserved), for bytes that HCAs ignore.
    pub(super) fn unused(&mut self, segment: Segment, at: usize, bytes: &[u8]) {
        if let Some(first) = bytes.iter().position(|byte| *byte != 0).filter(|_| self.facts.strict)
        {
            let found = bytes[first];
            self.report(segment, at + first, Defect::StaleBytes { found });
        }
    }

    /// Reports what follows the last segment.
    pub(super) fn end(&mut self) {
        let left = self.rest().len();
        if left != 0 {
            self.report(Segment::Whole, self.at, Defect::Leftover { bytes: left as u16 });
        }
    }
}

/// Checks a WQE alone. Returns which of its blocks begin with a data segment, a bit for each.
pub(super) fn check(checked: Checked<'_>, report: &mut dyn FnMut(Finding)) -> u16 {
    check_with(checked, report, &mut |_, _| ())
}

/// Checks a WQE alone, and passes on its data segments, each with its byte of the WQE.
pub(super) fn check_with(
    checked: Checked<'_>,
    report: &mut dyn FnMut(Finding),
    entry: &mut dyn FnMut(&DataSeg, usize),
) -> u16 {
    let Checked { facts, ctrl, wqe, bytes, size } = checked;
    let mut reader = Reader {
        facts,
        opcode: ctrl.opcode,
        modifier: ctrl.modifier,
        wqe,
        bytes,
        at: SEGMENT_SIZE,
        listed: 0,
        report,
        entry,
    };
    check_ctrl(&mut reader, &ctrl);
    if bytes.len() < size {
        let (needed, left) = (size as u16, bytes.len() as u16);
        reader.report(Segment::Whole, bytes.len(), Defect::SegmentMissing { needed, left });
        return 0;
    }
    if facts.signatures {
        let sum = bytes.iter().fold(0, |sum, byte| sum ^ byte) ^ ctrl.signature;
        if ctrl.signature != !sum {
            let defect = Defect::Signature { expected: !sum, found: ctrl.signature };
            reader.report(Segment::Ctrl, 8, defect);
        }
    }
    let needed = Capabilities::needed(ctrl.opcode);
    let refused = if opcode::name(ctrl.opcode).is_none() {
        Some(Defect::UnknownOpcode { opcode: ctrl.opcode })
    } else if !facts.transport.executes(ctrl.opcode) {
        Some(Defect::NotOnTransport { transport: facts.transport })
    } else if !facts.capabilities.contains(needed) {
        Some(Defect::NotCapable {})
    } else {
        None
    };
    match refused {
        Some(defect) => reader.report(Segment::Ctrl, 3, defect),
        // What it ends before is reported.
        None => _ = body(&mut reader),
    }
    reader.listed
}

/// Checks the ctrl segment except opcode, index, number and size.
fn check_ctrl(reader: &mut Reader<'_, '_>, ctrl: &Ctrl) {
    let dci = reader.facts.transport == Transport::Dci;
    let at = Segment::Ctrl;
    if ctrl.size_reserved != 0 {
        reader.report(at, 7, Defect::ReservedCtrl { bits: ctrl.size_reserved });
    }
    if ctrl.flags & 0x11 != 0 {
        reader.report(at, 11, Defect::ReservedCtrl { bits: ctrl.flags & 0x11 });
    }
    if ctrl.fence() > 4 {
        reader.report(at, 11, Defect::ReservedFence { mode: ctrl.fence() });
    }
    if ctrl.stream != 0 && !dci {
        reader.report(at, 9, Defect::StreamUnused { stream: ctrl.stream });
    }
    // Of opcodes that are not known here nothing is known of these either.
    if opcode::name(ctrl.opcode).is_none() {
        return;
    }
    let modifier_known = match ctrl.opcode {
        opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => {
            matches!(ctrl.modifier, 0x08..=0x0b)
        }
        opcode::MMO => ctrl.modifier == opcode::OPMOD_MMO_DMA,
        opcode::SEND
        | opcode::SEND_IMM
        | opcode::SEND_INVAL
        | opcode::RDMA_WRITE
        | opcode::RDMA_WRITE_IMM
        | opcode::RDMA_READ
        | opcode::ATOMIC_CS
        | opcode::ATOMIC_FA
        | opcode::NOP
        | opcode::ENHANCED_MPSW
        | opcode::TAG_MATCHING => ctrl.modifier == 0,
        // WAIT, UMR, SET_PSV and others have modifiers in other drivers (DPDK `mlx5_prm.h`, Linux
        // `mlx5e`).
        _ => true,
    };
    if !modifier_known {
        reader.report(at, 0, Defect::UnknownModifier { modifier: ctrl.modifier });
    }
    let uses_immediate = matches!(
        ctrl.opcode,
        opcode::SEND_IMM
            | opcode::RDMA_WRITE_IMM
            | opcode::SEND_INVAL
            | opcode::UMR
            | opcode::LOCAL_INVAL
            | opcode::BIND_MW
            | opcode::FMR
            | opcode::CONFIG_CMD
            | opcode::FLOW_TBL_ACCESS
            | opcode::ACCESS_ASO
            | opcode::DUMP
            | opcode::NOP
    );
    // Frames of Ethernet have the number of a TIS or keys of TLS and flow steering there. libmlx5's
    // `ibv_wr_*` leave the word as it was.
    let ethernet = reader.facts.transport == Transport::RawPacket;
    if reader.facts.strict && ctrl.immediate != 0 && !uses_immediate && !ethernet {
        reader.report(at, 12, Defect::ImmediateUnused { imm: ctrl.immediate });
    }
    let completes_at_peer = matches!(
        ctrl.opcode,
        opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL | opcode::RDMA_WRITE_IMM
    );
    if ctrl.flags & SOLICITED != 0 && !completes_at_peer {
        reader.report(at, 11, Defect::SolicitedUnused {});
    }
}

/// The segments behind the ctrl segment. `None` if the WQE ends before they do.
fn body(reader: &mut Reader<'_, '_>) -> Option<()> {
    match reader.opcode {
        opcode::UMR => keys::umr(reader),
        opcode::SET_PSV => keys::psvs(reader),
        opcode::TAG_MATCHING => keys::tag_matching(reader),
        opcode::MMO if reader.modifier == opcode::OPMOD_MMO_DMA => keys::copy(reader),
        opcode::WAIT if reader.modifier == opcode::OPMOD_WAIT_TIME => keys::time(reader),
        opcode::WAIT | opcode::SEND_EN if reader.modifier == 0 => keys::queue(reader),
        opcode::DUMP => data::memory(reader),
        opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL | opcode::TSO => {
            data::destination(reader)?;
            data::payload(reader);
        }
        opcode::ENHANCED_MPSW => {
            data::destination(reader)?;
            data::packets(reader)?;
        }
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => {
            data::destination(reader)?;
            data::remote(reader, None)?;
            data::payload(reader);
        }
        opcode::RDMA_READ => {
            data::destination(reader)?;
            data::remote(reader, None)?;
            data::memory(reader);
        }
        opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
            data::destination(reader)?;
            data::remote(reader, Some(8))?;
            data::atomic(reader, SEGMENT_SIZE, 8);
        }
        opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => {
            let size = 4u32 << (reader.modifier & 7).min(3);
            let operands = if reader.opcode == opcode::ATOMIC_MASKED_CS { 4 } else { 2 };
            let bytes = (operands * size as usize).next_multiple_of(SEGMENT_SIZE);
            data::destination(reader)?;
            data::remote(reader, Some(size))?;
            data::atomic(reader, bytes, size);
        }
        // What follows the ctrl segment of a NOP is only room; of the others nothing is published
        // that would hold for every HCA.
        _ => {}
    }
    Some(())
}
