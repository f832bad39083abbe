//! The oracle: the expected completions and bytes, checked on both sides by the same code.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::memory::{Memory, Slot, Theirs, difference};
use crate::plan::{Action, GRH, Kind, LONGEST, Operation, Plan, SLOTS, Side, Stream};
use crate::random::Random;
use crate::wire::{Drops, Event, Request, Result, Wire};

/// How long a side may go without a completion.
const PATIENCE: Duration = Duration::from_secs(20);
/// Requests past the point of the kill that a survivor posts before the other process is dead.
const AHEAD: u64 = 20;
/// The bit of ids of receives.
const RECEIVE: u64 = 1 << 63;

/// The requests of a queue pair of this side.
struct Sender {
    stream: Stream,
    following: Option<Operation>,
    /// Made, and not posted.
    ready: VecDeque<(Request, Slot)>,
    /// Posted, and not known to be complete.
    posted: VecDeque<(Request, Slot)>,
    count: u64,
    messages: u64,
    /// Whether a batch was dropped that has to be posted now.
    dropped: bool,
    failed: bool,
}

/// The expected effects of the peer's requests of a queue pair.
struct Expected {
    stream: Stream,
    qpn: u32,
    messages: u64,
    /// The next one that takes a receive. Without one, all requests have been looked at.
    upcoming: Option<Operation>,
}

/// The receives of a queue.
struct Receives {
    free: Vec<usize>,
    posted: VecDeque<u64>,
    slots: HashMap<u64, (usize, Slot)>,
    next: u64,
}

/// One side of an episode.
pub struct Oracle<'a> {
    plan: &'a Plan,
    side: Side,
    control: Control,
    memory: &'a mut Memory,
    theirs: Theirs,
    random: Random,
    senders: Vec<Sender>,
    expected: Vec<Expected>,
    receives: Vec<Receives>,
    last: Instant,
}

impl<'a> Oracle<'a> {
    /// Makes the oracle of `side`.
    pub fn new(
        plan: &'a Plan,
        side: Side,
        control: Control,
        memory: &'a mut Memory,
        theirs: Theirs,
    ) -> Self {
        let sender = |qp| {
            let mut stream = plan.stream(side, qp);
            Sender {
                following: stream.next(),
                stream,
                ready: VecDeque::new(),
                posted: VecDeque::new(),
                count: 0,
                messages: 0,
                dropped: false,
                failed: false,
            }
        };
        let expected = |qp| {
            let mut stream = plan.stream(side.other(), qp);
            let upcoming = stream.find(|operation| operation.message().is_some());
            Expected { stream, qpn: 0, messages: 0, upcoming }
        };
        let receives = |_| Receives {
            free: (0..SLOTS).collect(),
            posted: VecDeque::new(),
            slots: HashMap::new(),
            next: 0,
        };
        let queues = if plan.kind.is_shared() { 1 } else { plan.qps };
        Self {
            plan,
            side,
            control,
            memory,
            theirs,
            random: Random::new(&[plan.seed, plan.episode, 9, side as u64]),
            senders: (0..plan.qps).map(sender).collect(),
            expected: (0..plan.qps).map(expected).collect(),
            receives: (0..queues).map(receives).collect(),
            last: Instant::now(),
        }
    }

    /// Says which queue pairs messages arrive at.
    pub fn connected(&mut self, numbers: &[u32]) {
        for (expected, &qpn) in self.expected.iter_mut().zip(numbers) {
            expected.qpn = qpn;
        }
        self.last = Instant::now();
    }

    /// Fills the receive queues, before the peer sends.
    pub fn begin(&mut self, wire: &mut dyn Wire) -> Result {
        for queue in 0..self.receives.len() {
            self.control.set_receives(self.side, queue, 0);
            self.post_receives(wire, queue)?;
        }
        (0..self.plan.qps)
            .for_each(|qp| self.control.set_posted(self.side, qp, self.plan.episode, 0));
        Ok(())
    }

    /// Posts and polls until everything is complete on this side.
    pub fn run(&mut self, wire: &mut dyn Wire) -> Result {
        let mut events = Vec::new();
        loop {
            for qp in 0..self.plan.qps {
                self.post(wire, qp)?;
            }
            for queue in 0..self.receives.len() {
                self.post_receives(wire, queue)?;
            }
            wire.poll(self.random.next() as u32, &mut events)?;
            if events.is_empty() {
                if self.is_complete() {
                    return Ok(());
                }
                if self.last.elapsed() > PATIENCE {
                    return Err(format!("nothing completed for {PATIENCE:?}"));
                }
                std::thread::yield_now();
                continue;
            }
            self.last = Instant::now();
            self.control.advance(self.side, events.len() as u64);
            for event in events.drain(..) {
                self.take(event)?;
            }
        }
    }

    fn is_survivor(&self) -> bool {
        self.plan.kill.is_some_and(|(killed, _)| killed != self.side)
    }

    fn is_complete(&self) -> bool {
        if self.is_survivor() {
            let back = self.senders.iter().all(|it| it.failed && it.posted.is_empty());
            let flushed = self.plan.kind.is_shared()
                || self.receives.iter().all(|queue| queue.posted.is_empty());
            return back && flushed && self.control.is_dead();
        }
        let sent = self
            .senders
            .iter()
            .all(|it| it.following.is_none() && it.ready.is_empty() && it.posted.is_empty());
        sent && self.expected.iter().all(|expected| expected.upcoming.is_none())
    }

    /// Checks what is left when both sides are complete.
    pub fn end(&mut self, wire: &mut dyn Wire) -> Result {
        let mut events = Vec::new();
        wire.poll(2, &mut events)?;
        if let Some(event) = events.first() {
            return Err(format!("a completion behind the last one: {event:?}"));
        }
        wire.idle()?;
        if self.is_survivor() {
            return Ok(());
        }
        for (qp, expected) in self.expected.iter().enumerate() {
            if let Some(difference) = difference(&self.memory.target(qp), &expected.stream.mirror) {
                return Err(format!("target {qp} after all requests: {difference}"));
            }
        }
        Ok(())
    }

    /// Makes the requests of the next batch.
    fn prepare(&mut self, qp: usize) {
        let sender = &mut self.senders[qp];
        while let Some(operation) = sender.following.take() {
            let busy = sender.posted.len() + sender.ready.len();
            if busy == SLOTS || (!sender.ready.is_empty() && !operation.joins) {
                sender.following = Some(operation);
                break;
            }
            let slot = operation.number as usize % SLOTS;
            let slot = self.memory.request_slot(qp, slot, &operation.parts);
            if !operation.fetches() {
                self.memory.put(&slot, &operation.data);
            }
            let request = Request {
                id: (qp as u64) << 32 | operation.number,
                list: self.memory.list(&slot),
                remote: self.theirs.target(qp, operation.target),
                operation,
            };
            sender.ready.push_back((request, slot));
            sender.following = sender.stream.next();
        }
    }

    /// Requests at the front of those ready that the peer has receives for, and may be posted now.
    fn allowed(&self, qp: usize) -> usize {
        let sender = &self.senders[qp];
        let mut credits = u64::MAX;
        if self.plan.credits {
            let (queue, sent) = if self.plan.kind.is_shared() {
                (0, self.senders.iter().map(|it| it.messages).sum())
            } else {
                (qp, sender.messages)
            };
            credits = self.control.receives(self.side.other(), queue).saturating_sub(sent);
        }
        let mut most = usize::MAX;
        if let Some((killed, after)) = self.plan.kill {
            if killed != self.side && !self.control.is_dead() {
                most = (after + AHEAD).saturating_sub(sender.count) as usize;
            } else if killed != self.side {
                // No more receives will be posted.
                credits = u64::MAX;
            }
        }
        let mut allowed = 0;
        for (request, _) in sender.ready.iter().take(most) {
            if request.operation.message().is_some() {
                if credits == 0 {
                    break;
                }
                credits -= 1;
            }
            allowed += 1;
        }
        allowed
    }

    fn post(&mut self, wire: &mut dyn Wire, qp: usize) -> Result {
        if self.senders[qp].failed {
            return Ok(());
        }
        self.prepare(qp);
        let allowed = self.allowed(qp);
        if allowed == 0 {
            return Ok(());
        }
        let sender = &mut self.senders[qp];
        let drops = sender.ready[0].0.operation.drops && !sender.dropped;
        sender.dropped = drops;
        let (requests, slots): (Vec<_>, Vec<_>) = sender.ready.drain(..allowed).unzip();
        let drops = if drops { Drops::Yes } else { Drops::No };
        let count = wire.post(qp, &requests, drops)?;
        let mut pairs: VecDeque<_> = requests.into_iter().zip(slots).collect();
        let rest = pairs.split_off(count);
        for pair in rest.into_iter().rev() {
            sender.ready.push_front(pair);
        }
        let messages = pairs.iter().filter(|pair| pair.0.operation.message().is_some());
        sender.messages += messages.count() as u64;
        sender.count += count as u64;
        sender.posted.extend(pairs);
        self.control.set_posted(self.side, qp, self.plan.episode, sender.count);
        Ok(())
    }

    fn post_receives(&mut self, wire: &mut dyn Wire, queue: usize) -> Result {
        let shared = self.plan.kind.is_shared();
        if !shared && self.senders[queue].failed {
            return Ok(());
        }
        let depth = self.plan.receive_depth as usize;
        let free = depth - self.receives[queue].posted.len();
        if free == 0 || self.random.one_in(4) {
            return Ok(());
        }
        let count = self.random.between(1, free.min(8) as u32);
        let head = if self.plan.kind == Kind::Ud { GRH } else { 0 };
        let mut batch = Vec::new();
        for number in 0..count {
            let receives = &mut self.receives[queue];
            let Some(place) = receives.free.pop() else { break };
            let id = RECEIVE | (queue as u64) << 32 | (receives.next + u64::from(number));
            let mut left = (LONGEST + head) as u32;
            let mut parts = Vec::new();
            for _ in 1..self.random.between(1, self.plan.sges) {
                let part = self.random.below(left.min(300));
                parts.push(part);
                left -= part;
            }
            parts.push(left);
            let slot = self.memory.receive_slot(queue, place, &parts);
            batch.push((id, self.memory.list(&slot)));
            receives.slots.insert(id, (place, slot));
        }
        let posted = wire.receive(queue, &batch)?;
        let receives = &mut self.receives[queue];
        for (id, _) in batch.drain(posted..) {
            let (place, _) = receives.slots.remove(&id).ok_or("a receive without a slot")?;
            receives.free.push(place);
        }
        receives.posted.extend(batch.iter().map(|(id, _)| *id));
        receives.next += posted as u64;
        self.control.set_receives(self.side, queue, receives.next);
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result {
        match event {
            Event::Sent { id, what, length } => self.sent(id, what, length),
            Event::Received { qpn, id, length, imm, written } => {
                self.received(qpn, id, length, imm, written)
            }
            Event::Failed { id, flushed, text } => self.failed(id, flushed, &text),
        }
    }

    fn sent(&mut self, id: u64, what: &str, length: Option<u32>) -> Result {
        let qp = (id >> 32) as usize;
        let Some(sender) = self.senders.get_mut(qp).filter(|_| id & RECEIVE == 0) else {
            return Err(format!("a completion of request {id:#x}, which was never posted"));
        };
        if sender.failed {
            return Err(format!("request {id:#x} succeeded after one before it had failed"));
        }
        let next = sender.posted.iter().position(|(request, _)| request.operation.signaled);
        let next = next.map(|at| sender.posted[at].0.id);
        if next != Some(id) {
            return Err(format!(
                "a completion of request {id:#x} ({what}); the next one has to be {next:x?}"
            ));
        }
        while let Some((request, slot)) = sender.posted.pop_front() {
            let it = &request.operation;
            if it.fetches() {
                self.memory.check(&slot, 0, &it.data).map_err(|text| {
                    format!("request {:#x}, {:?} at {}: {text}", request.id, it.action, it.target)
                })?;
            }
            if request.id != id {
                continue;
            }
            let name = match it.action {
                Action::Send | Action::SendImm(_) => "SEND",
                Action::Write | Action::WriteImm(_) => "WRITE",
                Action::Read => "READ",
                Action::FetchAdd(_) => "fetch and add",
                Action::CompareSwap { .. } => "compare and swap",
            };
            let full = match it.action {
                Action::SendImm(_) | Action::WriteImm(_) => format!("{name} with immediate"),
                _ => name.to_owned(),
            };
            // libibverbs does not tell requests with immediate data apart.
            let named = what == full || (self.side == Side::Library && what == name);
            if !named || length.is_some_and(|length| length as usize != it.data.len()) {
                return Err(format!(
                    "request {id:#x} is reported as {what} of {length:?} bytes, but is a {full} of {}",
                    it.data.len()
                ));
            }
            break;
        }
        Ok(())
    }

    fn received(
        &mut self,
        qpn: u32,
        id: u64,
        length: u32,
        imm: Option<u32>,
        written: bool,
    ) -> Result {
        let said = format!("receive {id:#x} of QP {qpn:#x}, {length} bytes, immediate {imm:x?}");
        let shared = self.plan.kind.is_shared();
        let queue = (id >> 32) as usize & 0xff;
        let Some(receives) = self.receives.get_mut(queue).filter(|_| id & RECEIVE != 0) else {
            return Err(format!("{said}: it was never posted"));
        };
        let at = receives.posted.iter().position(|&posted| posted == id);
        match at {
            Some(0) => {}
            // Messages of several queue pairs end in any order.
            Some(_) if shared && self.plan.qps > 1 => {}
            _ => {
                let next = receives.posted.front();
                return Err(format!("{said}: the next one has to be {next:x?}"));
            }
        }
        receives.posted.remove(at.unwrap_or(0));
        let (place, slot) = receives.slots.remove(&id).ok_or("a receive without a slot")?;
        // The target of dynamic connections has one number for all initiators.
        let candidates = if self.plan.kind == Kind::Dc {
            (0..self.plan.qps).collect()
        } else {
            let found = self.expected.iter().position(|expected| expected.qpn == qpn);
            vec![found.ok_or_else(|| format!("{said}: no queue pair has that number"))?]
        };
        let head = if self.plan.kind == Kind::Ud { GRH } else { 0 };
        let mut reasons = Vec::new();
        for &qp in &candidates {
            let expected = &mut self.expected[qp];
            let Some(operation) = &expected.upcoming else {
                reasons.push(format!("the peer's requests on {qp} have no more messages"));
                continue;
            };
            let (scattered, with) = operation.message().ok_or("no message")?;
            let bytes = operation.data.len() + if scattered { head } else { 0 };
            if (with, !scattered, bytes) != (imm, written, length as usize) {
                reasons.push(format!(
                    "message {} on {qp} has to be {bytes} bytes, immediate {with:x?}",
                    expected.messages
                ));
                continue;
            }
            let data = if scattered { &operation.data[..] } else { &[] };
            let skip = if scattered { head } else { 0 };
            if let Err(text) = self.memory.check(&slot, skip, data) {
                reasons.push(format!("message {} on {qp}: {text}", expected.messages));
                continue;
            }
            expected.upcoming = expected.stream.find(|it| it.message().is_some());
            expected.messages += 1;
            self.receives[queue].free.push(place);
            return Ok(());
        }
        Err(format!("{said}: {}", reasons.join("; or ")))
    }

    fn failed(&mut self, id: u64, flushed: bool, text: &str) -> Result {
        if !self.is_survivor() {
            return Err(format!("a failure that nothing provoked: {text}"));
        }
        if id & RECEIVE != 0 {
            let queue = (id >> 32) as usize & 0xff;
            let receives = self.receives.get_mut(queue).ok_or("a failure of no queue")?;
            if receives.posted.front() != Some(&id) || !flushed {
                return Err(format!(
                    "receive {id:#x} is not flushed in turn, after {:x?}: {text}",
                    receives.posted.front()
                ));
            }
            receives.posted.pop_front();
            return Ok(());
        }
        let sender = self.senders.get_mut((id >> 32) as usize).ok_or("a failure of no queue")?;
        let next = sender.posted.front().map(|(request, _)| request.id);
        if next != Some(id) || flushed != sender.failed {
            return Err(format!("request {id:#x} failed, but {next:x?} is the next: {text}"));
        }
        sender.posted.pop_front();
        sender.failed = true;
        Ok(())
    }

    /// Describes where this side is, for a report.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (qp, sender) in self.senders.iter().enumerate() {
            let oldest = sender.posted.front().map(|(request, _)| &request.operation);
            text += &format!(
                "queue pair {qp}: {} of {} requests posted, {} outstanding, oldest {:?}\n",
                sender.count,
                self.plan.operations[self.side as usize],
                sender.posted.len(),
                oldest.map(|it| (it.number, it.action, it.data.len(), it.signaled)),
            );
        }
        for (qp, expected) in self.expected.iter().enumerate() {
            text += &format!("messages received on {qp}: {}\n", expected.messages);
        }
        for (queue, receives) in self.receives.iter().enumerate() {
            text += &format!(
                "receive queue {queue}: {} posted in all, {} outstanding\n",
                receives.next,
                receives.posted.len()
            );
        }
        text
    }
}
