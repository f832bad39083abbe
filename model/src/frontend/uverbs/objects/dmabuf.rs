//! Regions over a dma-buf: memory behind a descriptor, without an address in the program.
//!
//! The model maps the descriptor, and the device reaches the memory through that mapping. The model
//! accepts everything that can be mapped shared, such as a memfd. So this path can be tested on
//! machines whose kernel has no exporter of dma-bufs.

use libc::c_int;

use super::super::driver::mapping::Mapping;
use super::super::driver::umem::PAGE;
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::file::CommandFile;
use super::mr;
use super::pd::Pd;

/// `REG_DMABUF_MR`.
pub(crate) fn register(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let pd = attributes.handle(1)?;
    let (offset, length) = (attributes.number(2)?, attributes.number(3)?);
    let iova = attributes.number(4)?;
    let fd = attributes.number(5)? as u32 as c_int;
    let access = attributes.number(6)? as u32;
    if offset % PAGE != iova % PAGE {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let pdn = state.get::<Pd>(pd)?.number;
    let mapping = Mapping::new(fd, offset, length)?;
    let mr = mr::over_mapping(file, mapping, (pd, pdn, uid), (length, iova), access)?;
    let key = mr.key();
    attributes.put(7, &key.to_ne_bytes())?;
    attributes.put(8, &key.to_ne_bytes())?;
    let handle = state.enter(mr);
    attributes.put_handle(0, u64::from(handle))
}
