//! Faults by rule: of frames on their way from and to a port, and of a device.
//!
//! [`Faults`] are rules, read from text. [`Impairment`] applies them at one device: each frame goes
//! through the lane of its direction, which loses, changes, repeats and delays frames. So faults are
//! the same whatever carries the frames. Each rule draws from its own random numbers. The same
//! rules, frames and times give the same decisions. A frame that a rule loses does not reach the rules
//! behind it.
//!
//! The rules' language is described in docs/model.md.

mod lane;
mod parse;
mod rule;
#[cfg(test)]
mod test;

use std::collections::HashSet;

use crate::clock::Random;
use crate::wire::{Direction, Frame, Header, Link, Route};
use lane::Lane;
pub use parse::RuleError;
use rule::{ALWAYS, Effect, FrameEffect, Rule};
pub(crate) use rule::{DeviceEffect, Queues};
pub use rule::{Faults, WqeFault};

/// How long a frame waits at most for the frames that are to overtake it, in nanoseconds.
const OVERTAKEN: u64 = 1_000_000;
/// Frames that wait for their time at most, in one direction. Further ones are lost.
const QUEUED: u64 = 1 << 16;
/// Copies of a frame at most: rules that repeat it multiply.
const COPIES: usize = 64;
/// The longest time that a frame is delayed, in nanoseconds.
const FARTHEST: u64 = 1 << 56;

/// Counts of what a rule has done at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames, commands, doorbells or WQEs that fitted the rule's conditions, except number, time and
    /// percentage.
    pub matched: u64,
    /// Faults: frames changed, commands that had a fault, doorbells lost, WQEs that failed, changes of the
    /// device.
    pub struck: u64,
}

/// The rules of one device, and the frames that they delay.
#[derive(Debug)]
pub(crate) struct Impairment {
    link: Link,
    rules: Vec<Active>,
    lanes: [Lane; 2],
    /// Faults of the device to come, with their times.
    timed: Vec<(u64, Strike)>,
    /// The BlueFlame buffers whose last doorbell was lost: UAR page and offset. The rest of the copy is
    /// lost as well.
    lost: HashSet<(u32, usize)>,
}

/// A fault of the device that happens now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    Begin(DeviceEffect),
    /// The link is up again.
    LinkUp,
}

/// A rule at work.
#[derive(Debug)]
struct Active {
    rule: Rule,
    random: Random,
    tally: Tally,
    /// The times between which it applies.
    from: u64,
    until: u64,
    /// For a rate limit: the time at which the link is free.
    free: u64,
}

impl Impairment {
    /// Applies the rules for a device, from `now` on.
    pub fn new(faults: &Faults, device: usize, link: Link, now: u64) -> Self {
        let active = |(index, rule): (usize, &Rule)| {
            let seed = faults.seed ^ (index as u64) << 32 ^ (device as u64) << 56;
            let from = now + rule.at;
            Active {
                rule: rule.clone(),
                // The first number spreads seeds that differ in few bits.
                random: Random::seeded(Random::seeded(seed).draw()),
                tally: Tally::default(),
                from,
                until: rule.applies_for().map_or(u64::MAX, |length| from + length),
                free: 0,
            }
        };
        // All rules are kept, so that their tallies have the numbers of the lines' order.
        let mut rules: Vec<Active> = faults.rules.iter().enumerate().map(active).collect();
        let mut timed = Vec::new();
        for active in &mut rules {
            if active.rule.device.is_some_and(|of| of != device) {
                active.until = 0;
            } else if active.rule.commands.is_none() {
                active.schedule(active.from, &mut timed);
            }
        }
        Self { link, rules, lanes: Default::default(), timed, lost: HashSet::new() }
    }

    /// Returns whether there is nothing to do for it, now or later.
    pub fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.timed.is_empty() && self.lanes.iter().all(Lane::is_empty)
    }

    /// Returns what each rule has done, in the order of the text. `wqes` has what those for WQEs have
    /// done, in the order of [`Self::wqe_faults`].
    pub fn tallies(&self, mut wqes: impl Iterator<Item = Tally>) -> Vec<Tally> {
        let tally = |active: &Active| match active.rule.effect {
            Effect::Wqe(_) if active.until != 0 => wqes.next().unwrap_or_default(),
            _ => active.tally,
        };
        self.rules.iter().map(tally).collect()
    }

    /// Returns the rules for send WQEs of the device, in order. They are the device's own to apply:
    /// which WQE it fetches is no input that a recording could have.
    pub fn wqe_faults(&self) -> Vec<WqeFault> {
        let here = self.rules.iter().filter(|active| active.until != 0);
        here.filter_map(|Active { rule, .. }| match rule.effect {
            Effect::Wqe(codes) => {
                Some(WqeFault { qp: rule.frames.qp, numbers: rule.numbers.clone(), codes })
            }
            _ => None,
        })
        .collect()
    }

    /// Puts a frame on its way. It comes out by [`Self::take`].
    pub fn put(&mut self, direction: Direction, frame: Frame, now: u64) {
        // A frame that finds no room is lost before it takes time on the link.
        let lane = &mut self.lanes[direction as usize];
        lane.release(now);
        if lane.is_full() {
            return;
        }
        let header = Heads::of(self.link, &frame, direction);
        let mut flights = vec![Flight { frame, due: now, behind: 0 }];
        let mut lost = false;
        for active in &mut self.rules {
            let Effect::Frame(effect) = active.rule.effect else { continue };
            if active.takes(&header, now) {
                lost = active.apply(effect, self.link, &mut flights, now);
            }
            if lost {
                break;
            }
        }
        let lane = &mut self.lanes[direction as usize];
        if !lost {
            flights.into_iter().for_each(|flight| lane.put(flight, now));
        }
        lane.release(now);
    }

    /// A doorbell of a queue pair is rung at a buffer. Returns whether it is lost.
    pub fn loses_doorbell(&mut self, buffer: (u32, usize), qp: u32, now: u64) -> bool {
        let lost = self.rules.iter_mut().any(|active| active.takes_doorbell(qp, now));
        match lost {
            true => self.lost.insert(buffer),
            false => self.lost.remove(&buffer),
        };
        lost
    }

    /// Returns whether the last doorbell at a buffer was lost.
    pub fn has_lost(&self, buffer: (u32, usize)) -> bool {
        self.lost.contains(&buffer)
    }

    /// Takes the next frame that has come through.
    pub fn take(&mut self, direction: Direction) -> Option<Frame> {
        self.lanes[direction as usize].take()
    }

    /// Returns whether a frame has come through.
    pub fn has_frame(&self, direction: Direction) -> bool {
        self.lanes[direction as usize].has_frame()
    }

    /// Lets frames through whose time has come.
    pub fn release(&mut self, now: u64) {
        self.lanes.iter_mut().for_each(|lane| lane.release(now));
    }

    /// Takes over the frames that earlier rules delay. They come through now.
    pub fn inherit(&mut self, before: Self) {
        self.lanes = before.lanes;
        self.release(u64::MAX);
    }

    /// Takes a fault of the device whose time has come: the earliest one.
    pub fn strike(&mut self, now: u64) -> Option<Strike> {
        let due = self.timed.iter().enumerate().filter(|(_, (at, _))| *at <= now);
        let (index, _) = due.min_by_key(|(_, (at, _))| *at)?;
        Some(self.timed.remove(index).1)
    }

    /// Returns the time at which the next frame or fault is due.
    pub fn deadline(&self) -> Option<u64> {
        let frames = self.lanes.iter().filter_map(Lane::deadline);
        frames.chain(self.timed.iter().map(|(at, _)| *at)).min()
    }

    /// A command is given. Its faults come by [`Self::strike`]. Returns whether it stays unanswered.
    pub fn command(&mut self, opcode: u16, now: u64) -> bool {
        let mut unanswered = false;
        for active in &mut self.rules {
            let Effect::Device(effect) = active.rule.effect else { continue };
            let Some(commands) = &active.rule.commands else {
                if effect == DeviceEffect::Timeout && active.is_on(now) {
                    active.tally.matched += 1;
                    active.tally.struck += 1;
                    unanswered = true;
                }
                continue;
            };
            if commands.opcode.is_some_and(|named| named != opcode) {
                continue;
            }
            active.tally.matched += 1;
            if !active.rule.numbers.contains(&active.tally.matched) || !active.is_on(now) {
                continue;
            }
            if effect == DeviceEffect::Timeout {
                active.tally.struck += 1;
                unanswered = true;
            } else {
                active.schedule(now, &mut self.timed);
            }
        }
        unanswered
    }
}

/// The parts of a frame that rules look at.
struct Heads {
    direction: Direction,
    qps: [Option<u32>; 2],
    level: Option<u8>,
}

impl Heads {
    fn of(link: Link, frame: &Frame, direction: Direction) -> Self {
        let destination = Header::destination(link, &frame.0).map(|(_, number)| number);
        let datagram = Header::decode(link, &frame.0).ok().and_then(|(header, _)| header.datagram);
        Self {
            direction,
            qps: [destination, datagram.map(|datagram| datagram.source)],
            level: Route::service_level(link, &frame.0),
        }
    }
}

/// A frame on its way through a lane.
struct Flight {
    frame: Frame,
    /// The time at which it comes through.
    due: u64,
    /// Frames that are to overtake it.
    behind: u32,
}

impl Active {
    fn is_on(&self, now: u64) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// Adds the rule's fault of the device to those to come.
    fn schedule(&mut self, at: u64, timed: &mut Vec<(u64, Strike)>) {
        let Effect::Device(effect) = self.rule.effect else { return };
        if effect == DeviceEffect::Timeout {
            return;
        }
        self.tally.struck += 1;
        timed.push((at, Strike::Begin(effect)));
        if let (DeviceEffect::Flap, Some(length)) = (effect, self.rule.length) {
            timed.push((at + length, Strike::LinkUp));
        }
    }

    /// Counts a frame if it matches, and decides whether the rule applies to it.
    fn takes(&mut self, heads: &Heads, now: u64) -> bool {
        let wanted = &self.rule.frames;
        let is_other = wanted.direction.is_some_and(|direction| direction != heads.direction)
            || wanted.qp.is_some_and(|qp| !heads.qps.contains(&Some(qp)))
            || wanted.level.is_some_and(|level| heads.level != Some(level))
            || self.until == 0;
        !is_other && self.strikes(now)
    }

    /// Counts a doorbell if it matches, and decides whether it is lost.
    fn takes_doorbell(&mut self, qp: u32, now: u64) -> bool {
        let is_other = self.rule.effect != Effect::LostDoorbell
            || self.rule.frames.qp.is_some_and(|wanted| wanted != qp)
            || self.until == 0;
        !is_other && self.strikes(now)
    }

    /// Counts a match, and decides whether the rule applies to it.
    fn strikes(&mut self, now: u64) -> bool {
        self.tally.matched += 1;
        let takes = self.rule.numbers.contains(&self.tally.matched)
            && self.is_on(now)
            && (self.rule.chance == ALWAYS || self.random.draw() >> 32 < self.rule.chance);
        self.tally.struck += u64::from(takes);
        takes
    }

    /// Applies the fault to all copies of a frame. Returns whether the frame is lost.
    fn apply(
        &mut self,
        effect: FrameEffect,
        link: Link,
        flights: &mut Vec<Flight>,
        now: u64,
    ) -> bool {
        match effect {
            FrameEffect::Lose => return true,
            FrameEffect::Duplicate if flights.len() >= COPIES => {}
            FrameEffect::Duplicate => {
                let copies = flights.iter().map(|flight| Flight {
                    frame: flight.frame.clone(),
                    due: flight.due,
                    behind: 0,
                });
                let copies: Vec<_> = copies.collect();
                flights.extend(copies);
            }
            FrameEffect::Corrupt => {
                let bytes = &mut flights[0].frame.0;
                let bit = self.random.draw() as usize % (bytes.len().max(1) * 8);
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            FrameEffect::Reorder(by) => flights[0].behind = by,
            FrameEffect::Mark => {
                for flight in flights {
                    Route::mark_congestion(link, &mut flight.frame.0);
                }
            }
            FrameEffect::Delay(by, jitter) => {
                let varies = match jitter {
                    0 => 0,
                    _ => self.random.draw() % (2 * jitter + 1),
                };
                for flight in flights {
                    let due = flight.due.saturating_add(by).saturating_add(varies);
                    flight.due =
                        due.saturating_sub(jitter).clamp(now, now.saturating_add(FARTHEST));
                }
            }
            FrameEffect::Rate(bits) => {
                for flight in flights {
                    let time = (flight.frame.0.len() as u64 * 8 * 1_000_000_000).div_ceil(bits);
                    self.free = self.free.max(flight.due) + time;
                    flight.due = self.free;
                }
            }
            FrameEffect::Pause => {
                for flight in flights {
                    flight.due = flight.due.max(self.until);
                }
            }
        }
        false
    }
}
