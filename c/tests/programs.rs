//! A C program on the model: it makes its objects by libibverbs, and gives their queues to this library.

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use support::{Language, Library, Program, package};

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
fn an_initiator_of_dynamic_connections_exchanges_every_operation() {
    run("dc");
    run_on("dc", "roce");
}

#[test]
fn an_extended_reliable_connection_exchanges_every_operation() {
    run("xrc");
    run_on("xrc", "roce");
}

#[test]
fn targets_of_dynamic_connections_receive_from_a_shared_receive_queue() {
    run("dct");
    run_on("dct", "roce");
}

#[test]
fn messages_of_xrc_reach_the_shared_receive_queue_that_they_name() {
    run("xrc_receives");
    run_on("xrc_receives", "roce");
}

#[test]
fn a_shared_receive_queue_serves_two_queue_pairs() {
    run("srq");
    run_on("srq", "roce");
}

#[test]
fn keys_of_windows_are_invalidated_by_the_peer_and_by_their_owner() {
    run("keys");
    run_on("keys", "roce");
}

#[test]
fn windows_are_bound_and_keys_configured() {
    run("windows");
    run_on("windows", "roce");
}

#[test]
fn the_requests_of_cpp_are_those_of_c() {
    let source = package("tests/factories.cc");
    let program = Program::new("factories", &source, Language::Cpp, Library::None);
    program.run("", "infiniband");
}

#[test]
fn prepared_requests_of_cpp_end_with_their_scope() {
    let source = package("tests/prepared.cc");
    let program = Program::new("prepared", &source, Language::Cpp, Library::Shared);
    for link in ["infiniband", "roce"] {
        assert_eq!(program.run("", link), "done\n");
    }
}

#[test]
fn packets_are_sent_and_received_in_every_form() {
    run_on("packets", "roce");
}

#[test]
fn prepared_requests_are_changed_and_fired_in_order_or_forgotten() {
    run("prepared");
    run_on("prepared", "roce");
}

#[test]
fn prepared_datagrams_and_packets_are_changed_behind_their_headers() {
    run("prepared_datagrams");
    run_on("prepared_datagrams", "roce");
    run_on("prepared_packets", "roce");
}

#[test]
fn a_striding_receive_queue_takes_several_packets_in_each_receive() {
    run_on("strides", "roce");
}

/// Runs a scenario of `ring.c`, which has no library of this project, as C and as C++.
fn run_ring_on(scenario: &str, links: &[&str]) {
    for language in [Language::C, Language::Cpp] {
        let source = support::package("tests/ring/ring.c");
        let program = Program::new("ring", &source, language, Library::None);
        for link in links {
            assert_eq!(program.run(scenario, link), "done\n", "{scenario}");
        }
    }
}

fn run_ring(scenario: &str) {
    run_ring_on(scenario, &["infiniband", "roce"]);
}

#[test]
fn the_header_sends_packets_and_receives_them() {
    run_ring_on("packets", &["roce"]);
}

#[test]
fn the_header_posts_every_inline_length() {
    run_ring("inline");
}

#[test]
fn the_header_posts_registered_memory() {
    run_ring("pointers");
}

#[test]
fn the_header_fires_prepared_wqes() {
    run_ring("prepared");
}

#[test]
fn the_header_refuses_what_a_queue_has_no_room_for() {
    run_ring("full");
}

#[test]
fn the_header_stops_at_a_failed_request_and_starts_again_after_reset() {
    run_ring("failure");
}

#[test]
fn an_engine_posts_and_polls_by_addresses() {
    run_ring("engine");
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

#[test]
fn two_processes_of_cpp_play_ping_pong() {
    let source = support::package("examples/rc_pingpong.cc");
    let program = Program::new("rc_pingpong", &source, Language::Cpp, Library::Shared);
    for link in ["infiniband", "roce"] {
        let mut server = program.on_model(link);
        server.args(["50", "64", "0"]).stdout(Stdio::piped());
        let mut server = server.spawn().expect("timeout, of coreutils");
        let mut shown = BufReader::new(server.stdout.take().expect("it is piped"));
        let mut line = String::new();
        shown.read_line(&mut line).expect("a line");
        let port = line.trim().strip_prefix("waiting on port ").expect("the port");
        let client = program.on_model(link).args(["127.0.0.1", "50", "64", port]).output();
        let client = client.expect("timeout, of coreutils");
        let text = String::from_utf8_lossy(&client.stdout);
        assert!(text.starts_with("50 rounds of 64 bytes, "), "{client:?}");
        line.clear();
        shown.read_line(&mut line).expect("a line");
        assert!(line.starts_with("50 rounds of 64 bytes, "), "{line}");
        assert!(server.wait().expect("it ends").success());
    }
}

#[test]
fn a_feed_of_cpp_reaches_its_receiver() {
    let source = support::package("examples/feed.cc");
    let program = Program::new("feed", &source, Language::Cpp, Library::Shared);
    // No other process has this group.
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    let group = format!("239.{high}.{middle}.{low}");
    let words = [group.as_str(), "9000", "300"];
    let mut receiver = program.on_model("roce");
    let mut receiver = receiver.args(words).stdout(Stdio::piped()).spawn().expect("timeout");
    let mut shown = BufReader::new(receiver.stdout.take().expect("it is piped"));
    let mut line = String::new();
    shown.read_line(&mut line).expect("a line");
    assert_eq!(line, "listening, and switches are not told\n");
    let publisher = program.on_model("roce").arg("-p").args(words).output().expect("timeout");
    assert!(publisher.status.success(), "{publisher:?}");
    line.clear();
    shown.read_line(&mut line).expect("a line");
    assert_eq!(line, "300 messages, 0 missing, 0 with faults\n");
    assert!(receiver.wait().expect("it ends").success());
}

#[test]
fn an_existing_program_changes_twenty_lines_and_does_the_same() {
    let source = support::package("examples/takeover.c");
    let text = std::fs::read_to_string(&source).expect("the example");
    let (mut changed, mut within) = (0, false);
    for line in text.lines() {
        match line {
            "#ifdef DIRECT" => within = true,
            "#else" | "#endif" => within = false,
            _ => changed += u32::from(within),
        }
    }
    assert!(changed <= 20, "{changed} lines are under DIRECT");
    let before = Program::new("before", &source, Language::C, Library::None);
    let after = Program::defining("after", &source, &["-DDIRECT"], Library::Shared);
    for link in ["infiniband", "roce"] {
        let shown = before.run("", link);
        assert_eq!(shown, "10000 WRITEs, the word is 42\n");
        assert_eq!(after.run("", link), shown);
    }
}
