//! An opened device.

use std::ffi::CStr;
use std::fmt;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::{MLX5DV_CONTEXT_FLAGS_DEVX, mlx5dv_context_attr, mlx5dv_open_device};
use mlx5_sys::verbs::{
    ibv_atomic_cap, ibv_close_device, ibv_context, ibv_device_attr, ibv_device_attr_ex,
    ibv_open_device, ibv_query_device, ibv_query_device_ex,
};

use super::device::{board_id, device_name, node_path, sysfs_path};
use super::{Device, devices};
use crate::error::{Cause, Devx, Errno, Error, Result, check, non_null};
use crate::ib::Guid;
use crate::verbs::{Readiness, Zeroed};

/// An opened device. Clones are cheap and name the same opened device. It is closed after its last
/// clone, and the last object made from it, are dropped.
///
/// A program that forks calls [`fork_init`](super::fork_init) first, which says what the child may
/// do.
///
/// ```
/// # use mlx5_model as _;
/// use mlx5::verbs::{Context, Devx};
///
/// let context = Context::open_first()?;
/// let device = context.attributes()?;
/// assert!(device.ports >= 1 && device.max_qp > 0);
/// assert!(context.port(1)?.state.usable());
/// // Opened such that firmware commands work.
/// assert_eq!(context.devx(), Devx::Open);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_context", "ibv_close_device"))]
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    /// The descriptor that programs wait on for asynchronous events.
    pub(super) readiness: Readiness,
    context: Opened,
    devx: Devx,
    /// The capabilities that the HCA has reported so far.
    pub(crate) capabilities: crate::ib::capability::Cache,
    /// The failed CQs, as reported by asynchronous events that this crate has read.
    pub(super) failures: super::event::Failures,
}

/// A device that libibverbs has opened. Closed when it is dropped.
struct Opened(NonNull<ibv_context>);

// SAFETY: libibverbs allows calls on one context from several threads.
unsafe impl Send for ContextInner {}
// SAFETY: libibverbs allows calls on one context from several threads at once. Locks guard the
// capabilities and the list of failed CQs.
unsafe impl Sync for ContextInner {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: this crate opened the device and closes it once, here. Every object made from the
        // context held an Arc of it and is gone. A failure can be neither reported nor repaired
        // here.
        unsafe { ibv_close_device(self.0.as_ptr()) };
    }
}

impl Context {
    /// Opens the device of that name, with firmware commands (DevX) if the device allows them, see
    /// [`devx`](Self::devx).
    ///
    /// # Errors
    /// [`Error::Library`], [`Error::NoDevices`], [`Error::DeviceNotFound`] (which lists the present names),
    /// [`Error::NotMlx5`] for another vendor's device, [`Error::Call`] if opening fails, with a
    /// missing device node or a missing permission named.
    #[doc(alias("ibv_open_device", "mlx5dv_open_device"))]
    pub fn open(name: &str) -> Result<Context> {
        let devices = devices()?;
        if devices.is_empty() {
            return Err(no_devices());
        }
        match devices.iter().find(|device| device.name() == name) {
            Some(device) => Context::open_device(device),
            None => Err(Error::DeviceNotFound {
                name: name.to_owned(),
                present: devices.iter().map(Device::name).collect(),
            }),
        }
    }

    /// Opens the first device that libmlx5 drives.
    ///
    /// # Errors
    /// - [`Error::Library`]: libibverbs or libmlx5 is not installed.
    /// - [`Error::NoDevices`]: the system has no RDMA device.
    /// - [`Error::NotMlx5`]: libmlx5 drives none of its devices.
    /// - [`Error::Call`]: opening fails, with a missing device node or a missing permission named.
    #[doc(alias("ibv_open_device", "mlx5dv_open_device"))]
    pub fn open_first() -> Result<Context> {
        let devices = devices()?;
        match devices.iter().find(|device| device.is_mlx5()) {
            Some(device) => Context::open_device(device),
            None => Err(match devices.first() {
                Some(other) => Error::NotMlx5 { name: other.name() },
                None => no_devices(),
            }),
        }
    }

    pub(crate) fn open_device(device: &Device) -> Result<Context> {
        if !device.is_mlx5() {
            return Err(Error::NotMlx5 { name: device.name() });
        }
        let mut attributes =
            mlx5dv_context_attr { flags: MLX5DV_CONTEXT_FLAGS_DEVX, ..Default::default() };
        // SAFETY: `device` is valid, and `attributes` lives through the call.
        let context = unsafe { mlx5dv_open_device(device.as_raw().as_ptr(), &mut attributes) };
        let (context, devx) = match NonNull::new(context) {
            Some(context) => (context, Devx::Open),
            None => {
                let refused = Errno::last();
                // SAFETY: `device` is valid.
                let context = unsafe { ibv_open_device(device.as_raw().as_ptr()) };
                let context = non_null("ibv_open_device", context)
                    .map_err(|error| explain_open(error, device))?;
                (context, Devx::Refused(refused))
            }
        };
        let context = Opened(context);
        // SAFETY: the context is open, and the field does not change.
        let readiness = Readiness::of_events(unsafe { (*context.0.as_ptr()).async_fd })?;
        Ok(Context {
            inner: Arc::new(ContextInner {
                readiness,
                context,
                devx,
                capabilities: Default::default(),
                failures: Default::default(),
            }),
        })
    }

    /// Returns whether the device accepts firmware commands from this context.
    pub fn devx(&self) -> Devx {
        self.inner.devx
    }

    /// Fails unless `device`, that of `object`, is this opened device: a command of one device would
    /// name another object of the same number.
    pub(crate) fn require_same(
        &self,
        object: &'static str,
        device: NonNull<ibv_context>,
    ) -> Result<()> {
        if device == self.as_raw() {
            return Ok(());
        }
        let rule = format!("all objects have to belong to one Context; this is of {}", self.name());
        Err(Error::attribute(object, "one of another opened device", rule))
    }

    /// Returns the device's name.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> String {
        device_name(self.device())
    }

    /// Returns the HCA's board id (PSID) from sysfs, if it is there.
    pub fn board_id(&self) -> Option<String> {
        board_id(&self.sysfs_path())
    }

    /// Returns the device's directory in sysfs.
    pub fn sysfs_path(&self) -> PathBuf {
        sysfs_path(self.device())
    }

    /// Returns the path of its character device.
    pub fn node_path(&self) -> PathBuf {
        node_path(self.device())
    }

    /// Queries names, versions and limits of the device. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "ibv_query_device")]
    pub fn attributes(&self) -> Result<DeviceAttributes> {
        let mut raw = ibv_device_attr::zeroed();
        // SAFETY: the context is open, and `raw` lives through the call.
        let result = unsafe { ibv_query_device(self.as_raw().as_ptr(), &mut raw) };
        check("ibv_query_device", result)?;
        Ok(DeviceAttributes::new(self, &raw))
    }

    /// Queries the attributes that only newer kernels report; zero on older ones.
    pub(crate) fn extended_attributes(&self) -> Result<ibv_device_attr_ex> {
        let mut raw = ibv_device_attr_ex::zeroed();
        let context = self.as_raw().as_ptr();
        // SAFETY: the context is open, and `raw` lives through the call.
        let result = unsafe { ibv_query_device_ex(context, std::ptr::null(), &mut raw) };
        check("ibv_query_device_ex", result)?;
        Ok(raw)
    }

    /// Returns the number of completion vectors (interrupts) among which CQs can be spread.
    #[doc(alias = "num_comp_vectors")]
    pub fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is open, and the field does not change.
        unsafe { (*self.as_raw().as_ptr()).num_comp_vectors }.try_into().unwrap_or(0)
    }

    pub(super) fn failures(&self) -> &super::event::Failures {
        &self.inner.failures
    }

    /// Returns the descriptor that asynchronous events are read from. Not for programs: they get
    /// [`async_event_fd`](Self::async_event_fd).
    pub(super) fn async_fd(&self) -> std::os::fd::RawFd {
        // SAFETY: the context is open, and the field does not change.
        unsafe { (*self.as_raw().as_ptr()).async_fd }
    }

    /// Returns the context, for calls that this crate does not wrap. It stays open as long as
    /// `self`.
    pub fn as_raw(&self) -> NonNull<ibv_context> {
        self.inner.context.0
    }

    fn device(&self) -> NonNull<mlx5_sys::verbs::ibv_device> {
        // SAFETY: the context is open, and libibverbs sets the field to the device it opened.
        let device = unsafe { (*self.as_raw().as_ptr()).device };
        NonNull::new(device).expect("an open context has a device")
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name()).field("devx", &self.devx()).finish()
    }
}

fn no_devices() -> Error {
    Error::NoDevices {
        why: "no HCA with a loaded driver (`modprobe mlx5_ib`; `lspci -d 15b3:` lists the \
              HCAs), or it is not passed into this container",
    }
}

fn explain_open(error: Error, device: &Device) -> Error {
    let cause = error.errno().and_then(|errno| why_not_open(errno, device.node_path()));
    error.because(cause)
}

/// Why a device could not be opened, from the errno and its character device.
fn why_not_open(errno: Errno, path: PathBuf) -> Option<Cause> {
    match errno.0 {
        libc::EACCES | libc::EPERM => return Some(Cause::NoPermission { path }),
        libc::ENXIO => return Some(Cause::NoDeviceNode { path }),
        _ => {}
    }
    // libibverbs tries several ways and reports the last one's errno. For a node without
    // permission, that errno says that the node has no other name under /dev/char.
    match OpenOptions::new().read(true).write(true).open(&path).map_err(|error| error.kind()) {
        Err(ErrorKind::PermissionDenied) => Some(Cause::NoPermission { path }),
        Err(ErrorKind::NotFound) => Some(Cause::NoDeviceNode { path }),
        _ => None,
    }
}

/// Names, versions and limits of a device.
///
/// See the example on [`Context`].
#[doc(alias = "ibv_device_attr")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// Name in the system.
    pub name: String,
    /// The HCA's board id (PSID), if sysfs has it.
    pub board_id: Option<String>,
    /// Firmware version.
    pub firmware: String,
    /// GUID of the node.
    pub node_guid: Guid,
    /// GUID of the system it belongs to.
    pub system_image_guid: Guid,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI device id, by which the vendor tells its products apart.
    pub vendor_part_id: u32,
    /// Revision.
    pub hardware_version: u32,
    /// Ports, numbered from 1.
    pub ports: u8,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of a work request.
    pub max_sge: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives of one shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter/gather entries of a receive of a shared receive queue.
    pub max_srq_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one CQ.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics of peers that one QP executes at a time (responder depth).
    pub max_responder_depth: u8,
    /// READs and atomics that one QP has outstanding at a time (initiator depth).
    pub max_initiator_depth: u8,
    /// Whether its queue pairs execute atomics of peers.
    pub atomics: bool,
    /// Entries of a port's P_Key table.
    pub max_pkeys: u16,
    /// Delay of the HCA's own ACKs, in the code of [`AckTimeout`](super::AckTimeout).
    pub ack_delay: u8,
}

impl DeviceAttributes {
    fn new(context: &Context, raw: &ibv_device_attr) -> DeviceAttributes {
        let count = |value: libc::c_int| u32::try_from(value).unwrap_or(0);
        let depth = |value: libc::c_int| u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX);
        // SAFETY: libibverbs ends the string with a zero inside the array.
        let firmware = unsafe { CStr::from_ptr(raw.fw_ver.as_ptr()) };
        DeviceAttributes {
            name: context.name(),
            board_id: context.board_id(),
            firmware: firmware.to_string_lossy().into_owned(),
            node_guid: Guid(u64::from_be(raw.node_guid)),
            system_image_guid: Guid(u64::from_be(raw.sys_image_guid)),
            vendor_id: raw.vendor_id,
            vendor_part_id: raw.vendor_part_id,
            hardware_version: raw.hw_ver,
            ports: raw.phys_port_cnt,
            max_qp: count(raw.max_qp),
            max_qp_wr: count(raw.max_qp_wr),
            max_sge: count(raw.max_sge),
            max_srq: count(raw.max_srq),
            max_srq_wr: count(raw.max_srq_wr),
            max_srq_sge: count(raw.max_srq_sge),
            max_cq: count(raw.max_cq),
            max_cqe: count(raw.max_cqe),
            max_mr: count(raw.max_mr),
            max_mr_size: raw.max_mr_size,
            max_pd: count(raw.max_pd),
            max_responder_depth: depth(raw.max_qp_rd_atom),
            max_initiator_depth: depth(raw.max_qp_init_rd_atom),
            atomics: raw.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE,
            max_pkeys: raw.max_pkeys,
            ack_delay: raw.local_ca_ack_delay,
        }
    }

    /// Returns the product, by PCI device id.
    pub fn product(&self) -> &'static str {
        match self.vendor_part_id {
            0x1011 | 0x1012 => "Connect-IB",
            0x1013 | 0x1014 => "ConnectX-4",
            0x1015 | 0x1016 => "ConnectX-4 Lx",
            0x1017..=0x101a => "ConnectX-5",
            0x101b | 0x101c => "ConnectX-6",
            0x101d | 0x101e => "ConnectX-6 Dx",
            0x101f => "ConnectX-6 Lx",
            0x1021 => "ConnectX-7",
            0x1023 => "ConnectX-8",
            0xa2d2 | 0xa2d3 => "BlueField",
            0xa2d6 => "BlueField-2",
            0xa2dc => "BlueField-3",
            _ => "unknown ConnectX",
        }
    }
}

#[cfg(test)]
mod tests;
