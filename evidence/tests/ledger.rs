//! The ledger's own rules.

use std::fs;

use mlx5_diag::explain::command;
use mlx5_evidence::{Expectations, Ledger, Table, folder};

#[test]
fn the_ledger_keeps_its_rules() {
    let ledger = Ledger::read(&folder()).unwrap();
    assert!(ledger.facts().count() >= 392);
    for fact in ledger.facts() {
        let (letter, digits) = fact.id.split_at(1);
        assert!(letter.chars().all(char::is_uppercase), "{}", fact.id);
        assert!(digits.len() == 3 && digits.parse::<u32>().is_ok(), "{}", fact.id);
        assert!(!fact.claim.ends_with('.') && !fact.source.is_empty(), "{}", fact.id);
    }
}

/// Running them takes a build of other packages; that they are there is seen in their sources.
#[test]
fn each_named_test_exists() {
    let ledger = Ledger::read(&folder()).unwrap();
    for test in ledger.facts().flat_map(|fact| &fact.tests) {
        let place = match (&*test.package, &*test.target) {
            ("mlx5", "lib") => "src".to_owned(),
            ("mlx5", target) => format!("tests/{target}"),
            (package, target) => {
                let package = match package {
                    "mlx5-model-pci" => "pci",
                    _ => package.strip_prefix("mlx5-").unwrap_or(package),
                };
                let kind =
                    if target == "lib" { "src".to_owned() } else { format!("tests/{target}") };
                format!("{package}/{kind}")
            }
        };
        let place = folder().join("..").join(place);
        let function = test.name.rsplit("::").next().unwrap_or_default();
        let needle = format!("fn {function}(");
        let file = place.with_extension("rs");
        let found = contains(&file, &needle) || contains(&place, &needle);
        assert!(found, "{test:?}: no `{needle}` in {}", place.display());
    }
}

#[test]
fn questions_to_devices_ask_about_facts_of_the_ledger() {
    let ledger = Ledger::read(&folder()).unwrap();
    let expectations = Expectations::read();
    for expected in expectations.all() {
        let known = ledger.facts().any(|fact| fact.id == expected.fact);
        assert!(known, "{}: there is no fact {}", expected.question, expected.fact);
        assert!(!expected.values.is_empty(), "{}: no expectation", expected.question);
    }
}

/// Those that were met without a command, and those of a document that nobody trusts, are left out.
#[test]
fn every_syndrome_with_a_command_is_explained() {
    let mut explained = 0;
    for row in Table::read("command-syndromes").rows() {
        if row.text("opcode").is_empty() || row.text("established_how") == "not trusted" {
            continue;
        }
        let syndrome = row.hex("syndrome").expect("a number");
        let entry = command::syndrome(syndrome);
        let entry = entry.unwrap_or_else(|| panic!("{syndrome:#x} is not explained"));
        let opcodes = row.text("opcode").split('/');
        let mut opcodes = opcodes.filter_map(|text| text.strip_prefix("0x")).map(|digits| {
            u16::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{syndrome:#x}: {digits}"))
        });
        assert!(opcodes.any(|opcode| opcode == entry.opcode), "{syndrome:#x}: {:#x}", entry.opcode);
        explained += 1;
    }
    assert!(explained >= 70, "{explained}");
}

/// Whether a file, or one below a folder, has this text.
fn contains(place: &std::path::Path, needle: &str) -> bool {
    match fs::read_dir(place) {
        Ok(entries) => entries.flatten().any(|entry| contains(&entry.path(), needle)),
        Err(_) => fs::read_to_string(place).is_ok_and(|text| text.contains(needle)),
    }
}
