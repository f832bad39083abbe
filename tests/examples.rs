//! Runs the examples as a reader would.

mod rig;

use mlx5_model as _;
use rig::process::Process;

#[test]
fn ping_pong_is_right_in_every_mode() {
    for mode in ["send", "write", "read"] {
        // The last byte of 184 bytes of the pattern is the one that says "round 0".
        for size in ["1", "8", "9", "184", "5000"] {
            let mut server = Process::example("rc_pingpong", &["--listen", "127.0.0.1"]);
            let address = server.address();
            let options = ["--connect", &address, "--mode", mode, "--size", size, "--iters", "40"];
            let client = Process::example("rc_pingpong", &options);
            assert!(client.end().contains("round trips/s"), "{mode} {size}");
            assert!(server.end().contains("every message was right"), "{mode} {size}");
        }
    }
}

#[test]
fn the_walkthrough_walks_through() {
    let text = Process::example("rc_walkthrough", &[]).end();
    for side in ["server", "client"] {
        assert!(text.contains(&format!("{side}  done")), "{text}");
    }
}

#[test]
fn what_is_fired_is_posted_and_what_is_only_prepared_is_not() {
    let text = Process::example("prepared", &[]).end();
    assert!(text.contains("1 request is left"), "{text}");
    assert!(text.contains("prepared: 101 102 103 0"), "{text}");
}

#[test]
fn the_cards_memory_is_sent_and_counted_in() {
    let text = Process::example("device_memory", &[]).end();
    assert!(text.contains("received: a message from this HCA's own memory"), "{text}");
    assert!(text.contains("counter: 115, flag: 1"), "{text}");
}

#[test]
fn a_c_programs_queue_pair_is_driven_directly() {
    let text = Process::example("takeover", &[]).end();
    assert!(text.contains("memory: \"by libmlx5\""), "{text}");
    assert!(text.contains("memory: \"by this crate\""), "{text}");
    assert!(text.ends_with("handed back\n"), "{text}");
}

#[test]
fn connections_are_made_by_command_alone() {
    let text = Process::example("devx_rc", &[]).end();
    for line in ["register: write-combining", "memory: \"written by command\", \"sent by command\""]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.ends_with("Reset\n"), "{text}");
}

#[test]
fn a_server_answers_many_connections_with_and_without_tokio() {
    for tokio in [&[][..], &["--tokio"]] {
        let options = [&["--connections", "40", "--requests", "500"], tokio].concat();
        let text = Process::example("server", &options).end();
        assert!(text.contains("40 connections: 500 requests answered"), "{text}");
        assert!(text.contains("completions per second"), "{text}");
    }
    let options = ["--connections", "20", "--requests", "100", "--ratio"];
    let text = Process::example("server", &options).end();
    for line in ["10 connections: ", "20 connections: ", "ratio: "] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn datagrams_reach_a_group_and_come_back() {
    let text = Process::example("ud_multicast", &["5"]).end();
    assert_eq!(text.matches("who is there?").count(), 5, "{text}");
    assert_eq!(text.matches("I am, 0x").count(), 5, "{text}");
}

#[test]
fn a_window_is_open_until_the_guest_gives_it_back() {
    let text = Process::example("memory_window", &[]).end();
    for line in ["bound: Umr", "found: I was here", "told: 6 bytes", "then: IBV_WC_REM_ACCESS_ERR"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_key_gathers_what_lies_in_pieces() {
    let text = Process::example("umr_gather", &[]).end();
    for line in [
        "the list: ironsilk  52\n",
        "the column: ironsaltsilkricegoldwoolcorncoal\n",
        "then: IBV_WC_REM_ACCESS_ERR",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_server_of_many_refills_one_queue() {
    let text = Process::example("srq_server", &[]).end();
    assert!(text.contains("200 messages of 20 clients, in 32 receives"), "{text}");
    let refills =
        text.lines().find_map(|line| line.strip_prefix("refilled ")?.strip_suffix(" times"));
    // Of 32 receives, 25 or more are taken each time.
    let refills: u32 = refills.and_then(|text| text.parse().ok()).expect("a number");
    assert!((7..=9).contains(&refills), "{text}");
}

#[test]
fn one_initiator_greets_many_targets() {
    let text = Process::example("dc_many_peers", &["7"]).end();
    assert_eq!(text.matches(": hello, number ").count(), 7, "{text}");
    assert!(text.contains("the first has counted 21"), "{text}");
}

#[test]
fn an_epoll_loop_hears_of_every_message() {
    let text = Process::example("events_epoll", &[]).end();
    for number in 1..=5 {
        assert!(text.contains(&format!("received: message {number}\n")), "{text}");
    }
    assert!(text.ends_with("all 5 are there\n"), "{text}");
}

#[test]
fn a_tokio_server_answers_every_request() {
    let text = Process::example("tokio", &[]).end();
    for number in 1..=5 {
        assert!(text.contains(&format!("answer: REQUEST {number}\n")), "{text}");
    }
    assert!(text.ends_with("all 5 requests were answered\n"), "{text}");
}

#[test]
fn an_event_channel_wakes_who_sleeps_on_queues_made_by_command() {
    let text = Process::example("devx_events", &[]).end();
    for number in 1..=5 {
        assert!(text.contains(&format!("received: message {number}\n")), "{text}");
    }
    assert!(text.contains("woken: queue ") && text.contains("WQ_ACCESS_ERROR"), "{text}");
    assert!(text.ends_with("all 5 are there, and one write was refused\n"), "{text}");
}

#[test]
fn few_completions_stand_for_many_requests() {
    let text = Process::example("selective_signaling", &[]).end();
    assert!(text.contains("1000 requests, 125 completions, compressed: true"), "{text}");
    assert!(text.ends_with("the peer has 1000\n"), "{text}");
}

#[test]
fn the_card_shows_a_queue_pair_as_verbs_do() {
    let text = Process::example("devx_query", &[]).end();
    for line in [
        "  state = 0 (RESET)\n",
        "  state: 0x0 -> 0x3\n",
        "  primary_address_path.vhca_port_num: 0x0 -> 0x1\n",
        "another's number: mlx5dv_devx_qp_query did not execute QUERY_QP",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn messages_find_their_memory_by_a_tag() {
    let text = Process::example("tag_matching", &[]).end();
    for line in [
        "by the list: in time\n",
        "early: too early\n",
        "on its way: Some(TagHeader { kind: Rendezvous, context: 0, tag: 1283 })\n",
        "65536 bytes were fetched, and their sender told\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[cfg(feature = "flight-recorder")]
#[test]
fn a_queue_tells_which_of_many_requests_failed() {
    let text = Process::example("flight_recorder", &[]).end();
    for line in [
        "message 4321 failed: IBV_WC_REM_ACCESS_ERR\n",
        "RDMA_WRITE WQE 0x10e1 ",
        "it goes 8 bytes beyond the board\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
