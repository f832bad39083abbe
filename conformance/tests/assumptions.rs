//! Each file and each case that docs/assumptions.md names exists.

use std::collections::BTreeSet;
use std::path::Path;

use mlx5_conformance::all;

/// The words in backquotes of a cell.
fn words(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn files_and_cases_that_assumptions_name_exist() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let page = std::fs::read_to_string(root.join("docs/assumptions.md")).unwrap();
    let known: BTreeSet<&str> = all().map(|case| case.name).collect();
    let mut rows = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| belief"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [_, _, code, cases] = cells[..] else { panic!("not four cells: {line}") };
        assert!(words(code).next().is_some(), "no code: {line}");
        for file in words(code) {
            assert!(root.join(file).is_file(), "{file} does not exist: {line}");
        }
        for case in words(cases) {
            assert!(known.contains(case), "there is no case {case}: {line}");
        }
        let open = words(cases).next().is_none();
        assert_eq!(open, cases.trim() == "–", "neither a case nor none: {line}");
        rows += 1;
    }
    assert!(rows > 20, "{rows} rows");
}

#[test]
fn names_of_cases_are_a_group_and_a_word_and_no_two_are_equal() {
    let mut seen = BTreeSet::new();
    for case in all() {
        assert!(seen.insert(case.name), "{} twice", case.name);
        assert!(
            case.name.contains('.') && case.shows.ends_with('.'),
            "{}: {}",
            case.name,
            case.shows
        );
    }
}
