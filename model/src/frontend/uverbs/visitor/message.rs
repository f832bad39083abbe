//! Messages between host and guest.

use std::io::{self, Read, Write};

use super::super::request::abi::Attribute;

/// The longest message: attributes of a request, which fill a page, with what they point to.
const LONGEST: usize = 1 << 20;

/// The kinds of a guest's requests.
pub(super) mod ask {
    /// Whether a descriptor is an open device, and of this connection from now on.
    pub const FILE: u32 = 1;
    /// For a request to be served.
    pub const REQUEST: u32 = 2;
    /// For a part of the list of objects of a kind, from a number on.
    pub const RESOURCES: u32 = 3;
}

/// A message that is being written.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub fn number(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u32);
        self.0.extend(bytes);
        self
    }

    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut whole = (self.0.len() as u32).to_ne_bytes().to_vec();
        whole.extend(&self.0);
        to.write_all(&whole)
    }
}

/// A message that is being read.
pub(super) struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    pub fn receive(from: &mut impl Read) -> io::Result<Reader> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_ne_bytes(length) as usize;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        Ok(Reader { bytes, at: 0 })
    }

    fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(length).ok_or(io::ErrorKind::InvalidData)?;
        let taken = self.bytes.get(self.at..end).ok_or(io::ErrorKind::InvalidData)?;
        self.at = end;
        Ok(taken)
    }

    pub fn number(&mut self) -> io::Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()? as usize;
        self.take(length).map(<[u8]>::to_vec)
    }
}

/// An attribute of a request, as it travels.
pub(super) struct Carried {
    pub attribute: Attribute,
    /// The bytes that an input points to; empty if it is inline, or if the attribute is no input.
    pub input: Vec<u8>,
    /// Whether it points to room for an output.
    pub output: bool,
}

impl Carried {
    pub fn write(&self, to: &mut Writer) {
        to.bytes(zerocopy::IntoBytes::as_bytes(&self.attribute));
        to.bytes(&self.input).number(self.output.into());
    }

    pub fn read(from: &mut Reader) -> io::Result<Carried> {
        let attribute = super::super::process::user::lenient(&from.bytes()?);
        Ok(Carried { attribute, input: from.bytes()?, output: from.number()? != 0 })
    }
}

#[cfg(test)]
mod tests;
