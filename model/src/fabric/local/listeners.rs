//! Frames to all listeners: how this process becomes one, and learns of the others.

use std::io::{self, ErrorKind};

use super::bundle;
use super::{Network, Recipient, Remote, Source, socket};
use crate::wire::{Frame, LinkAddress};

/// Appends the address of the port that sent a frame, for a listener.
pub(super) fn with_sender(frame: &Frame, from: LinkAddress) -> Frame {
    Frame::new([&frame.0[..], &from.encode()].concat())
}

/// Removes the address that [`with_sender`] appends, and returns it. `None` if there is none.
pub(super) fn take_sender(frame: &mut Frame) -> Option<LinkAddress> {
    let encoded = *frame.0.last_chunk::<{ LinkAddress::ENCODED }>()?;
    frame.0.truncate(frame.0.len() - encoded.len());
    LinkAddress::decode(encoded)
}

impl Network {
    /// Makes this process a listener, and announces it to the other processes.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        if self.hall.listener.is_some() {
            return Ok(());
        }
        let name = self.name(&format!("all/{}", socket::unguessable()?));
        let fd = socket::listen(&name)?;
        self.add(Source::Listener { fd, to: Recipient::All })?;
        self.hall.listener = Some(name.clone());
        // What waits already is from this process.
        for door in socket::names(&self.name("from/"))? {
            let door = self.name(&format!("from/{door}"));
            if self.hall.door.as_ref() == Some(&door) {
                continue;
            }
            let told = socket::connect(&door).and_then(|fd| {
                bundle::send(&fd, std::iter::once(&Frame::new(name.clone().into_bytes())))
            });
            if let Err(error) = told {
                tracing::debug!(%door, %error, "a sender is not told who listens");
            }
        }
        Ok(())
    }

    /// Queues a frame that the port `from` sends for every other listener.
    pub(crate) fn send_to_all(&mut self, from: LinkAddress, frame: &Frame) {
        if let Err(error) = self.open_door() {
            tracing::warn!(%error, "cannot be told who listens, and looks again");
        }
        self.hear_callers();
        if self.hall.is_time_to_look() {
            self.look();
        }
        for number in self.hall.numbers() {
            self.put(Remote::Listener(number), with_sender(frame, from));
        }
    }

    /// Opens this process's door, where new listeners announce themselves.
    fn open_door(&mut self) -> io::Result<()> {
        if self.hall.door.is_some() {
            return Ok(());
        }
        // A listener that had not announced itself when the names were read has found this door.
        self.hall.suspect();
        let name = self.name(&format!("from/{}", socket::unguessable()?));
        let fd = socket::listen(&name)?;
        let token = self.add(Source::Door { fd })?;
        self.hall.door = Some(name);
        self.hall.door_token = Some(token);
        Ok(())
    }

    /// Accepts connections at the door and reads their announcements. A new listener has announced
    /// itself before its call returns.
    pub(super) fn hear_callers(&mut self) {
        /// Most connections for one frame.
        const MOST: usize = 64;
        let Some(door) = self.hall.door_token else { return };
        for _ in 0..MOST {
            let Some(Source::Door { fd }) = self.sources.get(&door) else { return };
            match socket::accept(fd) {
                Ok(fd) => {
                    if let Ok(token) = self.add(Source::Caller { fd }) {
                        self.hall.callers.push(token);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Another user at the door may have kept listeners away.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => self.hall.suspect(),
                Err(error) if socket::is_shortage(&error) => {
                    self.starve(door, &error);
                    self.hall.suspect();
                    break;
                }
                Err(_) => break,
            }
        }
        for token in std::mem::take(&mut self.hall.callers) {
            self.hear(token);
        }
    }

    /// Reads one announcement at the door, and closes the connection.
    pub(super) fn hear(&mut self, token: u64) {
        let Some(Source::Caller { fd }) = self.sources.get(&token) else { return };
        let mut names = Vec::new();
        let received =
            self.buffers.receive(fd, |frame| names.extend(String::from_utf8(frame.0.clone())));
        match received {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.hall.callers.push(token),
            _ => drop(self.sources.remove(&token)),
        }
        names.into_iter().for_each(|name| self.meet(name));
    }

    /// Searches the bound names for listeners.
    fn look(&mut self) {
        let start = self.name("all/");
        let names = match socket::names(&start) {
            Ok(names) => names.into_iter().map(|end| format!("{start}{end}")).collect(),
            Err(error) => {
                tracing::error!(%error, "cannot see who listens");
                return;
            }
        };
        self.hall.looked(&names);
        names.into_iter().for_each(|name| self.meet(name));
    }

    /// Adds a listener, found by its announcement or by its name.
    fn meet(&mut self, name: String) {
        if !name.starts_with(&self.name("all/")) || self.hall.knows(&name) {
            return;
        }
        match socket::connect(&name) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => self.hall.refuse(name),
            // The listener is gone again.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            // After other errors, the first frame tries the connection again.
            Err(_) => drop(self.hall.enter(name)),
            Ok(fd) => {
                let Some(number) = self.hall.enter(name) else { return };
                self.add_connected(Remote::Listener(number), fd);
            }
        }
    }
}
