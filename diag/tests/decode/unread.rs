//! Texts that were searched for, and measured, when the code was frozen: docs/testing.md.

use mlx5_diag::decode::{self, DecodedRecord, Options};

/// Texts, each behind a line "@ source" and, if the source tells the cause, "= words of the cause".
const TEXTS: &str = include_str!("unread.txt");

/// A message, and what its source says.
struct Text<'a> {
    source: &'a str,
    causes: Vec<&'a str>,
    message: &'a str,
}

fn texts() -> Vec<Text<'static>> {
    let part = |part: &'static str| {
        let (source, rest) = part.split_once('\n').expect("a source and a message");
        let (causes, message) = match rest.strip_prefix("= ") {
            Some(rest) => rest.split_once('\n').expect("a cause and a message"),
            None => ("", rest),
        };
        let causes = causes.split(" | ").filter(|cause| !cause.is_empty()).collect();
        Text { source, causes, message: message.trim_end_matches('\n') }
    };
    TEXTS.strip_prefix("@ ").expect("a source").split("\n@ ").map(part).collect()
}

/// Returns whether one of the first two causes of a record is that of the source.
fn is_named(text: &Text<'_>, records: &[DecodedRecord]) -> bool {
    let findings = records.iter().flat_map(|record| &record.findings);
    let first = findings.filter(|finding| !finding.causes.is_empty());
    let causes = first.flat_map(|finding| finding.causes.iter().take(2));
    causes.into_iter().any(|likely| text.causes.iter().any(|told| likely.cause.contains(told)))
}

#[test]
fn as_many_are_recognised_and_named_as_the_documentation_says() {
    let (mut unknown, mut unnamed) = (Vec::new(), Vec::new());
    let texts = texts();
    for text in &texts {
        let records = decode::text(text.message, Options::default());
        if records.is_empty() {
            unknown.push(text.source);
        } else if !text.causes.is_empty() && !is_named(text, &records) {
            unnamed.push(text.source);
        }
    }
    let told = texts.iter().filter(|text| !text.causes.is_empty()).count();
    assert_eq!((texts.len(), told), (40, 20));
    assert_eq!((unknown.len(), unnamed.len()), (0, 8), "{unknown:#?}\n{unnamed:#?}");
}
