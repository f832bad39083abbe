//! The thread that looks at the rings while the program makes no stores to registers.

use std::time::Duration;

use super::super::process::thread;
use super::Observer;
use crate::private::system;

/// The time between two looks. A device may write more CQEs in it than a ring has, if the program
/// consumes them: these are missed, and the recording says how many.
const PAUSE: Duration = Duration::from_micros(500);

/// Starts the thread. It ends with the process.
pub(super) fn start(observer: &'static Observer) {
    thread(|| {
        loop {
            system::sleep(PAUSE);
            observer.look();
        }
    });
}
