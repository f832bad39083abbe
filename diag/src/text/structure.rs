//! Commands, replies and contexts as text.

use core::fmt;

use mlx5_sys::ifc::{Field, Layout};

use super::{Hex, words};
use crate::explain::timeout;

/// A structure of the HCA's, by the names of its fields: a command, a reply, or a context.
///
/// A line each, those of nested structures with the name of that before. Values that are enumerated
/// come with their meaning. Fields that are zero are left out unless they mean something; the
/// alternate form (`{:#}`) has them all. What the bytes are too short for is said to be missing.
#[derive(Clone, Copy, Debug)]
pub struct Structure<'a> {
    /// The layout.
    pub layout: &'static Layout,
    /// Its bytes, big-endian.
    pub bytes: &'a [u8],
}

/// A field of a [`Structure`], with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructureField<'a> {
    /// The place and the names of the field.
    pub field: Field,
    /// The value of the field.
    pub value: FieldValue<'a>,
    /// The meaning of a number, if its values are enumerated and this one is known.
    pub meaning: Option<&'static str>,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number, of a field of at most 64 bits.
    Number(u64),
    /// Bytes, of a longer field.
    Bytes(&'a [u8]),
    /// A longer field that does not begin or end on a byte; [`Field::words`] goes through it.
    Bits,
    /// The bytes are too short for it.
    Missing,
}

impl<'a> Structure<'a> {
    /// Returns its fields in the order of the header, those of nested structures in the place of
    /// these.
    ///
    /// A list of open length of which no byte is there is left out.
    pub fn fields(&self) -> Vec<StructureField<'a>> {
        let mut fields = Vec::new();
        self.members(&mut fields, self.layout, None);
        fields
    }

    /// The fields of a structure that lies at `outer` in this one.
    fn members(
        &self,
        fields: &mut Vec<StructureField<'a>>,
        layout: &'static Layout,
        outer: Option<Field>,
    ) {
        for member in layout.members {
            // Lists of open length lie behind their structure: in another, that is something else.
            let end = member.field.bit_offset() + member.field.width();
            if outer.is_some_and(|outer| end > outer.width()) {
                continue;
            }
            let field = outer.map_or(member.field, |outer| member.field.within(outer));
            match member.nested {
                Some(nested) => self.members(fields, nested, Some(field)),
                None => {
                    let name = member.field.name().unwrap_or_default();
                    fields.extend(self.field(layout, name, field));
                }
            }
        }
    }

    fn field(&self, layout: &Layout, name: &str, field: Field) -> Option<StructureField<'a>> {
        let end = field.bit_offset() + field.width();
        if end > self.bytes.len() * 8 {
            // A list of open length may be empty.
            let open = end > self.layout.size * 8;
            let missing = StructureField { field, value: FieldValue::Missing, meaning: None };
            return (!open).then_some(missing);
        }
        let value = match field.width() {
            0..=64 => FieldValue::Number(field.get(self.bytes)),
            width if field.bit_offset() % 8 != 0 || width % 8 != 0 => FieldValue::Bits,
            _ => FieldValue::Bytes(&self.bytes[field.bytes()]),
        };
        let meaning = match value {
            FieldValue::Number(number) => words::of(layout, name, number),
            _ => None,
        };
        Some(StructureField { field, value, meaning })
    }

    /// Returns a sentence: when the queue pair of this context, or of the context in this command or reply,
    /// notices a peer that does not answer. `None` without a context that has a time-out.
    pub fn dead_peer(&self) -> Option<String> {
        let fields = self.fields();
        let number = |name: &str| {
            fields.iter().find_map(|entry| {
                let path = entry.field.path().to_string();
                let outer = path.strip_suffix(name)?;
                match entry.value {
                    FieldValue::Number(number) if outer.is_empty() || outer.ends_with('.') => {
                        u8::try_from(number).ok()
                    }
                    _ => None,
                }
            })
        };
        let (code, retries) = (number("primary_address_path.ack_timeout")?, number("retry_count")?);
        // Queue pairs that were not moved to RTS have no time-out, and neither have datagrams.
        (code != 0).then(|| timeout::sentence(code, retries))
    }

    /// Returns whether a field says something: it is not zero, or its zero has a meaning.
    pub fn says(&self, entry: &StructureField<'_>) -> bool {
        entry.meaning.is_some()
            || match entry.value {
                FieldValue::Number(number) => number != 0,
                FieldValue::Bytes(bytes) => bytes.iter().any(|byte| *byte != 0),
                FieldValue::Bits => entry.field.words().any(|word| word.get(self.bytes) != 0),
                FieldValue::Missing => true,
            }
    }
}

impl fmt::Display for Structure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.layout.name)?;
        for entry in self.fields() {
            if !f.alternate() && !self.says(&entry) {
                continue;
            }
            let path = entry.field.path();
            match entry.value {
                FieldValue::Number(number @ 0..=9) => write!(f, "\n  {path} = {number}")?,
                FieldValue::Number(number) => write!(f, "\n  {path} = {number:#x}")?,
                FieldValue::Bytes(bytes) => write!(f, "\n  {path} = {}", Hex(bytes))?,
                FieldValue::Bits => {
                    write!(f, "\n  {path} =")?;
                    for word in entry.field.words() {
                        write!(f, " {:#x}", word.get(self.bytes))?;
                    }
                }
                FieldValue::Missing => write!(f, "\n  {path} is missing")?,
            }
            if let Some(meaning) = entry.meaning {
                write!(f, " ({meaning})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{ads, cqc, layouts, qpc};

    use super::*;

    fn show(layout: &'static Layout, bytes: &[u8]) -> String {
        Structure { layout, bytes }.to_string()
    }

    #[test]
    fn fields_come_by_name_with_what_is_nested_and_what_it_means() {
        let mut bytes = [0; qpc::SIZE];
        qpc::STATE.set(&mut bytes, 3);
        qpc::PD.set(&mut bytes, 0x1234);
        qpc::MTU.set(&mut bytes, 5);
        ads::RLID.within(qpc::PRIMARY_ADDRESS_PATH).set(&mut bytes, 7);
        let rgid = ads::RGID_RIP.within(qpc::PRIMARY_ADDRESS_PATH).bytes();
        bytes[rgid][..2].copy_from_slice(&[0xfe, 0x80]);
        let text = show(&qpc::LAYOUT, &bytes);
        for line in [
            "qpc:\n",
            "\n  state = 3 (RTS)\n",
            "\n  st = 0 (RC)\n",
            "\n  pd = 0x1234\n",
            "\n  mtu = 5 (4096 bytes)\n",
            "\n  primary_address_path.rlid = 7\n",
            "\n  primary_address_path.rgid_rip = fe800000 00000000 00000000 00000000\n",
        ] {
            assert!(text.contains(line), "{line:?} is missing in {text}");
        }
        assert!(!text.contains("next_send_psn"), "{text}");
        let structure = Structure { layout: &qpc::LAYOUT, bytes: &bytes };
        let state = structure.fields().into_iter().find(|entry| entry.field == qpc::STATE).unwrap();
        assert_eq!((state.value, state.meaning), (FieldValue::Number(3), Some("RTS")));
        let whole = format!("{structure:#}");
        assert!(whole.contains("\n  next_send_psn = 0"), "{whole}");
    }

    #[test]
    fn too_few_bytes_are_said_to_be_missing() {
        let text = show(&cqc::LAYOUT, &[0; 4]);
        assert!(text.contains("st = 0") || text.contains("cqe_sz = 0 (64 bytes)"), "{text}");
        assert!(text.contains("dbr_addr is missing"), "{text}");
    }

    #[test]
    fn every_layout_prints_whatever_its_bytes_are() {
        for layout in layouts() {
            for length in [0, layout.size / 2, layout.size, layout.size + 64] {
                for byte in [0, 0xff, 0x5a] {
                    let bytes = vec![byte; length];
                    let text = format!("{:#}", Structure { layout, bytes: &bytes });
                    assert!(text.starts_with(layout.name));
                }
            }
        }
    }
}
