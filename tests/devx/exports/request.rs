//! The request for a dma-buf, made without a library (`ib_user_ioctl_cmds.h`, `mlx5_user_ioctl_cmds.h`).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use mlx5::verbs::{Context, DeviceMemory};
use mlx5_sys::dv::{MLX5DV_UAR_ALLOC_TYPE_NC, mlx5dv_devx_alloc_uar};

/// `RDMA_VERBS_IOCTL`
const REQUEST: libc::c_ulong = 0xc018_1b01;
/// `UVERBS_OBJECT_DM`, `MLX5_IB_METHOD_DM_QUERY`
const DM_QUERY: (u16, u16) = (14, 0x1001);
/// `UVERBS_OBJECT_DMABUF`, `UVERBS_METHOD_DMABUF_ALLOC`
const DMABUF_ALLOC: (u16, u16) = (18, 0);
/// `MLX5_IB_MMAP_DEVICE_MEM`
const DEVICE_MEMORY: u64 = 8;
/// `UVERBS_ATTR_F_MANDATORY`
const MANDATORY: u16 = 1;
const PAGE: u64 = 4096;

/// `struct ib_uverbs_ioctl_hdr`, and room for attributes.
#[repr(C)]
struct Request {
    length: u16,
    object: u16,
    method: u16,
    count: u16,
    reserved1: u64,
    driver: u32,
    reserved2: u32,
    attributes: [Attribute; 4],
}

/// `struct ib_uverbs_attr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attribute {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

impl Attribute {
    fn new(id: u16, length: u16, data: u64) -> Self {
        Self { id, length, flags: MANDATORY, reserved: 0, data }
    }
}

/// Makes a request. Returns the data of the first attribute after it.
fn request(
    context: &Context,
    (object, method): (u16, u16),
    given: &[Attribute],
) -> io::Result<u64> {
    let mut attributes = [Attribute::default(); 4];
    attributes[..given.len()].copy_from_slice(given);
    let (count, length) = (given.len() as u16, 24 + 16 * given.len() as u16);
    // RDMA_DRIVER_MLX5 is 1.
    let header = Request {
        length,
        object,
        method,
        count,
        reserved1: 0,
        driver: 1,
        reserved2: 0,
        attributes,
    };
    let mut request = header;
    // SAFETY: the context is open. The request is as long as it says, and what it points to is memory of the
    // caller that is as long as the attribute says.
    unsafe {
        let file = context.as_raw().as_ref().cmd_fd;
        match libc::ioctl(file, REQUEST, &mut request) {
            0 => Ok(request.attributes[0].data),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Exports what is mapped at an offset of the open device.
fn export(context: &Context, offset: u64) -> io::Result<OwnedFd> {
    let given = [Attribute::new(0, 0, 0), Attribute::new(1, 8, offset)];
    let fd = request(context, DMABUF_ALLOC, &given)?;
    // SAFETY: the request has made the descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Exports the page of the UAR that all of an opened device share.
pub fn page_of_uar(context: &Context) -> io::Result<OwnedFd> {
    // SAFETY: the context is open. This UAR exists until it is closed.
    let offset = unsafe {
        let uar = mlx5dv_devx_alloc_uar(context.as_raw().as_ptr(), MLX5DV_UAR_ALLOC_TYPE_NC);
        uar.as_ref().ok_or_else(io::Error::last_os_error)?.mmap_off
    };
    export(context, offset as u64)
}

/// Exports device memory.
pub fn page_of_memory(memory: &DeviceMemory) -> io::Result<OwnedFd> {
    let (mut start, mut index, mut length) = (0u64, 0u16, 0u64);
    // SAFETY: the memory is allocated.
    let handle = unsafe { memory.as_raw().as_ref().handle };
    let given = [
        Attribute::new(0x1000, 0, handle.into()),
        Attribute::new(0x1001, 8, (&raw mut start).expose_provenance() as u64),
        Attribute::new(0x1002, 2, (&raw mut index).expose_provenance() as u64),
        Attribute::new(0x1003, 8, (&raw mut length).expose_provenance() as u64),
    ];
    request(memory.context(), DM_QUERY, &given)?;
    let index = u64::from(index);
    export(memory.context(), (index >> 8 << 16 | DEVICE_MEMORY << 8 | index & 0xff) * PAGE)
}
