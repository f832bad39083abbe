//! Tests of the reader of paths and of the check.

use super::*;

const ORDER: Order = Order {
    package: "made-up",
    folder: "src",
    inside: &[],
    modules: &[("low", "first"), ("middle", "second"), ("high", "third")],
};
const ROOT: (&str, &str) = ("src/lib.rs", "mod high;\nmod low;\npub mod middle;\n");

fn uses(files: &[(&str, &str)]) -> Uses {
    let files: Vec<(String, String)> =
        files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    Uses::of("src", &[], &files)
}

/// Returns the violations in a crate with the usual root and these files.
fn broken(files: &[(&str, &str)]) -> Vec<String> {
    uses(&[&[ROOT], files].concat()).against(&ORDER)
}

/// Returns the modules that `low` uses if it has this text.
fn used(text: &str) -> Vec<(String, usize)> {
    let found = uses(&[ROOT, ("src/low/mod.rs", text)]);
    let lines = |places: BTreeSet<Place>| places.into_iter().map(|place| place.line);
    found
        .edges
        .into_iter()
        .flat_map(|((_, used), places)| lines(places).map(move |line| (used.clone(), line)))
        .collect()
}

fn both(line: usize) -> Vec<(String, usize)> {
    vec![("high".to_owned(), line), ("middle".to_owned(), line)]
}

#[test]
fn a_use_of_lower_modules_is_in_order() {
    let files = [
        ("src/low.rs", "use std::fmt;\n"),
        ("src/middle/mod.rs", "use crate::low::A;\n"),
        ("src/high.rs", "use crate::{low, middle};\nfn f() { crate::middle::g() }\n"),
    ];
    assert_eq!(broken(&files), [""; 0]);
}

#[test]
fn an_upward_use_names_place_modules_and_cure() {
    let found = broken(&[("src/low/inner.rs", "//! Text.\n\nuse crate::high::A;\n")]);
    assert_eq!(
        found,
        ["src/low/inner.rs:3: `low` uses `high`, which stands above it; move what is used down \
          to `low` or below, or this code up to `high`"]
    );
}

#[test]
fn a_cycle_is_shown_from_the_upward_use_round() {
    let files = [
        ("src/low.rs", "use crate::high::A;\n"),
        ("src/middle.rs", "use crate::low::B;\n"),
        ("src/high.rs", "use crate::middle::C;\n"),
    ];
    let found = broken(&files);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("src/low.rs:1: `low` uses `high`"), "{found:?}");
    assert!(found[0].contains("`low` → `high` → `middle` → `low`"), "{found:?}");
}

#[test]
fn modules_without_a_place_and_places_without_a_module_are_errors() {
    let found = uses(&[("src/lib.rs", "mod low;\n\nmod new;\nmod high;\n")]).against(&ORDER);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("src/lib.rs:3: module `new` has no place"), "{found:?}");
    assert!(found[1].contains("names `middle`"), "{found:?}");
    // A cycle by such a module is one without a place for it.
    let root = ("src/lib.rs", "mod low;\nmod middle;\nmod high;\nmod new { use crate::low; }\n");
    let found = uses(&[root, ("src/low.rs", "use crate::new;\n")]).against(&ORDER);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn an_upward_use_between_modules_of_a_module_is_reported() {
    const INSIDE: &[&str] = &["middle", "large"];
    let order = Order { inside: INSIDE, ..ORDER };
    let files = [
        ("src/lib.rs", "mod low;\nmod middle;\nmod high;\n"),
        ("src/middle/mod.rs", "mod large;\n"),
        // As in a crate's root: names of modules, and any use of them.
        ("src/middle/large/mod.rs", "mod low;\nmod middle;\nmod high;\npub use high::A;\n"),
        ("src/middle/large/low.rs", "use crate::high::A;\nuse super::super::other::B;\n"),
        (
            "src/middle/large/middle/inner.rs",
            "use super::super::low::A;\nuse crate::middle::{self, large::{low, high::{B, C}}};\n",
        ),
        (
            "src/middle/large/high/mod.rs",
            "use super::{low, middle};\nmod tests { use super::A; }\n",
        ),
        // What stands elsewhere in the crate is not held to this order.
        ("src/low.rs", "use crate::middle::large::high::A;\n"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let found = Uses::of("src", INSIDE, &files).against(&order);
    assert_eq!(found.len(), 1, "{found:?}");
    let place = "src/middle/large/middle/inner.rs:2: `middle` uses `high`, which stands above it";
    assert!(found[0].starts_with(place), "{found:?}");
    // The name of an order says which module it is of.
    assert_eq!(order.name(), "made-up::middle::large");
}

#[test]
fn groups_are_taken_apart() {
    assert_eq!(used("use crate::{high, low::A, middle::{B, c::*}};\n"), both(1));
    assert_eq!(used("use crate::{self as root, low::{high::X}};\n"), []);
    assert_eq!(used("use crate::{\n    low::{A, b::C as D},\n    high,\n};\n")[0].1, 3);
    assert_eq!(used("pub(crate) use {crate::high::A, std::fmt, crate::middle};\n"), both(1));
}

#[test]
fn super_counts_where_it_leaves_the_module() {
    assert_eq!(used("use super::{high, middle::A};\n"), both(1));
    assert_eq!(used("use self::high::A;\nuse super::low::high;\n"), []);
    assert_eq!(used("mod inner {\n    use super::high;\n}\nuse super::middle;\n").len(), 1);
    assert_eq!(
        used("mod a {\n    mod b { fn f() { super::super::super::high::g() } }\n}\n").len(),
        1
    );
    let deep = ("src/low/a/b.rs", "use super::{high, super::{high::X, super::high}};\n");
    let found = uses(&[ROOT, deep]);
    let edge = ("low".to_owned(), "high".to_owned());
    assert_eq!(found.edges.into_keys().collect::<Vec<_>>(), [edge]);
    let inside = ("src/low/a/b.rs", "use super::super::high;\n");
    assert!(uses(&[ROOT, inside]).edges.is_empty());
}

#[test]
fn macros_use_what_they_name_and_visibility_uses_nothing() {
    let text = "macro_rules! m { ($($x:tt)*) => { $crate::high::f!($($x)*, $crate::middle::C) } }";
    assert_eq!(used(text), both(1));
    assert_eq!(used("pub(in crate::high) struct A;\npub(crate) struct B;\n"), []);
    assert_eq!(used("fn f(a: crate::high::A) -> crate::middle::B {}\n"), both(1));
}

#[test]
fn names_that_the_root_takes_from_a_module_stand_for_it() {
    let root = "mod low;\nmod middle;\nmod high;\npub use high::{a::{B, C as D}, E};\npub use crate::middle::F;\n";
    for (name, module) in [("B", "high"), ("D", "high"), ("E", "high"), ("F", "middle")] {
        let text = format!("use crate::{name};\n");
        let found = uses(&[("src/lib.rs", root), ("src/low.rs", &text)]);
        let edges: Vec<_> = found.edges.into_keys().collect();
        assert_eq!(edges, [("low".to_owned(), module.to_owned())], "{name}");
    }
    let own = uses(&[("src/lib.rs", root), ("src/low.rs", "use crate::C;\n")]);
    assert!(own.edges.is_empty());
}

#[test]
fn tests_comments_and_texts_use_nothing() {
    for text in [
        "#[cfg(test)]\nmod tests {\n    use crate::high;\n}\n",
        "#[cfg(test)]\n#[allow(unused)]\nuse crate::{high, middle};\n",
        "#[cfg(all(test, feature = \"x\"))]\nfn f<A, B>(a: A) -> crate::high::B { crate::middle::g() }\n",
        "struct S {\n    #[cfg(test)]\n    pub(super) a: Vec<crate::high::A>,\n    b: u8,\n}\n",
        "fn f() { match x {\n    #[cfg(doctest)]\n    A(a) => crate::high::g(a),\n    B => {}\n} }\n",
        "// crate::high::A\n/* a /* b */ crate::high */\n//! [`A`](crate::high::A)\n",
        "const A: &str = \"\\\" crate::high::A\";\nconst B: &str = r#\"\" crate::high \"#;\n",
        "const A: char = '\"';\nconst B: &[u8] = b\"crate::high::A\";\nconst C: u8 = b'\\'';\n",
    ] {
        assert_eq!(used(text), [], "{text}");
    }
    let declared = ("src/low/mod.rs", "#[cfg(test)]\npub(crate) mod checks;\n");
    let inside = ("src/low/checks/deep.rs", "use crate::high;\n");
    assert!(uses(&[ROOT, declared, inside]).edges.is_empty());
}

#[test]
fn what_follows_tests_counts_again() {
    for text in [
        "#[cfg(test)]\nuse crate::low;\nuse crate::{high, middle};\n",
        "#[cfg(test)] mod t { fn f() {} }\n\nuse crate::{high, middle};\n",
        "#[cfg(test)]\nmod tests;\n#[cfg(not(test))] use crate::{high, middle};\n",
        "#[cfg(any(test, feature = \"x\"))]\n\nuse crate::{high, middle};\n",
        "struct S<'a> { a: &'a str }\nconst A: char = '\\'';\nuse crate::{high, middle};\n",
        "enum E {\n    #[cfg(test)] A,\n    B(crate::high::A, crate::middle::B),\n}\n",
    ] {
        let found = used(text);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["high", "middle"], "{text}");
        assert!(found.iter().all(|(_, line)| *line == 3), "{text}: {found:?}");
    }
}

#[test]
fn every_place_has_a_reason_and_every_checked_package_an_order() {
    for order in ORDERS {
        let names: BTreeSet<&str> = order.modules.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), order.modules.len(), "{}", order.package);
        assert!(order.modules.iter().all(|(_, reason)| !reason.is_empty()));
    }
    for package in CHECKED {
        assert!(ORDERS.iter().any(|order| order.package == *package), "{package}");
    }
}

/// Returns the names in backquotes of a cell, without slashes at their ends.
fn names(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.map(|name| name.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn the_pages_have_the_modules_in_their_order() {
    let page = |path: &str| fs::read_to_string(build::root().join(path)).unwrap();
    let architecture = page("docs/architecture.md");
    let architecture = architecture.split("\n| crate | modules, lowest first |\n").nth(1).unwrap();
    for order in ORDERS.iter().filter(|order| order.inside.is_empty()) {
        let start = format!("| `{}` | ", order.package);
        let row = architecture.lines().find_map(|line| line.strip_prefix(&start));
        let row = row.unwrap_or_else(|| panic!("docs/architecture.md has no row of {start}"));
        let listed = names(row.split(['(', '|']).next().unwrap());
        let modules: Vec<&str> = order.modules.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, modules, "docs/architecture.md, the row of {}", order.package);
    }
    for (path, folder, heading) in [
        ("docs/architecture.md", "src/ring", "\n### The modules of the rings\n"),
        ("docs/model.md", "model/src", "\n## Modules, lowest first\n"),
        ("docs/model.md", "model/src/frontend/uverbs", "\n### The kernel's verbs interface\n"),
    ] {
        let order = ORDERS.iter().find(|order| folder_of(order) == folder).unwrap();
        let page = page(path);
        let rows = page.split(heading).nth(1).unwrap().lines();
        let rows = rows.skip_while(|line| !line.starts_with("|---")).skip(1);
        let mut listed: Vec<String> = rows
            .take_while(|line| line.starts_with('|'))
            .flat_map(|row| names(row.split('|').nth(1).unwrap()))
            .map(|name| name.split('/').next().unwrap().to_owned())
            .collect();
        listed.dedup();
        let modules: Vec<&str> = order.modules.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, modules, "{path}, behind {heading}");
    }
}

fn folder_of(order: &Order) -> String {
    [&[order.folder], order.inside].concat().join("/")
}
