//! UCX: error completions and the WQEs they name, and failed commands.
//!
//! `uct/ib/mlx5/ib_mlx5_log.c`, `uct_ib_mlx5_completion_with_err`: two lines, or one before 1.6.
//! `uct/ib/rc/verbs/rc_verbs_iface.c`. For commands, `uct/ib/mlx5/dv/ib_mlx5_dv.c`.

use mlx5_sys::ifc::opcode::RST2INIT_QP;

use crate::explain::call::{self, CallKind};
use crate::explain::causes::{Fabric, Program};
use crate::explain::{ExplainedCode, Status};
use crate::text::QueueKind;

use super::super::command::Failed;
use super::super::completion::Said;
use super::super::record::{DecodedRecord, Key, RecordKind};
use super::super::{lines::Lines, scan, words};
use super::{Format, Reading};

/// The format of UCX's messages.
pub(super) const FORMAT: Format = Format {
    name: "UCX",
    reads: "UCX: \"… on mlx5_0:1/IB (synd 0x… vend 0x… hw_synd …)\" with \"RC QP 0x… wqe[…]: …\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("(synd 0x") {
        return mlx5(lines, at);
    }
    if line.contains("end completion with error") {
        return verbs(line, at);
    }
    if line.contains("] is flushed") {
        return flushed(line, at);
    }
    let rest = scan::after(line, "mlx5dv_devx_")?;
    let (called, rest) = rest.split_once(") failed")?;
    let (kind, object) = called.split_once('(')?;
    let (syndrome, error) = scan::hexadecimal(scan::after(rest, "syndrome ")?)?;
    // Moves are named by opcode, objects by name.
    let opcode = u64::from_str_radix(object, 16).ok().filter(|_| object.len() == 3);
    let failed = Failed {
        opcode,
        name: Some(format!("mlx5dv_devx_{called})")),
        syndrome: Some(syndrome),
        error: error.strip_prefix(": ").map(str::to_owned),
        ..Failed::default()
    };
    let mut record = failed.record();
    record.field_if("device", scan::between(rest, " on ", ","));
    // Without a syndrome, the errno is all that is known.
    if let (0, Some(errno)) = (syndrome, call::errno(error)) {
        let name = format!("mlx5dv_devx_{kind}");
        let is_to_init = opcode == Some(RST2INIT_QP.into());
        let kind = if is_to_init { CallKind::Init } else { CallKind::of(&name) };
        record.findings.push(ExplainedCode::call_of(kind, &name, Some(errno)));
    }
    Some(Reading::to(at, vec![record]))
}

/// The first line has the codes; the second, or the rest of the first, has the WQE.
fn mlx5(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let (before, codes) = line.split_once("(synd ")?;
    let (syndrome, rest) = scan::number(codes)?;
    let mut said = Said::of_syndrome(syndrome);
    said.program = Some(Program::Ucx);
    said.fabric = match before {
        before if before.contains("/RoCE") => Some(Fabric::Roce),
        before if before.contains("/IB") => Some(Fabric::InfiniBand),
        _ => None,
    };
    said.vendor = scan::number_after(rest, "vend ");
    said.hardware = scan::after(rest, "hw_synd ").and_then(|numbers| {
        let (part, rest) = scan::number(numbers)?;
        Some((part, scan::number(rest.strip_prefix('/')?)?.0))
    });
    // Older versions use one line: "Error on mlx5_3:1 QP 0xe6d7 wqe[7821]: … opcode SEND".
    let (last, about) = match (before.contains("wqe["), lines.get(at + 1).contains(" wqe[")) {
        (true, _) => (at, Some(line)),
        (false, true) => (at + 1, Some(lines.get(at + 1))),
        (false, false) => (at, None),
    };
    let work = about.and_then(Work::of);
    if let Some(work) = &work {
        said.queue = Some(work.queue);
        said.qpn = Some(work.qpn);
        said.wqe = Some(work.index);
        said.operation = match scan::after(rest, "opcode ") {
            Some(opcode) => opcode.split_ascii_whitespace().next().map(str::to_owned),
            None => work.operation.clone(),
        };
    }
    let mut record = said.record(RecordKind::Completion);
    let device = before.rsplit_once(" on ").map(|(_, device)| device);
    // "Error on QP 0x1590d wqe[…]" names no device.
    let device = device.and_then(|device| device.split_ascii_whitespace().next());
    record.field_if("device", device.filter(|device| *device != "QP"));
    let mut records = vec![record];
    records.extend(work.filter(|_| last > at).map(Work::record));
    Some(Reading::to(last, records))
}

/// "RC QP 0x169 wqe[3]: SEND s-- [va 0x7f1c3c800000 len 1 lkey 0xb5d2] [rqpn 0x169 dlid=12 …]".
struct Work {
    transport: Option<String>,
    queue: QueueKind,
    qpn: u32,
    index: u16,
    operation: Option<String>,
    flags: Option<String>,
    segments: Vec<String>,
}

impl Work {
    fn of(line: &str) -> Option<Work> {
        let (before, rest) = line.split_once(" QP ")?;
        let (qpn, rest) = scan::number(rest)?;
        let (index, rest) = scan::number(scan::after(rest, "wqe[")?)?;
        let rest = scan::after(rest, "]:")?.trim();
        let transport = before.split_ascii_whitespace().next_back();
        let transport =
            transport.filter(|name| name.bytes().all(|letter| letter.is_ascii_uppercase()));
        let (head, segments) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
        let mut head = head.split_ascii_whitespace();
        let received = transport == Some("SRQ");
        Some(Work {
            queue: if received { QueueKind::Receive } else { QueueKind::Send },
            transport: transport.map(str::to_owned),
            qpn: u32::try_from(qpn).ok()?,
            index: u16::try_from(index).ok()?,
            operation: head.next().filter(|_| !received).map(str::to_owned),
            flags: head.next().filter(|_| !received).map(str::to_owned),
            segments: segments
                .split(['[', ']'])
                .map(str::trim)
                .filter(|segment| !segment.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }

    fn record(self) -> DecodedRecord {
        let received = self.queue == QueueKind::Receive;
        let operation = self.operation.unwrap_or_else(|| "receive".to_owned());
        let kind = if received { RecordKind::ReceiveWqe } else { RecordKind::Wqe };
        let title = format!("{operation} WQE {:#06x} QP {:#x}", self.index, self.qpn);
        let mut record = DecodedRecord::new(kind, title);
        record.field_if("transport", self.transport);
        record.field("operation", operation);
        record.field("QP", format!("{:#x}", self.qpn));
        record.field("WQE", format!("{:#06x}", self.index));
        if let Some(flags) = self.flags {
            let names = [('s', "signaled"), ('f', "fenced"), ('e', "solicited")];
            let named =
                names.iter().filter(|(letter, _)| flags.contains(*letter)).map(|(_, name)| *name);
            let named: Vec<&str> = named.collect();
            let meaning = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
            record.field_meaning("flags", flags, meaning);
        }
        record.text = self.segments.iter().map(|segment| segment_text(segment)).collect();
        record.key = Key::Wqe { queue: self.queue, qpn: self.qpn, index: self.index };
        record
    }
}

/// Translates a segment that UCX printed into the text of other dumps.
fn segment_text(segment: &str) -> String {
    let number = |token: &str| scan::number_after(segment, token);
    if let Some(length) = segment.strip_prefix("inl len ") {
        return format!("inline: {length} bytes");
    }
    if let (Some(address), Some(key)) = (number("rva "), number(" rkey ")) {
        return format!("remote: {address:#x} rkey {key:#x}");
    }
    match (number("va "), number(" len "), number(" lkey ")) {
        (Some(address), Some(length), Some(key)) => {
            format!("data: {address:#x}, {length} bytes, lkey {key:#x}")
        }
        _ if segment.starts_with("rqpn ") => format!("to: QP {}", &segment["rqpn ".len()..]),
        _ => segment.to_owned(),
    }
}

/// "QP 0x169 wqe[3] is flushed", also by programs with UCX's code.
fn flushed(line: &str, at: usize) -> Option<Reading> {
    let (qpn, rest) = scan::number(scan::after(line, "QP ")?)?;
    let (index, _) = scan::number(scan::after(rest, "wqe[")?)?;
    let said = Said {
        status: Some(Status::Flushed),
        qpn: u32::try_from(qpn).ok(),
        wqe: u16::try_from(index).ok(),
        ..Said::default()
    };
    Some(Reading::to(at, vec![said.record(RecordKind::Completion)]))
}

/// UCX over verbs: "send completion with error: local protection error [qpn 0xf9db wrid
/// 0x149vendor_err 0x51]", and before 1.5 "Send completion with error on qp 0x6214: remote access
/// error syndrome 0x88".
fn verbs(line: &str, at: usize) -> Option<Reading> {
    let rest = scan::after(line, "end completion with error")?;
    let said = Said {
        status: Some(words::status(rest)?),
        vendor: ["vendor_err ", "syndrome "]
            .iter()
            .find_map(|token| scan::number_after(rest, token)),
        queue: Some(QueueKind::Send),
        qpn: ["qpn ", "qp "]
            .iter()
            .find_map(|token| scan::number_after(rest, token))
            .and_then(|number| u32::try_from(number).ok()),
        ..Said::default()
    };
    let mut record = said.record(RecordKind::Completion);
    record.field_if("wr_id", scan::number_after(rest, "wrid ").map(|id| format!("{id:#x}")));
    Some(Reading::to(at, vec![record]))
}
