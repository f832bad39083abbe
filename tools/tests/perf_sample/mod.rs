//! A result with all optional data, and hostile content in all outside text. A seeded generator
//! makes times with a distribution typical of messages.

#![allow(dead_code, reason = "no test needs all of it")]

use mlx5_tools::perf::result::distribution::{Distribution, Timed};
use mlx5_tools::perf::result::environment::Environment;
use mlx5_tools::perf::result::{
    Calls, Comparison, Counter, Cpu, Kind, Phase, Point, Ratio, Run, Setting, Slow, Via,
};

/// Text that would be markup, an escape from an attribute, or a terminal command.
pub const HOSTILE: &str = "<script>alert('x')</script>\"><img src=//evil.example/a.png> \u{1b}[2J";

/// The requested percentiles.
pub const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Times in nanoseconds: most around a thousand and the size, one of hundred longer, few much longer.
pub fn times(size: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let base = 700 + size / 8;
    (0..count)
        .map(|_| {
            let usual = base + next() % 60 + next() % 60 + next() % 60;
            match next() % 1000 {
                0 => usual + 5_000 + next() % 20_000,
                1..=15 => usual + 300 + next() % 900,
                _ => usual,
            }
        })
        .collect()
}

/// One point, of [`times`].
pub fn point(via: Via, size: u64, began: f64) -> Point {
    let extra = if via == Via::Verbs { 90 } else { 0 };
    let mut distribution = Distribution::new();
    let times = times(size, 4000, size + extra + 1);
    for time in &times {
        distribution.record(time + extra);
    }
    Point {
        via,
        size,
        began,
        seconds: times.iter().map(|time| time + extra).sum::<u64>() as f64 / 1e9,
        messages: times.len() as u64,
        planned_per_second: None,
        latency: distribution.latency(Timed::HalfRoundTrip, &PERCENTILES),
        slowest: vec![Slow { ns: 24_321, at: 0.5 }],
        cpu: Some(Cpu {
            hertz: 2.3e9,
            posts: Calls { calls: 4000, messages: 4000, median_ticks: (60 + 2 * extra) as f64 },
            polls: Calls { calls: 4000, messages: 4000, median_ticks: (30 + extra) as f64 },
        }),
        phases: vec![Phase {
            queue: "send".to_owned(),
            name: "encode".to_owned(),
            count: 4000,
            min: 10,
            median: 20,
            p99: 30,
            max: 400,
            median_ns: 8.7,
        }],
        counters: vec![Counter {
            name: "port_xmit_packets".to_owned(),
            peer: false,
            before: 7,
            after: 4007,
        }],
        validated: None,
        back: None,
        gaps: None,
        events: None,
    }
}

/// Returns a machine's environment; its name is [`HOSTILE`].
pub fn environment() -> Environment {
    Environment {
        host: Some(HOSTILE.to_owned()),
        cpu: Some("A CPU & its name, family 6, model 207, stepping 2".to_owned()),
        kernel: Some("6.1.0".to_owned()),
        cpus_allowed: Some("0-1".to_owned()),
        cpus_isolated: None,
        governor: Some("performance".to_owned()),
        device: "mlx5_0".to_owned(),
        product: "ConnectX-7".to_owned(),
        model: true,
        profile: None,
        board_id: Some("MLX5-MODEL".to_owned()),
        firmware: "28.39.1002".to_owned(),
        numa_node: Some(0),
        port: 1,
        link_layer: "InfiniBand".to_owned(),
        link_mbps: 100_000,
        mtu: 4096,
        libibverbs: Some("libibverbs.so.1.14.44.0".to_owned()),
        libmlx5: Some("libmlx5.so.1.24.44.0".to_owned()),
        version: "0.1.0".to_owned(),
        optimized: true,
    }
}

/// A sweep over these sizes by both ways, compared.
pub fn sweep(sizes: &[u64]) -> Run {
    let mut points = vec![];
    for &size in sizes {
        for via in [Via::Direct, Via::Verbs] {
            points.push(point(via, size, points.len() as f64 * 0.25));
        }
    }
    let ratios = sizes.iter().flat_map(|&size| {
        [("post", 60.0, 240.0), ("poll", 30.0, 120.0)].map(|(figure, direct, verbs)| Ratio {
            size,
            figure: figure.to_owned(),
            unit: "ticks per message".to_owned(),
            pairs: 64,
            direct,
            verbs,
            ratio: 4.0,
            low: 3.7,
            high: 4.4,
        })
    });
    Run {
        kind: Kind::Lat,
        command: ["mlx5", "perf", "lat", "--loopback", "--compare", HOSTILE]
            .map(str::to_owned)
            .into(),
        began: 1_700_000_000.0,
        environment: environment(),
        peer: Some(environment()),
        configuration: vec![
            Setting::new("operation", "write"),
            Setting::new("transport", "rc"),
            Setting::new("inline", HOSTILE),
        ],
        comparison: Some(Comparison {
            what: "What the CPU spent in calls, not what the device took.".to_owned(),
            block: 64,
            ratios: ratios.collect(),
        }),
        points,
        limits: vec![],
        interrupted: false,
        notes: vec![format!("a note with {HOSTILE}")],
    }
}
