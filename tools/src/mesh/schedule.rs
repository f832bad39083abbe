//! Rounds of links such that no rank is in two links of a round: a proper edge colouring of the graph of
//! ranks, whose colours are the rounds.
//!
//! The rounds of all pairs are computed one at a time by the circle method: a round of 1,024 ranks takes
//! the memory of its 512 links. An even number of ranks needs one round less than ranks, and an odd number
//! as many rounds as ranks, which are the optimum. Chosen pairs are coloured by alternating paths, which
//! gives the optimum for bipartite graphs; [`Schedule::optimum`] tells how far others may be from it.

use std::collections::BTreeSet;

/// Two ranks.
pub type Pair = (u32, u32);

/// Which links are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each rank with each other.
    AllPairs,
    /// Each rank with the next one, and the last with the first.
    Ring,
    /// Each rank of the first half with one of the second.
    Bisection,
    /// Each rank with each other of its rail, all rails at the same time.
    Rails,
    /// One rank with each other.
    OneToMany(u32),
    /// These pairs.
    Pairs(Vec<Pair>),
}

/// The rounds of a pattern.
#[derive(Clone, Debug)]
pub struct Schedule {
    rounds: Rounds,
    links: usize,
    optimum: usize,
}

#[derive(Clone, Debug)]
enum Rounds {
    /// All pairs of each group, all groups at the same time.
    Circles(Vec<Vec<u32>>),
    /// The first with each of the others.
    Star(u32, Vec<u32>),
    /// Rounds that are kept.
    Kept(Vec<Vec<Pair>>),
}

impl Schedule {
    /// Creates the schedule of a pattern. `rails` has the rail of each rank.
    #[must_use]
    pub fn new(pattern: &Pattern, rails: &[u32]) -> Schedule {
        let ranks = rails.len() as u32;
        match pattern {
            Pattern::AllPairs => Schedule::circles(vec![(0..ranks).collect()]),
            Pattern::Rails => {
                let names: BTreeSet<u32> = rails.iter().copied().collect();
                let members = |rail: u32| {
                    let of_rail = move |rank: &u32| rails[*rank as usize] == rail;
                    (0..ranks).filter(of_rail).collect()
                };
                Schedule::circles(names.into_iter().map(members).collect())
            }
            Pattern::OneToMany(root) => {
                let others: Vec<u32> = (0..ranks).filter(|rank| rank != root).collect();
                let links = others.len();
                Schedule { rounds: Rounds::Star(*root, others), links, optimum: links }
            }
            Pattern::Ring => {
                let next = (0..ranks).map(|rank| (rank, (rank + 1) % ranks));
                Schedule::coloured(next, ranks)
            }
            Pattern::Bisection => {
                let half = ranks / 2;
                Schedule::coloured((0..half).map(|rank| (rank, rank + ranks - half)), ranks)
            }
            Pattern::Pairs(pairs) => Schedule::coloured(pairs.iter().copied(), ranks),
        }
    }

    fn circles(groups: Vec<Vec<u32>>) -> Schedule {
        let links =
            groups.iter().map(|group| group.len() * group.len().saturating_sub(1) / 2).sum();
        let optimum = groups.iter().map(|group| circle_rounds(group.len())).max().unwrap_or(0);
        Schedule { rounds: Rounds::Circles(groups), links, optimum }
    }

    /// Colours pairs. Each is taken once; a rank with itself is no link.
    fn coloured(pairs: impl Iterator<Item = Pair>, ranks: u32) -> Schedule {
        let ordered = pairs.map(|(one, other)| (one.min(other), one.max(other)));
        let distinct: BTreeSet<Pair> =
            ordered.filter(|(one, other)| one != other && *other < ranks).collect();
        let mut colouring = Colouring::new(ranks);
        distinct.iter().for_each(|&pair| colouring.add(pair));
        let links = distinct.len();
        let ends: BTreeSet<u32> = distinct.iter().flat_map(|(one, other)| [*one, *other]).collect();
        // A round has no more links than pairs of ranks, of which an odd number leaves one out.
        let full = links.div_ceil((ends.len() / 2).max(1));
        let optimum = colouring.degree().max(full);
        Schedule { rounds: Rounds::Kept(colouring.rounds()), links, optimum }
    }

    /// Returns the number of links.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links
    }

    /// Returns the number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        match &self.rounds {
            Rounds::Circles(groups) => {
                groups.iter().map(|group| circle_rounds(group.len())).max().unwrap_or(0)
            }
            Rounds::Star(_, others) => others.len(),
            Rounds::Kept(rounds) => rounds.len(),
        }
    }

    /// Returns a number that no schedule can have fewer rounds than: the most links of one rank, or, if
    /// that is more, all links divided by those that a round can have.
    #[must_use]
    pub fn optimum(&self) -> usize {
        self.optimum
    }

    /// Returns the links of a round. The rank that measures comes first: each rank is it in half of its
    /// links, where there is a choice.
    #[must_use]
    pub fn round(&self, round: usize) -> Vec<Pair> {
        let pairs = match &self.rounds {
            Rounds::Circles(groups) => {
                groups.iter().flat_map(|group| circle(group, round)).collect()
            }
            Rounds::Star(root, others) => {
                return others.get(round).map(|other| (*root, *other)).into_iter().collect();
            }
            Rounds::Kept(rounds) => rounds.get(round).cloned().unwrap_or_default(),
        };
        pairs.into_iter().map(directed).collect()
    }
}

fn directed((one, other): Pair) -> Pair {
    let (low, high) = (one.min(other), one.max(other));
    if (low + high) % 2 == 0 { (high, low) } else { (low, high) }
}

/// Returns the rounds of all pairs of so many ranks.
fn circle_rounds(ranks: usize) -> usize {
    match ranks {
        0 | 1 => 0,
        ranks => ranks - 1 + ranks % 2,
    }
}

/// Returns a round of all pairs of a group: the ranks stand in a circle, but for one in its centre. Each
/// round turns the circle by one place, and the ranks that face each other meet.
fn circle(group: &[u32], round: usize) -> Vec<Pair> {
    let rounds = circle_rounds(group.len());
    if round >= rounds {
        return Vec::new();
    }
    // With an odd number, nobody stands in the centre.
    let turns = rounds;
    let at = |place: usize| group[place % turns];
    let centre = (group.len() % 2 == 0).then(|| (group[group.len() - 1], at(round)));
    let facing = (1..turns.div_ceil(2)).map(|step| (at(round + step), at(round + turns - step)));
    centre.into_iter().chain(facing).collect()
}

/// A proper colouring of the edges so far.
struct Colouring {
    /// Per rank and colour: the rank at the other end of the edge of this colour.
    by: Vec<Vec<Option<u32>>>,
    colours: usize,
}

impl Colouring {
    fn new(ranks: u32) -> Colouring {
        Colouring { by: vec![Vec::new(); ranks as usize], colours: 0 }
    }

    fn at(&self, rank: u32, colour: usize) -> Option<u32> {
        self.by[rank as usize].get(colour).copied().flatten()
    }

    fn set(&mut self, rank: u32, colour: usize, other: Option<u32>) {
        let edges = &mut self.by[rank as usize];
        if edges.len() <= colour {
            edges.resize(colour + 1, None);
        }
        edges[colour] = other;
    }

    fn free(&self, rank: u32) -> usize {
        (0..).find(|&colour| self.at(rank, colour).is_none()).unwrap_or(0)
    }

    /// Colours one more edge. If its ends have no free colour in common, the path from one end on which
    /// both ends' free colours alternate is recoloured, unless it leads to the other end.
    fn add(&mut self, (one, other): Pair) {
        let common = (0..self.colours)
            .find(|&colour| self.at(one, colour).is_none() && self.at(other, colour).is_none());
        let colour = common.unwrap_or_else(|| self.freed(one, other));
        self.colours = self.colours.max(colour + 1);
        self.set(one, colour, Some(other));
        self.set(other, colour, Some(one));
    }

    fn freed(&mut self, one: u32, other: u32) -> usize {
        let (mine, theirs) = (self.free(one), self.free(other));
        if mine.max(theirs) >= self.colours {
            return self.colours;
        }
        // The path from the other end: an edge of `mine`, one of `theirs`, and so on.
        let mut path = vec![other];
        let mut colour = mine;
        while let Some(next) = self.at(path[path.len() - 1], colour) {
            path.push(next);
            colour = mine + theirs - colour;
        }
        if path.contains(&one) {
            return self.colours;
        }
        let edges: Vec<(u32, u32, usize)> = path
            .windows(2)
            .enumerate()
            .map(|(at, ends)| (ends[0], ends[1], if at % 2 == 0 { mine } else { theirs }))
            .collect();
        for &(from, to, colour) in &edges {
            self.set(from, colour, None);
            self.set(to, colour, None);
        }
        for (from, to, colour) in edges {
            let swapped = mine + theirs - colour;
            self.set(from, swapped, Some(to));
            self.set(to, swapped, Some(from));
        }
        mine
    }

    fn degree(&self) -> usize {
        self.by.iter().map(|edges| edges.iter().flatten().count()).max().unwrap_or(0)
    }

    fn rounds(&self) -> Vec<Vec<Pair>> {
        let of_colour = |colour: usize| {
            let ends =
                (0..self.by.len() as u32).filter_map(|rank| Some((rank, self.at(rank, colour)?)));
            ends.filter(|(one, other)| one < other).collect()
        };
        (0..self.colours).map(of_colour).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the links of all rounds, after a check that no rank is in two links of a round and no
    /// link is there twice.
    fn proper(schedule: &Schedule) -> BTreeSet<Pair> {
        let mut all = BTreeSet::new();
        for round in 0..schedule.rounds() {
            let mut busy = BTreeSet::new();
            let pairs = schedule.round(round);
            assert!(!pairs.is_empty(), "round {round}");
            for (one, other) in pairs {
                assert!(busy.insert(one) && busy.insert(other), "round {round}: {one} {other}");
                assert!(all.insert((one.min(other), one.max(other))), "{one} {other} again");
            }
        }
        assert!(schedule.round(schedule.rounds()).is_empty());
        assert_eq!(all.len(), schedule.links());
        assert!(schedule.optimum() <= schedule.rounds());
        all
    }

    fn of(pattern: &Pattern, ranks: u32) -> Schedule {
        Schedule::new(pattern, &vec![0; ranks as usize])
    }

    proptest! {
        #[test]
        fn all_pairs_are_measured_once_in_the_fewest_rounds(ranks in 0u32..70) {
            let schedule = of(&Pattern::AllPairs, ranks);
            let all: BTreeSet<Pair> =
                (0..ranks).flat_map(|one| (one + 1..ranks).map(move |other| (one, other))).collect();
            prop_assert_eq!(proper(&schedule), all);
            let fewest = if ranks < 2 { 0 } else { ranks - 1 + ranks % 2 };
            prop_assert_eq!(schedule.rounds(), fewest as usize);
        }

        #[test]
        fn chosen_pairs_are_coloured_properly_and_bipartite_ones_optimally(
            pairs in prop::collection::vec((0u32..24, 0u32..24), 0..160),
        ) {
            let schedule = of(&Pattern::Pairs(pairs.clone()), 24);
            let ordered = pairs.iter().map(|&(one, other)| (one.min(other), one.max(other)));
            let distinct: BTreeSet<Pair> = ordered.filter(|(one, other)| one != other).collect();
            prop_assert_eq!(proper(&schedule), distinct);
            // No greedy colouring needs more.
            prop_assert!(schedule.rounds() <= (2 * schedule.optimum()).saturating_sub(1));
            let across = pairs.iter().map(|&(one, other)| (one % 12, 12 + other % 12)).collect();
            let schedule = of(&Pattern::Pairs(across), 24);
            proper(&schedule);
            prop_assert_eq!(schedule.rounds(), schedule.optimum());
        }

        #[test]
        fn rings_take_the_fewest_rounds(ranks in 2u32..40) {
            let schedule = of(&Pattern::Ring, ranks);
            proper(&schedule);
            prop_assert_eq!(schedule.rounds(), schedule.optimum());
        }

        #[test]
        fn rails_are_all_pairs_of_each_rail_at_the_same_time(
            rails in prop::collection::vec(0u32..4, 1..40),
        ) {
            let schedule = Schedule::new(&Pattern::Rails, &rails);
            let links = proper(&schedule);
            prop_assert!(
                links.iter().all(|&(one, other)| rails[one as usize] == rails[other as usize])
            );
            let of_rail = |rail| rails.iter().filter(|&&known| known == rail).count();
            let expected: usize = (0..4).map(|rail| of_rail(rail) * of_rail(rail).saturating_sub(1) / 2).sum();
            prop_assert_eq!(links.len(), expected);
            let longest = (0..4).map(|rail| circle_rounds(of_rail(rail))).max().unwrap();
            prop_assert_eq!(schedule.rounds(), longest);
        }

        #[test]
        fn rings_halves_and_stars_have_their_links(ranks in 2u32..60) {
            let ring = of(&Pattern::Ring, ranks);
            prop_assert_eq!(proper(&ring).len(), if ranks == 2 { 1 } else { ranks as usize });
            let fewest = match ranks { 2 => 1, ranks => 2 + ranks as usize % 2 };
            prop_assert_eq!(ring.rounds(), fewest);
            let halves = of(&Pattern::Bisection, ranks);
            let links = proper(&halves);
            prop_assert_eq!((links.len(), halves.rounds()), (ranks as usize / 2, 1));
            prop_assert!(links.iter().all(|&(one, other)| one < ranks / 2 && other >= ranks / 2));
            let star = of(&Pattern::OneToMany(1), ranks);
            let links = proper(&star);
            prop_assert_eq!(links.len(), ranks as usize - 1);
            prop_assert!(links.iter().all(|&(one, other)| one == 1 || other == 1));
        }
    }

    #[test]
    fn each_rank_measures_half_of_its_links() {
        let schedule = of(&Pattern::AllPairs, 32);
        let mut first = [0; 32];
        for round in 0..schedule.rounds() {
            schedule.round(round).iter().for_each(|(one, _)| first[*one as usize] += 1);
        }
        assert!(first.iter().all(|&count| (14..=17).contains(&count)), "{first:?}");
    }

    /// Tells the figures of 1,024 ranks, with `--nocapture`.
    #[test]
    fn a_thousand_ranks_take_the_fewest_rounds_and_the_memory_of_one() {
        let began = std::time::Instant::now();
        let schedule = of(&Pattern::AllPairs, 1024);
        let most = (0..schedule.rounds()).map(|round| schedule.round(round).capacity()).max();
        let bytes = most.unwrap() * size_of::<Pair>();
        let took = began.elapsed();
        crate::output::line(format_args!(
            "1,024 ranks: {} links in {} rounds, optimum {}; a round takes {bytes} bytes, all rounds \
             {took:?}",
            schedule.links(),
            schedule.rounds(),
            schedule.optimum()
        ));
        assert_eq!((schedule.links(), schedule.rounds()), (523_776, 1023));
        assert!(bytes <= 16 << 10, "{bytes}");
        assert_eq!(proper(&schedule).len(), 523_776);
    }
}
