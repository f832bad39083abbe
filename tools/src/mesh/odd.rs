//! Facts that differ from those of most ranks, and counters of errors that rise.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::words::Reading;

/// Names of counters that rise where a link is bad, as Linux shows them.
const ERRORS: &[&str] = &[
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "VL15_dropped",
    "rx_icrc_encapsulated",
];

/// Facts that may differ between rails of one host, and so are compared within a rail.
const OF_RAILS: &[&str] = &["NUMA node", "PCI link"];

/// A fact of some ranks that is not that of most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Odd {
    /// The ranks.
    pub ranks: Vec<u32>,
    /// The fact's name.
    pub fact: String,
    /// Its value there; `None` where it is not known.
    pub value: Option<String>,
    /// Its value at most ranks; `None` if no value is that of more than half.
    pub usual: Option<String>,
    /// How many ranks have the usual value.
    pub have: usize,
}

/// A counter of errors that rose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rising {
    /// The rank.
    pub rank: u32,
    /// The counter.
    pub counter: String,
    /// How much it rose.
    pub rose: u64,
    /// In how many seconds.
    pub seconds: f64,
    /// True if this run had traffic at that time.
    pub in_traffic: bool,
    /// Its last value.
    pub value: u64,
}

/// Compares facts. `ignored` ones are left out.
#[must_use]
pub fn odd(ranks: &[(u32, u32, &Facts)], ignored: &[String]) -> Vec<Odd> {
    let mut names: Vec<&str> = Vec::new();
    for (_, _, facts) in ranks {
        for (name, _) in &facts.same {
            if !names.contains(&name.as_str()) && !ignored.iter().any(|other| other == name) {
                names.push(name);
            }
        }
    }
    let rails: BTreeSet<u32> = ranks.iter().map(|(_, rail, _)| *rail).collect();
    let mut found = Vec::new();
    for name in names {
        if OF_RAILS.contains(&name) {
            for rail in &rails {
                found.extend(odd_of(name, ranks.iter().filter(|(_, other, _)| other == rail)));
            }
        } else {
            found.extend(odd_of(name, ranks.iter()));
        }
    }
    found
}

fn odd_of<'a>(name: &str, ranks: impl Iterator<Item = &'a (u32, u32, &'a Facts)>) -> Vec<Odd> {
    let mut values: BTreeMap<Option<&str>, Vec<u32>> = BTreeMap::new();
    let mut all = 0;
    // A rank without a device has no facts at all, which is said once.
    for (rank, _, facts) in ranks.filter(|(_, _, facts)| !facts.same.is_empty()) {
        let value = facts.same.iter().find(|(known, _)| known == name);
        values.entry(value.map(|(_, value)| value.as_str())).or_default().push(*rank);
        all += 1;
    }
    if values.len() < 2 {
        return Vec::new();
    }
    let usual = values
        .iter()
        .find(|(_, ranks)| 2 * ranks.len() > all)
        .map(|(value, ranks)| (value.map(str::to_owned), ranks.len()));
    let text = |value: Option<&str>| value.unwrap_or("not known").to_owned();
    values
        .into_iter()
        .filter(|(value, _)| usual.as_ref().is_none_or(|(usual, _)| usual.as_deref() != *value))
        .map(|(value, ranks)| Odd {
            ranks,
            fact: name.to_owned(),
            value: value.map(str::to_owned),
            usual: usual.as_ref().map(|(usual, _)| text(usual.as_deref())),
            have: usual.as_ref().map_or(0, |(_, have)| *have),
        })
        .collect()
}

/// Returns the counters of errors that rose between two readings of a rank.
#[must_use]
pub fn rising(rank: u32, readings: &[Reading]) -> Vec<Rising> {
    let mut found = Vec::new();
    for (at, pair) in readings.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        for (counter, value) in &after.values {
            if !ERRORS.contains(&counter.as_str()) {
                continue;
            }
            let old = before.values.iter().find(|(name, _)| name == counter);
            let Some(rose) = old.and_then(|(_, old)| value.checked_sub(*old)) else { continue };
            if rose > 0 {
                found.push(Rising {
                    rank,
                    counter: counter.clone(),
                    rose,
                    seconds: (after.at - before.at).max(0.0),
                    in_traffic: at > 0,
                    value: *value,
                });
            }
        }
    }
    found
}

/// Returns ranks in the form `0-3, 7`.
#[must_use]
pub fn list(ranks: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in ranks.chunk_by(|one, next| *next == one + 1) {
        parts.push(match (run.first(), run.last()) {
            (Some(first), Some(last)) if last > first => format!("{first}-{last}"),
            (Some(first), _) => first.to_string(),
            _ => continue,
        });
    }
    parts.join(", ")
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value.as_deref().unwrap_or("not known");
        let Odd { fact, usual, have, .. } = self;
        match usual {
            Some(usual) => write!(f, "{fact} {value} where {have} have {usual}"),
            None => write!(f, "{fact} {value}, and no value is that of most"),
        }
    }
}

impl std::fmt::Display for Rising {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Rising { counter, rose, seconds, value, .. } = self;
        let when = if self.in_traffic { "in traffic" } else { "before traffic" };
        write!(f, "{counter} rose by {rose} in {seconds:.1} s {when}, to {value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(same: &[(&str, &str)]) -> Facts {
        let same = same.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Facts {
            obstacle: None,
            same: same.collect(),
            ..Facts::without_device(Some("c1"), None, String::new())
        }
    }

    fn found(all: &[Facts]) -> Vec<(String, String)> {
        let ranks: Vec<(u32, u32, &Facts)> =
            all.iter().zip(0..).map(|(facts, rank)| (rank, rank % 2, facts)).collect();
        let odd = odd(&ranks, &["kernel".to_owned()]);
        odd.iter().map(|odd| (list(&odd.ranks), odd.to_string())).collect()
    }

    #[test]
    fn the_odd_one_out_is_named_beside_the_value_of_most() {
        let usual = facts(&[("firmware", "22.43"), ("kernel", "6.1")]);
        let mut all = vec![usual; 500];
        all[37] = facts(&[("firmware", "22.35"), ("kernel", "6.2")]);
        assert_eq!(
            found(&all),
            [("37".to_owned(), "firmware 22.35 where 499 have 22.43".to_owned())]
        );
        all[40] = facts(&[("kernel", "6.1")]);
        assert_eq!(found(&all)[0].1, "firmware not known where 498 have 22.43");
    }

    #[test]
    fn without_a_majority_each_value_is_told() {
        let [one, other] = ["1", "2"].map(|value| facts(&[("MTU", value)]));
        let told = found(&[one.clone(), one, other.clone(), other]);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], ("0-1".to_owned(), "MTU 1, and no value is that of most".to_owned()));
    }

    #[test]
    fn what_belongs_to_a_rail_is_compared_within_it() {
        let nodes = ["0", "1", "0", "1", "0", "0"].map(|node| facts(&[("NUMA node", node)]));
        assert_eq!(found(&nodes), [("5".to_owned(), "NUMA node 0 where 2 have 1".to_owned())]);
    }

    #[test]
    fn counters_of_errors_that_rise_are_told_with_their_time() {
        let reading = |at: f64, value: u64| Reading {
            at,
            values: vec![
                ("symbol_error".to_owned(), value),
                ("port_xmit_data".to_owned(), 9 * value),
            ],
        };
        let readings = [reading(1.0, 5), reading(3.0, 5), reading(9.5, 17)];
        let found = rising(3, &readings);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "symbol_error rose by 12 in 6.5 s in traffic, to 17");
        assert!(rising(3, &readings[..2]).is_empty());
    }

    #[test]
    fn ranks_are_listed_by_runs() {
        assert_eq!(list(&[0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9-10");
        assert_eq!(list(&[]), "");
    }
}
