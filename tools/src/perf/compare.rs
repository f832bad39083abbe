//! Compares both ways by measuring them in turn.
//!
//! A point is split into pairs of blocks: a number of messages by one way, then the same number by
//! the other. Each block uses fresh queues, created alike. The way that begins alternates from pair
//! to pair. So drift (CPU clocks, other programs, the HCA's caches) affects both ways. Each pair
//! gives a ratio, and the spread of the ratios shows their precision.

use crate::perf::loops::SLOWEST;
use crate::perf::plan::{Amount, Plan};
use crate::perf::result::distribution::Distribution;
use crate::perf::result::{Comparison, Cpu, Point, Ratio, Slow, Via};

/// Returns the plan of a block, for each way.
#[must_use]
pub fn blocks(plan: &Plan, pairs: u64) -> [Plan; 2] {
    let amount = match plan.amount {
        Amount::Messages(count) => Amount::Messages(count.div_ceil(pairs)),
        Amount::Nanoseconds(time) => Amount::Nanoseconds((time / pairs).max(1_000_000)),
    };
    [Via::Direct, Via::Verbs].map(|via| Plan { via, amount, ..plan.clone() })
}

/// The measurements of one size, directly and by verbs, block by block.
#[derive(Debug, Default)]
pub struct Pairs(Vec<[Point; 2]>);

impl Pairs {
    /// Returns whether there is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a pair: directly, by verbs.
    pub fn add(&mut self, pair: [Point; 2]) {
        self.0.push(pair);
    }

    /// Returns the blocks of each way as one point.
    ///
    /// # Errors
    /// Returns in words why times cannot be combined.
    pub fn points(&self, percentiles: &[f64]) -> Result<Vec<Point>, String> {
        let ways = (0..2).map(|way| self.0.iter().map(|pair| &pair[way]).collect::<Vec<_>>());
        ways.filter_map(|blocks| together(&blocks, percentiles).transpose()).collect()
    }

    /// Returns the median ratio and its quartiles for each figure. CPU figures can be compared on
    /// any device; times and rates only where a real device made them.
    #[must_use]
    pub fn ratios(&self, on_card: bool) -> Vec<Ratio> {
        let cpu = |of: fn(&Cpu) -> Option<f64>| move |point: &Point| of(point.cpu.as_ref()?);
        let median = |point: &Point| Some(point.latency.as_ref()?.asked(50.0)? as f64);
        let time = |point: &Point| {
            (point.messages > 0).then(|| point.seconds * 1e9 / point.messages as f64)
        };
        let mut ratios = vec![
            self.ratio("post", "ticks per message", cpu(|cpu| cpu.posts.ticks_per_message())),
            self.ratio("poll", "ticks per completion", cpu(|cpu| cpu.polls.ticks_per_message())),
            self.ratio("post and poll", "ticks per message", cpu(Cpu::ticks_per_message)),
        ];
        if on_card {
            ratios.push(self.ratio("median latency", "ns", median));
            ratios.push(self.ratio("all", "ns per message", time));
        }
        ratios.into_iter().flatten().collect()
    }

    /// Returns the ratio; `None` where no pair has the figure by both ways.
    fn ratio(&self, figure: &str, unit: &str, of: impl Fn(&Point) -> Option<f64>) -> Option<Ratio> {
        let found: Vec<[f64; 2]> = self
            .0
            .iter()
            .filter_map(|[direct, verbs]| Some([of(direct)?, of(verbs)?]))
            .filter(|pair| pair.iter().all(|value| *value > 0.0))
            .collect();
        let [mut direct, mut verbs] =
            [0, 1].map(|way| found.iter().map(|pair| pair[way]).collect::<Vec<_>>());
        let mut ratios: Vec<_> = found.iter().map(|[direct, verbs]| verbs / direct).collect();
        Some(Ratio {
            size: self.0.first()?[0].size,
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            pairs: found.len() as u64,
            direct: quantile(&mut direct, 0.5)?,
            verbs: quantile(&mut verbs, 0.5)?,
            ratio: quantile(&mut ratios, 0.5)?,
            low: quantile(&mut ratios, 0.25)?,
            high: quantile(&mut ratios, 0.75)?,
        })
    }
}

/// Returns a description of the comparison.
#[must_use]
pub fn comparison(block: &Plan, on_card: bool, ratios: Vec<Ratio>) -> Comparison {
    let what = if on_card {
        "Calls of this side that post, and polls that find something, by the CPU's constant-rate \
         counter (medians of a block's calls); latency and time per message as the device made them."
    } else {
        "Calls of this side that post, and polls that find something, by the CPU's constant-rate \
         counter (medians of a block's calls): the CPU's side alone. Latencies and rates are the \
         model's, and are not compared."
    };
    let block = match block.amount {
        Amount::Messages(count) => count,
        Amount::Nanoseconds(_) => 0,
    };
    Comparison { what: what.to_owned(), block, ratios }
}

/// Combines blocks of one way and size into one point; `None` if there are none.
fn together(blocks: &[&Point], percentiles: &[f64]) -> Result<Option<Point>, String> {
    let Some((first, others)) = blocks.split_first() else { return Ok(None) };
    let mut point = (*first).clone();
    let mut times = Distribution::new();
    for block in blocks {
        if let Some(latency) = &block.latency {
            times.add_latency(latency)?;
        }
    }
    for block in others {
        let later = block.began - point.began;
        point
            .slowest
            .extend(block.slowest.iter().map(|slow| Slow { at: slow.at + later, ..*slow }));
        point.seconds += block.seconds;
        point.messages += block.messages;
        if let (Some(all), Some(more)) = (&mut point.validated, block.validated) {
            *all += more;
        }
        for counter in &block.counters {
            let same = |other: &&mut crate::perf::result::Counter| {
                (&other.name, other.peer) == (&counter.name, counter.peer)
            };
            match point.counters.iter_mut().find(same) {
                // Between the blocks of one way, the counter counted those of the other.
                Some(found) => found.after += counter.difference(),
                None => point.counters.push(counter.clone()),
            }
        }
    }
    Slow::keep(&mut point.slowest, SLOWEST);
    let timed = blocks.iter().find_map(|block| Some(block.latency.as_ref()?.timed));
    point.latency = timed.and_then(|timed| times.latency(timed, percentiles));
    point.cpu = cpu(blocks.iter().filter_map(|block| block.cpu.as_ref()));
    Ok(Some(point))
}

/// Returns the calls of all blocks, and the median of their medians.
fn cpu<'a>(blocks: impl Iterator<Item = &'a Cpu>) -> Option<Cpu> {
    let blocks: Vec<&Cpu> = blocks.collect();
    let mut all = (*blocks.first()?).clone();
    for cpu in &blocks[1..] {
        all.posts.calls += cpu.posts.calls;
        all.posts.messages += cpu.posts.messages;
        all.polls.calls += cpu.polls.calls;
        all.polls.messages += cpu.polls.messages;
    }
    let mut posts: Vec<_> = blocks.iter().map(|cpu| cpu.posts.median_ticks).collect();
    let mut polls: Vec<_> = blocks.iter().map(|cpu| cpu.polls.median_ticks).collect();
    all.posts.median_ticks = quantile(&mut posts, 0.5)?;
    all.polls.median_ticks = quantile(&mut polls, 0.5)?;
    Some(all)
}

/// Returns the quantile at `part`, interpolated between two values.
fn quantile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = part * (values.len().checked_sub(1)? as f64);
    let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::result::distribution::Timed;
    use crate::perf::result::{Calls, Counter};

    fn block(via: Via, post: f64, nanoseconds: u64) -> Point {
        let mut times = Distribution::new();
        times.record(nanoseconds);
        Point {
            via,
            size: 64,
            began: 0.0,
            seconds: 1.0,
            messages: 10,
            planned_per_second: None,
            latency: times.latency(Timed::Completion, &[50.0]),
            slowest: vec![],
            cpu: Some(Cpu {
                hertz: 1e9,
                posts: Calls { calls: 5, messages: 10, median_ticks: post },
                polls: Calls { calls: 0, messages: 0, median_ticks: 0.0 },
            }),
            phases: vec![],
            counters: vec![Counter { name: "sent".into(), peer: false, before: 100, after: 110 }],
            validated: None,
            back: None,
            gaps: None,
            events: None,
        }
    }

    fn pairs() -> Pairs {
        let mut pairs = Pairs::default();
        for (direct, verbs) in [(10.0, 40.0), (20.0, 60.0), (10.0, 50.0), (10.0, 40.0), (1.0, 6.0)]
        {
            pairs.add([
                block(Via::Direct, direct, direct as u64 * 1000),
                block(Via::Verbs, verbs, verbs as u64 * 1000),
            ]);
        }
        pairs
    }

    #[test]
    fn ratios_are_of_pairs() {
        let ratios = pairs().ratios(false);
        assert_eq!(ratios.len(), 2, "nothing was polled: {ratios:?}");
        let Ratio { figure, pairs, direct, verbs, ratio, low, high, .. } = &ratios[0];
        assert_eq!((&**figure, *pairs), ("post", 5));
        // Half of the ticks of a call, since each call posts two messages.
        assert_eq!((*direct, *verbs), (5.0, 20.0));
        assert_eq!((*low, *ratio, *high), (4.0, 4.0, 5.0));
        let on_card = self::pairs().ratios(true);
        assert!(on_card.iter().any(|ratio| ratio.figure == "median latency"), "{on_card:?}");
    }

    #[test]
    fn blocks_are_put_together() {
        let points = pairs().points(&[50.0, 100.0]).unwrap();
        let [direct, verbs] = &points[..] else { panic!("{points:?}") };
        assert_eq!((direct.via, verbs.via), (Via::Direct, Via::Verbs));
        assert_eq!((direct.messages, direct.seconds), (50, 5.0));
        assert_eq!(direct.counters[0].difference(), 50);
        let latency = direct.latency.as_ref().unwrap();
        assert_eq!((latency.count, latency.min_ns, latency.max_ns), (5, 1000, 20_000));
        assert_eq!(latency.mean_ns, 10_200.0);
        assert_eq!(latency.histogram().unwrap().len(), 5);
        let posts = &direct.cpu.as_ref().unwrap().posts;
        assert_eq!((posts.calls, posts.messages, posts.median_ticks), (25, 50, 10.0));
        assert!(Pairs::default().points(&[50.0]).unwrap().is_empty());
        assert!(Pairs::default().ratios(true).is_empty());
    }

    #[test]
    fn a_point_is_split_among_all_blocks() {
        let mut plan = crate::perf::plan::tests::plan();
        plan.amount = Amount::Messages(100);
        let [direct, verbs] = blocks(&plan, 16);
        assert_eq!((direct.via, verbs.via), (Via::Direct, Via::Verbs));
        assert_eq!(direct.amount, Amount::Messages(7));
        plan.amount = Amount::Nanoseconds(3_000_000);
        assert_eq!(blocks(&plan, 16)[1].amount, Amount::Nanoseconds(1_000_000));
    }
}
