//! Requests of the verbs interface, as the kernel takes them (`rdma_user_ioctl_cmds.h`): a header
//! and attributes, each with its value or a pointer to it.

use std::os::fd::{AsRawFd, BorrowedFd};

use mlx5::verbs::Errno;

/// `RDMA_VERBS_IOCTL`
const VERBS: libc::c_ulong = 0xc018_1b01;
/// `RDMA_DRIVER_MLX5`
const MLX5: u32 = 1;
/// `UVERBS_ATTR_F_MANDATORY`
const MANDATORY: u16 = 1;

/// `struct ib_uverbs_ioctl_hdr`
#[repr(C)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved1: u64,
    driver: u32,
    reserved2: u32,
}

/// `struct ib_uverbs_attr`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

const EMPTY: Attribute = Attribute { id: 0, length: 0, flags: 0, reserved: 0, data: 0 };
/// The most attributes of a request here.
const MOST: usize = 5;

#[repr(C)]
struct Whole {
    header: Header,
    attributes: [Attribute; MOST],
}

/// A request under construction. It borrows what its attributes point to until it is executed.
pub(super) struct Request<'a> {
    whole: Whole,
    borrowed: std::marker::PhantomData<&'a mut [u8]>,
}

impl<'a> Request<'a> {
    pub fn new(object: u16, method: u16) -> Self {
        let header = Header {
            length: 0,
            object,
            method,
            attributes: 0,
            reserved1: 0,
            driver: MLX5,
            reserved2: 0,
        };
        let whole = Whole { header, attributes: [EMPTY; MOST] };
        Self { whole, borrowed: std::marker::PhantomData }
    }

    fn add(mut self, id: u16, length: usize, data: u64) -> Self {
        let length = u16::try_from(length).expect("attributes here are short");
        let index = usize::from(self.whole.header.attributes);
        self.whole.attributes[index] =
            Attribute { id, length, flags: MANDATORY, reserved: 0, data };
        self.whole.header.attributes += 1;
        self
    }

    pub fn handle(self, id: u16, handle: u32) -> Self {
        self.add(id, 0, handle.into())
    }

    /// Adds an input. A value of up to eight bytes is stored in the attribute itself.
    pub fn input(self, id: u16, bytes: &'a [u8]) -> Self {
        if bytes.len() > 8 {
            return self.add(id, bytes.len(), bytes.as_ptr() as u64);
        }
        let mut data = [0; 8];
        data[..bytes.len()].copy_from_slice(bytes);
        self.add(id, bytes.len(), u64::from_ne_bytes(data))
    }

    pub fn output(self, id: u16, bytes: &'a mut [u8]) -> Self {
        self.add(id, bytes.len(), bytes.as_mut_ptr() as u64)
    }

    /// Executes the request.
    pub fn make(mut self, device: BorrowedFd<'_>) -> Result<(), Errno> {
        let attributes = usize::from(self.whole.header.attributes) * size_of::<Attribute>();
        self.whole.header.length = (size_of::<Header>() + attributes) as u16;
        // SAFETY: header and attributes are as long as the header says. Each attribute points to
        // memory that `self` borrows, mutably where the kernel writes, and that is as long as the
        // attribute says.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), VERBS, &raw mut self.whole) };
        if result == 0 { Ok(()) } else { Err(super::last()) }
    }
}
