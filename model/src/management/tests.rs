//! The codec against the layouts of the specification, and connections over a wire that loses,
//! repeats and reorders.

use super::connection::{Connection, Event, Phase, RETRIES, span};
use super::ip::{self, Addresses};
use super::mad::{Addressee, HEADER, Mad, SIZE};
use super::message::{
    Confirm, Delay, Disconnect, Ids, LoadPath, Message, Path, PathLoaded, Reason, Reject, Reply,
    Request, Resolve, Resolved, room,
};
use super::subnet::{self, Signature};
use crate::clock::Random;
use crate::wire::{Global, Link, Route};

const IDS: Ids = Ids { local: 0x0102_0304, remote: 0x0506_0708 };

fn path() -> Path {
    Path {
        local_lid: 0x1122,
        remote_lid: 0x3344,
        local_gid: [0xa1; 16],
        remote_gid: [0xb2; 16],
        flow_label: 0xf_edcb,
        rate: 0x2a,
        traffic_class: 0x55,
        hop_limit: 0x66,
        level: 0x9,
        subnet_local: true,
        ack_timeout: 0x15,
    }
}

fn request() -> Request {
    Request {
        local: 0x0102_0304,
        service: 0x1112_1314_1516_1718,
        guid: 0x2122_2324_2526_2728,
        q_key: 0x3132_3334,
        qp: 0x41_4243,
        responder_resources: 0x51,
        initiator_depth: 0x61,
        remote_timeout: 0x14,
        transport: 3,
        flow_control: true,
        psn: 0x71_7273,
        local_timeout: 0x13,
        retry_count: 7,
        p_key: 0x8182,
        mtu: 5,
        rnr_retry_count: 6,
        max_retries: 15,
        srq: true,
        extended_transport: 1,
        primary: path(),
        alternate: Path { local_lid: 9, ..path() },
        private: vec![0xee; room::REQUEST],
    }
}

/// One message of each kind, with every field set.
fn messages() -> Vec<Message> {
    let private = |room: usize| vec![0xee; room];
    vec![
        Message::Request(Box::new(request())),
        Message::Delay(Delay { ids: IDS, message: 2, timeout: 24, private: private(room::DELAY) }),
        Message::Reject(Reject {
            ids: IDS,
            message: 1,
            reason: Reason::CONSUMER,
            information: vec![0xdd; 72],
            private: private(room::REJECT),
        }),
        Message::Reply(Reply {
            ids: IDS,
            q_key: 0x3132_3334,
            qp: 0x41_4243,
            target: 0x44_4546,
            psn: 0x71_7273,
            responder_resources: 0x51,
            initiator_depth: 0x61,
            ack_delay: 0x15,
            failover: 2,
            flow_control: true,
            rnr_retry_count: 5,
            srq: true,
            guid: 0x2122_2324_2526_2728,
            private: private(room::REPLY),
        }),
        Message::Ready(Confirm { ids: IDS, private: private(room::READY) }),
        Message::Disconnect(Disconnect {
            ids: IDS,
            remote_qp: 0x41_4243,
            private: private(room::DISCONNECT),
        }),
        Message::Disconnected(Confirm { ids: IDS, private: private(room::DISCONNECTED) }),
        Message::Resolve(Resolve {
            request: 7,
            p_key: 0x8182,
            service: 0x1112_1314_1516_1718,
            private: private(room::RESOLVE),
        }),
        Message::Resolved(Resolved {
            request: 7,
            status: 2,
            qp: 0x41_4243,
            service: 0x1112_1314_1516_1718,
            q_key: 0x3132_3334,
            private: private(room::RESOLVED),
        }),
        Message::LoadPath(Box::new(LoadPath {
            ids: IDS,
            remote_qp: 0x41_4243,
            remote_timeout: 0x14,
            path: path(),
            private: private(room::LOAD),
        })),
        Message::PathLoaded(PathLoaded {
            ids: IDS,
            status: 3,
            information: vec![0xdd; 72],
            private: private(room::LOADED),
        }),
    ]
}

#[test]
fn every_message_is_read_as_it_was_written() {
    for message in messages() {
        let mad = Mad { transaction: 0x1234_5678_9abc_def0, message };
        assert_eq!(Mad::decode(&mad.encode()), Some(mad));
    }
}

/// Offsets of IBA 1.3, table 12-6, from the end of the MAD's header.
#[test]
fn request_has_the_layout_of_the_specification() {
    let mad = Mad { transaction: 1, message: Message::Request(Box::new(request())) };
    let bytes = mad.encode();
    assert_eq!(bytes[..8], [1, 7, 2, 3, 0, 0, 0, 0]);
    assert_eq!(bytes[16..18], [0, 0x10]);
    let data = &bytes[HEADER..];
    assert_eq!(data[..8], [1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(data[8..16], 0x1112_1314_1516_1718_u64.to_be_bytes());
    assert_eq!(data[16..24], 0x2122_2324_2526_2728_u64.to_be_bytes());
    assert_eq!(data[28..36], [0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x51]);
    // Remote time-out, transport 3, flow control.
    assert_eq!(data[36..44], [0, 0, 0, 0x61, 0, 0, 0, 0x14 << 3 | 3 << 1 | 1]);
    assert_eq!(data[44..48], [0x71, 0x72, 0x73, 0x13 << 3 | 7]);
    // MTU and RNR retries; CM retries, SRQ and extended transport.
    assert_eq!(data[48..52], [0x81, 0x82, 0x56, 0xf9]);
    assert_eq!(data[52..56], [0x11, 0x22, 0x33, 0x44]);
    assert_eq!(data[56], 0xa1);
    assert_eq!(data[72], 0xb2);
    // Flow label and rate; traffic class, hop limit, service level and subnet, time-out.
    assert_eq!(data[88..96], [0xfe, 0xdc, 0xb0, 0x2a, 0x55, 0x66, 0x98, 0xa8]);
    assert_eq!(data[96..98], [0, 9]);
    assert_eq!(data[139], 0xa8);
    assert_eq!(data[140], 0xee);
    assert_eq!(data.len(), 140 + room::REQUEST);
}

#[test]
fn hostile_bytes_are_read_or_refused() {
    let mut random = Random::seeded(6);
    for attribute in 0x0e..0x1d_u16 {
        for _ in 0..200 {
            let mut bytes = [0; SIZE];
            bytes.iter_mut().for_each(|byte| *byte = random.draw() as u8);
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
            let known = (0x10..=0x1a).contains(&attribute);
            let read = Mad::decode(&bytes);
            assert_eq!(read.is_some(), known);
            // What was read can be written, and reads the same.
            if let Some(mad) = read {
                assert_eq!(Mad::decode(&mad.encode()), Some(mad));
            }
        }
    }
    let good = Mad { transaction: 1, message: messages().remove(4) }.encode();
    assert!(Mad::decode(&good[..SIZE - 1]).is_none(), "too short");
    for at in 0..4 {
        let mut bad = good;
        bad[at] ^= 0x10;
        assert!(Mad::decode(&bad).is_none(), "byte {at} counts");
    }
}

#[test]
fn private_data_beyond_its_room_is_cut_off() {
    let private = vec![1; 1000];
    let message = Message::Ready(Confirm { ids: IDS, private });
    let read = Mad::decode(&Mad { transaction: 1, message }.encode()).unwrap();
    let Message::Ready(ready) = read.message else { panic!("{read:?}") };
    assert_eq!(ready.private, [1; room::READY]);
}

#[test]
fn a_mad_goes_as_a_datagram_to_queue_pair_1() {
    let gid = |last| {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 198, 18, 0, last]);
        gid
    };
    let global = Global {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        source: gid(1),
        destination: gid(2),
    };
    for (link, route) in [
        (Link::Roce, Route::Ethernet { global, port: 0xc000 }),
        (Link::InfiniBand, Route::InfiniBand { level: 0, source: 1, destination: 2, global: None }),
    ] {
        let mad = Mad { transaction: 1, message: messages().remove(0) };
        let mut frame = mad.frame(route, 0xffff);
        assert_eq!(Mad::of_frame(link, &frame), Some((route, mad)));
        let last = frame.0.len() - 1;
        frame.0[last] ^= 1;
        assert_eq!(Mad::of_frame(link, &frame), None, "the ICRC counts");
    }
}

#[test]
fn messages_name_the_process_they_are_for() {
    for message in messages() {
        let attribute = message.attribute();
        let expected = match attribute {
            0x10 | 0x17 => Addressee::Service(0x1112_1314_1516_1718),
            0x18 => Addressee::Connection(7),
            _ => Addressee::Connection(IDS.remote),
        };
        assert_eq!(Mad { transaction: 1, message }.addressee(), expected, "{attribute:#x}");
    }
}

#[test]
fn addresses_are_in_private_data() {
    let four = Addresses {
        source: "192.0.2.1:4660".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
    };
    let bytes = four.encode();
    assert_eq!(bytes[..4], [0, 0x40, 0x12, 0x34]);
    assert_eq!(bytes[4..16], [0; 12]);
    assert_eq!(bytes[16..20], [192, 0, 2, 1]);
    assert_eq!(bytes[32..], [192, 0, 2, 2]);
    assert_eq!(Addresses::decode(&bytes), Some(four));
    let six = Addresses {
        source: "[fd00::1]:4660".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
    };
    assert_eq!(six.encode()[1], 0x60);
    assert_eq!(Addresses::decode(&six.encode()), Some(six));
    assert_eq!(Addresses::decode(&bytes[..35]), None);
    assert_eq!(Addresses::decode(&[5; 36]), None, "another version");
    // RDMA_PS_TCP
    assert_eq!(ip::service(0x0106, 7174), 0x0106_1c06);
}

#[test]
fn groups_are_those_that_linux_computes() {
    let four = "239.1.2.3".parse().unwrap();
    let on = |link, signature| subnet::group(link, four, 0xffff, signature);
    assert_eq!(
        on(Link::Roce, Signature::Rdma),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3]
    );
    assert_eq!(
        on(Link::InfiniBand, Signature::Rdma),
        [0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 15, 1, 2, 3]
    );
    assert_eq!(on(Link::InfiniBand, Signature::Ip)[3], 0x1b);
    for last in 0..=255 {
        let mut gid = on(Link::InfiniBand, Signature::Ip);
        gid[15] = last;
        assert!((0xc000..0xffff).contains(&subnet::group_lid(&gid)));
    }
}

#[test]
fn a_path_record_is_read_as_it_was_written() {
    let path = subnet::Path {
        source: [1; 16],
        destination: [2; 16],
        source_lid: 3,
        destination_lid: 4,
        p_key: 0xffff,
        level: 5,
        traffic_class: 6,
        flow_label: 0xa_bcde,
        hop_limit: 7,
        mtu: 5,
        life_time: 18,
    };
    let bytes = path.record();
    // IBA 1.3, 15.2.5.16
    assert_eq!(bytes[40..44], [0, 4, 0, 3]);
    assert_eq!(bytes[44..50], [0x0a, 0xbc, 0xde, 7, 6, 0x81]);
    assert_eq!(bytes[54..57], [0x85, 0x91, 0x92]);
    assert_eq!(subnet::Path::of_record(&bytes), Some(path));
    assert_eq!(subnet::Path::of_record(&bytes[1..]), None);
}

/// Two sides and what is on its way between them.
struct Pair {
    active: Connection,
    passive: Option<Connection>,
    now: u64,
    /// Whether the message to deliver next is lost, by its attribute id.
    lose: Vec<u16>,
    /// Deliver every message twice.
    twice: bool,
    accepts: bool,
    events: [Vec<&'static str>; 2],
    sent: Vec<u16>,
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Replied(_) => "replied",
        Event::Established => "established",
        Event::Rejected(reject) if reject.reason == Reason::STALE => "stale",
        Event::Rejected(_) => "rejected",
        Event::Unreachable => "unreachable",
        Event::Disconnected { answered: true } => "disconnected",
        Event::Disconnected { answered: false } => "lost",
        Event::TimeWaitExit => "exit",
        Event::Resolved(resolved) if resolved.status == 0 => "resolved",
        Event::Resolved(_) => "refused",
    }
}

impl Pair {
    fn new() -> Self {
        let request = Request { local: 1, qp: 0x11, guid: 5, private: vec![], ..request() };
        Self {
            active: Connection::connect(request, 100, 0),
            passive: None,
            now: 0,
            lose: Vec::new(),
            twice: false,
            accepts: true,
            events: [Vec::new(), Vec::new()],
            sent: Vec::new(),
        }
    }

    /// Carries a message; whether it arrives, and how often.
    fn carry(&mut self, mad: &Mad) -> usize {
        let attribute = mad.message.attribute();
        self.sent.push(attribute);
        // What is carried is bytes.
        assert_eq!(Mad::decode(&mad.encode()).map(|mad| mad.transaction), Some(mad.transaction));
        if let Some(at) = self.lose.iter().position(|lost| *lost == attribute) {
            self.lose.remove(at);
            return 0;
        }
        if self.twice { 2 } else { 1 }
    }

    fn deliver_to_passive(&mut self, mad: &Mad) {
        match (&mut self.passive, &mad.message) {
            (Some(passive), _) => passive.receive(mad, self.now),
            (None, Message::Request(request)) => {
                self.passive = Some(Connection::requested(2, mad.transaction, request));
            }
            (None, _) => {}
        }
    }

    /// Carries messages, and answers as a program would, until nothing is on its way.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            while let Some(mad) = self.active.take_message() {
                any = true;
                for _ in 0..self.carry(&mad) {
                    self.deliver_to_passive(&mad);
                }
            }
            while let Some(event) = self.active.take_event() {
                any = true;
                self.events[0].push(name(&event));
                if matches!(event, Event::Replied(_)) {
                    assert!(self.active.establish(Vec::new()));
                }
            }
            if let Some(mut passive) = self.passive.take() {
                if passive.phase == Phase::Requested && self.accepts {
                    let reply = Reply { qp: 0x22, guid: 6, ..Reply::default() };
                    assert!(passive.accept(reply, self.now));
                }
                while let Some(mad) = passive.take_message() {
                    any = true;
                    for _ in 0..self.carry(&mad) {
                        self.active.receive(&mad, self.now);
                    }
                }
                while let Some(event) = passive.take_event() {
                    any = true;
                    self.events[1].push(name(&event));
                }
                self.passive = Some(passive);
            }
            if !any {
                return;
            }
        }
    }

    /// Moves the time to the next deadline. Returns false if there is none.
    fn wait(&mut self) -> bool {
        let passive = self.passive.as_ref().and_then(Connection::deadline);
        let Some(next) = self.active.deadline().into_iter().chain(passive).min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.active.expire(self.now);
        if let Some(passive) = &mut self.passive {
            passive.expire(self.now);
        }
        self.settle();
        true
    }

    fn passive(&mut self) -> &mut Connection {
        self.passive.as_mut().expect("a passive side")
    }

    /// Waits until both sides are established.
    fn establish(&mut self) {
        self.settle();
        for _ in 0..4 * u32::from(RETRIES) {
            let passive = self.passive.as_ref().map(|passive| passive.phase);
            if (self.active.phase, passive) == (Phase::Established, Some(Phase::Established)) {
                return;
            }
            assert!(self.wait(), "{:?} {passive:?}", self.active.phase);
        }
        panic!("not established: {:?}", self.events);
    }

    /// Waits until both sides are closed.
    fn close(&mut self) {
        self.settle();
        for _ in 0..4 * u32::from(RETRIES) {
            let passive = self.passive.as_ref().map(|passive| passive.phase);
            if (self.active.phase, passive) == (Phase::Closed, Some(Phase::Closed)) {
                return;
            }
            assert!(self.wait(), "{:?} {passive:?}", self.active.phase);
        }
        panic!("not closed: {:?}", self.events);
    }
}

#[test]
fn connection_is_made_and_ended() {
    let mut pair = Pair::new();
    pair.establish();
    assert_eq!(pair.sent, [0x10, 0x13, 0x14], "REQ, REP, RTU");
    assert_eq!(pair.now, 0, "nothing is repeated");
    assert_eq!(pair.events, [vec!["replied"], vec!["established"]]);
    assert_eq!(pair.active.ids, Ids { local: 1, remote: 2 });
    assert_eq!((pair.active.remote_qp, pair.passive().remote_qp), (0x22, 0x11));

    assert!(pair.active.disconnect(101, 0));
    pair.settle();
    assert_eq!(pair.passive().phase, Phase::Disconnected);
    assert!(pair.passive().disconnect(102, 0));
    pair.close();
    assert_eq!(pair.sent[3..], [0x15, 0x16], "DREQ, DREP");
    let ended = ["disconnected", "exit"];
    assert_eq!([&pair.events[0][1..], &pair.events[1][1..]], [&ended, &ended]);
}

#[test]
fn each_lost_message_is_repeated() {
    for lost in [0x10, 0x13, 0x14] {
        for times in [1, usize::from(RETRIES)] {
            let mut pair = Pair::new();
            pair.lose = vec![lost; times];
            pair.establish();
            assert!(pair.now >= span(20), "{lost:#x}: repeated after the time-out");
            assert_eq!(pair.events, [vec!["replied"], vec!["established"]], "{lost:#x}");
        }
    }
    for lost in [0x15, 0x16] {
        let mut pair = Pair::new();
        pair.establish();
        pair.lose = vec![lost];
        assert!(pair.active.disconnect(101, 0));
        pair.settle();
        if pair.passive().phase == Phase::Established {
            assert!(pair.wait());
        }
        let now = pair.now;
        assert!(pair.passive().disconnect(102, now));
        pair.settle();
        pair.close();
        assert_eq!(pair.events[0][1..], ["disconnected", "exit"], "{lost:#x}");
        assert_eq!(pair.events[1][1], "disconnected", "{lost:#x}");
    }
}

#[test]
fn duplicates_do_no_harm() {
    let mut pair = Pair::new();
    pair.twice = true;
    pair.establish();
    assert!(pair.active.disconnect(101, 0));
    pair.settle();
    assert!(pair.passive().disconnect(102, 0));
    pair.close();
    let common = |first| vec![first, "disconnected", "exit"];
    assert_eq!(pair.events, [common("replied"), common("established")]);
}

#[test]
fn silence_ends_every_wait() {
    let mut pair = Pair::new();
    pair.lose = vec![0x10; 100];
    pair.settle();
    while pair.wait() {}
    assert_eq!(pair.sent, [0x10; 1 + RETRIES as usize]);
    assert_eq!(pair.events[0], ["unreachable"]);
    assert_eq!(pair.active.phase, Phase::Closed);

    let mut pair = Pair::new();
    pair.lose = vec![0x13; 100];
    pair.settle();
    while pair.wait() {}
    assert_eq!(pair.events[1], ["unreachable"]);

    let mut pair = Pair::new();
    pair.establish();
    pair.lose = vec![0x15; 100];
    assert!(pair.active.disconnect(101, 0));
    pair.settle();
    while pair.wait() {}
    assert_eq!(pair.events[0][1..], ["lost", "exit"]);
}

#[test]
fn both_sides_may_end_at_once() {
    let mut pair = Pair::new();
    pair.establish();
    assert!(pair.active.disconnect(101, 0));
    assert!(pair.passive().disconnect(102, 0));
    pair.settle();
    // Each has heard the other's DREQ. The programs are gone, which answers.
    pair.active.close(103, 0);
    pair.passive().close(104, 0);
    pair.close();
    for side in &pair.events {
        let ends = side.iter().filter(|event| **event == "disconnected").count();
        assert_eq!(ends, 1, "{side:?}");
    }
}

#[test]
fn disconnect_request_may_overtake_the_ready_message() {
    let mut pair = Pair::new();
    pair.settle_until_replied();
    let ready = pair.active.take_message().expect("an RTU");
    assert!(pair.active.disconnect(101, 0));
    let disconnect = pair.active.take_message().expect("a DREQ");
    pair.deliver_to_passive(&disconnect);
    pair.deliver_to_passive(&ready);
    pair.settle();
    assert_eq!(pair.passive().phase, Phase::Disconnected);
    assert_eq!(pair.events[1], ["disconnected"]);
}

impl Pair {
    /// Carries REQ and REP, and confirms; the RTU stays with the active side.
    fn settle_until_replied(&mut self) {
        let request = self.active.take_message().expect("a REQ");
        self.deliver_to_passive(&request);
        let now = self.now;
        let reply = Reply { qp: 0x22, ..Reply::default() };
        assert!(self.passive().accept(reply, now));
        let reply = self.passive().take_message().expect("a REP");
        self.active.receive(&reply, now);
        assert!(matches!(self.active.take_event(), Some(Event::Replied(_))));
        assert!(self.active.establish(Vec::new()));
    }
}

#[test]
fn first_packet_may_overtake_the_ready_message() {
    let mut pair = Pair::new();
    pair.settle_until_replied();
    pair.passive().has_traffic();
    pair.settle();
    assert_eq!(pair.events[1], ["established"], "the RTU says nothing new");
}

#[test]
fn request_that_is_repeated_while_the_program_thinks_is_delayed() {
    let mut pair = Pair::new();
    pair.accepts = false;
    pair.settle();
    assert!(pair.wait());
    assert_eq!(pair.sent, [0x10, 0x10, 0x11], "REQ twice, then MRA");
    let deadline = pair.active.deadline().expect("a deadline");
    assert!(deadline > pair.now + span(24), "the MRA's time counts");
    pair.accepts = true;
    pair.establish();
}

#[test]
fn rejection_has_its_reason_and_private_data() {
    let mut pair = Pair::new();
    pair.accepts = false;
    pair.settle();
    assert!(pair.passive().reject(Reason::CONSUMER, Vec::new(), vec![1, 2, 3], 0));
    let reject = pair.passive().take_message().expect("a REJ");
    pair.active.receive(&reject, 0);
    let Some(Event::Rejected(rejected)) = pair.active.take_event() else { panic!("no event") };
    assert_eq!((rejected.reason, &rejected.private[..]), (Reason::CONSUMER, &[1, 2, 3][..]));
    assert_eq!(pair.active.phase, Phase::Closed);
    // The REJ was lost: a repeated REQ gets it again.
    let request = Message::Request(Box::new(request()));
    pair.passive().receive(&Mad { transaction: 100, message: request }, 0);
    assert_eq!(pair.passive().take_message(), Some(reject));
    while pair.wait() {}
    assert!(pair.events[1].is_empty(), "it was never connected: {:?}", pair.events);
}

#[test]
fn stale_connection_is_ended() {
    let mut pair = Pair::new();
    pair.establish();
    pair.passive().is_stale(200, 0);
    pair.settle();
    assert_eq!(pair.active.phase, Phase::Disconnected);
    let reject = Reject {
        ids: Ids { local: 2, remote: 1 },
        message: 0,
        reason: Reason::STALE,
        information: Vec::new(),
        private: Vec::new(),
    };
    let mut again = Connection::connect(Request { local: 3, ..request() }, 300, 0);
    again.receive(&Mad { transaction: 300, message: Message::Reject(reject) }, 0);
    assert!(again.take_event().is_some_and(|event| name(&event) == "stale"));
    assert_eq!(again.phase, Phase::TimeWait);
}

#[test]
fn connection_without_program_tells_its_peer() {
    for phase in [Phase::Requested, Phase::Established] {
        let mut pair = Pair::new();
        pair.accepts = phase == Phase::Established;
        pair.settle();
        assert_eq!(pair.passive().phase, phase);
        pair.passive().close(200, 0);
        pair.settle();
        let told = pair.events[0].last().copied();
        let expected = if phase == Phase::Requested { "rejected" } else { "disconnected" };
        assert_eq!(told, Some(expected), "{phase:?}");
    }
}

#[test]
fn alternate_paths_are_refused() {
    let mut pair = Pair::new();
    pair.establish();
    let load = LoadPath { ids: Ids { local: 1, remote: 2 }, ..LoadPath::default() };
    let load = Mad { transaction: 400, message: Message::LoadPath(Box::new(load)) };
    pair.passive().receive(&load, 0);
    let answer = pair.passive().take_message().expect("an APR");
    let Message::PathLoaded(loaded) = answer.message else { panic!("{answer:?}") };
    assert_eq!((answer.transaction, loaded.status), (400, 2));
}

#[test]
fn datagram_service_is_looked_up() {
    let resolve = Resolve { request: 7, service: 9, ..Resolve::default() };
    let mut active = Connection::resolve(resolve.clone(), 100, 0);
    let ask = active.take_message().expect("a SIDR_REQ");
    let mut passive = Connection::asked(8, 100, &resolve);
    // The answer is lost, and the request is repeated.
    assert!(passive.resolved(Resolved { qp: 0x22, q_key: 5, ..Resolved::default() }, 0));
    let lost = passive.take_message().expect("a SIDR_REP");
    active.expire(span(20));
    assert_eq!(active.take_message(), Some(ask.clone()));
    passive.receive(&ask, 1);
    let answer = passive.take_message().expect("the same SIDR_REP");
    assert_eq!(answer, lost);
    active.receive(&answer, 2);
    let Some(Event::Resolved(resolved)) = active.take_event() else { panic!("no event") };
    assert_eq!((resolved.request, resolved.qp, resolved.q_key), (7, 0x22, 5));
    assert_eq!(active.phase, Phase::Closed);
    active.receive(&answer, 3);
    assert!(active.take_event().is_none(), "a duplicate says nothing new");
}

#[test]
fn random_loss_duplication_and_order_lose_no_event() {
    for seed in 0..200 {
        let mut random = Random::seeded(seed);
        let mut pair = Pair::new();
        pair.twice = random.draw() % 2 == 0;
        for attribute in 0x10..=0x16 {
            for _ in 0..random.draw() % 4 {
                pair.lose.push(attribute);
            }
        }
        pair.establish();
        let now = pair.now;
        if random.draw() % 2 == 0 {
            pair.active.close(500, now);
            pair.settle();
            while pair.passive().phase == Phase::Established {
                assert!(pair.wait(), "seed {seed}");
            }
            let now = pair.now;
            pair.passive().close(501, now);
        } else {
            pair.active.close(500, now);
            pair.passive().close(501, now);
        }
        pair.close();
        assert_eq!(pair.events[0][0], "replied", "seed {seed}");
        assert_eq!(pair.events[1][0], "established", "seed {seed}");
    }
}
