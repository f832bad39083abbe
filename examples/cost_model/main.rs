//! What the ways to post a request cost, by the time stamps that the device writes into CQEs: BlueFlame
//! or doorbell, inline or by pointer, READ, WRITE or SEND, one doorbell for many requests, and
//! message sizes.
//!
//! Both sides in this process: `cargo run --example cost_model`
//!
//! On the software model the times mean something only with `MLX5_MODEL_TIME=virtual`: then they
//! are those of a documented model of costs, the same in every run.
//!
//! `cargo run --example cost_model -- residuals` compares that model with what others measured on
//! devices. It needs no device: each generation is a process with the model.

mod ends;
mod rows;

use std::process::Command;
use std::time::Duration;

use ends::{Device, End, Operation, Payload, Result, Setup, latency, post_and_wait};
use mlx5::ring::RegisterUse;
use mlx5::verbs::Context;
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;
use rows::{MACHINES, Machine, number};

/// Bytes of the largest message.
const LARGEST: usize = 1 << 20;
/// Batches that are measured one by one.
const BATCHES: u32 = 4;
/// Requests of a batch that measures bandwidth.
const WINDOW: u32 = 8;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => ways_to_post(),
        ["residuals"] => MACHINES.iter().try_for_each(residuals_of),
        ["residuals", profile, link] => {
            let is_wanted = |machine: &&Machine| machine.profile == profile && machine.link == link;
            let machine = MACHINES.iter().find(is_wanted).ok_or("no rows are of this device")?;
            residuals(machine)
        }
        _ => Err("usage: cost_model [residuals [PROFILE LINK]]".into()),
    }
}

/// Runs the rows of a device in a process of its own: the model is one device as long as it runs.
fn residuals_of(machine: &Machine) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["residuals", machine.profile, machine.link]);
    command.envs([
        ("MLX5_MODEL", "always"),
        ("MLX5_MODEL_TIME", "virtual"),
        ("MLX5_MODEL_PROFILE", machine.profile),
        ("MLX5_MODEL_LINK", machine.link),
    ]);
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(format!("{} on {}: {status}", machine.profile, machine.link).into()),
    }
}

/// Prints what others measured beside what the model has, on the device of this process.
fn residuals(machine: &Machine) -> Result<()> {
    let device = Device::open()?;
    println!("{} on {}", machine.profile, machine.link);
    println!("{:>10}  {:<44}{:>14}{:>9}{:>16}", "evidence", "", "measured", "model", "residual");
    for row in machine.rows {
        let model = (row.model)(&device)?;
        let (_, why) = row.within;
        let line = format!(
            "{:>10}  {:<44}{:>14}{:>9} {:<6}{:>+7.1} %  {why}",
            row.fact,
            row.what,
            row.measured(),
            number(model),
            row.unit,
            row.residual(model)
        );
        println!("{}", line.trim_end());
    }
    println!();
    Ok(())
}

fn ways_to_post() -> Result<()> {
    // 1. The device, and its clock: CQEs have counts of it.
    let device = Device::open()?;
    println!("{}", what_the_times_are(&device.context)?);

    // 2. Two queue pairs that post: one copies short WQEs to its register (BlueFlame), the other one
    //    only rings doorbells. Copies have to be wide for the model to tell them from doorbells.
    let lane =
        |register| device.ends(Setup { register, depth: None, requests: 512, memory: LARGEST });
    let (mut copied, mut rung) = (lane(RegisterUse::Own)?, lane(RegisterUse::Shared)?);

    // 3. One request at a time.
    println!("\nWRITE, one at a time, ns");
    println!(
        "{:>8}{:>18}{:>18}{:>18}{:>18}",
        "bytes", "BlueFlame inline", "pointer", "doorbell inline", "pointer"
    );
    for bytes in [8, 28, 64, 128, 256] {
        print!("{bytes:>8}");
        for lane in [&mut copied, &mut rung] {
            for payload in [Payload::Inline, Payload::Pointer] {
                print!("{:>18}", latency(lane, &[Operation::Write(payload)], bytes)?);
            }
        }
        println!();
    }
    println!("\n8 bytes by pointer and BlueFlame, one at a time, ns");
    for (name, operation) in [
        ("WRITE", Operation::Write(Payload::Pointer)),
        ("SEND", Operation::Send(Payload::Pointer)),
        ("READ", Operation::Read),
    ] {
        println!("{name:>8}{:>18}", latency(&mut copied, &[operation], 8)?);
    }

    // 4. Many requests behind one doorbell.
    println!("\nWRITE of 8 bytes inline, one doorbell for so many, millions a second");
    for requests in [1, 2, 4, 8, 16, 32, 64] {
        let time = batches(&mut rung, requests, Payload::Inline, 8)?;
        let each = f64::from(BATCHES * requests) * 1e3 / time.as_nanos() as f64;
        println!("{requests:>8}{each:>18.3}");
    }

    // 5. Message sizes.
    println!("\nWRITE by pointer, {WINDOW} behind one doorbell, GB/s");
    for bytes in (6..=20).step_by(2).map(|log| 1 << log) {
        let time = batches(&mut rung, WINDOW, Payload::Pointer, bytes)?;
        let rate = f64::from(BATCHES * WINDOW) * bytes as f64 / time.as_nanos() as f64;
        println!("{bytes:>8}{rate:>18.3}");
    }
    Ok(())
}

/// Returns a line that says what is measured.
fn what_the_times_are(context: &Context) -> Result<String> {
    let device = context.attributes()?;
    if device.board_id.as_deref() != Some("MLX5-MODEL") {
        return Ok(format!("{}, {}: times of this device", device.name, device.product()));
    }
    Ok(match std::env::var("MLX5_MODEL_TIME").as_deref() {
        Ok("virtual") => {
            "the software model with virtual time: times of its cost model, of no device"
        }
        _ => {
            "the software model: these times mean nothing; MLX5_MODEL_TIME=virtual shows its costs"
        }
    }
    .to_owned())
}

/// Posts batches of WRITEs, each when the one before has completed, and returns the time of
/// [`BATCHES`].
fn batches(lane: &mut [End; 2], requests: u32, payload: Payload, bytes: usize) -> Result<Duration> {
    let batch = vec![Operation::Write(payload); requests as usize];
    let begun = post_and_wait(lane, &batch, bytes)?;
    let mut ended = begun;
    for _ in 0..BATCHES {
        ended = post_and_wait(lane, &batch, bytes)?;
    }
    Ok(Duration::from_nanos(ended - begun))
}
