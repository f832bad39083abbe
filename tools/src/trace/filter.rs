//! The filter that selects the lines to show.

use clap::{Args, ValueEnum};

use super::line::Line;

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A firmware command with its reply
    Command,
    /// A store to a register: doorbells of send queues, CQs and EQs
    Doorbell,
    /// A WQE that the device fetched, of a send or receive queue
    Wqe,
    /// A CQE that the device wrote
    Cqe,
    /// An EQE that the device wrote
    Eqe,
    /// A packet that was sent or received
    Packet,
    /// An interrupt that the device raised
    Interrupt,
    /// A change of the port or of the ways from it
    Port,
    /// A reset of the device's function, or an event that the function reports
    Function,
    /// Why the device refused, failed or dropped something
    Reason,
    /// A mistake of software that the device does not report
    Mistake,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Command => "command",
            Kind::Doorbell => "doorbell",
            Kind::Wqe => "wqe",
            Kind::Cqe => "cqe",
            Kind::Eqe => "eqe",
            Kind::Packet => "packet",
            Kind::Interrupt => "interrupt",
            Kind::Port => "port",
            Kind::Function => "function",
            Kind::Reason => "reason",
            Kind::Mistake => "mistake",
        }
    }
}

/// The kinds shown by default. Packets and interrupts are left out, since they are many.
const USUAL: [Kind; 9] = [
    Kind::Command,
    Kind::Doorbell,
    Kind::Wqe,
    Kind::Cqe,
    Kind::Eqe,
    Kind::Port,
    Kind::Function,
    Kind::Reason,
    Kind::Mistake,
];

/// Options that choose lines. A line has to pass all that are given.
#[derive(Args, Clone, Debug, Default)]
pub struct Filter {
    /// Only these kinds [default: all but packet and interrupt]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    kind: Vec<Kind>,
    /// Only what concerns this queue pair (a number, 0x for hexadecimal); may be repeated
    #[arg(long, value_parser = number, value_name = "QPN")]
    qp: Vec<u32>,
    /// Only what concerns this CQ; may be repeated
    #[arg(long, value_parser = number, value_name = "CQN")]
    cq: Vec<u32>,
    /// Only what went wrong: refused commands, error CQEs but for flushed ones, error events, reasons, mistakes
    #[arg(long)]
    errors: bool,
}

impl Filter {
    /// Returns a filter that passes every line, packets and interrupts too.
    pub fn none() -> Filter {
        Filter { kind: Kind::value_variants().to_vec(), ..Filter::default() }
    }

    /// Returns whether a line is shown.
    pub fn passes(&self, line: &Line) -> bool {
        let kind = match self.kind.as_slice() {
            [] => USUAL.contains(&line.kind),
            chosen => chosen.contains(&line.kind),
        };
        let named = |wanted: &[u32], named: &[u32]| {
            wanted.is_empty() || named.iter().any(|number| wanted.contains(number))
        };
        kind && (!self.errors || line.is_error)
            && named(&self.qp, &line.qps)
            && named(&self.cq, &line.cqs)
    }

    /// Returns whether packets can be shown.
    pub fn wants_packets(&self) -> bool {
        self.kind.contains(&Kind::Packet)
    }
}

/// Parses a number as programs print them: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "not a number, as 74240 or 0x12200".to_owned())
}
