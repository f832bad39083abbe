//! Answers about devices, their ports and their nodes (`fill_dev_info`, `fill_port_info` in nldev.c).

use super::super::process::errno::{Errno, Result};
use super::super::request::netlink::{Attributes, attribute, find};
use super::super::tree::discovery::Offer;
use super::super::tree::identity::{SM_LID, capabilities};
use super::super::tree::sysfs::NODE_NUMBER;
use super::{device as device_of, of_device};
use crate::card::Link;
use crate::frontend::cm::CmFile;

/// A device has one port.
const PORT: u32 = 1;

/// Tells of a device. Its capability flags are left out: a process that has not opened it has no card to ask.
pub(super) fn device(offer: &Offer, index: usize) -> Attributes {
    let device = &offer.devices[index];
    let protocol = match device.link {
        Link::InfiniBand => "ib",
        Link::Roce => "roce",
    };
    let mut told = of_device(offer, index);
    told.u32(attribute::PORT_INDEX, PORT)
        .text(attribute::FW_VERSION, &device.firmware())
        .u64(attribute::NODE_GUID, device.guid)
        .u64(attribute::SYS_IMAGE_GUID, device.guid)
        // RDMA_NODE_IB_CA
        .u8(attribute::DEV_NODE_TYPE, 1)
        .text(attribute::DEV_PROTOCOL, protocol);
    told
}

/// Tells of a device's port.
pub(super) fn port(offer: &Offer, index: usize) -> Attributes {
    let device = &offer.devices[index];
    let mut told = of_device(offer, index);
    told.u32(attribute::PORT_INDEX, PORT);
    if device.link == Link::InfiniBand {
        let [a, b, c, d, e, f, g, h, ..] = device.table.entry(0).gid;
        let manager = if device.port.is_configured() { SM_LID } else { 0 };
        told.u64(attribute::CAP_FLAGS, capabilities(device.link).into())
            .u64(attribute::SUBNET_PREFIX, u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            .u32(attribute::LID, device.lid.into())
            .u32(attribute::SM_LID, manager.into())
            .u8(attribute::LMC, 0);
    }
    told.u8(attribute::PORT_STATE, device.port.logical())
        .u8(attribute::PORT_PHYS_STATE, device.port.physical());
    if let Some(netdev) = &device.netdev {
        told.u32(attribute::NDEV_INDEX, netdev.index).text(attribute::NDEV_NAME, &netdev.name);
    }
    told
}

/// Tells of the machine: all network namespaces see the devices, and a fork copies pinned pages for the child.
/// On the model the second is true of any kernel, since the process itself writes what devices write.
pub(super) fn system() -> Attributes {
    let mut told = Attributes::default();
    told.u8(attribute::SYS_NETNS_MODE, 1).u8(attribute::SYS_COPY_ON_FORK, 1);
    told
}

/// Tells of the node by which programs use a device (`uverbs`), or make connections on all (`rdma_cm`).
///
/// # Errors
/// `EOPNOTSUPP` for other kinds of nodes, which the model has not.
pub(super) fn node(offer: &Offer, given: &[u8]) -> Result<Attributes> {
    let kind = find(given, attribute::CHARDEV_TYPE).ok_or(Errno::EINVAL)?;
    let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_device = find(given, attribute::DEV_INDEX).is_some();
    match kind {
        b"uverbs" if is_device => {
            /// `RDMA_DRIVER_MLX5`
            const DRIVER: u64 = 1;
            let index = device_of(offer, given)?;
            let mut told = of_device(offer, index);
            chardev(&mut told, NODE_NUMBER, 1, &offer.tree.node_name(index));
            told.u64(attribute::UVERBS_DRIVER_ID, DRIVER);
            Ok(told)
        }
        b"rdma_cm" if !is_device => {
            let mut told = Attributes::default();
            chardev(&mut told, CmFile::NUMBER, 4, "rdma_cm");
            Ok(told)
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Tells of a character device: its number as the kernel encodes it, the version of its interface, its name.
fn chardev(told: &mut Attributes, (major, minor): (u32, u32), version: u64, name: &str) {
    told.u64(attribute::CHARDEV_ABI, version)
        .u64(attribute::CHARDEV, libc::makedev(major, minor))
        .text(attribute::CHARDEV_NAME, name);
}
