//! Copies of cells: one queue pair's counts, for metrics.

use mlx5::diag::explain::Status;
use mlx5_monitor::cell::{BUCKETS, Cell, OPERATIONS, STATUSES};
use mlx5_monitor::clock::Rate;

/// Which queue pair it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Label {
    pub program: String,
    pub process: u32,
    pub device: String,
    /// `None` for many that are counted together.
    pub number: Option<u32>,
}

/// Latencies of an operation.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Counts of the buckets, each with its upper end in seconds.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all, in seconds.
    pub sum: f64,
}

/// What is known of one queue pair.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub label: Label,
    pub requests: u64,
    pub completed: u64,
    pub received: u64,
    pub received_bytes: u64,
    pub unmatched: u64,
    /// Completions with an error, by `enum ibv_wc_status`.
    pub failures: Vec<u64>,
    /// By `enum ibv_wc_opcode`.
    pub latencies: Vec<Latencies>,
}

/// Names of operations, by `enum ibv_wc_opcode`.
const NAMES: [&str; 10] =
    ["SEND", "WRITE", "READ", "CSWAP", "FADD", "BIND", "LOCAL_INV", "TSO", "FLUSH", "ATOMIC_WRITE"];

/// The name of an operation, an `enum ibv_wc_opcode`.
pub(super) fn operation(opcode: usize) -> String {
    NAMES.get(opcode).map_or_else(|| opcode.to_string(), |name| (*name).to_owned())
}

/// The name of a status, an `enum ibv_wc_status`.
pub(super) fn status(value: usize) -> String {
    let status = u32::try_from(value).ok().and_then(Status::from_wc_status);
    status.map_or_else(|| value.to_string(), |status| status.name().to_owned())
}

impl Queue {
    /// Copies a cell.
    pub fn of(cell: &Cell, rate: Rate) -> Queue {
        let (received, received_bytes) = cell.received();
        let ends: Vec<f64> = (0..BUCKETS - 1).map(|n| rate.time(2 << n).as_secs_f64()).collect();
        let latencies = |operation| {
            let (counts, sum) = cell.latencies(operation);
            let buckets = ends.iter().copied().zip(counts).collect();
            Latencies { buckets, sum: rate.time(sum).as_secs_f64() }
        };
        Queue {
            label: Label {
                program: cell.program(),
                process: cell.process(),
                device: cell.device(),
                number: Some(cell.number()),
            },
            requests: cell.sends.posted(),
            completed: cell.sends.completed(),
            received,
            received_bytes,
            unmatched: cell.unmatched(),
            failures: (0..STATUSES).map(|status| cell.failures(status)).collect(),
            latencies: (0..OPERATIONS).map(latencies).collect(),
        }
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Queue) {
        self.requests = self.requests.saturating_add(other.requests);
        self.completed = self.completed.saturating_add(other.completed);
        self.received = self.received.saturating_add(other.received);
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
        self.unmatched = self.unmatched.saturating_add(other.unmatched);
        for (sum, more) in self.failures.iter_mut().zip(&other.failures) {
            *sum = sum.saturating_add(*more);
        }
        for (sum, more) in self.latencies.iter_mut().zip(&other.latencies) {
            sum.sum += more.sum;
            for ((_, count), (_, more)) in sum.buckets.iter_mut().zip(&more.buckets) {
                *count = count.saturating_add(*more);
            }
        }
    }
}

#[cfg(test)]
impl Queue {
    /// A queue pair of a program, for tests.
    pub fn sample(program: &str) -> Queue {
        let label = Label {
            program: program.to_owned(),
            process: 7,
            device: "mlx5_0".to_owned(),
            number: Some(0x1a),
        };
        let buckets = vec![(1e-9, 0), (1e-6, 2), (1e-3, 1), (1e6, 0)];
        Queue {
            label,
            requests: 5,
            completed: 4,
            received: 0,
            received_bytes: 0,
            unmatched: 0,
            failures: vec![0, 0, 1],
            latencies: vec![Latencies { buckets, sum: 0.5 }],
        }
    }
}
