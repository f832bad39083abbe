//! Ping-pong over a reliable connection, posted and polled directly: latency and rate.
//!
//! ```text
//! cargo run --release --example rc_pingpong -- --listen 127.0.0.1
//! cargo run --release --example rc_pingpong -- --connect 127.0.0.1:PORT
//! ```
//!
//! The server prints "listening on ADDRESS:PORT". The client chooses the test, and both check
//! every message. `--help` lists the options.
//!
//! Read on in `link.rs`, where memory, queues and rounds are; `options.rs` is about arguments.

mod link;
mod options;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mlx5::connect::{Connection, Listener, LocalPort};
use mlx5::verbs::Context;
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

use link::{Link, TIMEOUT};
use options::{Mode, Options, Task};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long a server waits for a client, or for a client that READs without telling.
const PATIENCE: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(options) = Options::from_arguments()? else { return Ok(()) };
    let context = match &options.device {
        Some(name) => Context::open(name)?,
        None => Context::open_first()?,
    };
    let local = LocalPort::new(&context, options.port, options.gid_index)?;
    println!("{}", describe(&context, &local)?);

    match (&options.listen, &options.connect) {
        (Some(address), None) => {
            // A bare address leaves the port to the system.
            let address = match address.parse::<IpAddr>() {
                Ok(address) => SocketAddr::new(address, 0).to_string(),
                Err(_) => address.clone(),
            };
            let listener = Listener::bind(address.as_str())?;
            println!("listening on {}", listener.local_address()?);
            let mut connection = listener.accept(PATIENCE)?;
            connection.set_timeout(TIMEOUT);
            let task = Task::from_bytes(&connection.exchange_data(b"")?)?;
            let mut link = Link::new(&context, &local, task, &options, &mut connection)?;
            serve(&mut link, &mut connection)?;
            println!("{task}: done, every message was right");
        }
        (None, Some(address)) => {
            let mut connection = Connection::connect(address.as_str(), TIMEOUT)?;
            connection.exchange_data(options.task.to_string().as_bytes())?;
            let mut link = Link::new(&context, &local, options.task, &options, &mut connection)?;
            let start = Instant::now();
            let times = ask(&mut link)?;
            let elapsed = start.elapsed();
            connection.barrier(2)?;
            report(&options, times, elapsed);
        }
        _ => return Err("either --listen ADDRESS or --connect ADDRESS:PORT is needed".into()),
    }
    Ok(())
}

/// Client: each round trip, timed.
fn ask(link: &mut Link) -> Result<Vec<Duration>> {
    let task = link.task;
    let mut times = Vec::with_capacity(usize::try_from(task.iterations)?);
    for round in 0..task.iterations {
        let start = Instant::now();
        match task.mode {
            Mode::Send | Mode::Write => {
                link.send(round)?;
                link.receive(round)?;
            }
            Mode::Read => link.read(round)?,
        }
        times.push(start.elapsed());
    }
    link.finish()?;
    Ok(times)
}

/// Server: answers, or leaves its memory to be read.
fn serve(link: &mut Link, connection: &mut Connection) -> Result<()> {
    if link.task.mode == Mode::Read {
        connection.set_timeout(PATIENCE);
    } else {
        for round in 0..link.task.iterations {
            link.receive(round)?;
            link.send(round)?;
        }
        link.finish()?;
    }
    Ok(connection.barrier(2)?)
}

fn describe(context: &Context, local: &LocalPort) -> Result<String> {
    let device = context.attributes()?;
    let kind = match device.board_id.as_deref() {
        Some("MLX5-MODEL") => "the software model, no device".to_owned(),
        Some(board) => format!("{}, board {board}", device.product()),
        None => device.product().to_owned(),
    };
    let port = local.attributes();
    let gid = local.gid().map(|entry| format!(", GID {entry}")).unwrap_or_default();
    Ok(format!(
        "{} ({kind}), port {} {} on {}, MTU {}{gid}",
        device.name, port.port, port.state, port.link_layer, port.active_mtu
    ))
}

fn report(options: &Options, mut times: Vec<Duration>, elapsed: Duration) {
    let task = options.task;
    let how = match task.mode {
        Mode::Read => String::new(),
        _ => format!(
            ", {}a completion for every {} requests",
            if options.inline { "inline, " } else { "" },
            options.signal_every
        ),
    };
    println!("{task}{how}: every message was right");
    times.sort_unstable();
    let at = |percent: f64| {
        let index = (percent / 100.0 * (times.len() - 1) as f64).round() as usize;
        times[index].as_nanos() as f64 / 1e3
    };
    println!("round trip in µs, of {}:", times.len());
    for percent in [0.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
        println!("  {percent:>5}% {:>10.2}", at(percent));
    }
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    println!("rate: {rate:.0} round trips/s, {:.2} MB/s each way", rate * task.size as f64 / 1e6);
}
