//! Turns events into lines, each joined with the events that caused it.

use std::collections::HashMap;

use mlx5::devx::ifc::{comp_event, cq_error, eqe, event_type, port_state_change_event, qp_events};
use mlx5::diag::flight;
use mlx5::diag::text::{Cqe, EventKind};
use mlx5_model::card::Link;
use mlx5_model::trace::{Call, Event, Observed, Queue, What};

use super::filter::Kind;
use super::line::{Line, Style};
use super::wqe::{Outstanding, Request};
use super::{command, packet, refused};
use crate::output::hex;

/// Registers of a UAR page (`mlx5dv.h`, `mlx5_ifc.h`, `device.h`).
const CQ_ARM: u16 = 0x20;
const EQ_ARM: u16 = 0x40;
const EQ_UPDATE: u16 = 0x48;
const RECORDLESS: u16 = 0x600;
const BLUEFLAME: u16 = 0x800;
const HALF: u16 = 0x100;

/// The state of a process, as known from its events.
#[derive(Debug)]
pub(crate) struct Story {
    links: Vec<Link>,
    style: Style,
    has_packets: bool,
    outstanding: Outstanding,
    /// The source of a queue pair's receives.
    queues: HashMap<(u8, u32), Queue>,
}

impl Story {
    /// Creates the state of a process without events, for HCAs with these links.
    pub fn new(links: Vec<Link>, style: Style) -> Story {
        let (outstanding, queues) = (Outstanding::default(), HashMap::new());
        Story { links, style, has_packets: true, outstanding, queues }
    }

    /// Sets whether packets become lines, which costs more than all other events.
    pub fn tell_packets(&mut self, wanted: bool) {
        self.has_packets = wanted;
    }

    /// Returns the line for an event; `None` if another line covers it.
    pub fn tell(&mut self, event: &Event) -> Option<Line> {
        let line = |kind| Line::new(event.card, event.time, kind);
        match &event.what {
            What::Command { input, output } => {
                let mut line = line(Kind::Command);
                command::tell(&mut line, input, output);
                Some(line)
            }
            What::Entered(call) => self.entered(event, call),
            What::Observed(observed) => self.observed(event, observed),
        }
    }

    fn entered(&mut self, event: &Event, call: &Call<'_>) -> Option<Line> {
        let of = |kind| Line::new(event.card, event.time, kind);
        let mut line = match call {
            Call::Store { uar, offset, bytes } => {
                return self.store(of(Kind::Doorbell), *uar, *offset, bytes);
            }
            Call::RingAll(uar) => {
                let mut line = of(Kind::Doorbell);
                line.text = format!("UAR {uar}: something was rung, all its queues are looked at");
                line.with("uar", *uar);
                return Some(line);
            }
            Call::Receive(frame)
            | Call::ReceiveOwn { frame, .. }
            | Call::ReceiveManagement(frame) => {
                return self.packet(of(Kind::Packet), frame, false);
            }
            Call::Reset | Call::Notice(_) => of(Kind::Function),
            Call::Refused { .. } => of(Kind::Command),
            _ => of(Kind::Port),
        };
        match call {
            Call::Port(up) => {
                line.text = format!("the port is {}", if *up { "up" } else { "down" });
                line.with("up", *up).is_error = !up;
            }
            Call::OverrunCqs(number) => {
                line.text = format!("a fault: {} overruns", queues("CQ", *number));
                line.with("cq", *number).is_error = true;
            }
            Call::OverrunEqs(number) => {
                line.text = format!("a fault: {} overruns", queues("EQ", *number));
                line.with("eq", *number).is_error = true;
            }
            Call::WqeFaults(faults) => {
                line.text = match faults.len() {
                    0 => "no fault rule lets send WQEs fail any more".to_owned(),
                    1 => "a fault rule lets send WQEs fail from now on".to_owned(),
                    rules => format!("{rules} fault rules let send WQEs fail from now on"),
                };
                line.with("rules", faults.len());
            }
            Call::Stop => {
                line.text = "a fault: the firmware stops".to_owned();
                line.is_error = true;
            }
            Call::Refused { request, errno } => {
                refused::tell(&mut line, &refused::sentence(request), *errno);
            }
            Call::Notice(notice) => {
                line.text = format!("the function reports {notice:?}");
                line.with("event", format!("{notice:?}"));
            }
            Call::Reset => {
                line.text = "the function is reset".to_owned();
                line.with("event", "reset");
            }
            Call::Timeouts(timeouts) => {
                line.text = format!("transport timers follow the law {timeouts}");
                line.with("timeouts", timeouts.to_string());
            }
            Call::CounterSets(sets) => {
                line.text = format!("sets of queue counters of programs: {sets:?}");
                line.with("sets", format!("{sets:?}"));
            }
            Call::Congested { way, full } => {
                let state = if *full { "has no room" } else { "has room again" };
                line.text = format!("the way to {way} {state}");
                line.with("way", way.to_string()).with("full", *full);
            }
            Call::Slow { way, slow } => {
                let state = if *slow { "is slow: no time-out counts" } else { "is slow no more" };
                line.text = format!("the way to {way} {state}");
                line.with("way", way.to_string()).with("slow", *slow);
            }
            _ => return None,
        }
        Some(line)
    }

    fn store(&self, mut line: Line, uar: u32, offset: u16, bytes: &[u8]) -> Option<Line> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?;
            Some(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        };
        line.with("uar", uar).with("offset", offset).with("bytes", hex(bytes));
        line.text = match (offset, word(0), word(4)) {
            (CQ_ARM, Some(arm), Some(cq)) => {
                line.cqs.push(cq);
                line.with("register", "cq_arm").with("cq", cq);
                let which = if arm >> 24 & 1 == 1 { "for solicited completions" } else { "" };
                format!("CQ {cq:#x} is armed {which} from consumer {}", arm & 0xff_ffff)
                    .replace("  ", " ")
            }
            (EQ_ARM | EQ_UPDATE, Some(word), None) => {
                let (eq, consumer) = (word >> 24, word & 0xff_ffff);
                let arm = if offset == EQ_ARM { ", armed" } else { "" };
                line.with("register", "eq").with("eq", eq).with("consumer", consumer);
                format!("EQ {eq} is read up to {consumer}{arm}")
            }
            (RECORDLESS | BLUEFLAME.., Some(first), Some(second))
                if offset == RECORDLESS || offset % HALF == 0 =>
            {
                let (qp, index) = (second >> 8, first >> 8 & 0xffff);
                line.qps.push(qp);
                let register = if offset == RECORDLESS { "recordless" } else { "blueflame" };
                line.with("register", register).with("qp", qp).with("wqe", index);
                match bytes.len() {
                    8 => format!("UAR {uar}+{offset:#x}: QP {qp:#x} up to WQE {index:#06x}"),
                    n => format!(
                        "UAR {uar}+{offset:#x}: QP {qp:#x} up to WQE {index:#06x}, BlueFlame copy \
                         of {n} bytes"
                    ),
                }
            }
            // Further parts of a copy, or half of a register.
            _ if !self.style.verbose => return None,
            _ => format!("UAR {uar}+{offset:#x}: {}", hex(bytes)),
        };
        Some(line)
    }

    fn packet(&self, mut line: Line, frame: &[u8], is_sent: bool) -> Option<Line> {
        if !self.has_packets {
            return None;
        }
        let link = self.links.get(usize::from(line.card)).copied()?;
        packet::tell(&mut line, link, frame, is_sent);
        Some(line)
    }

    fn observed(&mut self, event: &Event, observed: &Observed<'_>) -> Option<Line> {
        let (card, of) = (event.card, |kind| Line::new(event.card, event.time, kind));
        Some(match observed {
            Observed::SendWqe { qp, index, service, bytes } => {
                let mut line = of(Kind::Wqe);
                let request = Request::of_send(*index, *service, bytes);
                line.qps.push(*qp);
                line.with("queue", "send")
                    .with("qp", *qp)
                    .with("index", *index)
                    .with("transport", format!("{service:?}").to_uppercase())
                    .with("bytes", hex(bytes));
                self.wqe(&mut line, &request);
                self.outstanding.sent(card, *qp, request);
                line
            }
            Observed::ReceiveWqe { qp, queue, index, bytes } => {
                let mut line = of(Kind::Wqe);
                let request = Request::of_receive(*index, bytes);
                line.qps.push(*qp);
                let (name, shared) = match queue {
                    Queue::Own => ("receive", None),
                    Queue::Shared(number) => ("shared", Some(*number)),
                };
                line.with("queue", name)
                    .with("qp", *qp)
                    .with("srq", shared)
                    .with("index", *index)
                    .with("bytes", hex(bytes));
                self.wqe(&mut line, &request);
                line.text = match shared {
                    None => format!("QP {qp:#x} WQE {index:#06x} {}", line.text),
                    Some(srq) => {
                        format!("SRQ {srq:#x} for QP {qp:#x} WQE {index:#06x} {}", line.text)
                    }
                };
                self.queues.insert((card, *qp), *queue);
                self.outstanding.received(card, *qp, *queue, request);
                line
            }
            Observed::Cqe { cq, index, compressed, bytes } => {
                let mut line = of(Kind::Cqe);
                self.cqe(&mut line, *cq, *index, *compressed, bytes);
                line
            }
            Observed::Eqe { eq, index, bytes } => {
                let mut line = of(Kind::Eqe);
                entry(&mut line, *eq, *index, bytes);
                line
            }
            Observed::Sent(frame) => return self.packet(of(Kind::Packet), frame, true),
            Observed::Interrupt(vector) => {
                let mut line = of(Kind::Interrupt);
                line.text = format!("vector {vector}");
                line.with("vector", *vector);
                line
            }
            Observed::Missed { cq, count } => {
                let mut line = of(Kind::Cqe);
                line.cqs.push(*cq);
                let s = if *count == 1 { " was" } else { "s were" };
                line.text = format!("CQ {cq:#x}: {count} CQE{s} overwritten before they were read");
                line.with("cq", *cq).with("missed", *count);
                line
            }
            Observed::Reason { qp, text } => {
                let mut line = of(Kind::Reason);
                let text = refused::sentence(text);
                line.qps.push(*qp);
                line.is_error = true;
                line.text = format!("QP {qp:#x}: {text}");
                line.with("qp", *qp).with("reason", text);
                line
            }
            Observed::Mistake { mistake, count } => {
                let mut line = of(Kind::Mistake);
                line.is_error = true;
                line.text = mistake.words().to_owned();
                if *count > 1 {
                    line.text += &format!(" ({count} times)");
                }
                line.with("mistake", format!("{mistake:?}")).with("count", *count);
                line
            }
        })
    }

    fn wqe(&self, line: &mut Line, request: &Request) {
        line.with("opcode", request.opcode.clone())
            .with("length", request.length)
            .with("text", request.text.join("; "));
        if self.style.verbose {
            line.text = request.text.first().cloned().unwrap_or_default();
            line.more = request.text.iter().skip(1).cloned().collect();
        } else {
            line.text = request.text.join("; ");
        }
    }

    fn cqe(&mut self, line: &mut Line, cq: u32, index: u32, compressed: bool, bytes: &[u8]) {
        let Some(cqe) = bytes.last_chunk::<64>() else { return };
        let text = Cqe(cqe).to_string();
        let cqe = flight::Cqe(*cqe);
        let (qp, wqe) = (cqe.qpn(), cqe.wqe_index());
        line.cqs.push(cq);
        line.qps.push(qp);
        // A flushed request is the consequence of another error.
        line.is_error = cqe.is_error() && !cqe.is_flush();
        let text = text.strip_prefix("CQE ").unwrap_or(&text);
        line.text = format!("CQ {cq:#x}[{index}] {text}");
        if compressed {
            line.text += ", compressed";
        }
        line.with("cq", cq)
            .with("index", index)
            .with("qp", qp)
            .with("wqe", wqe)
            .with("opcode", text.split(" owner ").next().unwrap_or_default())
            .with("compressed", compressed)
            .with("bytes", hex(bytes));
        if let Some(error) = Cqe(&cqe.0).error() {
            line.with("status", error.status.to_string())
                .with("syndrome", error.syndrome)
                .with("vendor_code", error.vendor_syndrome);
        } else {
            line.with("length", cqe.byte_count());
        }
        let completed = match cqe.queue() {
            Some(flight::Queue::Send) => self.outstanding.complete_send(line.card, qp, wqe),
            Some(_) => {
                let queue = self.queues.get(&(line.card, qp)).copied().unwrap_or(Queue::Own);
                self.outstanding.complete_receive(line.card, qp, queue, wqe)
            }
            None => None,
        };
        let Some(completed) = completed else { return };
        let brief = completed.request.brief();
        line.text += &format!(", completes WQE {wqe:#06x} ({brief})");
        if completed.before > 0 {
            line.text += &format!(" and {} before it", completed.before);
        }
        line.with("completes", brief).with("completes_before", completed.before);
        line.more.extend(completed.request.text);
    }
}

/// Names a queue by its number, or all of its kind.
fn queues(kind: &str, number: Option<u32>) -> String {
    number.map_or_else(|| format!("each {kind}"), |number| format!("{kind} {number:#x}"))
}

/// Fills a line with an EQE.
fn entry(line: &mut Line, eq: u32, index: u32, bytes: &[u8]) {
    line.with("eq", eq).with("index", index).with("bytes", hex(bytes));
    if bytes.len() < eqe::SIZE {
        return;
    }
    let kind = eqe::EVENT_TYPE.get(bytes) as u8;
    let data = &bytes[eqe::EVENT_DATA.bytes()];
    let name = EventKind::from_number(kind.into()).name().unwrap_or("unknown");
    let mut text = format!("EQ {eq}[{index}] {name}");
    match kind {
        event_type::COMP => {
            let cq = comp_event::CQ_NUMBER.get(data) as u32;
            line.cqs.push(cq);
            line.with("cq", cq);
            text += &format!(" CQ {cq:#x}");
        }
        event_type::CQ_ERROR => {
            let (cq, syndrome) = (cq_error::CQN.get(data) as u32, cq_error::SYNDROME.get(data));
            line.cqs.push(cq);
            line.with("cq", cq).with("syndrome", syndrome);
            text += &format!(" CQ {cq:#x} syndrome {syndrome:#x}");
        }
        event_type::PORT_CHANGE => {
            let port = port_state_change_event::PORT_NUM.get(data);
            let state = eqe::EVENT_SUB_TYPE.get(bytes);
            line.with("port", port).with("subtype", state);
            text += &format!(" port {port} subtype {state}");
        }
        event_type::SRQ_RQ_LIMIT | event_type::SRQ_CATAS_ERROR => {
            let srq = qp_events::QPN_RQN_SQN.get(data);
            line.with("srq", srq);
            text += &format!(" SRQ {srq:#x}");
        }
        _ => {
            let qp = qp_events::QPN_RQN_SQN.get(data) as u32;
            line.qps.push(qp);
            line.with("qp", qp);
            text += &format!(" QP {qp:#x}");
        }
    }
    line.is_error = matches!(
        kind,
        event_type::CQ_ERROR
            | event_type::WQ_CATAS_ERROR
            | event_type::PATH_MIG_FAILED
            | event_type::WQ_INVAL_REQ_ERROR
            | event_type::WQ_ACCESS_ERROR
            | event_type::SRQ_CATAS_ERROR
            | event_type::XRQ_ERROR
            | event_type::DCT_KEY_VIOLATION
    );
    line.with("event", name);
    line.text = text;
}
