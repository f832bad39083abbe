//! The counts that files of counters show.

use std::ffi::CString;
use std::io::Write;
use std::os::fd::AsRawFd;

use mlx5_sys::ifc::{
    Field, opcode, query_q_counter_in, query_q_counter_out, query_vport_counter_in,
    query_vport_counter_out as vport, traffic_counter,
};

use super::super::process::descriptors;
use super::super::tree::counters::{Counter, Source, TRANSPORT};
use super::super::tree::discovery::Offer;
use super::command::Command;
use super::function::Function;
use super::running::Running;
use crate::private::{OwnFd, Private, check, system};

/// Asks a device for a counter, as the kernel's driver does.
fn count(counter: Counter, function: &Function) -> Option<u64> {
    match counter {
        Counter::Port(source) => {
            let reply = function.run(Command::new(
                opcode::QUERY_VPORT_COUNTER,
                query_vport_counter_in::SIZE,
                vport::SIZE,
            ));
            let reply = reply.ok()?;
            let sum = |kinds: &[Field], part: Field| -> u64 {
                kinds.iter().map(|kind| part.within(*kind).get(&reply)).sum()
            };
            Some(match source {
                Source::Packets(kinds) => sum(kinds, traffic_counter::PACKETS),
                Source::Words(kinds) => sum(kinds, traffic_counter::OCTETS) / 4,
                Source::Never => 0,
            })
        }
        Counter::Transport(field) => Some(field.get(&counter_set(function)?)),
    }
}

/// Asks a device for the counter set of its port.
fn counter_set(function: &Function) -> Option<Vec<u8>> {
    let (request, reply) = (query_q_counter_in::SIZE, query_q_counter_out::SIZE);
    let mut command = Command::new(opcode::QUERY_Q_COUNTER, request, reply);
    command.set(query_q_counter_in::COUNTER_SET_ID, function.counters);
    function.run(command).ok()
}

/// Returns the counts of a port, in the order of [`TRANSPORT`]; none if the device does not answer.
pub(crate) fn transport(function: &Function) -> impl Iterator<Item = u64> {
    let counts = counter_set(function).into_iter();
    counts.flat_map(|counts| TRANSPORT.iter().map(move |(_, field)| field.get(&counts)))
}

/// A file with the count of a moment, as long as this value lives.
pub(crate) struct Shown {
    _file: Private,
    /// A name of the file.
    pub path: CString,
}

/// Returns what a counter's file shows now; `None` if the path is not that of a counter.
pub(crate) fn shown(offer: &Offer, path: &[u8]) -> Option<Shown> {
    let (name, counter) = Counter::at(std::str::from_utf8(path).ok()?)?;
    let index = offer.devices.iter().position(|device| device.name == name)?;
    // A process that has not opened the device has sent nothing.
    let count = match Running::current() {
        Some(running) => count(counter, running.functions.get(index)?)?,
        None => 0,
    };
    file(&format!("{count}\n")).ok()
}

fn file(text: &str) -> std::io::Result<Shown> {
    // SAFETY: the call reads the name, a C string, and returns a new descriptor or -1.
    let fd = check(unsafe { system::memfd_create(c"counter".as_ptr(), libc::MFD_CLOEXEC) })?;
    let fd = descriptors::aside(fd).map_err(|error| std::io::Error::from_raw_os_error(error.0))?;
    // SAFETY: the descriptor was made above, and nothing else owns it.
    let file = Private::new(unsafe { OwnFd::new(fd) }?);
    (&*file).write_all(text.as_bytes())?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(Shown { _file: file, path })
}
