//! The plan of an episode: a function of the seed and the episode's number, which both processes
//! compute independently.

use crate::random::{Random, bytes};

/// One of the two processes of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Posts and polls by the crate `mlx5`.
    Driver,
    /// Posts and polls by libibverbs.
    Library,
}

impl Side {
    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Library => "library",
        }
    }

    /// The other process.
    pub fn other(self) -> Self {
        match self {
            Self::Driver => Self::Library,
            Self::Library => Self::Driver,
        }
    }
}

/// The transport of an episode, and where its receives are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RC with receive queues.
    Rc,
    /// RC with a shared receive queue.
    RcShared,
    /// UC with receive queues.
    Uc,
    /// UD with receive queues.
    Ud,
    /// XRC, whose receives are always shared.
    Xrc,
    /// DC from the driver's initiators to the library's target.
    Dc,
}

impl Kind {
    /// Whether receives are posted to one shared receive queue.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::RcShared | Self::Xrc | Self::Dc)
    }

    /// Whether messages wait for a receive, and READs and atomics exist.
    pub fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc | Self::Ud)
    }
}

/// Most queue pairs of an episode.
pub const MAX_QPS: usize = 3;
/// Longest message and longest access in bytes.
pub const LONGEST: usize = 8192;
/// Bytes of peer memory that a queue pair's requests reach.
pub const TARGET: usize = 1 << 15;
/// The first bytes of a target: words of atomics, which nothing else touches.
pub const WORDS: usize = 256;
/// Requests whose local memory is in use at a time, per queue pair.
pub const SLOTS: usize = 64;
/// Bytes before the payload of a datagram.
pub const GRH: usize = 40;

/// The shape of an episode.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub episode: u64,
    pub kind: Kind,
    pub qps: usize,
    /// Requests of each queue pair of the driver's side, and of the library's.
    pub operations: [u64; 2],
    pub send_depth: u32,
    pub receive_depth: u32,
    pub sges: u32,
    pub inline: u32,
    /// Requests that the driver's CQ has slots for, per queue pair.
    pub requests: u32,
    pub wide_cqes: bool,
    /// CQEs that the driver reads before it publishes its consumer index; 0: publishes always.
    pub publish: u32,
    /// Whether senders wait until a receive is posted, instead of running into RNR NAKs.
    pub credits: bool,
    /// The process that is killed once it has posted so many requests on each queue pair.
    pub kill: Option<(Side, u64)>,
}

impl Plan {
    /// Computes the plan of an episode that has about `most` requests, or fewer.
    pub fn new(seed: u64, episode: u64, most: u64) -> Self {
        let mut random = Random::new(&[seed, episode]);
        let kind = [Kind::Rc, Kind::Rc, Kind::RcShared, Kind::Uc, Kind::Ud, Kind::Xrc, Kind::Dc]
            [random.below(7) as usize];
        let qps = random.between(1, MAX_QPS as u32) as usize;
        let total = (u64::from(random.between(400, 3000))).min(most).max(2);
        let share = match (kind, random.below(4)) {
            (Kind::Dc, _) | (_, 0) => 100,
            (_, 1) => 0,
            _ => random.between(10, 90),
        };
        let each = |percent: u32| (total * u64::from(percent) / 100).div_ceil(qps as u64);
        let operations = [each(share), each(100 - share)];
        let send_depth = 1 << random.between(1, 6);
        let killed = if random.below(2) == 0 { Side::Driver } else { Side::Library };
        let kill = random.one_in(3).then(|| (killed, u64::from(random.between(1, 60))));
        // The survivor has to have something outstanding, and datagrams do not notice.
        let survivor = operations[killed.other() as usize];
        let kill = kill.filter(|_| matches!(kind, Kind::Rc | Kind::RcShared) && survivor > 100);
        Self {
            seed,
            episode,
            kind,
            qps,
            operations,
            send_depth,
            receive_depth: 1 << random.between(0, 6),
            sges: random.between(1, 4),
            inline: [0, 28, 64, 200][random.below(4) as usize],
            requests: random.between(1, send_depth),
            wide_cqes: random.one_in(3),
            publish: if random.one_in(3) { random.between(1, 16) } else { 0 },
            credits: !kind.is_reliable() || kill.is_some() || !random.one_in(4),
            kill,
        }
    }

    /// Requests of all queue pairs of both sides.
    pub fn total(&self) -> u64 {
        (self.operations[0] + self.operations[1]) * self.qps as u64
    }

    /// The requests that `side` posts on its queue pair `qp`.
    pub fn stream(&self, side: Side, qp: usize) -> Stream {
        let parts = [self.seed, self.episode, 1 + side as u64, qp as u64];
        Stream {
            random: Random::new(&parts),
            kind: self.kind,
            qp,
            sges: self.sges,
            inline: self.inline,
            longest_run: if self.kill.is_some() {
                0
            } else {
                self.send_depth.min(self.requests) / 4
            },
            next: 0,
            count: self.operations[side as usize],
            run: 0,
            group: 0,
            reads: Vec::new(),
            mirror: vec![0; TARGET],
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Send,
    SendImm(u32),
    Write,
    WriteImm(u32),
    Read,
    FetchAdd(u64),
    CompareSwap { compare: u64, swap: u64 },
}

/// A request, independent of the memory that it is posted with.
#[derive(Clone, Debug)]
pub struct Operation {
    pub number: u64,
    pub action: Action,
    /// Lengths of the scatter/gather entries.
    pub parts: Vec<u32>,
    pub inline: bool,
    pub signaled: bool,
    pub solicited: bool,
    pub fenced: bool,
    /// Offset in the peer's target.
    pub target: usize,
    /// Bytes that go out, or that must have come in when it is complete.
    pub data: Vec<u8>,
    /// Whether it is posted together with the one before it.
    pub joins: bool,
    /// Whether a first attempt of its batch is dropped unrung.
    pub drops: bool,
}

impl Operation {
    /// Whether it fills local memory.
    pub fn fetches(&self) -> bool {
        matches!(self.action, Action::Read | Action::FetchAdd(_) | Action::CompareSwap { .. })
    }

    /// The message that the peer's receive reports, if it takes one: whether the payload lies in
    /// the receive's memory, and the immediate data.
    pub fn message(&self) -> Option<(bool, Option<u32>)> {
        match self.action {
            Action::Send => Some((true, None)),
            Action::SendImm(imm) => Some((true, Some(imm))),
            Action::WriteImm(imm) => Some((false, Some(imm))),
            _ => None,
        }
    }
}

/// The requests of one queue pair, in order, and the peer memory that they leave.
#[derive(Debug)]
pub struct Stream {
    random: Random,
    kind: Kind,
    qp: usize,
    sges: u32,
    inline: u32,
    longest_run: u32,
    next: u64,
    count: u64,
    /// Unsignaled requests since the last signaled one.
    run: u32,
    /// Requests that still join the batch.
    group: u32,
    /// Ranges of READs since the last fence: they may be read again if an answer is lost.
    reads: Vec<(usize, usize)>,
    /// The peer's target, after all requests so far.
    pub mirror: Vec<u8>,
}

impl Stream {
    fn length(&mut self) -> usize {
        let longest = if self.kind == Kind::Ud { 1000 } else { LONGEST };
        let length = match self.random.below(10) {
            0 => 0,
            1..=4 => self.random.below(80),
            5..=7 => self.random.below(1100),
            8 => self.random.below(5000),
            _ => self.random.below(LONGEST as u32 + 1),
        };
        (length as usize).min(longest)
    }

    fn range(&mut self) -> (usize, usize) {
        let length = self.length();
        let start = WORDS + self.random.below((TARGET - WORDS - length + 1) as u32) as usize;
        (start, length)
    }

    fn parts(&mut self, length: usize) -> Vec<u32> {
        let mut left = length as u32;
        let count = self.random.between(1, self.sges);
        let mut parts: Vec<u32> = (1..count)
            .map(|_| {
                let part = self.random.below(left + 1);
                left -= part;
                part
            })
            .collect();
        parts.push(left);
        parts
    }
}

impl Iterator for Stream {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        if self.next == self.count {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let last = self.next == self.count;
        let choices = match self.kind {
            Kind::Ud => 2,
            Kind::Uc => 5,
            _ => 10,
        };
        // A DC target does not say which initiator a message is from, so its immediate data does.
        let imm = (self.random.next() as u32) >> 2 | (self.qp as u32) << 30;
        let (mut target, mut fenced) = (0, self.random.one_in(12));
        let choice = self.random.below(choices);
        // An unreliable request is complete when it is sent. The last message comes behind all
        // WRITEs.
        let choice = if last && self.kind == Kind::Uc { 0 } else { choice };
        let (action, data) = match choice {
            choice @ (0 | 1) => {
                let plain = choice == 0 && self.kind != Kind::Dc;
                let action = if plain { Action::Send } else { Action::SendImm(imm) };
                let length = self.length();
                (action, bytes(self.random.next(), length))
            }
            choice @ 2..=4 => {
                let (start, length) = self.range();
                let data = bytes(self.random.next(), length);
                let overlaps = |&(other, others): &(usize, usize)| {
                    start < other + others && other < start + length
                };
                fenced |= self.reads.iter().any(overlaps);
                self.mirror[start..start + length].copy_from_slice(&data);
                target = start;
                (if choice == 4 { Action::WriteImm(imm) } else { Action::Write }, data)
            }
            5..=7 => {
                let (start, length) = self.range();
                target = start;
                (Action::Read, self.mirror[start..start + length].to_vec())
            }
            choice => {
                target = self.random.below((WORDS / 8) as u32) as usize * 8;
                let word: [u8; 8] = self.mirror[target..target + 8].try_into().expect("8 bytes");
                let old = u64::from_ne_bytes(word);
                let operand = self.random.next();
                let (action, new) = if choice == 8 {
                    (Action::FetchAdd(operand), old.wrapping_add(operand))
                } else {
                    let compare = if self.random.one_in(3) { !old } else { old };
                    let new = if compare == old { operand } else { old };
                    (Action::CompareSwap { compare, swap: operand }, new)
                };
                self.mirror[target..target + 8].copy_from_slice(&new.to_ne_bytes());
                (action, word.to_vec())
            }
        };
        let atomic = matches!(action, Action::FetchAdd(_) | Action::CompareSwap { .. });
        fenced &= self.kind.is_reliable();
        if fenced {
            self.reads.clear();
        }
        if action == Action::Read {
            self.reads.push((target, data.len()));
        }
        let parts = if atomic { vec![8] } else { self.parts(data.len()) };
        let fetches = action == Action::Read || atomic;
        let inline = !fetches && data.len() <= self.inline as usize && self.random.one_in(2);
        let signaled = last || self.run >= self.longest_run || self.random.one_in(3);
        self.run = if signaled { 0 } else { self.run + 1 };
        let joins = self.group != 0;
        if joins {
            self.group -= 1;
        } else if self.random.one_in(2) {
            self.group = self.random.below(7);
        }
        let solicited = !fetches && action != Action::Write && self.random.one_in(4);
        let drops = self.random.one_in(16);
        Some(Operation {
            number,
            action,
            parts,
            inline,
            signaled,
            solicited,
            fenced,
            target,
            data,
            joins,
            drops,
        })
    }
}
