//! `cargo xtask model-speed`: messages between two processes on the model, one build against another.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

const USAGE: &str = "usage: cargo xtask model-speed [--rounds N] OLD.so NEW.so";

/// Bytes and number of WRITEs.
const SIZES: [(u32, u32); 3] = [(8, 20_000), (65_536, 4_000), (1 << 20, 500)];
/// Bytes and number of round trips.
const ROUNDS: (u32, u32) = (64, 5_000);
/// First TCP port for the exchange of addresses; each run has its own.
const PORT: u16 = 19_100;
/// Longest wait for a server.
const START: Duration = Duration::from_secs(20);

/// `cargo xtask model-speed [--rounds N] OLD.so NEW.so`.
pub fn command(arguments: &[String]) -> Result {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (rounds, old, new) = match arguments.as_slice() {
        ["--rounds", rounds, old, new] => (rounds.parse().map_err(|_| USAGE)?, old, new),
        [old, new] => (5, old, new),
        _ => return Err(USAGE.into()),
    };
    for library in [old, new] {
        if !Path::new(library).is_file() {
            return Err(format!("there is no library `{library}`; build one and copy it aside"));
        }
    }
    let mut port = PORT;
    let mut compare = |run: &dyn Fn(&str, u16) -> Result<f64>| -> Result<[f64; 2]> {
        let mut results = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (library, results) in [old, new].into_iter().zip(&mut results) {
                port += 1;
                results.push(run(library, port)?);
            }
        }
        Ok(results.map(median))
    };
    println!(
        "| half a round of {} bytes | old, µs | new, µs | ratio |\n|---|---|---|---|",
        ROUNDS.0
    );
    for (what, program) in [("SEND", "ib_send_lat"), ("WRITE", "ib_write_lat")] {
        // Behind bytes and rounds: the shortest time, the longest, and the typical one.
        let [old, new] = compare(&|library, port| {
            let figures = run(program, library, ROUNDS, "BlueFlame", port)?;
            figures.get(4).copied().ok_or_else(|| format!("{program} printed no time"))
        })?;
        println!("| {what} | {old:.1} | {new:.1} | {:.2} |", new / old);
    }
    println!(
        "\n| bytes | doorbell by | old, WRITE/s | new, WRITE/s | ratio |\n|---|---|---|---|---|"
    );
    for size in SIZES {
        for way in ["BlueFlame", "register"] {
            // The last column is in millions per second.
            let [old, new] = compare(&|library, port| {
                let figures = run("ib_write_bw", library, size, way, port)?;
                figures.last().map(|rate| rate * 1e6).ok_or_else(|| "no rate".to_owned())
            })?;
            println!("| {} | {way} | {old:.0} | {new:.0} | {:.2} |", size.0, new / old);
        }
    }
    Ok(())
}

/// Runs a program of perftest between two processes, with a size and a number of messages. Returns the
/// figures of its line.
fn run(
    program: &str,
    library: &str,
    (bytes, count): (u32, u32),
    way: &str,
    port: u16,
) -> Result<Vec<f64>> {
    let side = |peer: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-F", "-s", &bytes.to_string(), "-n", &count.to_string()]);
        command.args(["-p", &port.to_string()]).args(peer);
        command.env("LD_PRELOAD", library).env("MLX5_MODEL", "always");
        if way == "register" {
            command.env("MLX5_SHUT_UP_BF", "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().map_err(|error| format!("{program} (package perftest): {error}"))
    };
    let mut server = side(&[])?;
    let output = wait_for(port, &mut server)
        .and_then(|()| side(&["127.0.0.1"])?.wait_with_output().map_err(|error| error.to_string()));
    if output.as_ref().map_or(true, |output| !output.status.success()) {
        // It may have ended by itself.
        let _ = server.kill();
    }
    server.wait().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output?.stdout).into_owned();
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let figures = lines.nth(1).map(|line| line.split_whitespace().map(str::parse).collect());
    match figures {
        Some(Ok(figures)) => Ok(figures),
        _ => Err(format!("{program} printed no figures:\n{text}")),
    }
}

/// Waits until a server listens at a TCP port.
fn wait_for(port: u16, server: &mut Child) -> Result {
    let end = Instant::now() + START;
    let wanted = format!(":{port:04X} ");
    while Instant::now() < end {
        let listens = ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let table = fs::read_to_string(table).unwrap_or_default();
            table.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "))
        });
        if listens {
            return Ok(());
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server ended with {status} before it listened"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!("the server did not listen at port {port} within {START:?}"))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}
