//! Connections over a wire that loses, repeats and reorders.

use super::super::Mad;
use super::super::connection::{Connection, Event, Phase, RETRIES, span};
use super::super::message::{
    Ids, LoadPath, Message, Reason, Reject, Reply, Request, Resolve, Resolved,
};
use super::request;
use crate::clock::Random;

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
