//! Each file, case and fact that docs/assumptions.md names exists.

use std::collections::BTreeSet;
use std::path::Path;

use mlx5_conformance::all;

/// The words in backquotes of a cell.
fn words(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The ids of facts in a text: a capital letter and three digits.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| {
        let (letter, digits) = word.split_at(word.len().min(1));
        letter.chars().all(|letter| letter.is_ascii_uppercase())
            && digits.len() == 3
            && digits.chars().all(|digit| digit.is_ascii_digit())
    })
}

/// The ids of all facts of the ledger.
fn facts(root: &Path) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for entry in std::fs::read_dir(root.join("evidence/facts")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("id = "));
        facts.extend(lines.map(|id| id.trim_matches('"').to_owned()));
    }
    facts
}

#[test]
fn ids_of_facts_are_found_in_prose() {
    let found: Vec<&str> = ids("E001, F023: ConnectX-6 (E12). 2XYZ E0012 e003 A999.").collect();
    assert_eq!(found, ["E001", "F023", "A999"]);
}

#[test]
fn files_cases_and_facts_that_assumptions_name_exist() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let page = std::fs::read_to_string(root.join("docs/assumptions.md")).unwrap();
    let known: BTreeSet<&str> = all().map(|case| case.name).collect();
    let facts = facts(root);
    assert!(facts.len() > 300, "{} facts", facts.len());
    let mut rows = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| belief"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [_, why, code, cases, seen] = cells[..] else { panic!("not five cells: {line}") };
        for fact in ids(why).chain(ids(seen)) {
            assert!(facts.contains(fact), "there is no fact {fact}: {line}");
        }
        let is_seen = ids(seen).next().is_some();
        assert!(is_seen || seen.trim() == "nobody yet", "neither a fact nor nobody: {line}");
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
