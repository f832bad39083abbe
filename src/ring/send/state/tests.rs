//! Every short sequence of operations on small rings, against a plain list of requests.

use mlx5_sys::wqe::opcode::{SEND, UMR};

use super::*;
use crate::ring::send::wqes::{Last, Names, UNITS, Wqes};
use crate::wqe::Code;

const QPN: u32 = 0x12_3456;
/// Few blocks before the 16 bits of a counter that CQEs have are full.
const START: Counter = Counter::new(0xfffd);

/// What is posted.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Of one block.
    Short,
    /// Of two blocks.
    Long,
    /// A key change, of two blocks.
    Keys,
}

impl Kind {
    fn opcode(self) -> u8 {
        if let Self::Keys = self { UMR } else { SEND }
    }

    fn ds(self) -> u32 {
        match self {
            Self::Short => 2,
            Self::Long => 6,
            Self::Keys => 8,
        }
    }

    fn blocks(self) -> u32 {
        self.ds().div_ceil(UNITS)
    }
}

const SIGNALED: bool = true;
const UNSIGNALED: bool = false;

#[derive(Clone, Copy, Debug)]
enum Op {
    Post(Kind, bool),
    /// A batch of a short request and one of that kind, both signaled, that is rung.
    Ring(Kind),
    /// The same, dropped.
    Drop(Kind),
    /// The CQE of the signaled request at this place among those.
    Complete(usize),
    /// The same, and the requests are held back.
    Hold(usize),
    GiveBack,
    /// An error completion of the oldest request.
    Fail,
    Resume,
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    at: Counter,
    blocks: u32,
    opcode: u8,
    signaled: bool,
    id: u64,
    completed: bool,
}

/// A state, and what a program knows that counts its requests one by one.
#[derive(Clone)]
struct Case {
    state: SendState,
    /// Requests whose blocks are not free, oldest first.
    requests: Vec<Request>,
    head: Counter,
    next_id: u64,
    stopped: bool,
    /// Something is written at the head and not posted.
    open: bool,
    /// While requests are held back: how many, and where the tail will be.
    held: Option<(usize, Counter)>,
    done: Vec<Op>,
}

impl Case {
    fn new(blocks: u32, slots: u32, order: CompletionOrder) -> Self {
        let shape = Shape::new(blocks).unwrap();
        let state = SendState::new(Start { shape, at: START, slots, order, no_entries: false });
        Self {
            state,
            requests: Vec::new(),
            head: START,
            next_id: 0,
            stopped: false,
            open: false,
            held: None,
            done: Vec::new(),
        }
    }

    fn blocks(&self) -> u32 {
        self.state.shape().entries()
    }

    /// Returns the numbers of free blocks and CQ slots.
    fn free(&self) -> (u32, u32) {
        let used: u32 = self.requests.iter().map(|request| request.blocks).sum();
        (self.blocks() - used, self.state.slots() - self.requests.len() as u32)
    }

    /// Returns 1 if a block and a slot are kept for a signaled request.
    fn kept(&self) -> u32 {
        u32::from(self.requests.iter().all(|request| !request.signaled))
    }

    /// Returns what a post says.
    fn verdict(&self, blocks: u32, signaled: bool) -> Result<(), PostError> {
        if self.stopped {
            return Err(PostError::WrongState);
        }
        let (free, slots) = self.free();
        let ring = self.state.shape().entries();
        if blocks > ring {
            return Err(PostError::LongerThanRing(Excess::new(blocks as usize, ring)));
        }
        let kept = if signaled { 0 } else { self.kept() };
        if blocks + kept <= free && kept < slots {
            return Ok(());
        }
        Err(match self.kept() {
            1 => PostError::NothingSignaled { outstanding: self.blocks() - free },
            _ if blocks > free => PostError::QueueFull { free },
            _ => PostError::CqFull { slots: self.state.slots() },
        })
    }

    /// Writes the entries of a request at `at`, and enters it in the list. Returns the point behind.
    fn write(&mut self, at: Point, kind: Kind, signaled: bool) -> Point {
        let names = Names::new(QPN);
        let ctrl = names.ctrl(at.at, Code::new(kind.opcode()), kind.ds());
        let shadow = self.state.entries();
        let wqes = Wqes { shape: self.state.shape(), buffer: NonNull::dangling(), shadow, names };
        let end = at.behind(kind.blocks());
        let last = Last { doorbell: ctrl.to_be() };
        // SAFETY: only this thread uses the entries. A write that is not posted opens the state.
        unsafe { wqes.remember(at.at, end.silent, self.next_id, last, signaled) };
        self.requests.push(Request {
            at: at.at,
            blocks: kind.blocks(),
            opcode: kind.opcode(),
            signaled,
            id: self.next_id,
            completed: false,
        });
        self.next_id += 1;
        end
    }

    /// Returns whether a signaled request is outstanding, as the ring finds out from the WQEs.
    fn expects_cqe(requests: &[Request]) -> impl Fn() -> bool {
        let any = requests.iter().any(|request| request.signaled);
        move || any
    }

    fn refill(&mut self) {
        self.state.end_run();
        self.state.abandon();
        self.open = false;
        self.grant_most();
    }

    fn grant_most(&mut self) {
        let clear = self.state.clear_from(self.state.end(), Self::expects_cqe(&self.requests));
        self.state.grant(clear, clear);
    }

    fn check_free(&self, at: Point, kind: Kind, signaled: bool) -> Result<(), PostError> {
        let expects_cqe = Self::expects_cqe(&self.requests);
        self.state.check_running()?;
        self.state.check_free(at, kind.blocks(), signaled, expects_cqe)
    }

    fn post(&mut self, kind: Kind, signaled: bool) {
        let expected = self.verdict(kind.blocks(), signaled);
        let at = self.state.end();
        let is_key_change = kind.opcode() == UMR;
        let clear = self.state.clear();
        if is_key_change && self.state.is_in_run() && kind.blocks() <= self.state.run_room() {
            assert_eq!(expected, Ok(()), "{:?}", self.done);
            // The first one is not posted: a lint refuses it.
            let before = self.clone();
            assert_eq!(self.state.take_in_run(kind.blocks()), at.behind(kind.blocks()));
            self.state.leave_run(kind.blocks());
            self.state.leave_open();
            assert_eq!(self.state.end(), at, "{:?}", self.done);
            assert_eq!(self.state.run_room(), 0, "{:?}", self.done);
            *self = before;
            let end = self.state.take_in_run(kind.blocks());
            assert_eq!(self.write(at, kind, signaled), end);
            self.state.posted_in_run(end.at);
            self.state.continue_run(end.at);
        } else if !is_key_change && kind.blocks() <= clear.since(at.at) {
            assert_eq!(expected, Ok(()), "{:?}", self.done);
            let end = self.write(at, kind, signaled);
            if kind.blocks() == 1 {
                self.state.posted_block(end.at);
            } else {
                self.state.posted(end);
                self.state.grant(clear, clear);
            }
        } else {
            if is_key_change {
                self.state.abandon()
            } else {
                self.refill()
            }
            self.open = false;
            assert_eq!(self.check_free(at, kind, signaled), expected, "{:?}", self.done);
            if expected.is_err() {
                return;
            }
            self.state.note(kind.opcode());
            let end = self.write(at, kind, signaled);
            self.state.posted(end);
            if is_key_change {
                self.state.grant_none();
                self.state.end_run();
                self.state.begin_run();
            } else {
                self.grant_most();
            }
        }
        self.head = self.head.plus(kind.blocks());
    }

    fn batch(&mut self, kind: Kind, rings: bool) {
        self.state.open();
        self.open = true;
        let (mut end, mut clear) = (self.state.end(), self.state.clear());
        let posted = self.requests.len();
        for kind in [Kind::Short, kind] {
            let expected = self.verdict(kind.blocks(), SIGNALED);
            if kind.opcode() != UMR && kind.blocks() <= clear.since(end.at) {
                assert_eq!(expected, Ok(()), "{:?}", self.done);
                end = self.write(end, kind, SIGNALED);
                continue;
            }
            assert_eq!(self.check_free(end, kind, SIGNALED), expected, "{:?}", self.done);
            if expected.is_err() {
                break;
            }
            self.state.note(kind.opcode());
            end = self.write(end, kind, SIGNALED);
            clear = self.state.clear_keeping(end, 1);
        }
        if rings {
            self.state.posted(end);
            self.state.grant(clear, clear);
            self.state.close();
            (self.head, self.open) = (end.at, false);
        } else {
            self.requests.truncate(posted);
        }
    }

    /// Returns the place in the list of the signaled request at this place among those. `None` if no
    /// CQE may be taken now.
    fn signaled(&self, nth: usize) -> Option<usize> {
        let asks = |request: &Request| request.signaled && !request.completed;
        let mut found = (0..self.requests.len()).filter(|&at| asks(&self.requests[at]));
        found.nth(nth).filter(|_| self.held.is_none())
    }

    /// The last eight bytes of a CQE that reports the success of a SEND.
    fn end_of_cqe(at: Counter) -> u64 {
        let [_, qpn @ ..] = QPN.to_be_bytes();
        let index = at.low16().to_be_bytes();
        u64::from_ne_bytes([SEND, qpn[0], qpn[1], qpn[2], index[0], index[1], 0, 0])
    }

    /// Retires as a poll does, and removes the requests from the list.
    fn complete(&mut self, at: usize) {
        let request = self.requests[at];
        let end = Self::end_of_cqe(request.at);
        let oldest = self.state.retire_oldest(end);
        assert!(oldest.is_none() || at == 0, "{:?}", self.done);
        let found = oldest.or_else(|| self.state.retire_other(end));
        let found = found.or_else(|| {
            let counter = self.state.retire(request.at.low16())?;
            Some(self.state.entry(counter))
        });
        assert_eq!(found.map(|entry| entry.id), Some(request.id), "{:?}", self.done);
        self.requests[at].completed = true;
        match self.state.order {
            CompletionOrder::Posting => drop(self.requests.drain(..=at)),
            CompletionOrder::Any => {
                let free = self.requests.iter().take_while(|request| request.completed).count();
                self.requests.drain(..free);
            }
        }
    }

    /// Performs an operation. Returns whether it is one that may happen now.
    fn perform(&mut self, op: Op) -> bool {
        self.done.push(op);
        match op {
            Op::Post(kind, signaled) => self.post(kind, signaled),
            Op::Ring(kind) => self.batch(kind, true),
            Op::Drop(kind) => self.batch(kind, false),
            Op::Complete(nth) => {
                let Some(at) = self.signaled(nth) else { return false };
                self.complete(at);
            }
            Op::Hold(nth) => {
                let Some(at) = self.signaled(nth) else { return false };
                let (mark, before) = (self.state.mark(), self.requests.clone());
                self.complete(at);
                self.held = Some((at + 1, self.state.hold_back(mark)));
                self.requests = before;
            }
            Op::GiveBack => {
                let Some((count, end)) = self.held else { return false };
                let (at, entry) = self.state.give_back(end).expect("some are held back");
                let request = self.requests.remove(0);
                assert_eq!((at, entry.id), (request.at, request.id), "{:?}", self.done);
                self.held = (count > 1).then_some((count - 1, end));
                if self.held.is_none() {
                    assert!(self.state.give_back(end).is_none(), "{:?}", self.done);
                }
            }
            Op::Fail => {
                if self.requests.is_empty() || self.held.is_some() {
                    return false;
                }
                self.state.retire(self.requests[0].at.low16()).expect("it is outstanding");
                self.requests.remove(0);
                self.state.stop();
                self.stopped = true;
            }
            Op::Resume => {
                self.state.resume();
                self.stopped = false;
                self.refill();
            }
            Op::Restart => {
                self.state.restart();
                self.requests.clear();
                (self.head, self.stopped, self.open) = (Counter::default(), false, false);
                self.held = None;
            }
        }
        true
    }

    /// Checks the state against the list, and its invariants.
    fn check(&mut self) {
        let state = &mut self.state;
        let tail = self.requests.first().map_or(self.head, |request| request.at);
        assert_eq!((state.head(), state.tail()), (self.head, tail), "{:?}", self.done);
        let found: Vec<_> = state.outstanding().map(|(at, entry)| (at, entry.id)).collect();
        let outstanding = self.requests.iter().filter(|request| !request.completed);
        let expected: Vec<_> = outstanding.map(|request| (request.at, request.id)).collect();
        assert_eq!(found, expected, "{:?}", self.done);

        // CQEs of WQEs that are not posted, and of blocks inside of WQEs, retire nothing.
        for ahead in 0..2 * state.shape().entries() {
            let at = tail.plus(ahead);
            if self.requests.iter().all(|request| request.at != at) {
                let end = Self::end_of_cqe(at);
                assert!(state.retire_oldest(end).is_none(), "{:?}, {at:?}", self.done);
                assert!(state.retire_other(end).is_none(), "{:?}, {at:?}", self.done);
                assert!(state.retire(at.low16()).is_none(), "{:?}, {at:?}", self.done);
            }
        }
        let compares = !self.open && self.held.is_none() && state.order == CompletionOrder::Posting;
        if let Some(first) = self.requests.first().filter(|_| compares) {
            let is_plain = (first.opcode, first.blocks, first.signaled) == (SEND, 1, true);
            // At slot 0 it may look behind the last.
            let sees = state.clone().retire_oldest(Self::end_of_cqe(tail)).is_some();
            assert!(sees == is_plain || state.shape().slot(tail) == 0, "{:?}", self.done);
        }
        self.check_clear();
    }

    /// Checks that nothing is granted that would be refused.
    fn check_clear(&self) {
        let state = &self.state;
        let ((free, slots), kept) = (self.free(), self.kept());
        let follows = self.requests.last().is_some_and(|request| request.opcode == UMR);
        let closed = self.stopped || follows;
        let most = if closed { 0 } else { free.min(slots).saturating_sub(kept) };
        let granted = state.clear().since(self.head);
        assert!(granted <= most, "{granted} of {most}: {:?}", self.done);
        assert_eq!(state.may_take(), granted != 0);
        let single = state.clear_single();
        assert!(single == state.clear() || self.head.reaches(single), "{:?}", self.done);
        let room = if state.is_in_run() { state.run_room() } else { 0 };
        let to_ring_end = self.blocks() - state.shape().slot(self.head) as u32;
        let most = (2 * slots.saturating_sub(kept)).min(free.saturating_sub(kept)).min(to_ring_end);
        let most = if self.stopped || self.open { 0 } else { most };
        assert!(room <= most, "a run of {room} of {most}: {:?}", self.done);
    }

    /// Performs every sequence of so many of these operations.
    fn explore(&self, ops: &[Op], depth: u32) {
        for &op in ops {
            let mut next = self.clone();
            if next.perform(op) {
                next.check();
                if depth > 1 {
                    next.explore(ops, depth - 1);
                }
            }
        }
    }
}

/// Explores rings of these blocks and CQ slots.
fn explore(rings: &[(u32, u32)], order: CompletionOrder, depth: u32, ops: &[Op]) {
    let depth = if cfg!(miri) { 2 } else { depth };
    for &(blocks, slots) in rings {
        Case::new(blocks, slots, order).explore(ops, depth);
    }
}

#[test]
fn posts_are_refused_where_a_list_of_requests_refuses_them() {
    let ops = [
        Op::Post(Kind::Short, UNSIGNALED),
        Op::Post(Kind::Short, SIGNALED),
        Op::Post(Kind::Long, UNSIGNALED),
        Op::Post(Kind::Long, SIGNALED),
        Op::Ring(Kind::Short),
        Op::Complete(0),
        Op::Complete(1),
    ];
    explore(&[(4, 4), (4, 2), (4, 1), (2, 8)], CompletionOrder::Posting, 4, &ops);
    explore(&[(4, 3)], CompletionOrder::Posting, 5, &ops);
}

#[test]
fn what_is_written_and_not_posted_expects_no_completion() {
    let ops = [
        Op::Post(Kind::Short, SIGNALED),
        Op::Post(Kind::Long, UNSIGNALED),
        Op::Drop(Kind::Short),
        Op::Drop(Kind::Long),
        Op::Ring(Kind::Long),
        Op::Complete(0),
    ];
    explore(&[(4, 4), (4, 2)], CompletionOrder::Posting, 5, &ops);
}

#[test]
fn nothing_is_clear_after_key_changes_and_failures() {
    let ops = [
        Op::Post(Kind::Short, SIGNALED),
        Op::Post(Kind::Keys, UNSIGNALED),
        Op::Post(Kind::Keys, SIGNALED),
        Op::Drop(Kind::Keys),
        Op::Complete(0),
        Op::Fail,
        Op::Resume,
        Op::Restart,
    ];
    explore(&[(8, 4), (8, 2)], CompletionOrder::Posting, 4, &ops);
}

#[test]
fn requests_that_are_held_back_keep_blocks_and_slots() {
    let ops = [
        Op::Post(Kind::Short, UNSIGNALED),
        Op::Post(Kind::Short, SIGNALED),
        Op::Post(Kind::Long, SIGNALED),
        Op::Drop(Kind::Short),
        Op::Hold(0),
        Op::Hold(1),
        Op::GiveBack,
    ];
    explore(&[(4, 4), (4, 2)], CompletionOrder::Posting, 5, &ops);
}

#[test]
fn completions_in_any_order_free_blocks_up_to_the_oldest_request() {
    let ops = [
        Op::Post(Kind::Short, SIGNALED),
        Op::Post(Kind::Long, SIGNALED),
        Op::Drop(Kind::Short),
        Op::Complete(0),
        Op::Complete(1),
        Op::Complete(2),
    ];
    explore(&[(4, 4), (4, 2)], CompletionOrder::Any, 5, &ops);
}
