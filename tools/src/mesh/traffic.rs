//! The traffic of a link: options of `mlx5 perf`, in one argument of the command line.

use clap::{CommandFactory as _, FromArgMatches as _, Parser, parser::ValueSource};

use super::words::Traffic;
use crate::outcome::{Error, Result};
use crate::perf::arguments::Arguments;
use crate::perf::plan::{Amount, Connecting, Direction, Plan};
use crate::perf::result::Kind;

/// Options of `mlx5 perf` that are not of one link, or are options of `mlx5 mesh` itself.
const FOREIGN: &[&str] = &[
    "host",
    "loopback",
    "port",
    "peer",
    "compare",
    "pairs",
    "raw_samples",
    "ib_port",
    "gid_index",
    "cpu",
    "numa",
    "huge",
    "memory",
];

/// Messages of a link where the options tell no number: fewer than of `mlx5 perf`, since there are many
/// links.
const MESSAGES: u64 = 1000;

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Words {
    #[command(flatten)]
    arguments: Arguments,
}

/// One kind of traffic, parsed.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The kind and its options, as given.
    pub traffic: Traffic,
    /// The options of `mlx5 perf`.
    pub arguments: Arguments,
    /// The plan.
    pub plan: Plan,
}

impl Parsed {
    /// Parses options.
    ///
    /// # Errors
    /// Returns which option is wrong or is not one of a link.
    pub fn new(traffic: &Traffic) -> Result<Parsed> {
        let Traffic { kind, options } = traffic;
        let wrong = |text: String| Error::Usage(format!("--{kind} '{options}': {text}"));
        let matches = Words::command()
            .try_get_matches_from(options.split_whitespace())
            .map_err(|error| wrong(first_line(&error.to_string())))?;
        let foreign = FOREIGN
            .iter()
            .find(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        if let Some(name) = foreign {
            let name = name.replace('_', "-");
            return Err(wrong(format!("{name} is not an option of a link")));
        }
        let words = Words::from_arg_matches(&matches);
        let mut arguments = words.map_err(|error| wrong(first_line(&error.to_string())))?.arguments;
        // The sides are chosen by the schedule.
        arguments.loopback = true;
        let mut plans = arguments.plans(*kind).map_err(|error| wrong(error.to_string()))?;
        let (Some(mut plan), true) = (plans.pop(), plans.is_empty()) else {
            return Err(wrong(format!("one size for each --{kind}: give --{kind} more than once")));
        };
        if plan.connecting == Connecting::RdmaCm {
            return Err(wrong("links are connected without rdma_cm: leave --cm out".to_owned()));
        }
        let told = ["iterations", "duration"]
            .iter()
            .any(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        if !told {
            plan.amount = Amount::Messages(MESSAGES);
        }
        Ok(Parsed { traffic: traffic.clone(), arguments, plan })
    }

    /// Returns whether it is measured in each direction in turn, where both are asked for.
    #[must_use]
    pub fn has_direction(&self) -> bool {
        self.plan.kind != Kind::Lat && self.plan.direction == Direction::OneWay
    }

    /// Returns its name: `lat send rc 8 bytes`.
    #[must_use]
    pub fn name(&self) -> String {
        let Plan { kind, operation, carrier, size, direction, .. } = &self.plan;
        let both = if *direction == Direction::BothWays { " both ways" } else { "" };
        format!("{kind} {operation} {carrier} {size} bytes{both}")
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, options: &str) -> Result<Parsed> {
        Parsed::new(&Traffic { kind, options: options.to_owned() })
    }

    #[test]
    fn traffic_has_the_options_of_perf() {
        let lat = of(Kind::Lat, "").unwrap();
        assert_eq!(lat.name(), "lat send rc 8 bytes");
        assert_eq!(lat.plan.amount, Amount::Messages(MESSAGES));
        assert!(!lat.has_direction());
        let bw = of(Kind::Bw, "-o write -s 1M -n 20 --at-least bw=90Gbit/s").unwrap();
        assert_eq!((bw.name(), bw.has_direction()), ("bw write rc 1048576 bytes".to_owned(), true));
        assert_eq!(bw.plan.amount, Amount::Messages(20));
        let both = of(Kind::Bw, "-b -c ud").unwrap();
        assert_eq!(both.name(), "bw send ud 1024 bytes both ways");
        assert!(!both.has_direction());
    }

    #[test]
    fn options_that_are_not_of_a_link_are_refused_by_name() {
        for (options, word) in [
            ("somewhere", "host"),
            ("--loopback", "loopback"),
            ("--cpu 3", "cpu"),
            ("--nosuch", "--nosuch"),
            ("-s 8,16", "more than once"),
            ("-o write -c ud", "SEND alone"),
        ] {
            let error = of(Kind::Lat, options).unwrap_err();
            assert!(matches!(error, Error::Usage(_)), "{options}");
            assert!(error.to_string().contains(word), "{options}: {error}");
        }
    }
}
