//! The older form of requests, wrapped in an ioctl: a command number, one structure in and one out,
//! and the driver's two structures.

use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};

/// Attributes of `INVOKE_WRITE`.
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const COMMAND: u16 = 2;

/// A legacy request.
pub(crate) struct Request {
    /// The structure; other than for extended commands it begins with the address of a response.
    pub core: Vec<u8>,
    /// The driver's structure.
    pub driver: Vec<u8>,
    out: (u64, usize),
    driver_out: (u64, usize),
}

impl Request {
    /// Returns the number of the command that an ioctl carries.
    pub fn command(attributes: &Attributes) -> Result<u32> {
        attributes.number(COMMAND).map(|command| command as u32)
    }

    /// Reads the request that an ioctl carries.
    pub fn read(attributes: &Attributes) -> Result<Self> {
        Ok(Self {
            core: attributes.input(CORE_IN)?,
            driver: attributes.input(DRIVER_IN)?,
            out: attributes.target(CORE_OUT).unwrap_or((0, 0)),
            driver_out: attributes.target(DRIVER_OUT).unwrap_or((0, 0)),
        })
    }

    /// Marks the replies as filled.
    pub fn filled(attributes: &mut Attributes) -> Result<()> {
        attributes.filled(CORE_OUT)?;
        attributes.filled(DRIVER_OUT)
    }

    /// A 32-bit word of the structure.
    pub fn word(&self, at: usize) -> Result<u32> {
        let bytes = self.core.get(at..at + 4).ok_or(Errno::ENOSPC)?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Room for the reply, in bytes.
    pub fn room(&self) -> usize {
        self.out.1
    }

    /// Room for the driver's reply, in bytes.
    pub fn driver_room(&self) -> usize {
        self.driver_out.1
    }

    /// Writes the reply, which has to fit.
    pub fn reply(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.out.1 {
            return Err(Errno::ENOSPC);
        }
        user::write(self.out.0, bytes)
    }

    /// Writes the reply, truncated to the buffer of the caller.
    pub fn reply_short(&self, bytes: &[u8]) -> Result<()> {
        user::write(self.out.0, &bytes[..bytes.len().min(self.out.1)])
    }

    /// Writes the driver's reply, truncated to the buffer of the caller.
    pub fn reply_driver(&self, bytes: &[u8]) -> Result<()> {
        user::write(self.driver_out.0, &bytes[..bytes.len().min(self.driver_out.1)])
    }
}
