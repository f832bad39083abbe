use proptest::prelude::*;

use std::net::Ipv4Addr;

use super::*;

/// A ping-pong of 64 bytes.
pub fn plan() -> Plan {
    Plan {
        kind: Kind::Lat,
        operation: Operation::Send,
        carrier: Carrier::Rc,
        size: 64,
        inline: false,
        batch: 1,
        signal_every: 1,
        depth: 16,
        queue_pairs: 1,
        threads: 1,
        amount: Amount::Messages(10),
        warm_up: 0,
        schedule: None,
        validate: false,
        corrupt_at: None,
        stall: None,
        via: Via::Direct,
        mtu: None,
        service_level: 0,
        pkey_index: 0,
        header: Header::default(),
        retransmission: Retransmission::default(),
        direction: Direction::OneWay,
        waiting: Waiting::Polling,
        receives_from: ReceiveSource::Own,
        group: None,
        groups: 1,
        connecting: Connecting::Told,
    }
}

#[test]
fn rdma_cm_connects_rc_alone_and_chooses_the_p_key() {
    let by_cm = || Plan { connecting: Connecting::RdmaCm, ..plan() };
    by_cm().check().unwrap();
    for carrier in [Carrier::Uc, Carrier::Ud, Carrier::Xrc, Carrier::Dc, Carrier::Raw] {
        let error = Plan { carrier, ..by_cm() }.check().unwrap_err();
        assert!(error.contains("--transport rc"), "{error}");
    }
    let error = Plan { pkey_index: 1, ..by_cm() }.check().unwrap_err();
    assert!(error.contains("leave --pkey-index out"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_choose() {
    let refused = |change: fn(&mut Plan), words: &str| {
        let mut plan = plan();
        change(&mut plan);
        let error = plan.check().unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    plan().check().unwrap();
    refused(|plan| (plan.carrier, plan.operation) = (Carrier::Ud, Operation::Write), "rc");
    refused(|plan| (plan.carrier, plan.operation) = (Carrier::Uc, Operation::Read), "rc");
    refused(|plan| (plan.operation, plan.inline, plan.size) = (Operation::Cas, true, 8), "inline");
    refused(|plan| plan.operation = Operation::Fadd, "8 bytes");
    refused(|plan| plan.size = 0, "--size 0");
    refused(|plan| (plan.kind, plan.batch, plan.signal_every) = (Kind::Bw, 8, 16), "at least 23");
    refused(|plan| plan.queue_pairs = 2, "--threads");
    refused(|plan| (plan.kind, plan.queue_pairs, plan.threads) = (Kind::Bw, 3, 2), "multiple");
    refused(|plan| plan.batch = 2, "bw");
    refused(|plan| plan.amount = Amount::Messages(0), "iterations");
    refused(|plan| plan.mtu = Some(1500), "4096");
    refused(|plan| plan.retransmission.ack_timeout = Some(32), "0 to 31");
    refused(|plan| plan.retransmission.retries = Some(8), "0 to 7");
    refused(
        |plan| (plan.carrier, plan.retransmission.rnr_retries) = (Carrier::Uc, Some(1)),
        "leave --rnr-retries out",
    );
    refused(|plan| plan.direction = Direction::BothWays, "leave --bidirectional out");
    refused(
        |plan| {
            (plan.kind, plan.direction) = (Kind::Bw, Direction::BothWays);
            plan.stall = Some(Stall { at: 1, nanoseconds: 1 });
        },
        "--stall-at",
    );
    refused(
        |plan| (plan.operation, plan.waiting) = (Operation::Write, Waiting::Events),
        "write-imm",
    );
    refused(
        |plan| (plan.carrier, plan.receives_from) = (Carrier::Uc, ReceiveSource::Shared),
        "leave --srq out",
    );
    refused(|plan| (plan.carrier, plan.via) = (Carrier::Dc, Via::Verbs), "ibv_post_send");
    refused(|plan| (plan.carrier, plan.operation) = (Carrier::Raw, Operation::Read), "SEND alone");
    refused(|plan| (plan.carrier, plan.via) = (Carrier::Raw, Via::Verbs), "direct way");
    refused(|plan| (plan.carrier, plan.service_level) = (Carrier::Raw, 1), "leave --sl");
    refused(|plan| (plan.carrier, plan.size) = (Carrier::Raw, 1473), "1472");
    refused(|plan| plan.group = Some(Ipv4Addr::new(239, 1, 1, 1)), "--transport raw");
    refused(
        |plan| (plan.carrier, plan.group) = (Carrier::Raw, Some(Ipv4Addr::new(10, 1, 1, 1))),
        "224.0.0.0",
    );
    refused(|plan| plan.corrupt_at = Some(1), "--validate");
    refused(
        |plan| (plan.corrupt_at, plan.validate, plan.warm_up) = (Some(u64::MAX), true, 1),
        "--corrupt-at",
    );
    refused(|plan| plan.stall = Some(Stall { at: u64::MAX, nanoseconds: 1 }), "--stall-at");
    refused(|plan| (plan.size, plan.validate, plan.depth) = (1 << 30, true, 1024), "GiB");
    refused(
        |plan| {
            let arrivals = Arrivals::Fixed;
            plan.schedule = Some(Schedule { per_second: f64::NAN, arrivals, seed: 0 });
        },
        "--rate",
    );
}

proptest! {
    /// Plans come from peers: for any numbers that pass the check, the layout must not
    /// overflow.
    #[test]
    fn numbers_of_a_stranger_are_refused_or_harmless(
        numbers in prop::array::uniform8(prop_oneof![0u64..300, any::<u64>()]),
        small in prop::array::uniform4(prop_oneof![0u32..40, any::<u32>()]),
        operation in 0usize..6,
        kind in prop_oneof![Just(Kind::Lat), Just(Kind::Bw)],
        validate: bool,
    ) {
        let [size, at, time, wrong, count, warm_up, rate, seed] = numbers;
        let [depth, batch, queue_pairs, threads] = small;
        let plan = Plan {
            kind,
            operation: Operation::value_variants()[operation],
            size,
            depth,
            batch,
            queue_pairs,
            threads,
            validate,
            amount: Amount::Messages(count),
            warm_up,
            stall: Some(Stall { at, nanoseconds: time }),
            corrupt_at: validate.then_some(wrong),
            schedule: (batch == 1).then_some(Schedule {
                per_second: f64::from_bits(rate),
                arrivals: Arrivals::Poisson,
                seed,
            }),
            ..plan()
        };
        if plan.check().is_ok() {
            let layout = plan.layout().unwrap();
            prop_assert!(layout.out >= 1 && layout.target >= layout.out);
            let bytes = layout.out_bytes() + layout.target_bytes();
            prop_assert!(bytes as u64 * u64::from(plan.queue_pairs) <= MOST_MEMORY);
            prop_assert!(plan.queues_per_thread() >= 1);
            let entries = (plan.depth + plan.receives()) * plan.queues_per_thread() as u32;
            prop_assert!(entries >= 2 && warm_up + at < u64::MAX && warm_up + count < 1 << 42);
        }
    }
}

#[test]
fn a_plan_survives_the_way_to_the_peer_and_nothing_else_is_taken_for_one() {
    let mut plan = plan();
    plan.stall = Some(Stall { at: 3, nanoseconds: 5 });
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    assert!(serde_json::from_str::<Plan>(&text.replacen('{', "{\"more\":1,", 1)).is_err());
}
