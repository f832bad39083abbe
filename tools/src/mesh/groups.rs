//! Groups of bad links that share a rank, a host, a rail or a switch.
//!
//! A group is at fault if at least two of its links are bad, and at least half of those that were
//! measured. The group that explains most comes first, then the one that explains most of the rest.
//! Between groups that explain the same, the smaller one is named.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::schedule::Pair;

/// The place of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Its host.
    pub host: String,
    /// Its port: `mlx5_0/1`.
    pub port: String,
    /// Its rail: its number among the ranks of its host.
    pub rail: u32,
    /// The switch of its port, where it is known.
    pub switch: Option<String>,
}

/// A thing that links share, the smallest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// A rank.
    Rank(u32),
    /// A host.
    Host(String),
    /// A switch.
    Switch(String),
    /// A rail.
    Rail(u32),
}

/// Bad links that share something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The shared thing; `None` for a link that shares nothing with other bad ones.
    pub shared: Option<Shared>,
    /// The links, each from the lower to the higher rank.
    pub links: Vec<Pair>,
    /// All measured links of the shared thing.
    pub of: usize,
}

fn ordered((one, other): Pair) -> Pair {
    (one.min(other), one.max(other))
}

/// Returns what the ends of a link belong to. A link inside a host or a switch belongs to it once.
fn shared(spots: &[Spot], (one, other): Pair) -> BTreeSet<Shared> {
    let of = |rank: u32| {
        let spot = &spots[rank as usize];
        let switch = spot.switch.clone().map(Shared::Switch);
        [Shared::Rank(rank), Shared::Host(spot.host.clone()), Shared::Rail(spot.rail)]
            .into_iter()
            .chain(switch)
    };
    of(one).chain(of(other)).collect()
}

/// Groups bad links by what they share. `measured` are all links, the bad ones among them.
#[must_use]
pub fn groups(
    spots: &[Spot],
    measured: impl Iterator<Item = Pair>,
    bad: impl Iterator<Item = Pair>,
) -> Vec<Group> {
    let mut rest: BTreeSet<Pair> = bad.map(ordered).collect();
    if rest.is_empty() {
        return Vec::new();
    }
    let mut of: BTreeMap<Shared, usize> = BTreeMap::new();
    let measured: BTreeSet<Pair> = measured.map(ordered).collect();
    for &pair in &measured {
        shared(spots, pair).into_iter().for_each(|key| *of.entry(key).or_default() += 1);
    }
    let mut all: BTreeMap<Shared, Vec<Pair>> = BTreeMap::new();
    for &pair in &rest {
        shared(spots, pair).into_iter().for_each(|key| all.entry(key).or_default().push(pair));
    }
    // A thing that all links share explains nothing.
    let everything = measured.len();
    let is_at_fault = |key: &Shared, links: &[Pair]| {
        let measured = of.get(key).copied().unwrap_or(0);
        links.len() >= 2
            && 2 * links.len() >= measured
            && (matches!(key, Shared::Rank(_)) || measured < everything)
    };
    let candidates: Vec<(Shared, Vec<Pair>)> =
        all.into_iter().filter(|(key, links)| is_at_fault(key, links)).collect();
    let mut found = Vec::new();
    loop {
        let explained = |links: &[Pair]| links.iter().filter(|pair| rest.contains(pair)).count();
        // The first of equals, which is the smallest.
        let best = candidates.iter().rev().max_by_key(|(_, links)| explained(links));
        let Some((key, links)) = best.filter(|(_, links)| explained(links) >= 2) else { break };
        links.iter().for_each(|pair| {
            rest.remove(pair);
        });
        let (shared, links) = (Some(key.clone()), links.clone());
        found.push(Group { of: of.get(key).copied().unwrap_or(0), shared, links });
    }
    found.extend(rest.into_iter().map(|pair| Group { shared: None, links: vec![pair], of: 1 }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks of hosts with two ranks each, and switches of two hosts each.
    fn spots(ranks: u32) -> Vec<Spot> {
        let of = |rank: u32| Spot {
            host: format!("c{}", rank / 2),
            port: "mlx5_0/1".to_owned(),
            rail: rank % 2,
            switch: Some(format!("s{}", rank / 4)),
        };
        (0..ranks).map(of).collect()
    }

    fn all(ranks: u32) -> Vec<Pair> {
        (0..ranks).flat_map(|one| (one + 1..ranks).map(move |other| (one, other))).collect()
    }

    fn found(bad: impl Fn(Pair) -> bool) -> Vec<(Option<Shared>, usize)> {
        let bad = all(12).into_iter().filter(|&pair| bad(pair));
        let groups = groups(&spots(12), all(12).into_iter(), bad);
        groups.into_iter().map(|group| (group.shared, group.links.len())).collect()
    }

    #[test]
    fn bad_links_are_grouped_by_the_smallest_that_explains_them() {
        assert_eq!(found(|_| false), []);
        assert_eq!(found(|pair| pair == (2, 7)), [(None, 1)]);
        let rank = found(|(one, other)| one == 3 || other == 3);
        assert_eq!(rank, [(Some(Shared::Rank(3)), 11)]);
        let host = found(|(one, other)| one / 2 == 2 || other / 2 == 2);
        assert_eq!(host, [(Some(Shared::Host("c2".into())), 21)]);
        let switch = found(|(one, other)| (one / 4 == 1) != (other / 4 == 1));
        assert_eq!(switch, [(Some(Shared::Switch("s1".into())), 32)]);
        let rail = found(|(one, other)| one % 2 == 1 && other % 2 == 1 || one % 2 != other % 2);
        assert_eq!(rail, [(Some(Shared::Rail(1)), 51)]);
    }

    #[test]
    fn a_rank_and_a_link_apart_from_it_are_two_groups() {
        let two = found(|(one, other)| one == 3 || other == 3 || (one, other) == (5, 8));
        assert_eq!(two, [(Some(Shared::Rank(3)), 11), (None, 1)]);
    }

    #[test]
    fn one_link_per_rank_blames_no_rank() {
        let pairs = [(0, 1), (2, 3), (4, 5)];
        let spots: Vec<Spot> = spots(6)
            .into_iter()
            .zip(0..)
            .map(|(spot, at)| Spot { host: format!("h{at}"), ..spot })
            .collect();
        let groups = groups(&spots, pairs.into_iter(), [(2, 3)].into_iter());
        assert_eq!(groups, [Group { shared: None, links: vec![(2, 3)], of: 1 }]);
    }
}
