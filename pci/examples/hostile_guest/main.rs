//! A guest's program that attacks the function it has: random stores to the BAR, random commands,
//! random stores to the configuration space, and mappings that come and go.
//!
//! Runs as root, in a guest without IOMMU:
//!
//! ```text
//! hostile_guest attack /sys/bus/pci/devices/FUNCTION SECONDS SEED   # no driver may be bound
//! hostile_guest queue /sys/bus/pci/devices/FUNCTION [WORD]          # reads or stores the low half of
//!                                                                   # the command queue's address, and
//!                                                                   # rings for all entries if it is
//!                                                                   # not zero
//! ```
//!
//! It does no harm to the guest itself: random addresses are far from the guest's memory, or in pages
//! of this program.

mod attack;
mod memory;
mod queue;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use attack::Attack;
use memory::Bar;

/// Any failure, as text.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "usage: hostile_guest attack FUNCTION SECONDS SEED | queue FUNCTION [WORD]";

/// Offset in the BAR of the low half of the command queue's address.
const QUEUE_LOW: usize = 0x14;

/// Offset in the BAR of the command queue's doorbell.
const DOORBELL: usize = 0x18;

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["attack", function, seconds, seed] => {
            let seconds = seconds.parse().map_err(|error| format!("{seconds}: {error}"))?;
            let seed = seed.parse().map_err(|error| format!("{seed}: {error}"))?;
            let done = Attack::new(Path::new(function), seed)?.run(Duration::from_secs(seconds))?;
            println!("{done}");
        }
        ["queue", function] => {
            println!("{}", Bar::open(Path::new(function))?.word(QUEUE_LOW) & !0xfff);
        }
        ["queue", function, word] => {
            let word: u32 = word.parse().map_err(|error| format!("{word}: {error}"))?;
            let bar = Bar::open(Path::new(function))?;
            bar.set_word(QUEUE_LOW, word);
            if word != 0 {
                bar.set_word(DOORBELL, u32::MAX);
            }
        }
        _ => return Err(USAGE.to_owned()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile_guest: {error}");
            ExitCode::FAILURE
        }
    }
}
