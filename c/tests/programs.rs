//! A C program on the model: it makes its objects by libibverbs, and gives their queues to this library.

mod support;

use support::{Language, Library, Program};

/// Runs a scenario of `direct.c`, on a link, as C and as C++ with the shared library.
fn run_on(scenario: &str, link: &str) -> String {
    let mut shown = String::new();
    for language in [Language::C, Language::Cpp] {
        shown = Program::direct(language, Library::Shared).run(scenario, link);
        assert!(shown.ends_with("done\n"), "{scenario}: {shown}");
    }
    shown
}

fn run(scenario: &str) -> String {
    run_on(scenario, "infiniband")
}

#[test]
fn rc_exchanges_every_operation_after_libibverbs_and_again() {
    run("rc");
}

#[test]
fn rc_exchanges_every_operation_on_roce() {
    run_on("rc", "roce");
}

#[test]
fn uc_exchanges_messages_and_recovers_from_a_bad_key() {
    run("uc");
}

#[test]
fn ud_sends_datagrams_to_an_address_handle_of_libibverbs() {
    run("ud");
    run_on("ud", "roce");
}

#[test]
fn a_bad_rkey_is_told_with_cause_and_the_queue_starts_again_after_reset() {
    let text = run("failure");
    assert!(text.contains("RDMA WRITE with id 0x1") && text.contains("Vendor syndrome"), "{text}");
}

#[test]
fn misuse_returns_a_status() {
    run("misuse");
    run_on("misuse", "roce");
}

#[test]
fn completions_and_events_of_libibverbs_are_found_at_the_take_over() {
    run("leftovers");
}

#[test]
fn events_go_on_after_those_of_libibverbs() {
    run("events");
}

#[test]
fn a_program_links_the_static_library() {
    let shown = Program::direct(Language::C, Library::Static).run("rc", "infiniband");
    assert!(shown.ends_with("done\n"), "{shown}");
}

#[test]
fn the_program_of_the_page_runs() {
    let source = support::program_of_the_page();
    let shown = Program::new("page", &source, Language::C, Library::Shared).run("", "infiniband");
    assert!(shown.contains("hello"), "{shown}");
}
