//! Memory keys.

use mlx5_sys::ifc::{Field, mkc};

use super::Pages;

/// How addresses behind a key become bus addresses.
#[derive(Clone, Debug)]
pub enum Translation {
    /// They are bus addresses already.
    Physical,
    /// Through a list of pages, which starts with the one that holds the start address.
    Pages(Pages),
    /// Not at all: the key is free.
    None,
}

/// A memory key.
#[derive(Clone, Debug)]
pub struct Mkey {
    /// User context that made it.
    pub uid: u16,
    /// The mkey context as commands have set it.
    pub context: Box<[u8; mkc::SIZE]>,
    /// Where the bytes are.
    pub translation: Translation,
}

impl Mkey {
    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }

    /// First address.
    pub fn start(&self) -> u64 {
        mkc::START_ADDR.get(&self.context[..])
    }

    /// Whether a range lies inside.
    pub fn contains(&self, address: u64, length: u64) -> bool {
        if self.get(mkc::LENGTH64) == 1 {
            return length == 0 || address.checked_add(length - 1).is_some();
        }
        let size = mkc::LEN.get(&self.context[..]);
        match address.checked_sub(self.start()) {
            Some(offset) => offset <= size && length <= size - offset,
            None => false,
        }
    }
}
