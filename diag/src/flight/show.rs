//! A record as text: a dump.
//!
//! Every line begins with `mlx5-flight/1`, kind and number of the queue, so that lines of several
//! queues, among others of a log, with whatever a logger puts before them, are told apart. Behind
//! `#`, each says what it means, which is not for parsers.

use core::fmt;
use std::io;

use super::record::{Cqe, Doorbell, Queue, Record, What, Wqe};
use crate::lint::Transport;
use crate::text::{self, Addressing, SendWqe};

/// The start of each line in this version.
pub(super) const MARK: &str = "mlx5-flight/";
pub(super) const VERSION: &str = "1";

/// Bytes in hex, four to a group, and a space before each group.
struct Groups<'a>(&'a [u8]);

impl fmt::Display for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if at % 4 == 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// The first line of a text.
struct First<D>(D);

impl<D: fmt::Display> fmt::Display for First<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.lines().next().unwrap_or_default())
    }
}

impl Record {
    /// Returns the transport of the queue's sends; `None` if its name is not known.
    ///
    /// Both ends of XRC and of dynamic connections stand for the requesting end.
    pub fn send_transport(&self) -> Option<Transport> {
        Some(match self.transport.as_str() {
            "RC" => Transport::Rc,
            "UC" => Transport::Uc,
            "UD" => Transport::Ud,
            // Dumps write the name as one word.
            "raw_packet" => Transport::RawPacket,
            name if name.starts_with("XRC") => Transport::Xrc,
            name if name.starts_with("DC") => Transport::Dci,
            _ => return None,
        })
    }

    /// Returns the segments that the queue's transport puts before the operation's own segments.
    pub fn addressing(&self) -> Addressing {
        self.send_transport().map(Transport::addressing).unwrap_or_default()
    }

    /// Writes the dump, as `Display` has it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        // At once, so that lines of other threads do not come between.
        to.write_all(self.to_string().as_bytes())
    }

    fn wqe(&self, wqe: &Wqe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (how, kept) = (if wqe.found { "found" } else { "wqe" }, wqe.bytes.len());
        write!(f, "{how} index={:#06x} size={} kept={kept}", wqe.index, wqe.size)?;
        write!(f, "{} # ", Groups(&wqe.bytes))?;
        if self.queue == Queue::Send {
            write!(f, "{}", First(SendWqe::new(&wqe.bytes, self.addressing())))?;
        } else {
            f.write_str("receive")?;
        }
        f.write_str(if wqe.is_cut() { ", cut" } else { "" })
    }

    fn doorbell(&self, doorbell: &Doorbell, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "doorbell kind={} record={:#x}", doorbell.kind.word(), doorbell.record)?;
        match doorbell.register {
            Some(register) => write!(f, " register={register:#05x}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, number) = (self.queue.word(), self.number);
        let begin =
            |f: &mut fmt::Formatter<'_>| write!(f, "{MARK}{VERSION} {queue} {number:#08x} ");
        begin(f)?;
        // One word, whatever it is.
        let word = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let transport: String = self.transport.chars().map(word).collect();
        let transport = if transport.is_empty() { "-" } else { &transport };
        write!(f, "begin transport={transport} cqn={:#08x}", self.cqn)?;
        write!(f, " entries={} stride={}", self.entries, self.stride)?;
        write!(f, " hz={} tick={} reason={}", self.hertz, self.tick, self.reason.word())?;
        let events = self.events.len() as u64 + self.missing;
        writeln!(f, " lost={} events={events}", self.lost)?;
        for event in &self.events {
            begin(f)?;
            write!(f, "+{}ns ", event.at)?;
            match &event.what {
                What::Wqe(wqe) => self.wqe(wqe, f)?,
                What::Doorbell(doorbell) => self.doorbell(doorbell, f)?,
                What::Cqe(Cqe(bytes)) => {
                    write!(f, "cqe{} # {}", Groups(bytes), First(text::Cqe(bytes)))?;
                }
            }
            writeln!(f)?;
        }
        begin(f)?;
        writeln!(f, "end")
    }
}
