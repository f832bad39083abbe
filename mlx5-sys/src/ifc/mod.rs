//! Firmware command and context layouts: where each field lies, with accessors over plain bytes.
//!
//! A layout is a module named after the structure of `mlx5_ifc.h`; each field is a [`Field`]
//! constant, and `FIELDS` lists all of them by name for printing. Command buffers are big-endian
//! and are handled as byte slices, as mlx5dv's DevX calls take them.

mod contexts;
mod dynamic;
mod ethernet;
mod general;
pub mod opcode;
mod queue_pair;
mod resource;
mod shared_receive;
mod steering;
mod tag_matching;

pub use contexts::*;
pub use dynamic::*;
pub use ethernet::*;
pub use general::*;
pub use queue_pair::*;
pub use resource::*;
pub use shared_receive::*;
pub use steering::*;
pub use tag_matching::*;

/// One field of a command or context: a run of bits, counted from the structure's first byte,
/// most significant bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    bit: usize,
    width: usize,
}

impl Field {
    /// A field whose dword starts at byte `dword`, whose top bit is `top` (31 is the most
    /// significant) and which is `width` bits wide. It may run on into following dwords.
    pub const fn new(dword: usize, top: usize, width: usize) -> Self {
        assert!(dword % 4 == 0 && top < 32 && width > 0);
        Self { bit: dword * 8 + 31 - top, width }
    }

    /// This field of a structure that itself lies at `outer` in a larger one.
    pub const fn within(self, outer: Field) -> Self {
        assert!(self.bit + self.width <= outer.width);
        Self { bit: outer.bit + self.bit, width: self.width }
    }

    /// Offset of the first bit from the start of the structure.
    pub const fn bit_offset(self) -> usize {
        self.bit
    }

    /// Width in bits.
    pub const fn width(self) -> usize {
        self.width
    }

    /// The bytes this field covers, for byte-aligned fields such as nested structures.
    ///
    /// # Panics
    /// If the field does not start and end on a byte.
    pub const fn bytes(self) -> core::ops::Range<usize> {
        assert!(self.bit % 8 == 0 && self.width % 8 == 0);
        self.bit / 8..(self.bit + self.width) / 8
    }

    /// Reads the field; at most 64 bits.
    ///
    /// # Panics
    /// If the field is wider than 64 bits or lies outside `buffer`.
    pub fn get(self, buffer: &[u8]) -> u64 {
        assert!(self.width <= 64);
        let (first, last) = (self.bit / 8, (self.bit + self.width - 1) / 8);
        let value =
            buffer[first..=last].iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
        let below = (last + 1) * 8 - (self.bit + self.width);
        ((value >> below) & mask(self.width)) as u64
    }

    /// Writes the field; at most 64 bits. The bits around it stay.
    ///
    /// # Panics
    /// If `value` does not fit, the field is wider than 64 bits, or it lies outside `buffer`.
    pub fn set(self, buffer: &mut [u8], value: u64) {
        assert!(self.width <= 64);
        assert!(
            u128::from(value) <= mask(self.width),
            "{value:#x} does not fit {} bits",
            self.width
        );
        let (first, last) = (self.bit / 8, (self.bit + self.width - 1) / 8);
        let below = (last + 1) * 8 - (self.bit + self.width);
        let bytes = &mut buffer[first..=last];
        let old = bytes.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
        let mut new = old & !(mask(self.width) << below) | u128::from(value) << below;
        for byte in bytes.iter_mut().rev() {
            *byte = new as u8;
            new >>= 8;
        }
    }
}

const fn mask(width: usize) -> u128 {
    (1u128 << width) - 1
}

/// Declares layouts: `name size { FIELD dword top width; … }`.
macro_rules! layout {
    ($($name:ident $size:literal { $($field:ident $dword:literal $top:literal $width:literal;)* })*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`")]
            pub mod $name {
                use $crate::ifc::Field;
                /// Size in bytes, without what follows of variable length.
                pub const SIZE: usize = $size;
                $(
                    #[doc = concat!("Dword ", stringify!($dword), ", top bit ", stringify!($top), ", ", stringify!($width), " bits.")]
                    pub const $field: Field = Field::new($dword, $top, $width);
                )*
                /// Every field with its name in upper case, in the order of the header.
                pub const FIELDS: &[(&str, Field)] = &[$((stringify!($field), $field)),*];
            }
        )*
    };
}
use layout;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written_where_the_header_has_them() {
        let mut buffer = [0xff; qpc::SIZE];
        qpc::PD.set(&mut buffer, 0x12_3456);
        assert_eq!(buffer[4..8], [0xff, 0x12, 0x34, 0x56]);
        assert_eq!(qpc::PD.get(&buffer), 0x12_3456);
        qpc::DBR_ADDR.set(&mut buffer, 0x0102_0304_0506_0708);
        assert_eq!(buffer[0xa0..0xa8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(buffer[0x9f], 0xff);
        assert_eq!(buffer[0xa8], 0xff);
        qpc::MTU.set(&mut buffer, 5);
        assert_eq!(buffer[8], 0b1011_1111);
    }

    #[test]
    fn a_nested_field_lies_inside_its_structure() {
        let sl = ads::SL.within(qpc::PRIMARY_ADDRESS_PATH);
        assert_eq!(sl.bit_offset(), (0x18 + 0x24) * 8 + 4);
        assert_eq!(create_qp_in::QPC.bytes(), 0x18..0x100);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_value_that_is_too_wide_is_refused() {
        qpc::MTU.set(&mut [0; qpc::SIZE], 8);
    }
}
