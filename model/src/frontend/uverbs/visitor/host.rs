//! The host: the process that opened a device.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use zerocopy::IntoBytes;

use super::super::dispatch::{self, methods};
use super::super::driver::running::Running;
use super::super::objects::file::CommandFile;
use super::super::process::descriptors::{Descriptors, duplicate_aside};
use super::super::process::errno::Errno;
use super::super::process::{in_children, own_process, thread};
use super::super::request::abi::{Attribute, Header};
use super::super::request::ioctl::Kind;
use super::message::{Carried, Reader, Writer, ask};
use super::{PATIENCE, names, resources};
use crate::cost;
use crate::fabric::local::socket::{self, Fd};
use crate::private::{self, OwnFd, Private, system};

/// The process that listens, or 0.
static LISTENS: AtomicI32 = AtomicI32::new(0);
/// The descriptor it listens with; -1 for none.
static LISTENER: AtomicI32 = AtomicI32::new(-1);

/// `INVOKE_WRITE`'s attribute of the command, and the commands that only ask: QUERY_DEVICE in both
/// forms, QUERY_QP and QUERY_SRQ.
const COMMAND: u16 = 2;
const ASKING: [u64; 4] = [1, 0x8000_0001, 25, 34];

/// Lets other processes ask about the devices of this one, from now on. Where it cannot, they do not.
pub(crate) fn open(running: &'static Running) {
    let own = own_process();
    if LISTENS.swap(own, Ordering::AcqRel) == own {
        return;
    }
    static ASKED: AtomicBool = AtomicBool::new(false);
    in_children(&ASKED, forget);
    let listening = socket::unguessable().and_then(|end| {
        let listener = socket::listen_for_streams(&format!("{}{own}.{end}", names()))?;
        LISTENER.store(listener.as_raw_fd(), Ordering::Release);
        Ok(listener)
    });
    match listening {
        Ok(listener) => {
            let reserve = Reserve::new(&listener);
            thread(move || listen(running, &listener, reserve));
        }
        Err(error) => tracing::debug!(%error, "other processes cannot ask about this one"),
    }
}

/// In the child of a fork: the name is the parent's, and is to go with it.
extern "C" fn forget() {
    let listener = LISTENER.swap(-1, Ordering::AcqRel);
    if listener >= 0 {
        private::release(listener);
        // SAFETY: the descriptor came over the fork without the thread that owns it, so nothing in this
        // process uses or closes it.
        unsafe { system::close(listener) };
    }
}

/// A descriptor to do without when the program has taken all others, so that a guest can be served.
struct Reserve(Option<Private>);

impl Reserve {
    fn new(listener: &Fd) -> Self {
        let mut reserve = Self(None);
        reserve.fill(listener);
        reserve
    }

    fn fill(&mut self, listener: &Fd) {
        if self.0.is_none() {
            let copy = duplicate_aside(listener.as_raw_fd());
            // SAFETY: `duplicate_aside` has just made the descriptor, so no other value owns it.
            self.0 = copy.ok().and_then(|fd| unsafe { OwnFd::new(fd) }.ok()).map(Private::new);
        }
    }
}

/// A guest.
struct Connection {
    stream: Fd,
    /// The open device whose descriptor it has.
    file: Option<Arc<CommandFile>>,
}

fn listen(running: &'static Running, listener: &Fd, mut reserve: Reserve) {
    /// How long the thread sleeps, in milliseconds, when it has no descriptor for a guest: the
    /// program does not tell when it closes one.
    const WITHOUT: libc::c_int = 100;
    cost::work_for_others();
    let mut guests: Vec<Connection> = Vec::new();
    loop {
        reserve.fill(listener);
        // Without a reserve the listener would be ready, and accepting would fail, all the time.
        let (events, wait) = if reserve.0.is_some() { (libc::POLLIN, -1) } else { (0, WITHOUT) };
        let polled = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
        let mut ready = vec![polled(listener.as_raw_fd(), events)];
        ready.extend(guests.iter().map(|guest| polled(guest.stream.as_raw_fd(), libc::POLLIN)));
        // SAFETY: `ready` has as many entries as its length says, and lives through the call.
        unsafe { system::poll(ready.as_mut_ptr(), ready.len() as libc::nfds_t, wait) };
        let mut spoke = ready[1..].iter().map(|entry| entry.revents != 0);
        guests.retain_mut(|guest| match spoke.next() {
            // A guest that is gone, or sends an invalid message, is disconnected.
            Some(true) => guest.serve(running).is_ok(),
            _ => true,
        });
        if ready[0].revents != 0 {
            let accept = || socket::accept_stream(listener, PATIENCE);
            let accepted = match accept() {
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    reserve.0 = None;
                    accept()
                }
                accepted => accepted,
            };
            match accepted {
                Ok(stream) => guests.push(Connection { stream, file: None }),
                Err(error) => tracing::debug!(%error, "somebody was sent away"),
            }
        }
    }
}

impl Connection {
    /// Answers one message.
    fn serve(&mut self, running: &'static Running) -> io::Result<()> {
        let mut message = Reader::receive(&mut &*self.stream)?;
        let mut reply = Writer::default();
        match message.number()? {
            ask::RESOURCES => resources::write(running, &mut message, &mut reply)?,
            ask::FILE => {
                let fd = message.number()? as RawFd;
                self.file = Descriptors::own().get_as(fd);
                reply.number(self.file.is_some().into());
            }
            ask::REQUEST => {
                let file = self.file.as_ref().ok_or(io::ErrorKind::InvalidData)?;
                request(file, &mut message, &mut reply)?;
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        reply.send(&mut &*self.stream)
    }
}

/// Serves a request as if this process had made it, from and to memory of this function.
fn request(file: &CommandFile, message: &mut Reader, reply: &mut Writer) -> io::Result<()> {
    let (object, method) = (message.number()? as u16, message.number()? as u16);
    let count = message.number()?;
    let mut carried = (0..count).map(|_| Carried::read(message)).collect::<io::Result<Vec<_>>>()?;
    let declared = methods::find(object, method).map_or(&[][..], |method| method.attributes);
    let is_output = |id: u16| {
        let known = declared.iter().find(|known| known.id == id);
        known.is_some_and(|known| matches!(known.kind, Kind::Out(_)))
    };
    let mut buffers: Vec<Vec<u8>> = Vec::new();
    let mut attributes: Vec<Attribute> = Vec::new();
    for one in &mut carried {
        let mut attribute = one.attribute;
        let mut buffer = std::mem::take(&mut one.input);
        // What is written goes to memory of this function, never to where the guest says.
        one.output = is_output(attribute.id);
        if one.output {
            buffer = vec![0; usize::from(attribute.length)];
        } else if buffer.len() != usize::from(attribute.length) && !buffer.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // What is no pointer is in the attribute itself: handles, and inputs of up to eight bytes.
        let pointer = one.output || !buffer.is_empty();
        if pointer {
            attribute.data = buffer.as_mut_ptr() as u64;
        } else if attribute.length > 8 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffers.push(buffer);
        attributes.push(attribute);
    }
    let header = Header {
        length: (size_of::<Header>() + attributes.len() * size_of::<Attribute>()) as u16,
        object,
        method,
        attributes: attributes.len() as u16,
        driver: 1,
        ..Default::default()
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(attributes.as_bytes());
    let served = if only_asks(object, method, &attributes) {
        dispatch::request(file, bytes.as_mut_ptr() as u64)
    } else {
        Err(Errno::EOPNOTSUPP)
    };
    reply.number(served.err().map_or(0, |error| error.0 as u32));
    for (index, (one, buffer)) in carried.iter().zip(&buffers).enumerate() {
        let at = size_of::<Header>() + index * size_of::<Attribute>();
        let attribute: Attribute = super::super::process::user::lenient(&bytes[at..]);
        reply.number(attribute.flags.into());
        reply.bytes(if one.output { buffer } else { &[] });
    }
    Ok(())
}

/// Whether a request changes nothing, and makes nothing.
fn only_asks(object: u16, method: u16, attributes: &[Attribute]) -> bool {
    match (object, method) {
        (0, 0) => attributes
            .iter()
            .find(|attribute| attribute.id == COMMAND)
            .is_some_and(|attribute| attribute.length == 8 && ASKING.contains(&attribute.data)),
        // QUERY_PORT, QUERY_CONTEXT, QUERY_GID_TABLE, QUERY_GID_ENTRY
        (0, 2 | 4 | 5 | 6) => true,
        // Numbers of protection domains; keys of regions
        (1, 0x1000) | (7, 3) => true,
        // DEVX_OTHER, DEVX_OBJ_QUERY
        (0x1000, 0x1000) | (0x1001, 0x1003) => true,
        _ => false,
    }
}
