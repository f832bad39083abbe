//! Records: the device's input, what it reads meanwhile, and its output.

use std::borrow::Cow;

use super::bytes::{Put, Take};
use super::mistake::Mistake;
use crate::fault::WqeFault;
use crate::function::{Notice, PortChange};
use crate::identity::{CounterSets, Timeouts};
use crate::wire::{LinkAddress, Service, Way};

/// Bytes before a record's content: its kind, and the content's length.
pub(super) const HEAD: usize = 5;
/// Longest content of a record. The longest that is written is a command with a list of pages.
pub(super) const LONGEST: usize = 1 << 28;
/// Times are below this, in nanoseconds: 36 years.
const END_OF_TIME: u64 = 1 << 60;

/// One record of a stream. Bytes are borrowed for writing, and owned after reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A call starts. The records up to [`Record::End`] or [`Record::Reply`] are its course.
    Call {
        /// Index of the device in the process, from 0.
        card: u8,
        /// Time, in nanoseconds since the stream began.
        time: u64,
        /// The call.
        call: Call<'a>,
    },
    /// The reply to a command: the end of its call.
    Reply(Cow<'a, [u8]>),
    /// The end of any other call.
    End,
    /// The device read memory, or no memory answered.
    Read {
        /// Bus address.
        address: u64,
        /// Bytes asked for.
        length: u32,
        /// The bytes read, or the address at which no memory answered.
        found: Result<Cow<'a, [u8]>, u64>,
    },
    /// The device wrote memory.
    Write {
        /// Bus address.
        address: u64,
        /// The address at which no memory answered, if any.
        fault: Option<u64>,
        /// The bytes written.
        bytes: Cow<'a, [u8]>,
    },
    /// The device replaced eight bytes in one access.
    Update {
        /// Bus address.
        address: u64,
        /// The old and the new bytes, or the address at which no memory answered.
        values: Result<([u8; 8], [u8; 8]), u64>,
    },
    /// The device read its clock: nanoseconds.
    Time(u64),
    /// An action of the device.
    Observed(Observed<'a>),
}

/// Input of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// A firmware command.
    Command(Cow<'a, [u8]>),
    /// A store to a register.
    Store {
        /// UAR page.
        uar: u32,
        /// Offset in the page.
        offset: u16,
        /// The bytes stored.
        bytes: Cow<'a, [u8]>,
    },
    /// Every doorbell of a UAR page may have been rung: polled and manual mode.
    RingAll(u32),
    /// A packet arrived.
    Receive(Cow<'a, [u8]>),
    /// A raw Ethernet packet came back that a queue of this transport domain had sent.
    ReceiveOwn {
        /// The transport domain.
        domain: u32,
        /// The packet.
        frame: Cow<'a, [u8]>,
    },
    /// A packet arrived for the port's management agent.
    ReceiveManagement(Cow<'a, [u8]>),
    /// The port's management agent gave the device a packet to send.
    SendManagement(Cow<'a, [u8]>),
    /// Due timers fire.
    Expire,
    /// Queues with packets to send put them into the outbox.
    Pump,
    /// Completions that waited for packets to leave are written.
    Settle,
    /// CQEs that were held back to be compressed are written.
    Release,
    /// The oldest packet leaves: [`Observed::Sent`].
    TakeFrame,
    /// The oldest interrupt is raised: [`Observed::Interrupt`].
    TakeInterrupt,
    /// The device got a prefix of QP numbers.
    Prefix(u16),
    /// The device got its own memory, at this bus address.
    Memic(u64),
    /// The port's cable was plugged in (`true`) or pulled.
    Port(bool),
    /// A fault: the CQ of this number overran, or all.
    OverrunCqs(Option<u32>),
    /// A fault: the EQ of this number overran, or all.
    OverrunEqs(Option<u32>),
    /// The rules for send WQEs that fail became these.
    WqeFaults(Cow<'a, [WqeFault]>),
    /// A fault: the firmware stopped.
    Stop,
    /// The function was reset.
    Reset,
    /// The function reported an event of its own.
    Notice(Notice),
    /// Transport timers follow this law from now on.
    Timeouts(Timeouts),
    /// User contexts get sets of queue counters from now on, or no longer.
    CounterSets(CounterSets),
    /// A way through the fabric is full, or no longer.
    Congested {
        /// The way.
        way: Way,
        /// Whether it is full.
        full: bool,
    },
    /// An observer looked at the rings in the program's memory.
    Look,
    /// The driver refused a request of a program.
    Refused {
        /// The request's name if a program was observed. On the model, a sentence: what is refused,
        /// and why.
        request: Cow<'a, [u8]>,
        /// The error number.
        errno: i32,
    },
    /// Packets to or from a running peer are still under way, or no longer.
    Slow {
        /// The way through the fabric.
        way: Way,
        /// Whether they are under way.
        slow: bool,
    },
}

/// An action of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    /// The device fetched a send WQE.
    SendWqe {
        /// Queue pair.
        qp: u32,
        /// Counter of its first block.
        index: u16,
        /// The queue pair's transport.
        service: Service,
        /// The whole WQE. Only the control segment if that is invalid.
        bytes: Cow<'a, [u8]>,
    },
    /// The device took a receive WQE.
    ReceiveWqe {
        /// Queue pair that uses it.
        qp: u32,
        /// The queue it came from.
        queue: Queue,
        /// The queue's counter, or the WQE's number in a shared queue.
        index: u16,
        /// The scatter list, up to the end of the WQE's stride.
        bytes: Cow<'a, [u8]>,
    },
    /// The device wrote a CQE.
    Cqe {
        /// The CQ.
        cq: u32,
        /// The number of CQEs written before, modulo 2^24.
        index: u32,
        /// Whether it is part of a compressed block. Its bytes are then those of the uncompressed
        /// CQE.
        compressed: bool,
        /// Its 64 bytes, or 128 if the CQ has CQEs of 128 bytes.
        bytes: Cow<'a, [u8]>,
    },
    /// CQEs that an observer did not see: they were overwritten before it looked.
    Missed {
        /// The CQ.
        cq: u32,
        /// Their number.
        count: u64,
    },
    /// The device wrote an EQE.
    Eqe {
        /// The EQ.
        eq: u32,
        /// The number of EQEs written before, modulo 2^24.
        index: u32,
        /// Its 64 bytes.
        bytes: Cow<'a, [u8]>,
    },
    /// A packet left.
    Sent(Cow<'a, [u8]>),
    /// The device raised an MSI-X vector.
    Interrupt(u32),
    /// Why the device refused, failed or dropped something of a queue pair. It explains, and a replay
    /// does not compare it.
    Reason {
        /// The queue pair.
        qp: u32,
        /// A sentence, in UTF-8.
        text: Cow<'a, [u8]>,
    },
    /// A software error that a real device ignores silently.
    Mistake {
        /// The kind of error.
        mistake: Mistake,
        /// Its count in the course of the call.
        count: u64,
    },
}

/// The queue of a receive WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The queue pair's own receive queue.
    Own,
    /// A shared receive queue.
    Shared(u32),
}

const SERVICES: [Service; 6] =
    [Service::Rc, Service::Uc, Service::Ud, Service::Xrc, Service::Dc, Service::Ethernet];

fn code_of(service: Service) -> u8 {
    SERVICES.iter().position(|known| *known == service).unwrap_or_default() as u8
}

/// Kinds of records.
mod kind {
    pub const COMMAND: u8 = 1;
    pub const STORE: u8 = 2;
    pub const RING_ALL: u8 = 3;
    pub const RECEIVE: u8 = 4;
    pub const EXPIRE: u8 = 5;
    pub const PUMP: u8 = 6;
    pub const SETTLE: u8 = 7;
    pub const RELEASE: u8 = 8;
    pub const TAKE_FRAME: u8 = 9;
    pub const TAKE_INTERRUPT: u8 = 10;
    pub const PREFIX: u8 = 11;
    pub const MEMIC: u8 = 12;
    pub const PORT: u8 = 13;
    pub const CONGESTED: u8 = 15;
    pub const SLOW: u8 = 16;
    pub const TIMEOUTS: u8 = 29;
    pub const OVERRUN_CQS: u8 = 17;
    pub const OVERRUN_EQS: u8 = 18;
    pub const STOP: u8 = 19;
    pub const RESET: u8 = 20;
    pub const NOTICE: u8 = 21;
    pub const RECEIVE_MANAGEMENT: u8 = 22;
    pub const SEND_MANAGEMENT: u8 = 23;
    pub const LOOK: u8 = 24;
    pub const REFUSED: u8 = 25;
    pub const RECEIVE_OWN: u8 = 26;
    pub const WQE_FAULTS: u8 = 27;
    pub const COUNTER_SETS: u8 = 28;
    pub const REPLY: u8 = 30;
    pub const END: u8 = 31;
    pub const READ: u8 = 40;
    pub const READ_FAULT: u8 = 41;
    pub const WRITE: u8 = 42;
    pub const WRITE_FAULT: u8 = 43;
    pub const UPDATE: u8 = 44;
    pub const UPDATE_FAULT: u8 = 45;
    pub const TIME: u8 = 46;
    pub const SEND_WQE: u8 = 60;
    pub const RECEIVE_WQE: u8 = 61;
    pub const CQE: u8 = 62;
    pub const EQE: u8 = 63;
    pub const SENT: u8 = 64;
    pub const INTERRUPT: u8 = 65;
    pub const MISTAKE: u8 = 66;
    pub const MISSED: u8 = 67;
    pub const REASON: u8 = 68;
}

impl Record<'_> {
    /// Appends the record to a stream. Leaves out one that is too long for readers, and returns
    /// `false`.
    pub(super) fn write(&self, stream: &mut Vec<u8>) -> bool {
        let start = stream.len();
        stream.extend([0; HEAD]);
        let kind = self.content(&mut Put(stream));
        let length = stream.len() - start - HEAD;
        if length > LONGEST {
            stream.truncate(start);
            return false;
        }
        stream[start] = kind;
        stream[start + 1..start + HEAD].copy_from_slice(&(length as u32).to_le_bytes());
        true
    }

    fn content(&self, put: &mut Put<'_>) -> u8 {
        match self {
            Record::Call { card, time, call } => {
                put.u8(*card).u64(*time);
                call.content(put)
            }
            Record::Reply(bytes) => {
                put.rest(bytes);
                kind::REPLY
            }
            Record::End => kind::END,
            Record::Read { address, length, found: Ok(bytes) } => {
                debug_assert_eq!(*length as usize, bytes.len());
                put.u64(*address).rest(bytes);
                kind::READ
            }
            Record::Read { address, length, found: Err(fault) } => {
                put.u64(*address).u32(*length).u64(*fault);
                kind::READ_FAULT
            }
            Record::Write { address, fault: None, bytes } => {
                put.u64(*address).rest(bytes);
                kind::WRITE
            }
            Record::Write { address, fault: Some(fault), bytes } => {
                put.u64(*address).u64(*fault).rest(bytes);
                kind::WRITE_FAULT
            }
            Record::Update { address, values: Ok((old, new)) } => {
                put.u64(*address).rest(old).rest(new);
                kind::UPDATE
            }
            Record::Update { address, values: Err(fault) } => {
                put.u64(*address).u64(*fault);
                kind::UPDATE_FAULT
            }
            Record::Time(time) => {
                put.u64(*time);
                kind::TIME
            }
            Record::Observed(observed) => observed.content(put),
        }
    }

    /// Decodes a record's content; `None` if it is invalid for its kind.
    pub(super) fn read(kind: u8, content: &[u8]) -> Option<Record<'static>> {
        let mut take = Take(content);
        let record = Self::take(kind, &mut take)?;
        take.is_empty().then_some(record)
    }

    fn take(kind: u8, take: &mut Take<'_>) -> Option<Record<'static>> {
        Some(match kind {
            kind::COMMAND..kind::REPLY => {
                let (card, time) = (take.u8()?, time(take)?);
                Record::Call { card, time, call: Call::take(kind, take)? }
            }
            kind::REPLY => Record::Reply(take.rest()),
            kind::END => Record::End,
            kind::READ => {
                let address = take.u64()?;
                let bytes = take.rest();
                Record::Read { address, length: bytes.len() as u32, found: Ok(bytes) }
            }
            kind::READ_FAULT => {
                Record::Read { address: take.u64()?, length: take.u32()?, found: Err(take.u64()?) }
            }
            kind::WRITE => Record::Write { address: take.u64()?, fault: None, bytes: take.rest() },
            kind::WRITE_FAULT => {
                Record::Write { address: take.u64()?, fault: Some(take.u64()?), bytes: take.rest() }
            }
            kind::UPDATE => {
                let address = take.u64()?;
                let old = take.bytes(8)?.try_into().ok()?;
                let new = take.bytes(8)?.try_into().ok()?;
                Record::Update { address, values: Ok((old, new)) }
            }
            kind::UPDATE_FAULT => Record::Update { address: take.u64()?, values: Err(take.u64()?) },
            kind::TIME => Record::Time(time(take)?),
            _ => Record::Observed(Observed::take(kind, take)?),
        })
    }
}

fn time(take: &mut Take<'_>) -> Option<u64> {
    take.u64().filter(|time| *time < END_OF_TIME)
}

/// In place of a queue's number: all queues.
const ALL: u32 = u32::MAX;

fn some_queue(number: u32) -> Option<u32> {
    (number != ALL).then_some(number)
}

fn put_wqe_fault(put: &mut Put<'_>, fault: &WqeFault) {
    let (first, last) = fault.numbers.clone().into_inner();
    put.u32(fault.qp.unwrap_or(ALL)).u64(first).u64(last).rest(&fault.codes);
}

fn take_wqe_fault(take: &mut Take<'_>) -> Option<WqeFault> {
    let qp = some_queue(take.u32()?);
    let numbers = take.u64()?..=take.u64()?;
    Some(WqeFault { qp, numbers, codes: take.bytes(4)?.try_into().ok()? })
}

fn put_notice(put: &mut Put<'_>, notice: Notice) {
    match notice {
        Notice::Commands { eq, slots } => put.u8(0).u32(eq).u32(slots),
        Notice::Pages(count) => put.u8(1).u32(count as u32),
        Notice::Port(change) => put.u8(2).u8(change as u8),
        Notice::General(subtype) => put.u8(3).u8(subtype),
    };
}

fn take_notice(take: &mut Take<'_>) -> Option<Notice> {
    Some(match take.u8()? {
        0 => Notice::Commands { eq: take.u32()?, slots: take.u32()? },
        1 => Notice::Pages(take.u32()? as i32),
        2 => {
            let code = take.u8()?;
            let change = PortChange::ALL.into_iter().find(|change| *change as u8 == code)?;
            Notice::Port(change)
        }
        3 => Notice::General(take.u8()?),
        _ => return None,
    })
}

impl Call<'_> {
    fn content(&self, put: &mut Put<'_>) -> u8 {
        match self {
            Call::Command(input) => {
                put.rest(input);
                kind::COMMAND
            }
            Call::Store { uar, offset, bytes } => {
                put.u32(*uar).u16(*offset).rest(bytes);
                kind::STORE
            }
            Call::RingAll(uar) => {
                put.u32(*uar);
                kind::RING_ALL
            }
            Call::Receive(frame) => {
                put.rest(frame);
                kind::RECEIVE
            }
            Call::ReceiveOwn { domain, frame } => {
                put.u32(*domain).rest(frame);
                kind::RECEIVE_OWN
            }
            Call::ReceiveManagement(frame) => {
                put.rest(frame);
                kind::RECEIVE_MANAGEMENT
            }
            Call::SendManagement(frame) => {
                put.rest(frame);
                kind::SEND_MANAGEMENT
            }
            Call::Expire => kind::EXPIRE,
            Call::Pump => kind::PUMP,
            Call::Settle => kind::SETTLE,
            Call::Release => kind::RELEASE,
            Call::TakeFrame => kind::TAKE_FRAME,
            Call::TakeInterrupt => kind::TAKE_INTERRUPT,
            Call::Prefix(prefix) => {
                put.u16(*prefix);
                kind::PREFIX
            }
            Call::Memic(bus) => {
                put.u64(*bus);
                kind::MEMIC
            }
            Call::Port(up) => {
                put.u8((*up).into());
                kind::PORT
            }
            Call::OverrunCqs(number) => {
                put.u32(number.unwrap_or(ALL));
                kind::OVERRUN_CQS
            }
            Call::Timeouts(timeouts) => {
                put.u8(timeouts.code());
                kind::TIMEOUTS
            }
            Call::CounterSets(sets) => {
                put.u8((*sets == CounterSets::Allowed).into());
                kind::COUNTER_SETS
            }
            Call::OverrunEqs(number) => {
                put.u32(number.unwrap_or(ALL));
                kind::OVERRUN_EQS
            }
            Call::WqeFaults(faults) => {
                for fault in &**faults {
                    put_wqe_fault(put, fault);
                }
                kind::WQE_FAULTS
            }
            Call::Stop => kind::STOP,
            Call::Reset => kind::RESET,
            Call::Notice(notice) => {
                put_notice(put, *notice);
                kind::NOTICE
            }
            Call::Congested { way, full } => {
                put_way(put, way);
                put.u8((*full).into());
                kind::CONGESTED
            }
            Call::Look => kind::LOOK,
            Call::Refused { request, errno } => {
                put.u32(*errno as u32).rest(request);
                kind::REFUSED
            }
            Call::Slow { way, slow } => {
                put_way(put, way);
                put.u8((*slow).into());
                kind::SLOW
            }
        }
    }

    fn take(kind: u8, take: &mut Take<'_>) -> Option<Call<'static>> {
        Some(match kind {
            kind::COMMAND => Call::Command(take.rest()),
            kind::STORE => {
                Call::Store { uar: take.u32()?, offset: take.u16()?, bytes: take.rest() }
            }
            kind::RING_ALL => Call::RingAll(take.u32()?),
            kind::RECEIVE => Call::Receive(take.rest()),
            kind::RECEIVE_OWN => Call::ReceiveOwn { domain: take.u32()?, frame: take.rest() },
            kind::RECEIVE_MANAGEMENT => Call::ReceiveManagement(take.rest()),
            kind::SEND_MANAGEMENT => Call::SendManagement(take.rest()),
            kind::EXPIRE => Call::Expire,
            kind::PUMP => Call::Pump,
            kind::SETTLE => Call::Settle,
            kind::RELEASE => Call::Release,
            kind::TAKE_FRAME => Call::TakeFrame,
            kind::TAKE_INTERRUPT => Call::TakeInterrupt,
            kind::PREFIX => Call::Prefix(take.u16()?),
            kind::MEMIC => Call::Memic(take.u64()?),
            kind::PORT => Call::Port(take.bool()?),
            kind::OVERRUN_CQS => Call::OverrunCqs(some_queue(take.u32()?)),
            kind::OVERRUN_EQS => Call::OverrunEqs(some_queue(take.u32()?)),
            kind::WQE_FAULTS => {
                let mut faults = Vec::new();
                while !take.is_empty() {
                    faults.push(take_wqe_fault(take)?);
                }
                Call::WqeFaults(faults.into())
            }
            kind::STOP => Call::Stop,
            kind::RESET => Call::Reset,
            kind::NOTICE => Call::Notice(take_notice(take)?),
            kind::TIMEOUTS => Call::Timeouts(take.u8().and_then(Timeouts::from_code)?),
            kind::COUNTER_SETS => Call::CounterSets(match take.bool()? {
                true => CounterSets::Allowed,
                false => CounterSets::Refused,
            }),
            kind::CONGESTED => Call::Congested { way: take_way(take)?, full: take.bool()? },
            kind::LOOK => Call::Look,
            kind::REFUSED => Call::Refused { errno: take.u32()? as i32, request: take.rest() },
            kind::SLOW => Call::Slow { way: take_way(take)?, slow: take.bool()? },
            _ => return None,
        })
    }

    /// Returns whether the call is made repeatedly, even when it has nothing to do.
    pub(super) fn is_routine(&self) -> bool {
        matches!(self, Call::Expire | Call::Pump | Call::Settle | Call::Release | Call::Look)
    }
}

/// Writes a way: address, first and last number.
fn put_way(put: &mut Put<'_>, way: &Way) {
    put.rest(&way.to.encode()).u32(way.first).u32(way.last);
}

/// Reads what [`put_way`] writes.
fn take_way(take: &mut Take<'_>) -> Option<Way> {
    let to = LinkAddress::decode(take.bytes(LinkAddress::ENCODED)?.try_into().ok()?)?;
    Some(Way { to, first: take.u32()?, last: take.u32()? })
}

impl Observed<'_> {
    fn content(&self, put: &mut Put<'_>) -> u8 {
        match self {
            Observed::SendWqe { qp, index, service, bytes } => {
                put.u32(*qp).u16(*index).u8(code_of(*service)).rest(bytes);
                kind::SEND_WQE
            }
            Observed::ReceiveWqe { qp, queue, index, bytes } => {
                let (shared, number) = match queue {
                    Queue::Own => (0, 0),
                    Queue::Shared(number) => (1, *number),
                };
                put.u32(*qp).u8(shared).u32(number).u16(*index).rest(bytes);
                kind::RECEIVE_WQE
            }
            Observed::Cqe { cq, index, compressed, bytes } => {
                put.u32(*cq).u32(*index).u8((*compressed).into()).rest(bytes);
                kind::CQE
            }
            Observed::Eqe { eq, index, bytes } => {
                put.u32(*eq).u32(*index).rest(bytes);
                kind::EQE
            }
            Observed::Sent(frame) => {
                put.rest(frame);
                kind::SENT
            }
            Observed::Interrupt(vector) => {
                put.u32(*vector);
                kind::INTERRUPT
            }
            Observed::Missed { cq, count } => {
                put.u32(*cq).u64(*count);
                kind::MISSED
            }
            Observed::Reason { qp, text } => {
                put.u32(*qp).rest(text);
                kind::REASON
            }
            Observed::Mistake { mistake, count } => {
                let code = Mistake::ALL.iter().position(|known| known == mistake);
                put.u8(code.unwrap_or_default() as u8).u64(*count);
                kind::MISTAKE
            }
        }
    }

    fn take(kind: u8, take: &mut Take<'_>) -> Option<Observed<'static>> {
        Some(match kind {
            kind::SEND_WQE => Observed::SendWqe {
                qp: take.u32()?,
                index: take.u16()?,
                service: *SERVICES.get(usize::from(take.u8()?))?,
                bytes: take.rest(),
            },
            kind::RECEIVE_WQE => {
                let qp = take.u32()?;
                let (shared, number) = (take.bool()?, take.u32()?);
                let queue = if shared { Queue::Shared(number) } else { Queue::Own };
                Observed::ReceiveWqe { qp, queue, index: take.u16()?, bytes: take.rest() }
            }
            kind::CQE => Observed::Cqe {
                cq: take.u32()?,
                index: take.u32()?,
                compressed: take.bool()?,
                bytes: take.rest(),
            },
            kind::EQE => Observed::Eqe { eq: take.u32()?, index: take.u32()?, bytes: take.rest() },
            kind::SENT => Observed::Sent(take.rest()),
            kind::INTERRUPT => Observed::Interrupt(take.u32()?),
            kind::MISSED => Observed::Missed { cq: take.u32()?, count: take.u64()? },
            kind::REASON => Observed::Reason { qp: take.u32()?, text: take.rest() },
            kind::MISTAKE => Observed::Mistake {
                mistake: *Mistake::ALL.get(usize::from(take.u8()?))?,
                count: take.u64()?,
            },
            _ => return None,
        })
    }
}
