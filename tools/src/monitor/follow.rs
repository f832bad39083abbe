//! Reads the board while the program runs.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use mlx5_monitor::board::{Board, DRIVES_ITSELF, OTHER_PROVIDER, TOO_MANY};
use mlx5_monitor::clock::Rate;

use super::failure::Failure;
use super::queue::Queue;
use crate::output::say;

/// Destroyed queue pairs whose counts are kept apart. Those before are counted together, by process and
/// device.
const ENDED: usize = 1024;

/// What the command knows of the program's processes.
pub(super) struct Follower {
    is_json: bool,
    rate: Rate,
    /// Queue pairs that exist, by their cells.
    live: BTreeMap<usize, Queue>,
    ended: Vec<Queue>,
    /// The last failure that was printed, by cells.
    printed: BTreeMap<usize, u32>,
    /// What was said of processes.
    said: BTreeMap<u32, u32>,
    /// Queue pairs that were ever seen.
    seen: u64,
}

impl Follower {
    pub fn new(is_json: bool) -> Follower {
        Follower {
            is_json,
            rate: Rate::measure(Duration::from_millis(10)),
            live: BTreeMap::new(),
            ended: Vec::new(),
            printed: BTreeMap::new(),
            said: BTreeMap::new(),
            seen: 0,
        }
    }

    /// Returns whether failures are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Looks at all cells. Returns the paragraphs to print.
    pub fn look(&mut self, board: &Board) -> String {
        let mut text = String::new();
        let before = std::mem::take(&mut self.live);
        for (index, cell, is_live) in board.cells() {
            self.seen += u64::from(!before.contains_key(&index));
            let printed = self.printed.entry(index).or_default();
            if let Some(failure) = cell.failure().filter(|failure| failure.serial != *printed) {
                *printed = failure.serial;
                let failure = Failure::new(cell, &failure, self.rate);
                // Writing to a string cannot fail.
                let _ = match self.is_json {
                    true => writeln!(text, "{}", failure.json()),
                    false => write!(text, "{failure}"),
                };
            }
            let queue = Queue::of(cell, self.rate);
            if is_live {
                self.live.insert(index, queue);
            } else {
                self.printed.remove(&index);
                self.ended.push(queue);
                board.free(index);
            }
        }
        self.fold();
        for (process, program, notes) in board.notes() {
            self.say(process, &program, notes);
        }
        text
    }

    /// Counts old queue pairs together.
    fn fold(&mut self) {
        while self.ended.len() > 2 * ENDED {
            let rest = self.ended.split_off(ENDED);
            let mut sums: Vec<Queue> = Vec::new();
            for mut queue in std::mem::take(&mut self.ended) {
                queue.label.number = None;
                match sums.iter_mut().find(|sum| sum.label == queue.label) {
                    Some(sum) => sum.add(&queue),
                    None => sums.push(queue),
                }
            }
            sums.extend(rest);
            self.ended = sums;
        }
    }

    fn say(&mut self, process: u32, program: &str, notes: u32) {
        let said = self.said.entry(process).or_default();
        let news = notes & !*said;
        *said |= notes;
        let sentences = [
            (
                DRIVES_ITSELF,
                "drives the device itself (mlx5dv_init_obj): the queues that it takes over from \
                 libibverbs are left alone",
            ),
            (
                OTHER_PROVIDER,
                "has a device that libmlx5 does not drive, or more open devices than can be observed: their \
                 queues are left alone",
            ),
            (TOO_MANY, "has more queue pairs than can be observed: the last ones are left alone"),
        ];
        for (note, sentence) in sentences {
            if news & note != 0 {
                say!("{program} (process {process}) {sentence}");
            }
        }
    }

    /// Returns all queue pairs, the destroyed ones first. A device uses numbers again: counts of a process
    /// under one number are one queue pair's, as a metric may stand in a text once.
    pub fn queues(&self) -> Vec<Cow<'_, Queue>> {
        let mut queues: Vec<Cow<'_, Queue>> = Vec::new();
        let mut places: HashMap<_, usize> = HashMap::new();
        for queue in self.ended.iter().chain(self.live.values()) {
            match places.entry(&queue.label) {
                Entry::Occupied(place) => queues[*place.get()].to_mut().add(queue),
                Entry::Vacant(place) => {
                    place.insert(queues.len());
                    queues.push(Cow::Borrowed(queue));
                }
            }
        }
        queues
    }

    /// Says what the end of the program shows.
    pub fn conclude(&self) {
        if self.seen == 0 && self.said.is_empty() {
            say!(
                "the program connected no queue pair by libibverbs and libmlx5; one that is linked \
                 statically, or has privileges of its own (setuid), cannot be observed"
            );
            return;
        }
        let queues = self.queues();
        let is_quiet = queues.iter().all(|queue| queue.requests == 0 && queue.received == 0);
        if is_quiet && !queues.is_empty() && self.said.is_empty() {
            say!(
                "nothing was posted through libibverbs: the program is only a target of its peers, or \
                 drives the device itself"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_one_queue_pair() {
        let mut follower = Follower::new(false);
        follower.ended.push(Queue::sample("a"));
        follower.ended.push(Queue::sample("b"));
        follower.live.insert(3, Queue::sample("a"));
        let queues = follower.queues();
        let counts: Vec<_> =
            queues.iter().map(|queue| (queue.label.program.as_str(), queue.requests)).collect();
        assert_eq!(counts, [("a", 10), ("b", 5)]);
        assert_eq!(queues[0].latencies[0].buckets[1], (1e-6, 4));
    }
}
