//! Tests of the rules' language, and of each fault of frames on frames of their own.

use super::rule::{Commands, Select};
use super::*;
use crate::wire::Opcode;

const MS: u64 = 1_000_000;

fn rule(text: &str) -> Rule {
    let faults: Faults = text.parse().unwrap();
    assert_eq!(faults.rules.len(), 1, "{text}");
    faults.rules[0].clone()
}

/// The rules of a text, at device 0 from time 0 on.
fn rules(text: &str) -> Impairment {
    Impairment::new(&text.parse().unwrap(), 0, Link::InfiniBand, 0)
}

/// A packet to a queue pair.
fn packet(link: Link, level: u8, to: u32, psn: u32, length: usize) -> Frame {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 198, 18, 0, 1]);
    let global = crate::wire::Global {
        traffic_class: 2,
        flow_label: 0,
        hop_limit: 9,
        source: gid,
        destination: gid,
    };
    let route = match link {
        Link::InfiniBand => Route::InfiniBand { level, source: 1, destination: 2, global: None },
        Link::Roce => Route::Ethernet {
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, 2],
            tag: None,
            global,
            port: Some(0xc000),
        },
    };
    let header = Header::new(route, Opcode::SendOnly, 0xffff, to, psn);
    let Ok(frame) = header.frame(length, |bytes| {
        bytes.fill(7);
        Ok::<_, std::convert::Infallible>(())
    });
    frame
}

fn numbered(psn: u32) -> Frame {
    packet(Link::InfiniBand, 0, 0x1234, psn, 64)
}

fn psn(frame: &Frame) -> Option<u32> {
    Some(Header::decode(Link::InfiniBand, &frame.0).ok()?.0.psn)
}

/// Sends packets 0, 1, … at time 0, and returns those that have come through by `now`, by PSN.
fn through(rules: &mut Impairment, packets: u32, now: u64) -> Vec<u32> {
    for number in 0..packets {
        rules.put(Direction::Outbound, numbered(number), 0);
    }
    passed(rules, now)
}

fn passed(rules: &mut Impairment, now: u64) -> Vec<u32> {
    rules.release(now);
    let frames = std::iter::from_fn(|| rules.take(Direction::Outbound));
    frames.map(|frame| psn(&frame).expect("whole")).collect()
}

#[test]
fn rules_are_read_in_any_order_of_their_words() {
    let full = rule("device 3 out qp 0x1234 sl 5 packet 17-20 at 1.5ms for 2s 12.5% loss # why");
    assert_eq!(
        full,
        Rule {
            device: Some(3),
            frames: Select {
                direction: Some(Direction::Outbound),
                qp: Some(0x1234),
                level: Some(5),
                numbered: true
            },
            numbers: 17..=20,
            at: 1_500_000,
            length: Some(2_000 * MS),
            chance: ALWAYS / 8,
            ..Rule::new(Effect::Frame(FrameEffect::Lose))
        }
    );
    let turned = rule("loss 12.5% for 2s at 1.5ms packet 17-20 sl 5 qp 4660 out device 3");
    assert_eq!(turned, full);
    let frame = |effect| Effect::Frame(effect);
    for (text, effect) in [
        ("duplicate", frame(FrameEffect::Duplicate)),
        ("corrupt", frame(FrameEffect::Corrupt)),
        ("reorder", frame(FrameEffect::Reorder(3))),
        ("reorder 7 in", frame(FrameEffect::Reorder(7))),
        ("mark", frame(FrameEffect::Mark)),
        ("delay 10us", frame(FrameEffect::Delay(10_000, 0))),
        ("delay 2ms jitter 1ms", frame(FrameEffect::Delay(2 * MS, MS))),
        ("rate 2.5Gbit", frame(FrameEffect::Rate(2_500_000_000))),
        ("pause at 1s for 1ms", frame(FrameEffect::Pause)),
        ("lose doorbell 2", Effect::LostDoorbell),
        ("flap at 2s for 500ms", Effect::Device(DeviceEffect::Flap)),
        ("overrun cq", Effect::Device(DeviceEffect::Overrun(Queues::Completion, None))),
        ("overrun eq 0x11", Effect::Device(DeviceEffect::Overrun(Queues::Event, Some(0x11)))),
        ("error 60106801", Effect::Wqe([0x60, 0x10, 0x68, 0x01])),
        ("timeout at 1s for 1s", Effect::Device(DeviceEffect::Timeout)),
        ("command 3 fatal", Effect::Device(DeviceEffect::Fatal)),
        ("crash at 3s", Effect::Device(DeviceEffect::Crash)),
    ] {
        assert_eq!(rule(text).effect, effect, "{text}");
    }
    let command = rule("command create_qp 2- timeout");
    assert_eq!(command.commands, Some(Commands { opcode: Some(0x500) }));
    assert_eq!(command.numbers, 2..=u64::MAX);
    let all: Faults = "seed 9; loss 1%\n\n# nothing\nmark".parse().unwrap();
    assert_eq!((all.seed, all.rules.len()), (9, 2));
}

#[test]
fn an_error_names_the_line_the_word_and_what_is_allowed() {
    for (text, line, word, allowed) in [
        ("loss\nlos 1%", 2, "los", "loss, duplicate"),
        ("loss; ; port 1 loss", 3, "port", "device N"),
        ("out", 1, "", "a fault"),
        ("loss mark", 1, "mark", "one fault"),
        ("loss 101%", 1, "101%", "PERCENT%"),
        ("loss -1%", 1, "-1%", "PERCENT%"),
        ("delay 2", 1, "2", "10us"),
        ("delay", 1, "", "10us"),
        ("delay 1ms jitter", 1, "", "10us"),
        ("delay 99999999999s", 1, "99999999999s", "10us"),
        ("rate 1bit", 1, "1bit", "1kbit"),
        ("rate 0Gbit", 1, "0Gbit", "1kbit"),
        ("packet 0 loss", 1, "0", "from 1"),
        ("packet 5-3 loss", 1, "5-3", "from 1"),
        ("qp 0x1000000 loss", 1, "0x1000000", "24 bits"),
        ("sl 16 loss", 1, "16", "0 to 15"),
        ("device 16 loss", 1, "16", "0 to 15"),
        ("seed", 1, "", "64 bits"),
        ("seed 1 2", 1, "2", "the end"),
        ("command make_qp timeout", 1, "timeout", "create_qp"),
        ("command loss", 1, "loss", "create_qp"),
        ("command 1 loss", 1, "loss", "`command` only"),
        ("pause at 1s", 1, "pause", "`for TIME`"),
        ("fatal 5%", 1, "fatal", "faults of the device"),
        ("packet 3 fatal", 1, "fatal", "faults of the device"),
        ("crash at 1s for 1s", 1, "crash", "only with `flap`"),
        ("overrun qp", 1, "qp", "cq or eq"),
        ("error", 1, "", "93005204"),
        ("error 5204", 1, "5204", "93005204"),
        ("error 93005200", 1, "93005200", "not 00"),
        ("error 93005204 at 1s", 1, "error", "`error` only with"),
        ("error 93005204 sl 1", 1, "error", "`error` only with"),
        ("wqe 3 loss", 1, "loss", "`wqe` only with `error`"),
        ("lose", 1, "", "doorbell"),
        ("lose doorbell 0", 1, "0", "the faults"),
        ("lose doorbell in", 1, "lose", "only with `device`"),
        ("lose doorbell command 1", 1, "lose", "`command` only"),
    ] {
        let error = text.parse::<Faults>().unwrap_err();
        // A name that is no command is read as the missing number.
        let word = if text.starts_with("command make") { "make_qp" } else { word };
        assert_eq!((error.line, error.word.as_str()), (line, word), "{text}: {error}");
        assert!(error.allowed.contains(allowed), "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")), "{error}");
    }
}

#[test]
fn rules_for_wqes_are_the_devices_own() {
    let rules = rules(
        "device 1 error 00008115; qp 0x12 wqe 3-4 error 93005204; loss; wqe 2 error 60106801",
    );
    let faults = rules.wqe_faults();
    let found: Vec<_> = faults.iter().map(|fault| (fault.qp, fault.numbers.clone())).collect();
    assert_eq!(found, [(Some(0x12), 3..=4), (None, 2..=2)]);
    assert_eq!(faults[0].codes, [0x93, 0, 0x52, 0x04]);
    let done = [1, 2].map(|struck| Tally { matched: 9, struck });
    let tallies = rules.tallies(done.into_iter());
    assert_eq!(tallies, [Tally::default(), done[0], Tally::default(), done[1]]);
}

#[test]
fn a_buffer_whose_doorbell_was_lost_stays_so_until_it_is_rung_again() {
    let mut rules = rules("lose doorbell 1-2");
    let buffers = [(1, 0x800), (1, 0x900), (2, 0x800)];
    assert_eq!(buffers.map(|buffer| rules.loses_doorbell(buffer, 7, 0)), [true, true, false]);
    assert_eq!(buffers.map(|buffer| rules.has_lost(buffer)), [true, true, false]);
    assert!(!rules.loses_doorbell(buffers[0], 7, 0));
    assert_eq!(buffers.map(|buffer| rules.has_lost(buffer)), [false, true, false]);
}

#[test]
fn a_packet_is_lost_by_its_number() {
    let mut rules = rules("packet 3-4 loss");
    assert_eq!(through(&mut rules, 6, 0), [0, 1, 4, 5]);
    assert_eq!(rules.tallies(std::iter::empty()), [Tally { matched: 6, struck: 2 }]);
}

#[test]
fn a_share_of_the_packets_is_lost_and_the_seed_tells_which() {
    let lost = |text: &str| through(&mut rules(text), 10_000, 0);
    let first = lost("seed 1; loss 1%");
    assert!((9_850..=9_950).contains(&first.len()), "{}", first.len());
    assert_eq!(first, lost("seed 1; loss 1%"));
    assert_ne!(first, lost("seed 2; loss 1%"));
    // A rule decides the same whatever the rules behind it do.
    assert_eq!(first, lost("seed 1; loss 1%; mark 50%; delay 0ns jitter 0ns"));
    assert_eq!(lost("loss 0%").len(), 10_000);
}

#[test]
fn a_packet_comes_twice() {
    assert_eq!(through(&mut rules("packet 2 duplicate"), 4, 0), [0, 1, 1, 2, 3]);
}

#[test]
fn one_bit_of_a_packet_is_wrong() {
    let mut rules = rules("corrupt");
    for number in 0..50 {
        rules.put(Direction::Inbound, numbered(number), 0);
        let got = rules.take(Direction::Inbound).unwrap();
        let sent = numbered(number);
        let bits = got.0.iter().zip(&sent.0).map(|(a, b)| (a ^ b).count_ones());
        assert_eq!(bits.sum::<u32>(), 1);
    }
}

#[test]
fn later_packets_overtake_one() {
    let mut late = rules("packet 2 reorder 2");
    assert_eq!(through(&mut late, 6, 0), [0, 2, 3, 1, 4, 5]);
    // Where too few follow, it waits for a millisecond.
    let mut last = rules("packet 3 reorder 2");
    assert_eq!(through(&mut last, 4, 0), [0, 1, 3]);
    assert_eq!(last.deadline(), Some(MS));
    assert_eq!(passed(&mut last, MS - 1), []);
    assert_eq!(passed(&mut last, MS), [2]);
    assert_eq!(last.deadline(), None);
}

#[test]
fn packets_are_delayed_in_their_order() {
    let mut rules = rules("delay 2ms");
    assert_eq!(through(&mut rules, 3, 0), []);
    assert_eq!(rules.deadline(), Some(2 * MS));
    assert_eq!(passed(&mut rules, 2 * MS - 1), []);
    assert_eq!(passed(&mut rules, 2 * MS), [0, 1, 2]);
}

#[test]
fn too_many_waiting_packets_are_lost() {
    let mut rules = rules("delay 1ms");
    for _ in 0..QUEUED + 5 {
        rules.put(Direction::Inbound, Frame::new(vec![]), 0);
    }
    rules.release(MS);
    assert_eq!(std::iter::from_fn(|| rules.take(Direction::Inbound)).count() as u64, QUEUED);
}

#[test]
fn jitter_stays_in_its_range_and_changes_the_order() {
    let mut rules = rules("delay 2ms jitter 1ms");
    assert_eq!(through(&mut rules, 100, MS - 1), []);
    let early = passed(&mut rules, 2 * MS);
    assert!((30..=70).contains(&early.len()), "{early:?}");
    assert!(!early.is_sorted());
    assert_eq!(early.len() + passed(&mut rules, 3 * MS).len(), 100);
}

#[test]
fn a_rate_limit_passes_one_packet_after_the_other() {
    // 64 bytes of payload, LRH, BTH, ICRC: 88 bytes, which take 704 µs.
    let mut rules = rules("rate 1000kbit");
    assert_eq!(numbered(0).0.len(), 88);
    assert_eq!(through(&mut rules, 3, 703_999), []);
    for number in 0..3u32 {
        let due = 704_000 * u64::from(number + 1);
        assert_eq!(rules.deadline(), Some(due));
        assert_eq!(passed(&mut rules, due), [number]);
    }
    // After a rest the link is free.
    rules.put(Direction::Outbound, numbered(9), 10 * MS);
    assert_eq!(rules.deadline(), Some(10 * MS + 704_000));
}

#[test]
fn nothing_leaves_during_a_pause() {
    let mut rules = rules("out pause at 1ms for 2ms");
    assert_eq!(through(&mut rules, 1, 0), [0]);
    for number in 1..4 {
        rules.put(Direction::Outbound, numbered(number), MS);
    }
    rules.put(Direction::Inbound, numbered(0), MS);
    assert!(rules.take(Direction::Inbound).is_some(), "the other direction goes on");
    assert_eq!(passed(&mut rules, 3 * MS - 1), []);
    assert_eq!(passed(&mut rules, 3 * MS), [1, 2, 3]);
    rules.put(Direction::Outbound, numbered(4), 3 * MS);
    assert_eq!(passed(&mut rules, 3 * MS), [4]);
}

#[test]
fn congestion_is_marked_and_the_packet_stays_valid() {
    for link in [Link::InfiniBand, Link::Roce] {
        let mut rules = Impairment::new(&"mark".parse().unwrap(), 0, link, 0);
        let sent = packet(link, 0, 5, 0, 64);
        rules.put(Direction::Outbound, sent.clone(), 0);
        let got = rules.take(Direction::Outbound).unwrap();
        let (header, _) = Header::decode(link, &got.0).expect("checksums are right");
        match header.route {
            Route::Ethernet { global, .. } => assert_eq!(global.traffic_class, 3),
            // FECN of the BTH.
            Route::InfiniBand { .. } => assert_eq!((sent.0[12], got.0[12]), (0, 0x80)),
        }
    }
    // And in an IPv6 header.
    let mut global = packet(Link::Roce, 0, 5, 0, 64);
    let (header, payload) = Header::decode(Link::Roce, &global.0).unwrap();
    let Route::Ethernet { global: mut addresses, tag, port, source, destination } = header.route
    else {
        panic!()
    };
    (addresses.source, addresses.destination) = ([0xfe; 16], [0xfe; 16]);
    let route = Route::Ethernet { global: addresses, tag, port, source, destination };
    let Ok(frame) =
        Header { route, ..header }.frame(payload.len(), |_| Ok::<_, std::convert::Infallible>(()));
    global = frame;
    Route::mark_congestion(Link::Roce, &mut global.0);
    let (header, _) = Header::decode(Link::Roce, &global.0).unwrap();
    assert!(matches!(header.route, Route::Ethernet { global, .. } if global.traffic_class == 3));
}

#[test]
fn a_rule_takes_the_frames_of_its_conditions_alone() {
    let mut rules = rules(
        "qp 5 loss 0%; sl 3 loss 0%; in loss 0%; out loss 0%; device 0 loss 0%; device 1 loss",
    );
    for (direction, level, qp) in [
        (Direction::Outbound, 3, 5),
        (Direction::Outbound, 0, 5),
        (Direction::Inbound, 3, 6),
        (Direction::Inbound, 0, 7),
        (Direction::Inbound, 0, 8),
    ] {
        rules.put(direction, packet(Link::InfiniBand, level, qp, 0, 8), 0);
    }
    let matched: Vec<u64> =
        rules.tallies(std::iter::empty()).iter().map(|tally| tally.matched).collect();
    assert_eq!(matched, [2, 2, 3, 2, 5, 0]);
}

#[test]
fn a_datagram_is_named_by_its_source_too() {
    let mut header = Header::new(
        Route::InfiniBand { level: 0, source: 1, destination: 2, global: None },
        Opcode::SendOnly,
        0xffff,
        5,
        0,
    );
    header.service = crate::wire::Service::Ud;
    header.datagram = Some(crate::wire::Deth { q_key: 1, source: 77 });
    let Ok(frame) = header.frame(0, |_| Ok::<_, std::convert::Infallible>(()));
    let mut rules = rules("qp 77 loss");
    rules.put(Direction::Outbound, frame, 0);
    assert_eq!(rules.take(Direction::Outbound), None);
}

#[test]
fn faults_happen_in_their_time_alone() {
    let mut rules = rules("loss at 1ms for 1ms");
    for (number, now) in [0, MS - 1, MS, 2 * MS - 1, 2 * MS].into_iter().enumerate() {
        rules.put(Direction::Outbound, numbered(number as u32), now);
    }
    assert_eq!(passed(&mut rules, 2 * MS), [0, 1, 4]);
}

#[test]
fn new_rules_let_the_frames_of_the_old_ones_pass() {
    let mut before = rules("delay 1s");
    assert_eq!(through(&mut before, 3, 0), []);
    let mut after = rules("");
    after.inherit(before);
    assert!(!after.is_idle());
    assert_eq!(passed(&mut after, 0), [0, 1, 2]);
    assert!(after.is_idle());
}

#[test]
fn faults_of_the_device_come_at_their_time_or_command() {
    let mut rules = rules(
        "flap at 2ms for 1ms; fatal at 4ms; command create_qp 2 overrun cq; command 3 timeout",
    );
    assert_eq!(rules.deadline(), Some(2 * MS));
    assert_eq!(rules.strike(2 * MS - 1), None);
    assert_eq!(rules.strike(2 * MS), Some(Strike::Begin(DeviceEffect::Flap)));
    assert_eq!(rules.deadline(), Some(3 * MS));
    assert_eq!(rules.strike(9 * MS), Some(Strike::LinkUp));
    assert_eq!(rules.strike(9 * MS), Some(Strike::Begin(DeviceEffect::Fatal)));
    assert_eq!((rules.strike(9 * MS), rules.deadline()), (None, None));
    let create_qp = 0x500;
    let unanswered: Vec<bool> = (0..4).map(|_| rules.command(create_qp, 9 * MS)).collect();
    assert_eq!(unanswered, [false, false, true, false]);
    let overrun = DeviceEffect::Overrun(Queues::Completion, None);
    assert_eq!(rules.strike(9 * MS), Some(Strike::Begin(overrun)));
    assert_eq!(rules.strike(9 * MS), None);
}

#[test]
fn a_command_may_come_later_than_a_flap_is_long() {
    let mut rules = rules("command create_qp flap for 1ms");
    assert!(!rules.command(0x500, 9 * MS));
    assert_eq!(rules.strike(9 * MS), Some(Strike::Begin(DeviceEffect::Flap)));
    assert_eq!(rules.deadline(), Some(10 * MS));
    assert_eq!(rules.strike(10 * MS), Some(Strike::LinkUp));
}
