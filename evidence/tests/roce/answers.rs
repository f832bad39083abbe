//! What the model answers to the questions of `mlx5 conform --evidence`.

use std::collections::BTreeSet;
use std::time::Duration;

use mlx5_conformance::evidence::{Unanswered, questions};
use mlx5_conformance::report::Front;
use mlx5_conformance::{Other, Place, Run};
use mlx5_evidence::{Bed, Expectations, Judgement, Ledger, Link, Seen, Stance, folder};

use super::roce;
use rig::process;

/// Other tests would move the counters of the port, so this one has a process of its own.
#[test]
fn answers_of_the_model_are_those_of_the_ledger() {
    roce();
    if process::role().is_none() {
        let mut child = process::child(answers_of_the_model_are_those_of_the_ledger, "alone");
        return process::Peer::start(&mut child).end();
    }
    let profile = mlx5_model::profile().expect("the model");
    let place = Place { device: None, port: 1, gid_index: None };
    let run = Run::new(place, Front::Model(profile), Other::Loopback);
    let mut reasons = Vec::new();
    // Without time, no question is asked whose answer depends on how fast this machine is.
    let asked = run.evidence(Duration::ZERO, |question, why| {
        reasons.extend(why.map(|why| format!("{question}: {why}")));
    });
    let evidence = asked.expect("answers");
    assert!(!evidence.is_of_device());
    let left: Vec<_> =
        evidence.unanswered.iter().filter(|(_, why)| *why != Unanswered::Budget).collect();
    assert!(left.is_empty(), "{reasons:#?}");
    assert!(evidence.answers.len() > 50, "{reasons:#?}");

    let (expectations, ledger) = (Expectations::read(), Ledger::read(&folder()).expect("facts"));
    let seen = Seen::parse(evidence.to_string().as_bytes(), &expectations).expect("a file");
    assert_eq!((seen.device.bed, seen.device.link), (Bed::Model, Link::Ethernet));
    assert_eq!(seen.answers.len(), evidence.answers.len());
    let mut contradictions = Vec::new();
    for (answer, expected, judgement) in seen.judged(&expectations) {
        let fact = ledger.facts().find(|fact| fact.id == answer.fact).expect("a fact");
        if fact.stance == Stance::Agrees && judgement == Judgement::Contradicts {
            contradictions.push(format!("{answer:?}, not {}", expected.values));
        }
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

#[test]
fn the_suite_asks_what_the_table_of_questions_has() {
    let expectations = Expectations::read();
    let table: BTreeSet<(&str, &str)> =
        expectations.all().iter().map(|expected| (&*expected.question, &*expected.fact)).collect();
    let links = [mlx5::verbs::attr::LinkLayer::Ethernet, mlx5::verbs::attr::LinkLayer::InfiniBand];
    let asked: BTreeSet<(&str, &str)> = questions()
        .flat_map(|question| {
            links.into_iter().filter_map(move |link| Some((question.name, question.fact(link)?)))
        })
        .collect();
    assert_eq!(asked, table);
}
