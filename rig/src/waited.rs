//! Descriptors that a program waits on.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Checks that safe code takes nothing from a descriptor where an event waits, and gives nothing to
/// it. Leaves the descriptor blocking.
pub fn is_for_waiting_alone(events: &impl AsFd) {
    let copy = || events.as_fd().try_clone_to_owned().unwrap();
    UnixStream::from(copy()).set_nonblocking(false).unwrap();
    let mut file = File::from(copy());
    let refused = |result: std::io::Result<usize>| {
        let error = result.map_err(|error| error.raw_os_error());
        if error != Err(Some(libc::EINVAL)) {
            // A panic would drop the object of the event, which waits for an acknowledgement.
            eprintln!("a program reads or writes the descriptor: {error:?}");
            std::process::abort();
        }
    };
    refused(file.read(&mut [0; 256]));
    refused(file.write(&[0; 256]));
}
