//! Every layout of commands and contexts against what others have: the kernel's header, and the
//! structures of rdma-core's own tests.
//!
//! The header is Linux's (`linux/mlx5/mlx5_ifc.h`); a field that only later ones have is held to
//! rdma-core's structures, or is listed here with its source.

mod beyond;
mod header;
mod python;

use std::collections::BTreeSet;

use mlx5_sys::ifc::{Field, LAYOUTS, Layout, opcode, status};

use beyond::{FIELDS, LAYOUTS_OF_OTHERS, SHORT_FORMS};
use header::Header;

/// Returns whether the field is a command's user context. Linux writes it to the same bits of all
/// commands.
fn is_uid(field: Field) -> bool {
    field.name() == Some("UID") && (field.bit_offset(), field.width()) == (16, 16)
}

fn layouts() -> impl Iterator<Item = &'static Layout> {
    LAYOUTS.iter().flat_map(|(_, layouts)| layouts.iter())
}

fn beyond(layout: &Layout, field: Field) -> bool {
    FIELDS.iter().any(|(of, name, _)| *of == layout.name && Some(*name) == field.name())
}

fn is_short(layout: &Layout, field: Field) -> bool {
    SHORT_FORMS.iter().any(|(of, name)| *of == layout.name && Some(*name) == field.name())
}

#[test]
fn layouts_are_those_of_the_kernels_header() {
    let header = Header::installed();
    let python = python::structures();
    let (mut wrong, mut fields, mut unseen) = (Vec::new(), 0, 0);
    for layout in layouts() {
        let Some(theirs) = header.structure(layout.name) else {
            let known = LAYOUTS_OF_OTHERS.iter().any(|(name, _)| *name == layout.name)
                || python.contains_key(layout.name);
            if !known && header.is_oldest() {
                wrong.push(format!("{} is in neither header nor list", layout.name));
            }
            continue;
        };
        if theirs.bits != layout.size * 8 && header.is_oldest() {
            wrong.push(format!(
                "{} has {:#x} bytes, not {:#x}",
                layout.name,
                theirs.bits / 8,
                layout.size
            ));
        }
        for member in layout.members {
            let field = member.field;
            let name = field.name().expect("fields of layouts have names").to_lowercase();
            fields += 1;
            match theirs.fields.get(&name) {
                Some(place) if place.is(field) => {}
                Some(place) if is_short(layout, field) && place.bit == field.bit_offset() => {}
                Some(place) => {
                    wrong.push(format!("{}.{name}: {field:?} is {place:?}", layout.name))
                }
                None if is_uid(field) || beyond(layout, field) => {}
                None if theirs.has_halves(&name, field) => {}
                None if python.get(layout.name).is_some_and(|p| p.contains_key(&name)) => {}
                // Later headers call some of them otherwise.
                None if !header.is_oldest() => unseen += 1,
                None => wrong.push(format!("{}.{name} is in neither header nor list", layout.name)),
            }
            if let Some(nested) = member.nested {
                if nested.size * 8 != field.width() {
                    wrong.push(format!("{}.{name} is no {}", layout.name, nested.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", header.path.display());
    assert!(fields > 1000 && unseen * 20 < fields, "{unseen} of {fields} fields were not found");
}

#[test]
fn layouts_are_those_of_rdma_cores_tests() {
    let python = python::structures();
    let (mut wrong, mut compared) = (Vec::new(), BTreeSet::new());
    for layout in layouts() {
        let Some(theirs) = python.get(layout.name) else { continue };
        for field in layout.members.iter().map(|member| member.field) {
            let name = field.name().expect("fields of layouts have names").to_lowercase();
            let Some(place) = theirs.get(&name) else { continue };
            compared.insert((layout.name, name.clone()));
            let mistaken =
                python::MISTAKEN.iter().any(|(of, which, _)| *of == layout.name && *which == name);
            if place.is(field) == mistaken {
                wrong.push(format!("{}.{name}: {field:?} is {place:?}", layout.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared.len() > 500, "{} fields were compared", compared.len());
}

#[test]
fn opcodes_are_those_of_the_kernels_header() {
    let header = Header::installed();
    let mut seen = 0;
    for (name, value) in header.constants("MLX5_CMD_OP_") {
        // Bounds of a range, and two that have other names in commands.
        let other = match name.as_str() {
            "GENERAL_START" | "GENERAL_END" | "MAX" => continue,
            "2ERR_QP" => "QP_2ERR",
            "2RST_QP" => "QP_2RST",
            other => other,
        };
        if let Some(ours) = opcode::name(value as u16) {
            assert_eq!(ours, other, "{value:#x}");
            seen += 1;
        } else {
            assert!(!header.is_oldest(), "{name} = {value:#x} has no name here");
        }
    }
    assert!(seen > 150, "{seen} opcodes");
}

/// Statuses of newer kernels' headers, with their source.
const LATER_STATUSES: [(&str, u64, &str); 1] =
    [("NOT_READY", 7, "Linux's include/linux/mlx5/device.h, after 6.1")];

#[test]
fn statuses_are_those_of_the_kernels_header() {
    let header = Header::installed();
    let theirs: BTreeSet<(String, u64)> = header.constants("MLX5_CMD_STAT_").collect();
    let ours: BTreeSet<(String, u64)> = status::STATUSES
        .iter()
        .map(|(name, value)| ((*name).to_owned(), u64::from(*value)))
        .collect();
    let later = LATER_STATUSES.map(|(name, value, source)| {
        assert!(!source.is_empty());
        (name.to_owned(), value)
    });
    let theirs_and_later = theirs.iter().cloned().chain(later.clone()).collect();
    assert_eq!(ours, theirs_and_later);
    if header.is_oldest() {
        assert!(later.iter().all(|status| !theirs.contains(status)), "the header has it");
    }
}

#[test]
fn what_is_listed_is_needed() {
    let header = Header::installed();
    if !header.is_oldest() {
        return;
    }
    for (layout, name, source) in FIELDS {
        assert!(!source.is_empty());
        let ours = layouts().find(|known| known.name == *layout);
        assert!(ours.and_then(|layout| layout.field(name)).is_some(), "no {layout}.{name}");
        let theirs = header.structure(layout).expect("a listed field is of a listed structure");
        assert!(
            !theirs.fields.contains_key(&name.to_lowercase()),
            "{layout}.{name} is in the header"
        );
    }
    for (name, source) in LAYOUTS_OF_OTHERS {
        assert!(!source.is_empty());
        assert!(layouts().any(|known| known.name == *name), "no {name}");
        assert!(header.structure(name).is_none(), "{name} is in the header");
    }
}

#[test]
fn no_layout_is_declared_apart() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ifc");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let listed = LAYOUTS.iter().any(|(file, _)| *file == name);
        assert_eq!(text.contains("\nlayout! {"), listed, "{name} is not in the list of files");
    }
    let mut names = BTreeSet::new();
    for layout in layouts() {
        assert!(names.insert(layout.name), "{} is declared twice", layout.name);
    }
}
