//! What bindings of one version say that those of a newer version do not.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::{Attribute, Field, Fields, ImplItem, Item, Signature, Type, Visibility};

use crate::listing::Listing;

/// Functions that newer headers declare no more, and newer libraries still have.
///
/// `mlx5dv_create_flow` is a macro since rdma-core 65. It calls a function that is told the size of an
/// action, because actions have grown. The old function takes actions of the old size.
const WITHDRAWN: &[&str] = &["mlx5dv_create_flow"];

/// Structures that grow at their start. A size inside of them says how far they reach.
const GROW_AT_START: &[&str] = &["verbs_context"];

/// Returns a sentence for each item of `older` that `newer` does not have, or has otherwise.
pub fn differences(older: &Listing, newer: &Listing) -> Vec<String> {
    let mut differences = functions(&older.functions, &newer.functions);
    let theirs = by_name(&newer.items);
    let mut grown = BTreeSet::new();
    for (name, ours) in by_name(&older.items) {
        match theirs.get(&name) {
            None => differences.push(format!("the newer version has no {name}")),
            Some(theirs) => match item(&name, ours, theirs) {
                Same::Yes => {}
                Same::Grown => _ = grown.insert(name),
                Same::No(difference) => differences.push(difference),
            },
        }
    }
    differences.extend(moved(&older.items, grown));
    differences
}

/// Whether an item is the same in the newer version.
enum Same {
    Yes,
    /// A structure or union that has further fields.
    Grown,
    No(String),
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

fn functions(older: &[Signature], newer: &[Signature]) -> Vec<String> {
    let theirs: BTreeMap<_, _> = newer.iter().map(|it| (it.ident.to_string(), it)).collect();
    let mut differences = Vec::new();
    for ours in older {
        let name = ours.ident.to_string();
        match theirs.get(&name) {
            None if WITHDRAWN.contains(&name.as_str()) => {}
            None => differences.push(format!("the newer version has no function {name}")),
            Some(theirs) if !same_types(ours, theirs) => {
                differences.push(format!(
                    "{}\n  is in the newer version {}",
                    text(ours),
                    text(theirs)
                ));
            }
            Some(_) => {}
        }
    }
    differences
}

/// Whether two functions have the same types. Names of arguments may differ.
fn same_types(ours: &Signature, theirs: &Signature) -> bool {
    let types = |function: &Signature| -> Vec<String> {
        let arguments = function.inputs.iter().map(|argument| match argument {
            syn::FnArg::Typed(argument) => text(&argument.ty),
            syn::FnArg::Receiver(_) => panic!("C has no methods"),
        });
        arguments.chain([text(&function.output)]).collect()
    };
    types(ours) == types(theirs)
}

/// Items by name. Traits are implemented as bindgen is told to, and say nothing of a header.
fn by_name(items: &[Item]) -> BTreeMap<String, &Item> {
    items.iter().filter_map(|item| Some((name(item)?, item))).collect()
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Mod(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        Item::Impl(block) if block.trait_.is_none() => {
            format!("constants of {}", text(&block.self_ty))
        }
        _ => return None,
    })
}

fn item(name: &str, ours: &Item, theirs: &Item) -> Same {
    match (ours, theirs) {
        (Item::Struct(ours), Item::Struct(theirs)) => {
            let reprs = (reprs(&ours.attrs), reprs(&theirs.attrs));
            fields(name, reprs, &ours.fields, &theirs.fields)
        }
        (Item::Union(ours), Item::Union(theirs)) => {
            let reprs = (reprs(&ours.attrs), reprs(&theirs.attrs));
            let (ours, theirs) = (ours.fields.clone(), theirs.fields.clone());
            fields(name, reprs, &Fields::Named(ours), &Fields::Named(theirs))
        }
        _ => subset(name, &parts(ours), &parts(theirs)),
    }
}

/// Attributes that change a layout.
fn reprs(attributes: &[Attribute]) -> Vec<String> {
    attributes.iter().filter(|it| it.path().is_ident("repr")).map(text).collect()
}

/// The parts of an item without fields, each as a text: constants, variants, the item itself.
fn parts(item: &Item) -> Vec<String> {
    match item {
        Item::Enum(item) => item.variants.iter().map(text).chain(reprs(&item.attrs)).collect(),
        Item::Mod(item) => {
            let items = item.content.iter().flat_map(|(_, items)| items);
            items.filter(|item| !matches!(item, Item::Use(_))).map(text).collect()
        }
        Item::Impl(block) => {
            let constants = block.items.iter().filter(|it| matches!(it, ImplItem::Const(_)));
            constants.map(text).collect()
        }
        item => vec![text(item)],
    }
}

fn subset(name: &str, ours: &[String], theirs: &[String]) -> Same {
    match ours.iter().find(|part| !theirs.contains(part)) {
        None => Same::Yes,
        Some(missing) => Same::No(format!("{name}: the newer version has no `{missing}`")),
    }
}

fn fields(name: &str, reprs: (Vec<String>, Vec<String>), ours: &Fields, theirs: &Fields) -> Same {
    if reprs.0 != reprs.1 {
        return Same::No(format!("{name}: {:?} is in the newer version {:?}", reprs.0, reprs.1));
    }
    let list = |fields: &Fields| -> Vec<String> {
        fields
            .iter()
            .map(|field| Field { attrs: Vec::new(), vis: Visibility::Inherited, ..field.clone() })
            .map(|field| text(&field))
            .collect()
    };
    let (ours, theirs) = (list(ours), list(theirs));
    let extends = if GROW_AT_START.contains(&name) {
        theirs.ends_with(&ours)
    } else {
        theirs.starts_with(&ours)
    };
    match extends {
        true if ours.len() == theirs.len() => Same::Yes,
        true => Same::Grown,
        false => Same::No(format!("{name}: {ours:?}\n  is in the newer version {theirs:?}")),
    }
}

/// Fields that hold a type that has grown, and do not point to it: what follows lies elsewhere.
fn moved(items: &[Item], mut grown: BTreeSet<String>) -> Vec<String> {
    // A type that holds one of these at its end has grown itself.
    while let Some(name) = items
        .iter()
        .filter(|item| grows(item, &grown))
        .find_map(|item| name(item).filter(|name| !grown.contains(name)))
    {
        grown.insert(name);
    }
    items.iter().flat_map(|item| moved_in(item, &grown)).collect()
}

/// Whether a type ends with one that has grown. All members of a union do.
fn grows(item: &Item, grown: &BTreeSet<String>) -> bool {
    let has_grown = |field: &Field| grown.contains(&held(&field.ty));
    match item {
        Item::Struct(item) => item.fields.iter().next_back().is_some_and(has_grown),
        Item::Union(item) => item.fields.named.iter().any(has_grown),
        _ => false,
    }
}

/// The fields of a structure that stand behind one that has grown.
fn moved_in(item: &Item, grown: &BTreeSet<String>) -> Vec<String> {
    let Item::Struct(item) = item else { return Vec::new() };
    let fields: Vec<&Field> = item.fields.iter().collect();
    let before_last = fields.split_last().map_or(&[][..], |(_, others)| others);
    let has_grown = |field: &&&Field| grown.contains(&held(&field.ty));
    let sentence = |field: &&Field| format!("{} has grown inside: {}", item.ident, text(field));
    before_last.iter().filter(has_grown).map(sentence).collect()
}

/// The name of the type that a field holds.
fn held(of: &Type) -> String {
    match of {
        Type::Array(array) => held(&array.elem),
        other => text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "
        pub const FLAG: u32 = 1;
        pub type kind = libc::c_uint;
        #[repr(C)] pub struct inner { pub a: u32 }
        #[repr(C)] pub struct outer { pub inner: inner, pub next: *mut outer }
        #[repr(C)] pub struct last { pub b: u32 }
        #[repr(C)] pub struct member { pub c: u32 }
        #[repr(C)] pub union members { pub one: u32, pub other: member, pub third: u32 }
        #[repr(C)] pub struct ends { pub next: *mut ends, pub last: last }
        #[repr(C)] pub struct verbs_context { pub sz: usize }
        #[repr(u32)] pub enum event { ONE = 1 }
        pub mod state { pub type Type = libc::c_uint; pub const UP: Type = 1; }
        impl flags { pub const RED: flags = flags(1); }
        unsafe extern \"C\" { pub fn ibv_call(first: *mut outer) -> libc::c_int; }
    ";

    /// The differences if one text of the newer version is another.
    fn with(from: &str, to: &str) -> Vec<String> {
        assert!(LISTED.contains(from), "{from}");
        let header = Listing::of_bindgen(&LISTED.replace(from, to));
        differences(&Listing::of_bindgen(LISTED), &header)
    }

    #[test]
    fn a_version_that_has_more_is_not_different() {
        for (from, to) in [
            ("FLAG: u32 = 1;", "FLAG: u32 = 1; pub const NEW: u32 = 2;"),
            ("next: *mut outer", "next: *mut outer, pub new: u32"),
            ("pub sz: usize", "pub new: u32, pub sz: usize"),
            ("pub b: u32", "pub b: u32, pub grown: u32"),
            ("pub c: u32", "pub c: u32, pub grown: u32"),
            ("ONE = 1", "ONE = 1, TWO = 2"),
            ("UP: Type = 1;", "UP: Type = 1; pub const DOWN: Type = 2;"),
            ("RED: flags = flags(1);", "RED: flags = flags(1); pub const NEW: flags = flags(2);"),
            ("first: *mut outer", "renamed: *mut outer"),
        ] {
            assert_eq!(with(from, to), [""; 0], "{to}");
        }
    }

    #[test]
    fn each_other_change_is_a_difference() {
        for (from, to) in [
            ("FLAG: u32 = 1", "FLAG: u32 = 2"),
            ("kind = libc::c_uint", "kind = libc::c_int"),
            ("#[repr(C)] pub struct outer", "#[repr(C, packed)] pub struct outer"),
            ("pub inner: inner, pub next: *mut outer", "pub next: *mut outer, pub inner: inner"),
            ("pub next: *mut ends, pub last: last", "pub last: last"),
            ("next: *mut outer", "next: u64"),
            ("pub a: u32", "pub a: u32, pub grown: u32"),
            ("pub sz: usize", "pub sz: usize, pub new: u32"),
            ("ONE = 1", "ONE = 2"),
            ("UP: Type = 1", "UP: Type = 3"),
            ("RED: flags = flags(1)", "RED: flags = flags(4)"),
            ("first: *mut outer", "first: *const outer"),
            ("-> libc::c_int", ""),
            ("pub fn ibv_call", "pub fn ibv_other"),
            ("pub const FLAG: u32 = 1;", ""),
        ] {
            assert_eq!(with(from, to).len(), 1, "{to}");
        }
    }
}
