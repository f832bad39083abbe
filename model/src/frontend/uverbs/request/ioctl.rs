//! The ioctl form of requests: a header and attributes, which are checked against a method's
//! declaration.

use libc::c_int;

use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::abi::{Attribute, Header};

/// `RDMA_VERBS_IOCTL`.
pub(crate) const RDMA_VERBS_IOCTL: libc::c_ulong = 0xc018_1b01;

/// A request is no larger than a page.
const LARGEST: usize = 4096;
/// `UVERBS_ATTR_F_MANDATORY`.
const MANDATORY: u16 = 1;
/// `UVERBS_ATTR_F_VALID_OUTPUT`.
pub(crate) const VALID_OUTPUT: u16 = 2;
/// `UVERBS_ATTR_UHW_IN`.
pub(crate) const DRIVER_IN: u16 = 0x1000;
/// `UVERBS_ATTR_UHW_OUT`.
pub(crate) const DRIVER_OUT: u16 = 0x1001;

/// The kind of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Input of so many bytes, at least and at most; inline if it is no longer than 8.
    In(u16, u16),
    /// Room for at least so many bytes of output.
    Out(u16),
    /// Handle of an object, or a descriptor.
    Handle,
    /// Handle or descriptor of an object that is made.
    NewHandle,
}

/// An attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    pub id: u16,
    pub kind: Kind,
    pub mandatory: bool,
}

/// Declares a mandatory attribute.
pub(crate) const fn must(id: u16, kind: Kind) -> Declared {
    Declared { id, kind, mandatory: true }
}

/// Declares an optional attribute.
pub(crate) const fn may(id: u16, kind: Kind) -> Declared {
    Declared { id, kind, mandatory: false }
}

/// The attributes of a request.
pub(crate) struct Attributes {
    given: Vec<Attribute>,
    /// Address of the first attribute in the request.
    address: u64,
}

impl Attributes {
    /// Reads the request whose header is at this address.
    pub fn read(argument: u64) -> Result<(Header, Self)> {
        let header: Header = user::lenient(&user::read(argument, size_of::<Header>())?);
        let expected =
            size_of::<Header>() + usize::from(header.attributes) * size_of::<Attribute>();
        if usize::from(header.length) != expected || expected > LARGEST {
            return Err(Errno::EINVAL);
        }
        let address = argument + size_of::<Header>() as u64;
        let bytes = user::read(address, expected - size_of::<Header>())?;
        let given = bytes.chunks(size_of::<Attribute>()).map(user::lenient).collect();
        Ok((header, Self { given, address }))
    }

    /// Holds the request to the method's declaration.
    pub fn check(&self, declared: &[Declared]) -> Result<()> {
        for (index, attribute) in self.given.iter().enumerate() {
            let Some(known) = declared.iter().find(|known| known.id == attribute.id) else {
                if attribute.flags & MANDATORY != 0 {
                    return Err(Errno::EPROTONOSUPPORT);
                }
                continue;
            };
            if attribute.flags & !(MANDATORY | VALID_OUTPUT) != 0
                || self.given[..index].iter().any(|earlier| earlier.id == attribute.id)
            {
                return Err(Errno::EINVAL);
            }
            let fits = match known.kind {
                Kind::In(least, most) => (least..=most).contains(&attribute.length),
                Kind::Out(least) => attribute.length >= least,
                Kind::Handle | Kind::NewHandle => attribute.length == 0,
            };
            if !fits || attribute.reserved != 0 {
                return Err(Errno::EINVAL);
            }
        }
        let missing = |known: &&Declared| {
            known.mandatory && !self.given.iter().any(|attribute| attribute.id == known.id)
        };
        if declared.iter().any(|known| missing(&known)) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn find(&self, id: u16) -> Option<&Attribute> {
        self.given.iter().find(|attribute| attribute.id == id)
    }

    /// The bytes of an input; none if it was not given.
    pub fn input(&self, id: u16) -> Result<Vec<u8>> {
        let Some(attribute) = self.find(id) else { return Ok(Vec::new()) };
        let length = usize::from(attribute.length);
        if length <= 8 {
            return Ok(attribute.data.to_ne_bytes()[..length].to_vec());
        }
        user::read(attribute.data, length)
    }

    /// A number of at most eight bytes; 0 if it was not given.
    pub fn number(&self, id: u16) -> Result<u64> {
        let bytes = self.input(id)?;
        let mut number = [0; 8];
        let n = bytes.len().min(8);
        number[..n].copy_from_slice(&bytes[..n]);
        Ok(u64::from_ne_bytes(number))
    }

    /// The 64 bits of a handle; `None` if it was not given.
    fn data(&self, id: u16) -> Option<u64> {
        self.find(id).map(|attribute| attribute.data)
    }

    /// A handle. `None` if it was not given.
    pub fn optional_handle(&self, id: u16) -> Result<Option<u32>> {
        self.data(id).map(|data| u32::try_from(data).map_err(|_| Errno::ENOENT)).transpose()
    }

    /// A handle that has to be there.
    pub fn handle(&self, id: u16) -> Result<u32> {
        self.optional_handle(id)?.ok_or(Errno::EINVAL)
    }

    /// The handles of an array; none if it was not given.
    pub fn handles(&self, id: u16) -> Result<Vec<u32>> {
        let bytes = self.input(id)?;
        if bytes.len() % 4 != 0 {
            return Err(Errno::EINVAL);
        }
        let handles = bytes.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]);
        Ok(handles.map(u32::from_ne_bytes).collect())
    }

    /// A descriptor. `None` if it was not given.
    pub fn descriptor(&self, id: u16) -> Result<Option<c_int>> {
        self.data(id).map(|data| c_int::try_from(data as i64).map_err(|_| Errno::EBADF)).transpose()
    }

    /// Whether it was given.
    pub fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Room of an output, in bytes; 0 if it was not given.
    pub fn room(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attribute| usize::from(attribute.length))
    }

    /// Address of an output.
    pub fn target(&self, id: u16) -> Option<(u64, usize)> {
        self.find(id).map(|attribute| (attribute.data, usize::from(attribute.length)))
    }

    /// Fills an output, truncated to its length, and marks it as filled. Does nothing if the output
    /// was not given.
    pub fn put(&mut self, id: u16, bytes: &[u8]) -> Result<()> {
        let Some((address, room)) = self.target(id) else { return Ok(()) };
        user::write(address, &bytes[..bytes.len().min(room)])?;
        self.filled(id)
    }

    /// Fills an output; what there is no input for becomes zero.
    pub fn put_whole(&mut self, id: u16, bytes: &[u8]) -> Result<()> {
        let Some((address, room)) = self.target(id) else { return Ok(()) };
        let mut whole = bytes[..bytes.len().min(room)].to_vec();
        whole.resize(room, 0);
        user::write(address, &whole)?;
        self.filled(id)
    }

    /// Marks an output as filled.
    pub fn filled(&mut self, id: u16) -> Result<()> {
        let Some(index) = self.given.iter().position(|attribute| attribute.id == id) else {
            return Ok(());
        };
        self.given[index].flags |= VALID_OUTPUT;
        let place = self.address + (index * size_of::<Attribute>()) as u64 + 4;
        user::write(place, &self.given[index].flags.to_ne_bytes())
    }

    /// Gives the handle or descriptor of what was made.
    pub fn put_handle(&mut self, id: u16, handle: u64) -> Result<()> {
        let index =
            self.given.iter().position(|attribute| attribute.id == id).ok_or(Errno::EINVAL)?;
        let place = self.address + (index * size_of::<Attribute>()) as u64 + 8;
        user::write(place, &handle.to_ne_bytes())
    }
}
