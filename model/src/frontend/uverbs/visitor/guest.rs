//! The guest: a process that has copied a descriptor.

use std::io;
use std::sync::{Arc, Mutex};

use libc::c_int;

use super::super::dispatch::methods;
use super::super::process::descriptors::{Descriptors, OpenFile};
use super::super::process::errno::{Errno, Result, errno, set_errno};
use super::super::process::{lock, user};
use super::super::request::abi::{Attribute, Header};
use super::super::request::ioctl::{Kind, VALID_OUTPUT};
use super::super::tree::discovery::{Discovery, discovery};
use super::super::tree::sysfs;
use super::message::{Carried, Reader, Writer, ask};
use super::{PATIENCE, names};
use crate::engine::Uncancelled;
use crate::fabric::local::socket::{self, Fd};
use crate::private::files;

/// A device that another process has open.
pub(crate) struct Guest {
    host: Mutex<Fd>,
}

/// A connection to a process that answers.
pub(super) fn connect(process: u32) -> io::Result<Fd> {
    let start = format!("{}{process}.", names());
    let mut found = Err(io::ErrorKind::NotFound.into());
    // Of several names, all but one belong to another user or another process.
    for end in socket::names(&start)? {
        found = host(&format!("{start}{end}"), process);
        if found.is_ok() {
            break;
        }
    }
    found
}

fn host(name: &str, process: u32) -> io::Result<Fd> {
    let stream = socket::connect_stream(name, PATIENCE)?;
    if socket::process(&stream)?.unsigned_abs() != process {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(stream)
}

/// A descriptor was copied from a process by `pidfd_getfd`: one of a device becomes the model's.
pub(crate) fn copied(pidfd: c_int, original: c_int, copy: c_int) {
    if !sysfs::is_node(copy) || !matches!(discovery(), Discovery::On(_)) {
        return;
    }
    let before = errno();
    if let Err(error) = adopt(pidfd, original, copy) {
        tracing::debug!(%error, "a copied descriptor is no device");
    }
    set_errno(before);
}

fn adopt(pidfd: c_int, original: c_int, copy: c_int) -> io::Result<()> {
    let info = files::text(format!("/proc/self/fdinfo/{pidfd}"))?;
    let process = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    let process: u32 = process.ok_or(io::ErrorKind::NotFound)?;
    if process == std::process::id() {
        Descriptors::own().copied(original, copy);
        return Ok(());
    }
    let host = connect(process)?;
    Writer::default().number(ask::FILE).number(original as u32).send(&mut &*host)?;
    if Reader::receive(&mut &*host)?.number()? == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let guest = Arc::new(Guest { host: Mutex::new(host) });
    Descriptors::own().enter(copy, guest).map_err(|error| io::Error::from_raw_os_error(error.0))
}

impl OpenFile for Guest {
    /// Has the host serve a request. It may have to wait, and is not canceled.
    fn ioctl(&self, argument: u64) -> Result<()> {
        let _uncancelled = Uncancelled::new();
        self.request(argument)
    }
}

impl Guest {
    fn request(&self, argument: u64) -> Result<()> {
        let header: Header = user::lenient(&user::read(argument, size_of::<Header>())?);
        let expected =
            size_of::<Header>() + usize::from(header.attributes) * size_of::<Attribute>();
        if usize::from(header.length) != expected {
            return Err(Errno::EINVAL);
        }
        let first = argument + size_of::<Header>() as u64;
        let bytes = user::read(first, expected - size_of::<Header>())?;
        let method = methods::find(header.object, header.method).ok_or(Errno::EPROTONOSUPPORT)?;
        let mut carried = Vec::new();
        for bytes in bytes.chunks(size_of::<Attribute>()) {
            let attribute: Attribute = user::lenient(bytes);
            let known = method.attributes.iter().find(|known| known.id == attribute.id);
            let input = match known.map(|known| known.kind) {
                Some(Kind::In(..)) if attribute.length > 8 => {
                    user::read(attribute.data, attribute.length.into())?
                }
                _ => Vec::new(),
            };
            let output = matches!(known.map(|known| known.kind), Some(Kind::Out(_)));
            carried.push(Carried { attribute, input, output });
        }
        let mut message = Writer::default();
        message.number(ask::REQUEST).number(header.object.into()).number(header.method.into());
        message.number(carried.len() as u32);
        carried.iter().for_each(|one| one.write(&mut message));
        let host = lock(&self.host);
        // A host that is gone is a device that was unplugged.
        let answered = message.send(&mut &**host).and_then(|()| Reader::receive(&mut &**host));
        let mut reply = answered.map_err(|_| Errno::EIO)?;
        let result = reply.number().map_err(|_| Errno::EIO)?;
        for (index, one) in carried.iter().enumerate() {
            let flags = reply.number().map_err(|_| Errno::EIO)? as u16;
            let output = reply.bytes().map_err(|_| Errno::EIO)?;
            if flags & VALID_OUTPUT == 0 {
                continue;
            }
            if output.len() > usize::from(one.attribute.length) {
                return Err(Errno::EIO);
            }
            user::write(one.attribute.data, &output)?;
            let place = first + (index * size_of::<Attribute>()) as u64 + 4;
            user::write(place, &flags.to_ne_bytes())?;
        }
        match result {
            0 => Ok(()),
            errno => Err(Errno(errno as i32)),
        }
    }
}
