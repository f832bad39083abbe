//! Commands, replies and contexts as text.

use core::fmt;

use mlx5_sys::ifc::{Field, Layout};

use super::{Hex, words};

/// A structure of the card's, by the names of its fields: a command, a reply, or a context.
///
/// A line each, those of nested structures with the name of that before. Values that are enumerated
/// come with their meaning. Fields that are zero are left out unless they mean something; the
/// alternate form (`{:#}`) has them all. What the bytes are too short for is said to be missing.
#[derive(Clone, Copy, Debug)]
pub struct Structure<'a> {
    /// What it is.
    pub layout: &'static Layout,
    /// Its bytes, big-endian.
    pub bytes: &'a [u8],
}

impl fmt::Display for Structure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.layout.name)?;
        self.members(f, self.layout, None)
    }
}

impl Structure<'_> {
    /// The fields of a structure that lies at `outer` in this one.
    fn members(
        &self,
        f: &mut fmt::Formatter<'_>,
        layout: &'static Layout,
        outer: Option<Field>,
    ) -> fmt::Result {
        for member in layout.members {
            let name = member.field.name().unwrap_or_default();
            // Lists of open length lie behind their structure: in another, that is something else.
            let end = member.field.bit_offset() + member.field.width();
            if outer.is_some_and(|outer| end > outer.width()) {
                continue;
            }
            let field = outer.map_or(member.field, |outer| member.field.within(outer));
            match member.nested {
                Some(nested) => self.members(f, nested, Some(field))?,
                None => self.field(f, layout, name, field)?,
            }
        }
        Ok(())
    }

    fn field(
        &self,
        f: &mut fmt::Formatter<'_>,
        layout: &Layout,
        name: &str,
        field: Field,
    ) -> fmt::Result {
        let end = field.bit_offset() + field.width();
        if end > self.bytes.len() * 8 {
            // A list of open length may be empty.
            if end > self.layout.size * 8 {
                return Ok(());
            }
            return write!(f, "\n  {} is missing", field.path());
        }
        if field.width() > 64 && (field.bit_offset() % 8 != 0 || field.width() % 8 != 0) {
            let words = || field.words().map(|word| word.get(self.bytes));
            if f.alternate() || words().any(|word| word != 0) {
                write!(f, "\n  {} =", field.path())?;
                for word in words() {
                    write!(f, " {word:#x}")?;
                }
            }
            return Ok(());
        }
        if field.width() > 64 {
            let bytes = &self.bytes[field.bytes()];
            if f.alternate() || bytes.iter().any(|byte| *byte != 0) {
                write!(f, "\n  {} = {}", field.path(), Hex(bytes))?;
            }
            return Ok(());
        }
        let value = field.get(self.bytes);
        let word = words::of(layout, name, value);
        if value == 0 && word.is_none() && !f.alternate() {
            return Ok(());
        }
        write!(f, "\n  {} = ", field.path())?;
        match value {
            0..=9 => write!(f, "{value}")?,
            _ => write!(f, "{value:#x}")?,
        }
        match word {
            Some(word) => write!(f, " ({word})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{LAYOUTS, ads, cqc, qpc};

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
        let whole = format!("{:#}", Structure { layout: &qpc::LAYOUT, bytes: &bytes });
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
        for layout in LAYOUTS.iter().flat_map(|(_, layouts)| layouts.iter()) {
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
