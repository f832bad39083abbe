//! The devices that libibverbs finds.

use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::mlx5dv_is_supported;
use mlx5_sys::load::Library;
use mlx5_sys::verbs::{
    ibv_device, ibv_free_device_list, ibv_get_device_guid, ibv_get_device_list, ibv_get_device_name,
};

use super::Context;
use crate::error::{Error, Result};
use crate::ib::Guid;

/// All RDMA devices that libibverbs finds now, of any vendor. Empty where there is none.
///
/// # Errors
/// - [`Error::Library`]: libibverbs or libmlx5 is not installed.
/// - [`Error::NoDevices`]: the kernel has no RDMA support at all.
#[doc(alias("ibv_get_device_list", "ibv_free_device_list"))]
pub fn devices() -> Result<Vec<Device>> {
    Library::Verbs.open()?;
    Library::Mlx5.open()?;
    let mut count = 0;
    // SAFETY: `count` is a live int.
    let list = unsafe { ibv_get_device_list(&mut count) };
    let Some(list) = NonNull::new(list) else {
        let error = Error::last("ibv_get_device_list");
        return Err(match error.errno().map(|errno| errno.0) {
            Some(libc::ENOSYS) => Error::NoDevices {
                why: "the kernel has no verbs interface; load it with `modprobe ib_uverbs`",
            },
            _ => error,
        });
    };
    let list = Arc::new(DeviceList(list));
    Ok((0..usize::try_from(count).unwrap_or(0))
        .filter_map(|index| {
            // SAFETY: libibverbs returned `count` entries, and `list` keeps them.
            let device = unsafe { list.0.add(index).read() };
            Some(Device { device: NonNull::new(device)?, list: Arc::clone(&list) })
        })
        .collect())
}

struct DeviceList(NonNull<*mut ibv_device>);

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list came from ibv_get_device_list and is freed once, here. Contexts opened
        // from it hold their own reference on their device.
        unsafe { ibv_free_device_list(self.0.as_ptr()) }
    }
}

// SAFETY: the list is read only, and libibverbs counts references on devices atomically.
unsafe impl Send for DeviceList {}
// SAFETY: the list does not change, and libibverbs counts references on devices atomically.
unsafe impl Sync for DeviceList {}

/// A device that can be opened.
///
/// ```
/// # use mlx5_model as _;
/// use mlx5::verbs::devices;
///
/// let device = devices()?.into_iter().find(|device| device.is_mlx5()).ok_or("no ConnectX")?;
/// let context = device.open()?;
/// assert_eq!(context.name(), device.name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_device")]
#[derive(Clone)]
pub struct Device {
    device: NonNull<ibv_device>,
    /// Keeps `device` valid.
    list: Arc<DeviceList>,
}

// SAFETY: an ibv_device is immutable once it is listed, and `list` keeps it.
unsafe impl Send for Device {}
// SAFETY: an ibv_device does not change once it is listed, so threads may read it at once.
unsafe impl Sync for Device {}

impl Device {
    /// Returns its name in the system, `mlx5_0` for example.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> String {
        device_name(self.device)
    }

    /// Returns its node GUID.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn guid(&self) -> Guid {
        // SAFETY: `list` keeps the device valid.
        Guid(u64::from_be(unsafe { ibv_get_device_guid(self.device.as_ptr()) }))
    }

    /// Returns whether libmlx5 drives it.
    #[doc(alias = "mlx5dv_is_supported")]
    pub fn is_mlx5(&self) -> bool {
        // SAFETY: `list` keeps the device valid.
        unsafe { mlx5dv_is_supported(self.device.as_ptr()) }
    }

    /// Returns its folder in sysfs.
    pub fn sysfs_path(&self) -> PathBuf {
        sysfs_path(self.device)
    }

    /// Returns its character device, which opening needs.
    pub fn node_path(&self) -> PathBuf {
        node_path(self.device)
    }

    /// Returns the HCA's board id (PSID) from sysfs, where it is told.
    pub fn board_id(&self) -> Option<String> {
        board_id(&self.sysfs_path())
    }

    /// Opens the device, like [`Context::open`].
    /// # Errors
    /// [`Error::NotMlx5`] for another vendor's device, [`Error::Call`] if opening fails, with a
    /// missing device node or a missing permission named.
    #[doc(alias("ibv_open_device", "mlx5dv_open_device"))]
    pub fn open(&self) -> Result<Context> {
        Context::open_device(self)
    }

    pub(crate) fn as_raw(&self) -> NonNull<ibv_device> {
        self.device
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("guid", &self.guid())
            .field("mlx5", &self.is_mlx5())
            .field("listed_with", &Arc::strong_count(&self.list))
            .finish()
    }
}

/// The name of a device that the caller keeps valid.
pub(crate) fn device_name(device: NonNull<ibv_device>) -> String {
    // SAFETY: the caller's device is valid; libibverbs ends its name with a zero.
    let name = unsafe { CStr::from_ptr(ibv_get_device_name(device.as_ptr())) };
    name.to_string_lossy().into_owned()
}

/// Returns the name of an opened device.
///
/// # Safety
/// The device is open.
#[cfg(feature = "cm")]
pub(crate) unsafe fn opened_device_name(context: NonNull<mlx5_sys::verbs::ibv_context>) -> String {
    // SAFETY: the caller keeps the device open, and libibverbs sets the field to the device that it
    // opened.
    let device = unsafe { (*context.as_ptr()).device };
    device_name(NonNull::new(device).expect("an open context has a device"))
}

/// The sysfs folder of a device that the caller keeps valid.
pub(crate) fn sysfs_path(device: NonNull<ibv_device>) -> PathBuf {
    // SAFETY: the caller's device is valid; libibverbs ends the string with a zero.
    let path = unsafe { CStr::from_ptr((&raw const (*device.as_ptr()).ibdev_path).cast()) };
    PathBuf::from(path.to_string_lossy().as_ref())
}

/// The character device of a device that the caller keeps valid.
pub(crate) fn node_path(device: NonNull<ibv_device>) -> PathBuf {
    // SAFETY: the caller's device is valid; libibverbs ends the string with a zero.
    let name = unsafe { CStr::from_ptr((&raw const (*device.as_ptr()).dev_name).cast()) };
    Path::new("/dev/infiniband").join(name.to_string_lossy().as_ref())
}

/// The board id that a device's sysfs folder tells.
pub(crate) fn board_id(sysfs: &Path) -> Option<String> {
    let text = std::fs::read_to_string(sysfs.join("board_id")).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
