//! docs/evidence.md.

use std::fmt::Write;

use crate::comparison::Comparison;
use crate::expected::{Expectations, Judgement};
use crate::ledger::{Area, Fact, Ledger, Quality, Stance};
use crate::seen::{Device, Seen};

const INTRODUCTION: &str = "\
# Evidence

What others measured on ConnectX devices and published, and whether this project agrees. Nobody has run this project on
a device yet. So these facts rule the software model, the driver's beliefs ([assumptions](assumptions.md)), `diag` and
`doctor`.

`cargo xtask evidence` runs the tests that are named here and writes this page from [`evidence/`](../evidence/README.md).
Tests are given as package, target and name. Quality: A is raw data, many trials, or a confirmation by the vendor. B is
one author, a few trials, or a derived value. C is an anecdote.

- *agrees*: the tests named show it.
- *differs on purpose*, *not modelled*: the reason is given.
- *not compared yet*: nobody has compared.
";

const SEEN: &str = "
## Seen on a device, by others

Owners of devices ran `mlx5 conform --evidence` and published the answers ([how to](card.md#evidence-from-your-device)).
None of these devices is this project's. An answer that contradicts a fact changes nothing by itself: it is listed first.
";

/// Returns the page.
pub fn page(
    ledger: &Ledger,
    comparisons: &[Comparison],
    seen: &[Seen],
    expectations: &Expectations,
) -> String {
    let mut page = INTRODUCTION.to_owned();
    counts(&mut page, ledger);
    answers(&mut page, seen, expectations);
    for area in &ledger.areas {
        facts(&mut page, area);
    }
    if !comparisons.is_empty() {
        page.push_str("\n## Tables beside the model\n");
    }
    for comparison in comparisons {
        let _ = writeln!(page, "\n### {}\n", comparison.name());
        rows(&mut page, comparison);
    }
    page
}

fn counts(page: &mut String, ledger: &Ledger) {
    page.push_str("\n## Counts\n\n| area | facts |");
    for stance in Stance::ALL {
        let _ = write!(page, " {} |", stance.words());
    }
    page.push_str("\n|---|---|---|---|---|---|\n");
    let mut sums = [0; Stance::ALL.len()];
    for area in &ledger.areas {
        let counts = Stance::ALL.map(|stance| area.count(stance));
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
        count(page, &area.name, &counts);
    }
    count(page, "all", &sums);
}

fn count(page: &mut String, name: &str, counts: &[usize]) {
    let _ = write!(page, "| {name} | {} |", counts.iter().sum::<usize>());
    for count in counts {
        let _ = write!(page, " {count} |");
    }
    page.push('\n');
}

fn answers(page: &mut String, seen: &[Seen], expectations: &Expectations) {
    page.push_str(SEEN);
    if seen.is_empty() {
        page.push_str("\nNobody has sent any yet.\n");
        return;
    }
    page.push_str("\n| fact | question | seen | the fact says | device | | source |\n");
    page.push_str("|---|---|---|---|---|---|---|\n");
    for judgement in [Judgement::Contradicts, Judgement::Agrees] {
        for file in seen {
            let Device { product, firmware, link, .. } = &file.device;
            let device = format!("{product}, firmware {firmware}, {link:?}");
            let source = file.source.as_deref().unwrap_or_default();
            for (answer, expected, judged) in file.judged(expectations) {
                if judged != judgement {
                    continue;
                }
                let cells = [
                    &answer.fact,
                    &answer.question,
                    &format!("{} ({})", answer.seen, answer.unit.name()),
                    &expected.values,
                    &device,
                    judgement.words(),
                    source,
                ];
                page.push('|');
                for text in cells {
                    let _ = write!(page, " {} |", cell(text));
                }
                page.push('\n');
            }
        }
    }
}

fn facts(page: &mut String, area: &Area) {
    let _ = writeln!(page, "\n## {}\n", area.name);
    page.push_str("| | fact | device | source | here | |\n|---|---|---|---|---|---|\n");
    for fact in &area.facts {
        let Fact { id, claim, device, source, here, .. } = fact;
        let quality = match fact.quality {
            Quality::A => "A",
            Quality::B => "B",
            Quality::C => "C",
        };
        let values = sentence(": ", &fact.values);
        let trials = sentence("; ", &fact.trials);
        let tables: String = fact
            .tables
            .iter()
            .map(|table| format!(" [{table}](../evidence/tables/{table}.csv)"))
            .collect();
        let tests: String = fact
            .tests
            .iter()
            .map(|test| format!(" `{} {} {}`", test.package, test.target, test.name))
            .collect();
        let why = sentence(": ", &fact.why);
        let cells = [
            id.clone(),
            format!("{claim}{values}"),
            format!("{device}{trials}"),
            format!("{quality}: {source}{tables}"),
            format!("{here}{tests}"),
            format!("{}{why}", fact.stance.words()),
        ];
        page.push('|');
        for text in &cells {
            let _ = write!(page, " {} |", cell(text));
        }
        page.push('\n');
    }
}

fn rows(page: &mut String, comparison: &Comparison) {
    for (number, row) in comparison.rows().iter().enumerate() {
        page.push('|');
        for text in row {
            let _ = write!(page, " {} |", cell(text));
        }
        page.push('\n');
        if number == 0 {
            let _ = writeln!(page, "|{}", "---|".repeat(row.len()));
        }
    }
}

/// Returns text behind what introduces it, and nothing for no text.
fn sentence(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}

/// Returns text that does not end a cell, or begin a tag.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_others_are_named_as_such_and_contradictions_come_first() {
        let expectations = Expectations::read();
        let answer = |question: &str, fact: &str, value: u64| {
            format!(
                "[[answer]]\nquestion = \"{question}\"\nfact = \"{fact}\"\nunit = \"count\"\n\
                 seen = [{value}]\n"
            )
        };
        let text = format!(
            "format = 1\nsource = \"somewhere\"\n[device]\nbed = \"device\"\nproduct = \"ConnectX-7\"\n\
             firmware = \"28.39.1002\"\nlink = \"InfiniBand\"\n[system]\nmlx5 = \"0.1.0\"\n{}{}",
            answer("doorbell.late", "E005", 16),
            answer("counter.error", "E047", 2)
        );
        let seen = Seen::parse(text.as_bytes(), &expectations).expect("a file");
        let ledger = Ledger { areas: Vec::new() };
        let shown = page(&ledger, &[], &[seen], &expectations);
        let line = |question: &str| {
            let mut lines = shown.lines().enumerate();
            lines.find(|(_, line)| line.contains(question)).expect("a line")
        };
        let ((first, contradicts), (second, agrees)) =
            (line("counter.error"), line("doorbell.late"));
        assert!(first < second, "{shown}");
        let device = "ConnectX-7, firmware 28.39.1002, InfiniBand";
        assert!(contradicts.contains("[2] (count) | 1 |") && contradicts.contains(device));
        assert!(contradicts.ends_with("| **contradicts** | somewhere |"), "{contradicts}");
        assert!(agrees.ends_with("| agrees | somewhere |"), "{agrees}");
        let none = page(&ledger, &[], &[], &expectations);
        assert!(none.contains("Nobody has sent any yet."), "{none}");
    }
}
