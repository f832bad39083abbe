//! One side of a connection, or of a look-up of a datagram service (IBA 1.3, 12.9 and 12.11).
//!
//! The caller gives received messages, the user's requests and the time. A connection answers with
//! messages to send and events to report, which the caller takes. Messages that do not fit the
//! state are dropped, so duplicates and late messages do no harm. A message without an answer is
//! repeated, and given up after its retries.

use std::collections::VecDeque;

use super::mad::Mad;
use super::message::{
    Confirm, Delay, Disconnect, Ids, Message, PathLoaded, Reason, Reject, Reply, Request, Resolve,
    Resolved,
};

/// Time in which an answer is expected, 4.096 µs times two to this power: 4.3 s, as in Linux.
pub const RESPONSE_TIMEOUT: u8 = 20;
/// Times that a message is repeated.
pub const RETRIES: u8 = 15;
/// Time that an MRA asks for: 68.7 s, as in Linux.
const DELAY: u8 = 24;
/// Status of an APR: alternate paths are not supported.
const UNSUPPORTED: u8 = 2;

/// Returns the nanoseconds of a time-out's exponent.
pub fn span(exponent: u8) -> u64 {
    4096 << exponent.min(31)
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A REQ or SIDR_REQ was sent.
    Requesting,
    /// A REQ or SIDR_REQ was received, and the user has not answered.
    Requested,
    /// A REP was sent.
    Replying,
    /// A REP was received, and the user has not confirmed.
    Replied,
    /// Both sides may send.
    Established,
    /// A DREQ was sent.
    Disconnecting,
    /// A DREQ was received, and the user has not answered.
    Disconnected,
    /// The connection has ended; late messages are still answered.
    TimeWait,
    /// Nothing is left.
    Closed,
}

/// A change that the user is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer accepts.
    Replied(Box<Reply>),
    /// The peer confirms: both sides may send.
    Established,
    /// The peer, or its port, refuses.
    Rejected(Reject),
    /// There was no answer.
    Unreachable,
    /// The connection has ended. `answered` is false if the peer did not answer the DREQ.
    Disconnected {
        /// Whether the peer took part.
        answered: bool,
    },
    /// The time in which late packets may arrive is over.
    TimeWaitExit,
    /// The answer of a datagram service.
    Resolved(Resolved),
}

/// The message that is repeated until it is answered.
#[derive(Debug)]
struct Pending {
    mad: Mad,
    left: u8,
    interval: u64,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    /// Communication ids; the remote one is 0 until it is known.
    pub ids: Ids,
    /// State.
    pub phase: Phase,
    /// GUID of the peer's device; 0 until it is known.
    pub remote_guid: u64,
    /// The peer's queue pair; 0 until it is known.
    pub remote_qp: u32,
    /// This side's queue pair; 0 until it is known.
    pub local_qp: u32,
    /// Whether it is a look-up of a datagram service.
    datagram: bool,
    transaction: u64,
    /// Nanoseconds in which late packets may arrive.
    time_wait: u64,
    pending: Option<Pending>,
    /// The message that answers a duplicate of what was received last.
    answer: Option<Mad>,
    deadline: Option<u64>,
    /// Whether the end was reported.
    ended: bool,
    /// Whether the end of the time of late packets is not reported: both sides never got ready.
    quiet: bool,
    messages: VecDeque<Mad>,
    events: VecDeque<Event>,
}

impl Connection {
    fn new(ids: Ids, phase: Phase, transaction: u64, time_wait: u64) -> Self {
        Self {
            ids,
            phase,
            remote_guid: 0,
            remote_qp: 0,
            local_qp: 0,
            datagram: false,
            transaction,
            time_wait,
            pending: None,
            answer: None,
            deadline: None,
            ended: false,
            quiet: false,
            messages: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Starts a connection as the active side.
    pub fn connect(request: Request, transaction: u64, now: u64) -> Self {
        let ids = Ids { local: request.local, remote: 0 };
        let time_wait = span(request.primary.ack_timeout);
        let interval = span(request.remote_timeout) + time_wait;
        let mut own = Self::new(ids, Phase::Requesting, transaction, time_wait);
        own.local_qp = request.qp;
        own.ask(Message::Request(Box::new(request)), interval, now);
        own
    }

    /// Starts a connection as the passive side, for a REQ that was received.
    pub fn requested(local: u32, transaction: u64, request: &Request) -> Self {
        let ids = Ids { local, remote: request.local };
        // A stranger's number: its longest would keep the id for hours.
        let time_wait = span(request.primary.ack_timeout.min(DELAY));
        let mut own = Self::new(ids, Phase::Requested, transaction, time_wait);
        own.remote_guid = request.guid;
        own.remote_qp = request.qp;
        own
    }

    /// Starts the look-up of a datagram service.
    pub fn resolve(resolve: Resolve, transaction: u64, now: u64) -> Self {
        let ids = Ids { local: resolve.request, remote: 0 };
        let mut own = Self::new(ids, Phase::Requesting, transaction, 0);
        own.datagram = true;
        own.ask(Message::Resolve(resolve), span(RESPONSE_TIMEOUT), now);
        own
    }

    /// Starts the answer to a look-up, for a SIDR_REQ that was received.
    pub fn asked(local: u32, transaction: u64, resolve: &Resolve) -> Self {
        let ids = Ids { local, remote: resolve.request };
        let mut own = Self::new(ids, Phase::Requested, transaction, span(RESPONSE_TIMEOUT));
        own.datagram = true;
        own
    }

    /// Returns whether it is a look-up of a datagram service.
    pub fn is_datagram(&self) -> bool {
        self.datagram
    }

    /// Returns whether the connection has ended, or never came about.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Disconnected | Phase::TimeWait | Phase::Closed)
    }

    /// Takes the next message to send.
    pub fn take_message(&mut self) -> Option<Mad> {
        self.messages.pop_front()
    }

    /// Takes the next event to report.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which [`Connection::expire`] has work.
    pub fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Accepts: sends a REP. Returns false in the wrong state.
    pub fn accept(&mut self, reply: Reply, now: u64) -> bool {
        if self.phase != Phase::Requested || self.datagram {
            return false;
        }
        self.phase = Phase::Replying;
        self.local_qp = if reply.qp == 0 { reply.target } else { reply.qp };
        let interval = span(RESPONSE_TIMEOUT) + self.time_wait;
        self.ask(Message::Reply(Reply { ids: self.ids, ..reply }), interval, now);
        true
    }

    /// Answers a look-up: sends a SIDR_REP. Returns false in the wrong state.
    pub fn resolved(&mut self, resolved: Resolved, now: u64) -> bool {
        if self.phase != Phase::Requested || !self.datagram {
            return false;
        }
        let resolved = Resolved { request: self.ids.remote, ..resolved };
        self.answer_with(Message::Resolved(resolved));
        self.wait(now);
        true
    }

    /// Confirms a REP: sends an RTU. Returns false in the wrong state.
    pub fn establish(&mut self, private: Vec<u8>) -> bool {
        if self.phase != Phase::Replied {
            return false;
        }
        self.phase = Phase::Established;
        self.answer_with(Message::Ready(Confirm { ids: self.ids, private }));
        true
    }

    /// Refuses a REQ or REP: sends a REJ. Returns false in the wrong state.
    pub fn reject(
        &mut self,
        reason: Reason,
        information: Vec<u8>,
        private: Vec<u8>,
        now: u64,
    ) -> bool {
        let message = match self.phase {
            Phase::Requested => 0,
            Phase::Replied => 1,
            Phase::Requesting | Phase::Replying => 2,
            _ => return false,
        };
        let reject = Reject { ids: self.ids, message, reason, information, private };
        self.answer_with(Message::Reject(reject));
        self.quiet = matches!(self.phase, Phase::Requested | Phase::Requesting);
        self.ended = true;
        self.wait(now);
        true
    }

    /// Ends the connection, or answers the peer that has. Returns false in the wrong state.
    pub fn disconnect(&mut self, transaction: u64, now: u64) -> bool {
        match self.phase {
            Phase::Established | Phase::Replying => {
                self.phase = Phase::Disconnecting;
                self.transaction = transaction;
                let (ids, remote_qp) = (self.ids, self.remote_qp);
                let message = Disconnect { ids, remote_qp, private: Vec::new() };
                let interval = span(RESPONSE_TIMEOUT) + self.time_wait;
                self.ask(Message::Disconnect(message), interval, now);
                true
            }
            Phase::Disconnected => {
                self.answer_disconnect();
                self.wait(now);
                true
            }
            _ => false,
        }
    }

    /// The user is gone. The peer is told, and no event is reported any more.
    pub fn close(&mut self, transaction: u64, now: u64) {
        match self.phase {
            Phase::Requesting if self.datagram => self.finish(),
            Phase::Requested if self.datagram => {
                // Status 2: refused by the service.
                self.resolved(Resolved { status: 2, ..Resolved::default() }, now);
            }
            Phase::Requesting => {
                self.reject(Reason::TIMEOUT, Vec::new(), Vec::new(), now);
            }
            Phase::Requested | Phase::Replied | Phase::Replying => {
                self.reject(Reason::CONSUMER, Vec::new(), Vec::new(), now);
            }
            Phase::Established | Phase::Disconnected => {
                self.disconnect(transaction, now);
            }
            Phase::Disconnecting | Phase::TimeWait | Phase::Closed => {}
        }
        self.ended = true;
    }

    /// Handles a message of the peer.
    pub fn receive(&mut self, mad: &Mad, now: u64) {
        match &mad.message {
            Message::Request(_) | Message::Resolve(_) => self.repeated(now),
            Message::Delay(delay) => self.delayed(delay, now),
            Message::Reject(reject) => self.rejected(reject, now),
            Message::Reply(reply) => self.replied(reply),
            Message::Ready(_) => self.has_traffic(),
            Message::Disconnect(disconnect) => self.disconnected(disconnect, mad.transaction, now),
            Message::Disconnected(_) => {
                if matches!(self.phase, Phase::Disconnecting | Phase::Disconnected) {
                    self.end(true);
                    self.wait(now);
                }
            }
            Message::Resolved(resolved) => {
                if self.datagram && self.phase == Phase::Requesting {
                    self.events.push_back(Event::Resolved(resolved.clone()));
                    self.finish();
                }
            }
            Message::LoadPath(load) => {
                if self.phase == Phase::Established && load.ids.remote == self.ids.local {
                    let loaded =
                        PathLoaded { ids: self.ids, status: UNSUPPORTED, ..PathLoaded::default() };
                    let message = Message::PathLoaded(loaded);
                    self.messages.push_back(Mad { transaction: mad.transaction, message });
                }
            }
            Message::PathLoaded(_) => {}
        }
    }

    /// The peer is ready: its RTU has arrived, or a packet on the connection.
    pub fn has_traffic(&mut self) {
        if self.phase == Phase::Replying {
            self.answered();
            self.phase = Phase::Established;
            self.events.push_back(Event::Established);
        }
    }

    /// Repeats what was not answered, gives it up, or ends the time in which late packets arrive.
    pub fn expire(&mut self, now: u64) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.deadline = None;
        if let Some(pending) = &mut self.pending {
            if pending.left > 0 {
                pending.left -= 1;
                self.deadline = Some(now + pending.interval);
                self.messages.push_back(pending.mad.clone());
                return;
            }
        }
        self.pending = None;
        match self.phase {
            Phase::Requesting | Phase::Replying => {
                if !self.ended {
                    self.events.push_back(Event::Unreachable);
                }
                self.ended = true;
                self.finish();
            }
            Phase::Disconnecting => {
                self.end(false);
                self.wait(now);
            }
            Phase::TimeWait => {
                if !self.datagram && !self.quiet {
                    self.events.push_back(Event::TimeWaitExit);
                }
                self.finish();
            }
            _ => {}
        }
    }

    /// Ends a connection whose peer has connected again from the same queue pair.
    pub fn is_stale(&mut self, transaction: u64, now: u64) {
        if self.phase == Phase::Replied {
            self.reject(Reason::STALE, Vec::new(), Vec::new(), now);
        }
        self.disconnect(transaction, now);
    }

    /// The peer has repeated its REQ or SIDR_REQ.
    fn repeated(&mut self, now: u64) {
        match self.phase {
            Phase::Requested if !self.datagram => {
                let delay =
                    Delay { ids: self.ids, message: 0, timeout: DELAY, private: Vec::new() };
                self.send(Message::Delay(delay));
            }
            Phase::Replying => {
                if let Some(pending) = &self.pending {
                    self.messages.push_back(pending.mad.clone());
                    self.deadline = Some(now + pending.interval);
                }
            }
            Phase::TimeWait => self.messages.extend(self.answer.clone()),
            _ => {}
        }
    }

    fn delayed(&mut self, delay: &Delay, now: u64) {
        let fits = match self.phase {
            Phase::Requesting => delay.message == 0,
            Phase::Replying => delay.message == 1,
            _ => false,
        };
        if fits && self.pending.is_some() {
            if self.phase == Phase::Requesting {
                self.ids.remote = delay.ids.local;
            }
            self.deadline = Some(now + span(delay.timeout) + self.time_wait);
        }
    }

    fn rejected(&mut self, reject: &Reject, now: u64) {
        match self.phase {
            Phase::Requesting | Phase::Replied if reject.reason != Reason::STALE => self.finish(),
            Phase::Requesting | Phase::Replied | Phase::Replying | Phase::Established => {
                self.wait(now);
            }
            Phase::Disconnecting | Phase::Disconnected => {
                self.end(true);
                self.wait(now);
            }
            Phase::Requested => {
                // The active side has given up before it was answered.
                self.finish();
            }
            Phase::TimeWait | Phase::Closed => return,
        }
        if !self.ended {
            self.ended = true;
            self.events.push_back(Event::Rejected(reject.clone()));
        }
    }

    fn replied(&mut self, reply: &Reply) {
        match self.phase {
            Phase::Requesting if !self.datagram => {
                self.answered();
                self.phase = Phase::Replied;
                self.ids.remote = reply.ids.local;
                self.remote_guid = reply.guid;
                self.remote_qp = if reply.qp == 0 { reply.target } else { reply.qp };
                self.events.push_back(Event::Replied(Box::new(reply.clone())));
            }
            Phase::Replied => {
                let delay =
                    Delay { ids: self.ids, message: 1, timeout: DELAY, private: Vec::new() };
                self.send(Message::Delay(delay));
            }
            // The RTU, or the REJ, was lost.
            Phase::Established | Phase::TimeWait => self.messages.extend(self.answer.clone()),
            _ => {}
        }
    }

    fn disconnected(&mut self, disconnect: &Disconnect, transaction: u64, now: u64) {
        if disconnect.remote_qp != self.local_qp || disconnect.ids.local != self.ids.remote {
            return;
        }
        match self.phase {
            // Without an RTU, the DREQ says as much.
            Phase::Replying | Phase::Established | Phase::Disconnecting => {
                let closed = self.ended;
                self.answered();
                self.phase = Phase::Disconnected;
                self.transaction = transaction;
                self.end(true);
                // No user is left to answer.
                if closed {
                    self.answer_disconnect();
                    self.wait(now);
                }
            }
            Phase::TimeWait | Phase::Closed => {
                self.transaction = transaction;
                self.answer_disconnect();
            }
            _ => {}
        }
    }

    fn answer_disconnect(&mut self) {
        self.answer_with(Message::Disconnected(Confirm { ids: self.ids, private: Vec::new() }));
    }

    fn end(&mut self, answered: bool) {
        if !self.ended {
            self.ended = true;
            self.events.push_back(Event::Disconnected { answered });
        }
    }

    fn send(&mut self, message: Message) {
        self.messages.push_back(Mad { transaction: self.transaction, message });
    }

    /// Sends a message, and keeps it for a duplicate of what it answers.
    fn answer_with(&mut self, message: Message) {
        let mad = Mad { transaction: self.transaction, message };
        self.answer = Some(mad.clone());
        self.messages.push_back(mad);
    }

    /// Sends a message, and repeats it until it is answered.
    fn ask(&mut self, message: Message, interval: u64, now: u64) {
        let mad = Mad { transaction: self.transaction, message };
        self.pending = Some(Pending { mad: mad.clone(), left: RETRIES, interval });
        self.deadline = Some(now + interval);
        self.messages.push_back(mad);
    }

    /// What was repeated has been answered.
    fn answered(&mut self) {
        (self.pending, self.deadline) = (None, None);
    }

    fn wait(&mut self, now: u64) {
        self.answered();
        self.phase = Phase::TimeWait;
        self.deadline = Some(now + self.time_wait);
    }

    fn finish(&mut self) {
        self.answered();
        self.phase = Phase::Closed;
    }
}
