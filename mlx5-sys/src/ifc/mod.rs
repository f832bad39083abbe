//! Firmware command and context layouts: where each field lies, with accessors over plain bytes.
//!
//! A layout is a module named after the structure of `mlx5_ifc.h`; each field is a [`Field`]
//! constant, and `FIELDS` lists all of them by name for printing. Command buffers are big-endian
//! and are handled as byte slices, as mlx5dv's DevX calls take them.

pub mod opcode;
pub mod opt_param;
pub mod status;

/// Declares the files of layouts, gives what is in them, and lists all of it.
macro_rules! files {
    ($($file:ident)*) => {
        $(
            mod $file;
            pub use $file::*;
        )*

        /// Every layout, by file.
        pub const LAYOUTS: &[(&str, &[Layout])] = &[$((stringify!($file), $file::LAYOUTS)),*];
    };
}

files! {
    capability_groups
    contexts
    counter
    dynamic
    ethernet
    event
    flow_action
    function
    general
    hca
    nic_vport
    queue_pair
    register
    resource
    shared_receive
    steering
    tag_matching
}

/// The layout of a command, its reply, or a context.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name in `mlx5_ifc.h`.
    pub name: &'static str,
    /// Size in bytes, without what follows of variable length.
    pub size: usize,
    /// Its fields, in the order of the header. Reserved ones are left out.
    pub members: &'static [Member],
}

/// A field of a layout.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The place and the name of the field.
    pub field: Field,
    /// The layout of a nested structure, if the field is one.
    pub nested: Option<&'static Layout>,
}

/// Returns every layout, in the order of [`LAYOUTS`].
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    LAYOUTS.iter().flat_map(|(_, layouts)| layouts.iter())
}

impl Layout {
    /// Returns the layout with this name, as `mlx5_ifc.h` spells it.
    pub fn named(name: &str) -> Option<&'static Layout> {
        layouts().find(|layout| layout.name == name)
    }

    /// Every field that is no structure itself, in the order of the header; those of nested
    /// structures as they lie in this one.
    pub fn leaves(&self) -> Vec<Field> {
        let mut leaves = Vec::new();
        for member in self.members {
            match member.nested {
                None => leaves.push(member.field),
                // Lists of open length lie behind their structure: in another, that is something
                // else.
                Some(nested) => leaves.extend(
                    nested
                        .leaves()
                        .into_iter()
                        .filter(|leaf| leaf.bit + leaf.width <= member.field.width)
                        .map(|leaf| leaf.within(member.field)),
                ),
            }
        }
        leaves
    }

    /// Returns the field of that name, in upper case.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.members.iter().map(|member| member.field).find(|field| field.name() == Some(name))
    }
}

/// One field of a command or context: a run of bits, counted from the structure's first byte,
/// most significant bit first.
///
/// Two fields are equal if they lie at the same place.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    bit: usize,
    width: usize,
    /// Its name, after those of the structures it lies in; empty where there is none.
    names: [&'static str; DEPTH],
}

/// Names that a field remembers: its own and those of the structures around it.
const DEPTH: usize = 4;

impl PartialEq for Field {
    fn eq(&self, other: &Field) -> bool {
        (self.bit, self.width) == (other.bit, other.width)
    }
}

impl Eq for Field {}

impl Field {
    /// A field whose dword starts at byte `dword`, whose top bit is `top` (31 is the most
    /// significant) and which is `width` bits wide. It may run on into following dwords.
    pub const fn new(dword: usize, top: usize, width: usize) -> Self {
        assert!(dword % 4 == 0 && top < 32 && width > 0);
        Self { bit: dword * 8 + 31 - top, width, names: [""; DEPTH] }
    }

    /// The same with a name.
    pub const fn named(name: &'static str, dword: usize, top: usize, width: usize) -> Self {
        let mut field = Self::new(dword, top, width);
        field.names[DEPTH - 1] = name;
        field
    }

    /// This field of a structure that itself lies at `outer` in a larger one.
    pub const fn within(self, outer: Field) -> Self {
        assert!(self.bit + self.width <= outer.width);
        let mut names = self.names;
        // Names are at the end. The outer names go before them, as many as fit.
        let mut room = 0;
        while room < DEPTH && names[room].is_empty() {
            room += 1;
        }
        let mut from = DEPTH;
        while room > 0 && from > 0 && !outer.names[from - 1].is_empty() {
            room -= 1;
            from -= 1;
            names[room] = outer.names[from];
        }
        Self { bit: outer.bit + self.bit, width: self.width, names }
    }

    /// Returns its name in upper case, where it has one.
    pub const fn name(self) -> Option<&'static str> {
        let name = self.names[DEPTH - 1];
        if name.is_empty() { None } else { Some(name) }
    }

    /// Returns its name in lower case after those of the structures that it lies in, with dots
    /// between: `qpc.primary_address_path.sl`. One without a name is named by where it lies.
    pub fn path(self) -> impl core::fmt::Display {
        Path(self)
    }

    /// Returns the field itself if it has at most 64 bits; else pieces of that width, the last
    /// perhaps narrower.
    pub fn words(self) -> impl Iterator<Item = Field> {
        (0..self.width).step_by(64).map(move |start| Self {
            bit: self.bit + start,
            width: (self.width - start).min(64),
            names: self.names,
        })
    }

    /// Offset of the first bit from the start of the structure.
    pub const fn bit_offset(self) -> usize {
        self.bit
    }

    /// Width in bits.
    pub const fn width(self) -> usize {
        self.width
    }

    /// Returns the bytes this field covers, for byte-aligned fields such as nested structures.
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
    #[inline]
    pub fn get(self, buffer: &[u8]) -> u64 {
        // Fields of one dword, and those of two whole ones, take one load where the field is known
        // to the compiler.
        let (start, end) = (self.bit % 32, self.bit % 32 + self.width);
        let rest = buffer.get(self.bit / 32 * 4..).unwrap_or_default();
        match (rest.first_chunk(), rest.first_chunk()) {
            (Some(dword), _) if self.width > 0 && end <= 32 => {
                u64::from(u32::from_be_bytes(*dword) << start >> (32 - self.width))
            }
            (_, Some(dwords)) if start == 0 && self.width == 64 => u64::from_be_bytes(*dwords),
            _ => self.gather(buffer),
        }
    }

    /// Reads a field of any alignment, byte by byte.
    fn gather(self, buffer: &[u8]) -> u64 {
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

/// Prints the names of a field.
struct Path(Field);

impl core::fmt::Display for Path {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Field { bit, width, names } = self.0;
        if names[DEPTH - 1].is_empty() {
            return write!(f, "bits {bit} to {}", bit + width - 1);
        }
        let mut between = "";
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            f.write_str(between)?;
            for letter in name.chars() {
                core::fmt::Write::write_char(f, letter.to_ascii_lowercase())?;
            }
            between = ".";
        }
        Ok(())
    }
}

const fn mask(width: usize) -> u128 {
    (1u128 << width) - 1
}

/// Declares layouts: `name size { FIELD dword top width; … }`. A field that is a structure with a
/// layout of its own says so: `FIELD dword top width = name;`.
macro_rules! layout {
    ($($name:ident $size:literal {
        $($field:ident $dword:literal $top:literal $width:literal $(= $nested:ident)?;)*
    })*) => {
        /// Every layout of this file.
        pub(super) const LAYOUTS: &[$crate::ifc::Layout] = &[$($name::LAYOUT),*];

        $(
            #[doc = concat!("`", stringify!($name), "`")]
            pub mod $name {
                use $crate::ifc::Field;
                /// Size in bytes, without what follows of variable length.
                pub const SIZE: usize = $size;
                $(
                    #[doc = concat!("Dword ", stringify!($dword), ", top bit ", stringify!($top), ", ", stringify!($width), " bits.")]
                    pub const $field: Field = Field::named(stringify!($field), $dword, $top, $width);
                )*
                /// Every field with its name in upper case, in the order of the header.
                pub const FIELDS: &[(&str, Field)] = &[$((stringify!($field), $field)),*];
                /// All of this as a value, to be gone through by name.
                pub const LAYOUT: $crate::ifc::Layout = $crate::ifc::Layout {
                    name: stringify!($name),
                    size: SIZE,
                    members: &[$($crate::ifc::Member {
                        field: $field,
                        nested: $crate::ifc::layout!(@nested $($nested)?),
                    }),*],
                };
            }
        )*
    };
    (@nested) => { None };
    (@nested $nested:ident) => { Some(&$crate::ifc::$nested::LAYOUT) };
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
    fn fields_are_read_alike_by_words_and_by_bytes() {
        let buffer: Vec<u8> = (0..24u8).map(|byte| byte.wrapping_mul(0x9d) ^ 0xa5).collect();
        for bit in 0..128 {
            for width in 1..=64 {
                let field = Field { bit, width, names: [""; DEPTH] };
                // Also where the buffer ends with the field's last byte.
                for buffer in [&buffer[..], &buffer[..(bit + width).div_ceil(8)]] {
                    assert_eq!(field.get(buffer), field.gather(buffer), "{bit} {width}");
                }
            }
        }
    }

    #[test]
    fn a_nested_field_lies_inside_its_structure() {
        let sl = ads::SL.within(qpc::PRIMARY_ADDRESS_PATH);
        assert_eq!(sl.bit_offset(), (0x18 + 0x24) * 8 + 4);
        assert_eq!(create_qp_in::QPC.bytes(), 0x18..0x100);
    }

    #[test]
    fn a_field_knows_its_names() {
        let sl = ads::SL.within(qpc::PRIMARY_ADDRESS_PATH).within(create_qp_in::QPC);
        assert_eq!(sl.path().to_string(), "qpc.primary_address_path.sl");
        assert_eq!(sl.name(), Some("SL"));
        assert_eq!(sl, ads::SL.within(qpc::PRIMARY_ADDRESS_PATH.within(create_qp_in::QPC)));
        assert_eq!(
            sl.path().to_string(),
            ads::SL.within(qpc::PRIMARY_ADDRESS_PATH.within(create_qp_in::QPC)).path().to_string()
        );
        assert_eq!(Field::new(4, 15, 16).path().to_string(), "bits 48 to 63");
        // The innermost names stay.
        let deep =
            sl.within(Field::named("A", 0, 31, 0x1000)).within(Field::named("B", 0, 31, 0x2000));
        assert_eq!(deep.path().to_string(), "a.qpc.primary_address_path.sl");
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_value_that_is_too_wide_is_refused() {
        qpc::MTU.set(&mut [0; qpc::SIZE], 8);
    }
}
