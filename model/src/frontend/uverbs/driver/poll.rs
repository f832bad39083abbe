//! Register pages in plain memory: a thread polls them, or the program says when to look.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::super::process::trap::PAGE;
use super::super::process::{own_process, thread};
use super::super::tree::config::Mode;
use super::registers::{Page, Registers};
use crate::private::system;
use crate::queue::RECORDLESS;

/// The registers of a page that start work: CQ arm at 0x20, BlueFlame from 0x800 on.
const ARM: usize = 0x20;

/// Looks at a page, and does everything that doorbells on it may have asked for if something was
/// stored since the last time, or if it `must`. Gives whether something was.
fn look(page: &Page, must: bool) -> bool {
    let stored = page.take();
    if stored.is_empty() && !must {
        return false;
    }
    let uar = page.uar.load(Ordering::Acquire);
    page.engine.enter(page.function, |card| {
        // The first arm of a queue is all zero but for its number: the records do not tell it.
        if let Some((_, arm)) = stored.iter().find(|(offset, _)| *offset == ARM) {
            card.store(uar, ARM, arm);
        }
        // Where there is no record, the last doorbell says it all, of one queue.
        if let Some((_, doorbell)) = stored.iter().find(|(offset, _)| *offset == RECORDLESS) {
            card.store(uar, RECORDLESS, doorbell);
        }
        card.ring_all(uar);
    });
    !stored.is_empty()
}

/// Executes everything that was posted since the last call to the devices that this thread opened in
/// manual mode.
pub(crate) fn run(registers: &Registers) {
    for page in registers.of_this_thread() {
        look(page, true);
    }
}

/// Starts the thread that looks at polled pages, once in a process.
pub(crate) fn start(registers: &'static Registers) {
    static OF: AtomicI32 = AtomicI32::new(0);
    let process = own_process();
    if OF.swap(process, Ordering::AcqRel) != process {
        thread(move || watch(registers));
    }
}

/// Between two looks that found nothing. A program that polls for completions needs the processor.
const PAUSE: Duration = Duration::from_micros(20);

fn watch(registers: &'static Registers) {
    // The timer's own slack would be more than twice the pause.
    // A refusal only makes pauses longer.
    // SAFETY: the request passes no memory.
    unsafe { system::prctl(libc::PR_SET_TIMERSLACK, 1000) };
    crate::engine::be_brief();
    loop {
        let mut found = false;
        for page in registers.of(Mode::Polled) {
            found |= look(page, false);
        }
        if !found {
            system::sleep(PAUSE);
        }
    }
}

const _: () = assert!(ARM < PAGE);
