//! Runs the examples as a reader would.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mlx5_model as _;
use pcap_file::pcapng::{Block, PcapNgReader};
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
fn ping_pong_relies_on_no_order_of_placement() {
    // Messages of three lines: number and last byte are in two of them.
    for (mode, seed) in
        [("send", "1"), ("write", "1"), ("write", "2"), ("write", "3"), ("read", "1")]
    {
        let variable = ("MLX5_MODEL_PLACEMENT", seed);
        let mut server =
            Process::example_where("rc_pingpong", &["--listen", "127.0.0.1"], variable);
        let address = server.address();
        let options = ["--connect", &address, "--mode", mode, "--size", "184", "--iters", "200"];
        let client = Process::example_where("rc_pingpong", &options, variable);
        assert!(client.end().contains("round trips/s"), "{mode} {seed}");
        assert!(server.end().contains("every message was right"), "{mode} {seed}");
    }
}

/// A namespace for each side, joined by virtual Ethernet. The first argument is the example.
const NAMESPACES: &str = r#"
    set -e
    unshare --net cat <&3 >/dev/null 2>&1 &
    peer=$!
    while [ "$(readlink /proc/$peer/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
    there="nsenter --target $peer --net"
    ip link add left type veth peer name right netns $peer
    ip address add 10.77.0.1/24 dev left
    $there ip address add 10.77.0.2/24 dev right
    ip link set left up
    $there ip link set right up
    # The kernel notices a moment later.
    until ip link show dev left | grep -q 'state UP'; do :; done
    until $there ip link show dev right | grep -q 'state UP'; do :; done
    export MLX5_MODEL=always
    MLX5_MODEL_NETWORK=udp:10.77.0.1 timeout 60 "$1" --listen 10.77.0.1 | {
        while read -r line && [ "${line#listening on }" = "$line" ]; do :; done
        $there env MLX5_MODEL_NETWORK=udp:10.77.0.2 timeout 60 "$1" --connect "${line#listening on }" \
            --mode "$2" --size 5000 --iters 40
        cat
    }
"#;

#[test]
fn ping_pong_crosses_network_namespaces() {
    for mode in ["send", "write", "read"] {
        let mut shell = rig::host::namespace();
        shell.args(["sh", "-c", &format!("exec 3<&0; {NAMESPACES}"), "sh"]);
        shell.arg(Process::path("rc_pingpong")).arg(mode).env_remove("MLX5_MODEL_LINK");
        // The peer's namespace lasts as long as this process holds the pipe.
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let hold = child.stdin.take();
        let (mut output, mut errors) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        drop(hold);
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(child.wait().unwrap().success(), "{output}\n{errors}");
        assert!(output.contains("round trips/s"), "{mode}: {output}\n{errors}");
        assert!(output.contains("every message was right"), "{mode}: {output}\n{errors}");
    }
}

#[test]
fn ping_pong_explains_its_options() {
    let help = Process::example("rc_pingpong", &["--help"]).end();
    for (arguments, texts) in [
        (&["--sise", "8"][..], &["there is no option --sise", "--size BYTES"][..]),
        (&["--size"], &["--size needs a value"]),
        (&["--size", "many"], &["--size many: invalid digit"]),
        (&[], &["--listen ADDRESS or --connect ADDRESS:PORT is needed"]),
    ] {
        let errors = Process::example("rc_pingpong", arguments).fail();
        for text in texts {
            assert!(errors.starts_with("error: ") && errors.contains(text), "{text}: {errors}");
        }
    }
    assert!(help.contains("--signal-every N") && help.contains("--gid-index N"), "{help}");
}

#[test]
fn a_takeover_without_a_usable_device_ends_with_a_sentence() {
    for (variable, value, text) in [
        ("MLX5_MODEL", "never", "there is no RDMA device"),
        ("MLX5_MODEL_NODE", "missing", "there is no RDMA device"),
        // libmlx5 opens no device with that number of registers.
        ("MLX5_TOTAL_UUARS", "-1", "ibv_open_device failed: "),
        ("MLX5_MODEL_PORT", "disabled", "port 1 is not active"),
    ] {
        let errors = Process::example_where("takeover", &[], (variable, value)).fail();
        let sentence = errors.lines().last().unwrap_or_default();
        assert!(sentence.starts_with(&format!("error: {text}")), "{value}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
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
    assert!(text.contains("received: a message out of the device's memory"), "{text}");
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
fn a_subscriber_of_a_feed_sees_a_gap_and_asks_for_what_is_missing() {
    let text = Process::example("ud_multicast", &["4"]).end();
    for tick in 0..5 {
        assert_eq!(text.matches(&format!(" hears tick {tick}: ")).count(), 4, "{text}");
    }
    assert_eq!(text.matches("the publisher is asked for tick 0 again").count(), 1, "{text}");
    assert!(text.ends_with("4 subscribers have all 5 ticks\n"), "{text}");
}

#[test]
fn every_order_has_an_answer_and_credits_bound_those_without_one() {
    let text = Process::example("order_gateway", &[]).end();
    let most = text.strip_prefix("1000 orders, all accepted, at most ");
    let most = most.and_then(|text| text.strip_suffix(" without an answer\n"));
    let most: u32 = most.and_then(|text| text.parse().ok()).expect(&text);
    assert!((1..=16).contains(&most), "{text}");
}

#[test]
fn threads_post_to_one_queue_and_it_is_exclusive_again_after_them() {
    let text = Process::example("producers", &["3"]).end();
    assert!(text.starts_with("one owner again, idle: true\n"), "{text}");
    assert_eq!(text.matches(": 500\n").count(), 3, "{text}");
}

#[test]
fn a_reader_of_a_cache_sees_that_an_entry_is_half_written() {
    let text = Process::example("read_cache", &[]).end();
    for line in ["during a change: None\n", "after it: version 1, 1\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.ends_with("500 lookups, every value is whole\n"), "{text}");
}

#[test]
fn atomics_give_each_number_once_and_guard_a_balance() {
    let text = Process::example("atomics", &[]).end();
    assert_eq!(text, "numbers 0 to 99, each once: true\nbalance: 100\n");
}

/// Lets a peer that is gone be noticed sooner than by a device.
const SOON: (&str, &str) = ("MLX5_MODEL_TIMEOUTS", "specification");

#[test]
fn a_failed_connection_gives_all_buffers_back_and_connects_anew() {
    let text = Process::example_where("recovery", &[], SOON).end();
    for line in [
        "a wrong key: IBV_WC_REM_ACCESS_ERR: ",
        "no receive: IBV_WC_RNR_RETRY_EXC_ERR: ",
        "no peer: IBV_WC_RETRY_EXC_ERR: ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // Both sides after the first two failures, the client after the third.
    assert_eq!(text.matches("closed: 8 of 8 buffers, ").count(), 5, "{text}");
    assert!(text.ends_with("arrived: here I am again\n"), "{text}");
}

#[test]
fn each_fault_is_seen_and_recovered_from() {
    for link in ["infiniband", "roce"] {
        let text = Process::example_where("fault_lab", &[], ("MLX5_MODEL_LINK", link)).end();
        each_fault_is_in(&text);
    }
}

fn each_fault_is_in(text: &str) {
    let steps: Vec<&str> = text.split("\n\n").map(str::trim_end).collect();
    let seen = |name: &str, lines: &[&str]| {
        let step = steps.iter().find(|step| step.trim_start().starts_with(&format!("{name}: ")));
        let step = step.unwrap_or_else(|| panic!("{name} in {text}"));
        for line in lines {
            assert!(step.contains(line), "{line}: {step}");
        }
    };
    seen("late", &["completion: success, after "]);
    let anew = "a new connection: success";
    seen("lost", &["failure: IBV_WC_RETRY_EXC_ERR, vendor syndrome 0x81", anew]);
    seen("cable", &["event: PORT_ERR", "event: PORT_ACTIVE", "completion: success"]);
    seen("overrun", &["event: CQ_ERR", "event: QP_FATAL", anew]);
    seen("command", &["timed out", "the second try: connected"]);
    seen("device", &["event: DEVICE_FATAL", "poll: the device failed", "error: "]);
}

#[test]
fn a_connection_moves_to_its_alternate_path_and_loses_nothing() {
    let text = Process::example_where("failover", &[], SOON).end();
    assert_eq!(
        text,
        "500 messages arrived, each once and in order\nevent: PATH_MIG\nevent: PATH_MIG\n\
         service level 1, Migrated\n"
    );
}

#[test]
fn rings_and_payload_are_placed_and_used() {
    let text = Process::example("placement", &[]).end();
    assert!(text.contains(" KiB of rings, node "), "{text}");
    assert!(text.contains("4 MiB of payload on "), "{text}");
    assert!(text.ends_with("received: 2097152 bytes\n"), "{text}");
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

/// Runs on a port of Ethernet.
const ETHERNET: (&str, &str) = ("MLX5_MODEL_LINK", "roce");

/// Two groups that no other process joins, and a UDP port that no other test has.
fn groups(port: u16) -> [String; 3] {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    [format!("239.{b}.{c}.{d}"), format!("238.{b}.{c}.{d}"), port.to_string()]
}

#[test]
fn a_feed_of_two_streams_lacks_only_what_both_lack() {
    let arguments = groups(9000);
    let arguments = arguments.each_ref().map(String::as_str);
    let mut feed = Process::example_where("feed", &arguments, ETHERNET);
    feed.address();
    Process::example_where("feed_publisher", &arguments, ETHERNET).end();
    let text = feed.end();
    assert!(text.contains("5000 messages, ") && text.contains(" by B"), "{text}");
    assert!(text.contains("missing in both: [4000, 4001]\nlost here: 0 (Receiver)"), "{text}");
    assert!(text.contains("from the wire to the program, median: "), "{text}");
}

#[test]
fn every_tick_triggers_an_order_at_its_price() {
    let text = Process::example_where("order_entry", &[], ETHERNET).end();
    assert!(text.contains("1000 ticks, each answered by its order"), "{text}");
}

#[test]
fn a_capture_has_packets_and_their_times() {
    let file = std::env::temp_dir().join(format!("mlx5-capture-{}.pcapng", std::process::id()));
    let arguments = [file.to_str().unwrap(), "500"];
    let mut capture = Process::example_where("capture", &arguments, ETHERNET);
    capture.address();
    let arguments = groups(9001);
    Process::example_where("feed_publisher", &arguments.each_ref().map(String::as_str), ETHERNET)
        .end();
    let text = capture.end();
    assert!(text.contains("500 packets, 0 not written in time"), "{text}");
    let mut reader = PcapNgReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    // Packets of other tests are among them.
    let (mut packets, now) = (0, SystemTime::now());
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            let age = now.duration_since(UNIX_EPOCH + packet.timestamp).unwrap();
            assert!(age < Duration::from_secs(100) && packet.data.len() >= 14, "{age:?} old");
            packets += 1;
        }
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(packets, 500);
}

/// The numbers of the rows of a table in the output of `cost_model`, by their first column.
fn rows(text: &str, title: &str) -> Vec<(String, Vec<f64>)> {
    let lines = text.lines().skip_while(|line| !line.starts_with(title)).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| {
            let mut columns = line.split_whitespace().map(str::to_owned);
            let first = columns.next()?;
            let numbers = columns.map(|column| column.parse().ok()).collect::<Option<Vec<_>>>()?;
            Some((first, numbers))
        })
        .collect()
}

#[test]
fn virtual_time_is_the_same_in_every_run_and_in_a_recording() {
    // One has the chosen costs, the other one those of a generation.
    for profile in ["complete", "cx5"] {
        is_the_same_in_every_run_and_in_a_recording(profile);
    }
}

fn is_the_same_in_every_run_and_in_a_recording(profile: &str) {
    let run = |trace: Option<&std::path::Path>| {
        let mut command = Command::new(Process::path("cost_model"));
        command.env("MLX5_MODEL", "always").env("MLX5_MODEL_TIME", "virtual");
        command.env("MLX5_MODEL_PROFILE", profile);
        command.envs(trace.map(|file| ("MLX5_MODEL_TRACE", file)));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
        text
    };
    let text = run(None);
    // Where a recording differs, it stays for whoever looks for the reason.
    let recordings = [1, 2].map(|number| {
        let name = format!("mlx5-cost-{profile}-{}-{number}.trace", std::process::id());
        let file = std::env::temp_dir().join(name);
        let recorded = run(Some(&file));
        assert_eq!(text, recorded, "recorded in {}", file.display());
        file
    });
    for file in recordings {
        let stream = std::io::BufReader::new(std::fs::File::open(&file).unwrap());
        let verdict = mlx5_model::trace::Reader::new(stream)
            .and_then(|mut reader| mlx5_model::replay::replay(&mut reader));
        let verdict = verdict.unwrap();
        assert!(verdict.is_equal() && !verdict.cut && verdict.cqes > 0, "{verdict:?}");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn virtual_time_has_the_order_of_a_device() {
    let text = Process::example_where("cost_model", &[], ("MLX5_MODEL_TIME", "virtual")).end();
    assert!(text.starts_with("the software model with virtual time: "), "{text}");

    let single = rows(&text, "WRITE, one at a time");
    assert_eq!(single.len(), 5, "{text}");
    for (bytes, times) in &single {
        let &[copied, copied_pointer, rung, rung_pointer] = &times[..] else { panic!("{text}") };
        assert!(
            copied <= rung && copied_pointer < rung_pointer,
            "BlueFlame, {bytes} bytes: {text}"
        );
        assert!(rung < rung_pointer, "inline, {bytes} bytes: {text}");
    }
    // A WQE of 256 inline bytes is not copied.
    assert!(single[..4].iter().all(|(_, times)| times[0] < times[2]), "{text}");

    let operations = rows(&text, "8 bytes");
    let time = |name| operations.iter().find(|(first, _)| first == name).unwrap().1[0];
    assert!(single[0].1[0] < time("READ") && time("WRITE") < time("SEND"), "{text}");

    for (title, count, growth) in
        [("WRITE of 8 bytes inline, one doorbell", 7, 10.0), ("WRITE by pointer", 8, 20.0)]
    {
        let rates: Vec<f64> = rows(&text, title).iter().map(|(_, row)| row[0]).collect();
        assert_eq!(rates.len(), count, "{text}");
        assert!(rates.is_sorted() && rates[count - 1] > growth * rates[0], "{title}: {text}");
    }
    // The link has 12.5 GB/s.
    let largest = rows(&text, "WRITE by pointer").pop().unwrap().1[0];
    assert!((11.0..12.5).contains(&largest), "{text}");
}

#[test]
fn measured_values_of_each_generation_are_printed_beside_virtual_time() {
    let text = Process::example("cost_model", &["residuals"]).end();
    for device in [
        "cx5 on infiniband\n",
        "cx5 on roce\n",
        "cx6 on infiniband\n",
        "cx6 on roce\n",
        "cx6dx on roce\n",
        "cx7 on infiniband\n",
    ] {
        assert!(text.contains(device), "{device}: {text}");
    }
    let rows = text.lines().filter(|line| line.contains(" %"));
    assert!(rows.count() > 50, "{text}");
}

#[test]
fn times_of_the_model_without_virtual_time_are_said_to_mean_nothing() {
    let text = Process::example("cost_model", &[]).end();
    assert!(text.starts_with("the software model: these times mean nothing"), "{text}");
}
