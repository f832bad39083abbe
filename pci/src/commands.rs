//! Executes commands of the command queue.

use mlx5_model::card::Card;
use mlx5_model::command::Refusal;
use mlx5_model::function::Notice;
use mlx5_model::memory::Memory;
use mlx5_sys::ifc::opcode;

use crate::left::left_behind;
use crate::mailbox::{Delivery, ENTRY, Entry};
use crate::options::Log;

/// log2 of entries in the command queue, and of the distance between two.
pub const LOG_SLOTS: u32 = 5;
/// log2 of the bytes from one entry to the next.
pub const LOG_STRIDE: u32 = ENTRY.ilog2();

/// Executes the commands in these slots, a bit for each, of the command queue at a bus address.
pub fn execute(card: &mut Card, queue: u64, slots: u32, log: Log) {
    for slot in (0..1 << LOG_SLOTS).filter(|slot| slots >> slot & 1 == 1) {
        execute_one(card, queue, slot, log);
    }
}

fn execute_one(card: &mut Card, queue: u64, slot: u32, log: Log) {
    if card.is_stopped() {
        return;
    }
    let memory = card.memory.clone();
    let address = queue.wrapping_add(u64::from(slot) << LOG_STRIDE);
    let Ok(mut entry) = Entry::read(&*memory, address) else {
        complain(log, || format!("slot {slot}: the entry at {address:#x} is not in memory"));
        return;
    };
    if !entry.is_for_device() {
        return;
    }
    // The command may create or destroy the EQ that listens for commands.
    let eq = card.command_queue();
    let delivered = deliver(card, &*memory, &mut entry, log);
    if let Err(delivery) = delivered {
        complain(log, || format!("slot {slot}: not delivered: {delivery}"));
    }
    if entry.finish(&*memory, delivered).is_err() {
        complain(log, || format!("slot {slot}: the entry at {address:#x} cannot be written"));
        return;
    }
    if let Some(eq) = eq {
        card.notify(Notice::Commands { eq, slots: 1 << slot });
    }
}

fn deliver(
    card: &mut Card,
    memory: &dyn Memory,
    entry: &mut Entry,
    log: Log,
) -> Result<(), Delivery> {
    let command = entry.command(memory)?;
    let mut reply = entry.reply()?;
    if let Some(text) = left_behind(card, &command) {
        complain(log, || text);
    }
    card.execute(&command, &mut reply);
    report(&command, &reply, log);
    entry.answer(memory, &reply)
}

fn complain(log: Log, text: impl FnOnce() -> String) {
    if log != Log::None {
        eprintln!("mlx5-model-pci: {}", text());
    }
}

/// Logs a command and its reply.
fn report(command: &[u8], reply: &[u8], log: Log) {
    let half = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 2).map_or(0, |half| u16::from_be_bytes([half[0], half[1]]))
    };
    let status = reply.first().copied().unwrap_or(0);
    let shown = match log {
        Log::None => false,
        Log::Refused => status != 0,
        Log::All => true,
    };
    if !shown {
        return;
    }
    let (code, modifier) = (half(command, 0), half(command, 6));
    let name = opcode::name(code).unwrap_or("unknown");
    let mut line = format!("{code:#05x} {name} op_mod {modifier:#x}");
    if status != 0 {
        let syndrome = u32::from(half(reply, 4)) << 16 | u32::from(half(reply, 6));
        let reason = Refusal::from_syndrome(syndrome);
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        line += &format!(": status {status:#x} syndrome {syndrome:#x}{reason}");
        line += &format!(" {:02x?}", &command[..command.len().min(32)]);
    }
    eprintln!("mlx5-model-pci: {line}");
}
