//! The queue pairs of all processes, as the kernel reports them by netlink (`rdma_netlink.h`, the
//! client RDMA_NL_NLDEV). The command `rdma resource show qp` lists them.
//!
//! Requests are served inside `send`, and replies wait in a socket. Raw sockets, which libnl opens,
//! are refused: libibverbs then finds devices in sysfs, which shows the model's.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;

use libc::c_int;

use super::super::driver::running::Running;
use super::super::objects::file::CommandFile;
use super::super::objects::qp;
use super::super::process::descriptors::OpenFile;
use super::super::process::errno::{Errno, Result, last, set_errno};
use super::super::process::user;
use super::super::tree::discovery::{Discovery, discovery};
use super::super::tree::identity::Device;
use super::guest::connect;
use super::message::{Reader, Writer, ask};
use super::names;
use crate::fabric::local::socket;
use crate::object::{Qp, Service, State};
use crate::private::{OwnFd, Private, system};

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, …)` of RDMA_NLDEV_CMD_GET and RDMA_NLDEV_CMD_RES_QP_GET
const GET: u16 = 5 << 10 | 1;
const QP_GET: u16 = 5 << 10 | 10;
/// Attributes (`enum rdma_nldev_attr`).
mod attribute {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const RES_QP: u16 = 19;
    pub const RES_QP_ENTRY: u16 = 20;
    pub const RES_LQPN: u16 = 21;
    pub const RES_RQPN: u16 = 22;
    pub const RES_TYPE: u16 = 26;
    pub const RES_STATE: u16 = 27;
    pub const RES_PID: u16 = 28;
}
/// A nested attribute.
const NESTED: u16 = 1 << 15;
/// Queue pairs in one message.
const ENTRIES: usize = 64;

/// A socket of this family.
pub(crate) struct Resources {
    /// The other end of the program's socket, by which replies are sent.
    other: Private,
}

impl OpenFile for Resources {}

/// A queue pair, as hosts report it.
struct Entry {
    process: u32,
    device: u32,
    number: u32,
    remote: u32,
    kind: u32,
    state: u32,
}

/// Writes a host's report of the queue pairs of its process.
pub(super) fn write(running: &Running, to: &mut Writer) {
    let mut all = Vec::new();
    for file in running.descriptors.all::<CommandFile>() {
        // Only queue pairs that verbs made: the type of one made by command is not known. Targets
        // of dynamic connections are left out as well: the kernel's mlx5_ib keeps them out
        // (`create_qp` in qp.c).
        let made = file.state().collect(|qp: &qp::Qp| (qp.kind, qp.number));
        let told = made.iter().filter(|(kind, _)| *kind != qp::Kind::DcTarget);
        file.function().enter(|card| {
            for qp in told.filter_map(|(_, number)| card.objects.qps.get(number)) {
                all.push([file.device() as u32, qp.number, remote(qp), kind(qp), state(qp)]);
            }
        });
    }
    all.sort_unstable();
    to.number(all.len() as u32);
    for number in all.into_iter().flatten() {
        to.number(number);
    }
}

fn remote(qp: &Qp) -> u32 {
    use mlx5_sys::ifc::qpc;
    match qp.service {
        Service::Rc | Service::Uc | Service::Xrc => qp.get(qpc::REMOTE_QPN),
        _ => 0,
    }
}

/// `enum ib_qp_type`
fn kind(qp: &Qp) -> u32 {
    match qp.service {
        Service::Rc => 2,
        Service::Uc => 3,
        Service::Ud => 4,
        Service::Ethernet => 8,
        Service::Xrc if qp.sq.blocks != 0 => 9,
        Service::Xrc => 10,
        Service::Dc => 0xff,
    }
}

/// `enum ib_qp_state`
fn state(qp: &Qp) -> u32 {
    match qp.state {
        State::Reset => 0,
        State::Init => 1,
        State::Rtr => 2,
        State::Rts => 3,
        State::Sqd => 4,
        State::SqError => 5,
        State::Error => 6,
    }
}

/// The queue pairs of every process that answers.
fn entries() -> Vec<Entry> {
    let ends = socket::names(&names()).unwrap_or_default();
    let number = |end: &String| end.split_once('.')?.0.parse().ok();
    let hosts: BTreeSet<u32> = ends.iter().filter_map(number).collect();
    hosts.into_iter().flat_map(|process| of(process).unwrap_or_default()).collect()
}

fn of(process: u32) -> io::Result<Vec<Entry>> {
    let host = connect(process)?;
    Writer::default().number(ask::QUEUE_PAIRS).send(&mut &*host)?;
    let mut reply = Reader::receive(&mut &*host)?;
    let count = reply.number()?;
    (0..count)
        .map(|_| {
            Ok(Entry {
                process,
                device: reply.number()?,
                number: reply.number()?,
                remote: reply.number()?,
                kind: reply.number()?,
                state: reply.number()?,
            })
        })
        .collect()
}

/// A message of netlink, or an attribute, that is being written: a header whose length is known last,
/// and what follows to a multiple of four bytes.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(((4 + value.len()) as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

impl Resources {
    /// Opens one: the program's end, with what serves it.
    pub fn open(kind: c_int) -> Result<(c_int, Resources)> {
        let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let mut pair = [-1; 2];
        // SAFETY: the call writes the two descriptors of `pair`.
        let made = unsafe {
            let kind = libc::SOCK_SEQPACKET | flags | libc::SOCK_CLOEXEC;
            system::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr())
        };
        if made != 0 {
            return Err(last());
        }
        // SAFETY: the call has just made the descriptor, so nothing else owns it.
        let other = Private::new(unsafe { OwnFd::new(pair[1]) }.map_err(|_| last())?);
        Ok((pair[0], Resources { other }))
    }

    /// Serves a message that the program sends from this address, as `send` does.
    pub fn send(&self, address: u64, length: usize) -> isize {
        /// Longest request that is read: they have few attributes.
        const LONGEST: usize = 4096;
        let sent = user::read(address, length.min(LONGEST)).and_then(|bytes| self.request(&bytes));
        match sent {
            Ok(()) => length as isize,
            Err(error) => {
                set_errno(error.0);
                -1
            }
        }
    }

    fn request(&self, message: &[u8]) -> Result<()> {
        let Discovery::On(offer) = discovery() else { return Err(Errno::ENODEV) };
        let half = |at: usize| Some(u16::from_ne_bytes(*message.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?));
        let (Some(kind), Some(sequence)) = (half(4), word(8)) else { return Err(Errno::EINVAL) };
        // Sixteen bytes of header, then attributes; the device's index comes first, where it comes.
        let index = (half(18) == Some(attribute::DEV_INDEX)).then(|| word(20)).flatten();
        match kind {
            GET => {
                for (index, device) in offer.devices.iter().enumerate() {
                    self.reply(kind, sequence, &described(index, device))?;
                }
            }
            QP_GET => {
                let device = index.ok_or(Errno::EINVAL)?;
                let all = entries();
                let of_device: Vec<&Entry> =
                    all.iter().filter(|entry| entry.device == device).collect();
                for some in of_device.chunks(ENTRIES) {
                    self.reply(kind, sequence, &listed(device, some))?;
                }
            }
            _ => return self.put(libc::NLMSG_ERROR as u16, sequence, 0, &negative(libc::EINVAL)),
        }
        // NLM_F_MULTI
        self.put(libc::NLMSG_DONE as u16, sequence, 2, &0i32.to_ne_bytes())
    }

    fn reply(&self, kind: u16, sequence: u32, payload: &[u8]) -> Result<()> {
        self.put(kind, sequence, 2, payload)
    }

    fn put(&self, kind: u16, sequence: u32, flags: u16, payload: &[u8]) -> Result<()> {
        let mut message = ((16 + payload.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(payload);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the call reads `message`, whose length it is given.
        let sent = unsafe {
            let bytes = message.as_ptr().cast();
            system::send(self.other.as_raw_fd(), bytes, message.len(), flags)
        };
        if sent < 0 { Err(last()) } else { Ok(()) }
    }
}

fn negative(errno: i32) -> Vec<u8> {
    let mut payload = (-errno).to_ne_bytes().to_vec();
    payload.resize(20, 0);
    payload
}

/// A device, as GET tells of it.
fn described(index: usize, device: &Device) -> Vec<u8> {
    let mut payload = Vec::new();
    attribute(&mut payload, attribute::DEV_INDEX, &(index as u32).to_ne_bytes());
    attribute(&mut payload, attribute::DEV_NAME, format!("{}\0", device.name).as_bytes());
    payload
}

/// Queue pairs of a device.
fn listed(device: u32, entries: &[&Entry]) -> Vec<u8> {
    let mut table = Vec::new();
    for entry in entries {
        let mut one = Vec::new();
        attribute(&mut one, attribute::RES_LQPN, &entry.number.to_ne_bytes());
        if entry.remote != 0 {
            attribute(&mut one, attribute::RES_RQPN, &entry.remote.to_ne_bytes());
        }
        attribute(&mut one, attribute::RES_TYPE, &[entry.kind as u8]);
        attribute(&mut one, attribute::RES_STATE, &[entry.state as u8]);
        attribute(&mut one, attribute::RES_PID, &entry.process.to_ne_bytes());
        attribute(&mut table, attribute::RES_QP_ENTRY | NESTED, &one);
    }
    let mut payload = Vec::new();
    attribute(&mut payload, attribute::DEV_INDEX, &device.to_ne_bytes());
    attribute(&mut payload, attribute::RES_QP | NESTED, &table);
    payload
}
