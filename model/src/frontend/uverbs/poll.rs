//! Register pages that are plain memory: a thread looks at them, or the program says when.

use std::sync::atomic::{AtomicI32, Ordering};

use super::config::Mode;
use super::running::Running;
use super::trap::PAGE;
use super::uar::Page;
use super::{lock, user};

/// The registers of a page that start work: CQ arm at 0x20, BlueFlame from 0x800 on.
const ARM: usize = 0x20;

/// A completion queue whose arm word is looked at: of several arms that follow one another only
/// the last stays in the register, but each queue keeps its own in its doorbell record.
pub(super) struct Watch {
    /// Number of the queue.
    pub cqn: u32,
    /// Address of its doorbell record.
    pub record: u64,
    /// Arm word when last looked at.
    pub arm: [u8; 4],
}

/// Looks at a page. Gives whether something was stored since the last time.
pub(super) fn look(page: &Page) -> bool {
    let now = page.contents();
    {
        let mut seen = lock(&page.seen);
        if seen[..] == now[..] {
            return false;
        }
        seen.copy_from_slice(&now);
    }
    execute(page);
    true
}

/// Does everything that doorbells on a page may have asked for.
fn execute(page: &Page) {
    let uar = page.uar.load(Ordering::Acquire);
    let mut arms = Vec::new();
    for watch in lock(&page.watched).iter_mut() {
        // A queue whose record is gone is about to be destroyed.
        let Ok(word) = user::read(watch.record + 4, 4) else { continue };
        if word != watch.arm {
            watch.arm.copy_from_slice(&word);
            let mut store = word;
            store.extend(watch.cqn.to_be_bytes());
            arms.push(store);
        }
    }
    page.engine.enter(page.function, |card| {
        for arm in &arms {
            card.store(uar, ARM, arm);
        }
        card.ring_all(uar);
    });
}

/// Executes everything that was posted to the cards in manual mode since the last call.
pub(super) fn run() {
    let Some(running) = Running::current() else { return };
    for page in running.registers.of(Mode::Manual) {
        let now = page.contents();
        lock(&page.seen).copy_from_slice(&now);
        execute(page);
    }
}

/// Starts the thread that looks at polled pages, once in a process.
pub(super) fn start(running: &'static Running) {
    static OF: AtomicI32 = AtomicI32::new(0);
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    if OF.swap(process, Ordering::AcqRel) != process {
        super::thread(move || watch(running));
    }
}

/// How often a thread looks again at once after it found nothing.
const EAGER: u32 = 256;

fn watch(running: &'static Running) {
    let mut idle = 0;
    loop {
        let mut found = false;
        for page in running.registers.of(Mode::Polled) {
            found |= look(page);
        }
        idle = if found { 0 } else { idle + 1 };
        if idle < EAGER {
            // Programs that poll themselves need the processor.
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

const _: () = assert!(ARM < PAGE);
