//! Lists of the objects of all processes (`rdma resource`), and the counters of ports (`rdma statistic`).

use super::super::process::errno::{Errno, Result};
use super::super::request::netlink::{Attributes, attribute, command, find_u32};
use super::super::tree::counters::TRANSPORT;
use super::super::tree::discovery::Offer;
use super::super::visitor::{Resource, resources};
use super::of_device;

/// Bytes of objects in one message. The command `rdma` has room for messages of a page.
const LONGEST: usize = 3 << 10;

/// A list of objects of one kind.
#[derive(Clone, Copy)]
pub(super) struct List {
    /// The command that asks for it.
    pub command: u16,
    /// The attribute that holds the list; the next one is that of an object in it.
    table: u16,
    /// The attribute by which one object is asked for.
    number: u16,
    /// The kind's name in the summary.
    name: &'static str,
}

/// In the order of the summary.
pub(super) const LISTS: [List; 6] = {
    const fn list(command: u16, table: u16, number: u16, name: &'static str) -> List {
        List { command, table, number, name }
    }
    [
        list(command::RES_PD_GET, attribute::RES_PD, attribute::RES_PDN, "pd"),
        list(command::RES_CQ_GET, attribute::RES_CQ, attribute::RES_CQN, "cq"),
        list(command::RES_QP_GET, attribute::RES_QP, attribute::RES_LQPN, "qp"),
        list(command::RES_MR_GET, attribute::RES_MR, attribute::RES_MRN, "mr"),
        list(command::RES_CTX_GET, attribute::RES_CTX, attribute::RES_CTXN, "ctx"),
        list(command::RES_SRQ_GET, attribute::RES_SRQ, attribute::RES_SRQN, "srq"),
    ]
};

impl List {
    /// Returns the objects of a device, as many messages as they fill. With a port, those that are of no port
    /// are left out if others of their kind can be.
    pub fn all(&self, offer: &Offer, device: usize, port: Option<u32>) -> Vec<Attributes> {
        let mut messages = Vec::new();
        let mut table = Attributes::default();
        let whole = |table: &Attributes| {
            let mut message = of_device(offer, device);
            message.nest(self.table, table.as_bytes());
            message
        };
        for entry in self.of_device(device).filter(|entry| self.is_at(port, entry)) {
            if table.as_bytes().len() + entry.as_bytes().len() > LONGEST {
                messages.push(whole(&std::mem::take(&mut table)));
            }
            table.nest(self.table + 1, entry.as_bytes());
        }
        if !table.as_bytes().is_empty() {
            messages.push(whole(&table));
        }
        messages
    }

    /// Returns the object whose number is given.
    pub fn one(&self, offer: &Offer, device: usize, given: &[u8]) -> Result<Attributes> {
        let number = find_u32(given, self.number).ok_or(Errno::EINVAL)?;
        let is_it = |entry: &Attributes| find_u32(entry.as_bytes(), self.number) == Some(number);
        let found = self.of_device(device).find(is_it).ok_or(Errno::ENOENT)?;
        let mut told = of_device(offer, device);
        told.append(found.as_bytes());
        Ok(told)
    }

    fn of_device(&self, device: usize) -> impl Iterator<Item = Attributes> {
        let [all] = resources::all([self.command]);
        all.into_iter().filter(move |one| one.device as usize == device).map(|one| entry(&one))
    }

    fn is_at(&self, port: Option<u32>, entry: &Attributes) -> bool {
        port.is_none()
            || self.command != command::RES_QP_GET
            || find_u32(entry.as_bytes(), attribute::PORT_INDEX) == port
    }
}

fn entry(resource: &Resource) -> Attributes {
    let mut entry = Attributes::default();
    entry.append(&resource.attributes).u32(attribute::RES_PID, resource.process);
    entry
}

/// How many objects of each kind there are, of all devices.
pub(super) struct Summary(Vec<(&'static str, Vec<Resource>)>);

impl Summary {
    /// Asks every process.
    pub fn new() -> Self {
        let all = resources::all(LISTS.map(|list| list.command));
        Self(LISTS.iter().map(|list| list.name).zip(all).collect())
    }

    /// Tells of one device.
    pub fn of(&self, offer: &Offer, device: usize) -> Attributes {
        let mut table = Attributes::default();
        for (name, all) in &self.0 {
            let count = all.iter().filter(|one| one.device as usize == device).count();
            let mut entry = Attributes::default();
            entry
                .text(attribute::RES_SUMMARY_ENTRY_NAME, name)
                .u64(attribute::RES_SUMMARY_ENTRY_CURR, count as u64);
            table.nest(attribute::RES_SUMMARY_ENTRY, entry.as_bytes());
        }
        let mut told = of_device(offer, device);
        told.nest(attribute::RES_SUMMARY, table.as_bytes());
        told
    }
}

/// Tells what a device's port has counted: the sum of what the running processes' slices have.
pub(super) fn counters(offer: &Offer, device: usize) -> Attributes {
    let mut table = Attributes::default();
    let [slices] = resources::all([command::STAT_GET]);
    for (index, (name, _)) in TRANSPORT.iter().enumerate() {
        let of_slice = |slice: &Resource| {
            let count = slice.attributes.chunks(8).nth(index)?.first_chunk().copied();
            count.map(u64::from_ne_bytes)
        };
        let of_device = slices.iter().filter(|slice| slice.device as usize == device);
        let sum = of_device.filter_map(of_slice).fold(0, u64::wrapping_add);
        let mut entry = Attributes::default();
        entry
            .text(attribute::STAT_HWCOUNTER_ENTRY_NAME, name)
            .u64(attribute::STAT_HWCOUNTER_ENTRY_VALUE, sum);
        table.nest(attribute::STAT_HWCOUNTER_ENTRY, entry.as_bytes());
    }
    let mut told = of_device(offer, device);
    told.u32(attribute::PORT_INDEX, 1).nest(attribute::STAT_HWCOUNTERS, table.as_bytes());
    told
}
