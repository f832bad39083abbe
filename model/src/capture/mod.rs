//! Captures: the frames that leave and arrive at the ports of a process, as a pcapng file.
//!
//! Wireshark and tshark read such a file. A [`Writer`] writes it: for a [`Capture`] while the devices
//! run, for [`export`] from a recording.
//!
//! - [`pcapng`] builds the blocks of the file.
//! - [`link`] gives a frame the form that analysers of its link read.
//!
//! Without a capture, each frame costs one test of an empty option. With one, each frame is written
//! by one call of the kernel, so a process that is killed loses no frame that passed before.

mod link;
mod pcapng;

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::identity::Identity;
use crate::private::complain;
use crate::trace::{Call, Event, Observed, ReadError, Reader, Sink, What};
pub use crate::wire::Direction;
use crate::wire::{Frame, Link};
use link::Envelope;
use pcapng::Packet;

/// Writes frames as pcapng: each block by one call of its output.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    /// The link of each port.
    links: Vec<Link>,
    /// The block that is being built.
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file: the process, and an interface for each port.
    ///
    /// # Errors
    /// Any error of writing.
    pub fn new(to: W, program: &str, process: u32, ports: &[Identity]) -> io::Result<Self> {
        let links = ports.iter().map(|port| port.link).collect();
        let mut writer = Self { to, links, block: Vec::new() };
        let application = format!("{program}, process {process}");
        // The devices of a process have one profile.
        let profile = ports.first().map(|port| format!(" ({})", port.profile.summary()));
        let hardware = format!("mlx5-model: a software ConnectX{}", profile.unwrap_or_default());
        pcapng::section(&hardware, &application, &mut writer.block);
        for (index, port) in ports.iter().enumerate() {
            // As `rdma link` names ports.
            let name = format!("mlx5_{index}/1");
            let kind = link::kind(port.link);
            pcapng::interface(kind, &name, &describe(port), &mut writer.block);
        }
        writer.to.write_all(&writer.block)?;
        Ok(writer)
    }

    /// Writes a frame that passed a port, at a time in nanoseconds since 1970, with the reason for
    /// which the device dropped it, if it did.
    ///
    /// # Errors
    /// Any error of writing.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn frame(
        &mut self,
        port: usize,
        direction: Direction,
        time: u64,
        frame: &Frame,
        dropped: Option<&dyn fmt::Display>,
    ) -> io::Result<()> {
        let envelope = Envelope::of(self.links[port], frame, time);
        let parts = envelope.around(&frame.0);
        let comment = dropped.map(|reason| format!("dropped: {reason}"));
        self.block.clear();
        let packet = Packet { interface: port as u32, time, direction, parts, comment };
        packet.put(&mut self.block);
        self.to.write_all(&self.block)
    }
}

fn describe(port: &Identity) -> String {
    match port.link {
        Link::InfiniBand => {
            format!("InfiniBand, node {:#018x}, LID {:#x}", port.node_guid, port.lid)
        }
        Link::Roce => {
            format!("RoCEv2, MAC {}", port.mac.map(|byte| format!("{byte:02x}")).join(":"))
        }
    }
}

/// The capture of a process that runs.
pub(crate) struct Capture(Mutex<Live>);

struct Live {
    /// `None` after an error of writing.
    writer: Option<Writer<Sink>>,
    /// The time of day at `start`.
    began: Duration,
    /// Times are counted from here, so that they never go back.
    start: Instant,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capture")
    }
}

impl Capture {
    /// Begins a file with the ports of this process.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn start(sink: Sink, ports: &[Identity]) -> io::Result<Arc<Self>> {
        let program = std::env::args_os().next().unwrap_or_default();
        let writer = Writer::new(sink, &program.to_string_lossy(), std::process::id(), ports)?;
        Ok(Arc::new(Self(Mutex::new(Live {
            writer: Some(writer),
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            start: Instant::now(),
        }))))
    }

    /// Writes a frame that passes a port now. After an error of writing, the capture ends with a
    /// message and the program continues.
    pub(crate) fn frame(
        &self,
        port: usize,
        direction: Direction,
        frame: &Frame,
        dropped: Option<&dyn fmt::Display>,
    ) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Live { writer, began, start } = &mut *live;
        let Some(output) = writer else { return };
        let time = (*began + start.elapsed()).as_nanos() as u64;
        if let Err(error) = output.frame(port, direction, time, frame, dropped) {
            // The reader is gone, or the disk is full: the program goes on.
            if error.kind() != io::ErrorKind::BrokenPipe {
                complain!("the capture ends here: {error}");
            }
            *writer = None;
        }
    }
}

/// A card's own share of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Capturing {
    pub(crate) capture: Arc<Capture>,
    /// Which card of the process it is.
    pub(crate) card: usize,
}

/// The reason why a recording cannot be exported to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be read on.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The capture cannot be written.
    #[error("the capture cannot be written: {0}")]
    Write(io::Error),
}

/// Writes the frames of a recording as pcapng. Returns their number.
///
/// # Errors
/// - [`ExportError::Read`] if the recording cannot be read on. The frames before were written.
/// - [`ExportError::Write`] for any error of writing.
pub fn export<R: Read>(recording: Reader<R>, to: impl Write) -> Result<u64, ExportError> {
    let header = recording.header();
    let began = header.began;
    let writer = Writer::new(to, &header.program, header.process, &header.cards);
    let mut writer = writer.map_err(ExportError::Write)?;
    let mut count = 0;
    for event in recording.events() {
        let Event { card, time, what } = event?;
        let (direction, bytes) = match what {
            What::Observed(Observed::Sent(bytes)) => (Direction::Outbound, bytes),
            What::Entered(
                Call::Receive(bytes)
                | Call::ReceiveOwn { frame: bytes, .. }
                | Call::ReceiveManagement(bytes),
            ) => (Direction::Inbound, bytes),
            _ => continue,
        };
        let frame = Frame::new(bytes.into_owned());
        // The reader refuses cards that the header does not name.
        writer
            .frame(card.into(), direction, began.saturating_add(time), &frame, None)
            .map_err(ExportError::Write)?;
        count += 1;
    }
    Ok(count)
}
