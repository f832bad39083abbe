//! Tests of where frames arrive, and of the datagrams of the ports' agent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::super::{Agent, Engine};
use super::{PATIENCE, Station, domain, route};
use crate::capture::Capture;
use crate::card::{Card, Link, Sort};
use crate::command::test::Rig;
use crate::identity::Identity;
use crate::management::message::{Confirm, Ids};
use crate::management::{Mad, Message};
use crate::trace::Sink;
use crate::transport::test::Setup;
use crate::transport::test::captures::{Seen, frames};
use crate::wire::{Frame, mac};

/// The capture of a device's port.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn of(card: &mut Card) -> Self {
        let log = Self::default();
        let ports = [card.identity.clone()];
        card.capture(&Capture::start(Sink::Memory(log.0.clone()), &ports).unwrap(), 0);
        log
    }

    fn seen(&self, link: Link) -> Vec<Seen> {
        frames(link, &self.0.lock().unwrap())
    }

    fn arrived(&self, link: Link) -> Vec<Frame> {
        self.seen(link).into_iter().filter(|seen| seen.inbound).map(|seen| seen.frame).collect()
    }
}

/// A raw Ethernet frame to an address.
fn raw(to: [u8; 6]) -> Frame {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&to);
    bytes[6..14].copy_from_slice(&[2, 3, 3, 3, 3, 3, 0x88, 0xb5]);
    Frame::new(bytes)
}

#[test]
fn raw_frame_arrives_where_a_switch_forwards_it() {
    const BROADCAST: [u8; 6] = [0xff; 6];
    const MULTICAST: [u8; 6] = [0x01, 0x00, 0x5e, 1, 2, 3];
    /// No port has it.
    const UNKNOWN: [u8; 6] = [2, 9, 9, 9, 9, 9];
    let (domain, link) = (domain(), Link::Roce);
    let setup = Setup { link, ..Setup::default() };
    // Ports of four processes. The first one, which sends, and the last one share a port.
    let ends = [7, 8, 9, 7];
    let stations = ends.map(|end| Station::at(&domain, setup, end));
    let logs = stations.each_ref().map(|station| {
        station.engine.enter(0, |card| {
            card.objects.groups.attach([0xff; 16], station.side.qp);
            Log::of(card)
        })
    });
    let macs = [7, 8, 9].map(|end| {
        let mut identity = crate::command::test::identity(link);
        identity.gids[0].gid[15] = end;
        mac(&identity.gids[0].gid)
    });
    let all = [macs[1], macs[2], UNKNOWN, MULTICAST, macs[0], BROADCAST].map(raw);
    let [second, third, unknown, multicast, first, broadcast] = all.clone();
    stations[0].engine.enter(0, |card| card.outbox.extend(all));
    // No process at the sender's port gets the frame to an address that no port has.
    let own = vec![multicast.clone(), first, broadcast.clone()];
    let others =
        [second, third].map(|to| vec![to, unknown.clone(), multicast.clone(), broadcast.clone()]);
    let [second, third] = others;
    for (log, expected) in logs.iter().zip([own.clone(), second, third, own]) {
        let end = Instant::now() + PATIENCE;
        while log.arrived(link).len() < expected.len() {
            assert!(Instant::now() < end, "{:?}", log.arrived(link));
            std::thread::yield_now();
        }
        assert_eq!(log.arrived(link), expected);
    }
}

/// An agent that writes down what it gets.
#[derive(Default)]
struct Scribe {
    received: Mutex<Vec<Frame>>,
    sends: Mutex<VecDeque<(usize, Frame)>>,
}

impl Agent for Scribe {
    fn receive(&self, _: usize, frame: &Frame) {
        self.received.lock().unwrap().push(frame.clone());
    }

    fn serves(&self, _: u64) -> bool {
        false
    }

    fn refuse(&self, _: usize, _: &Frame) {}

    fn take_frame(&self) -> Option<(usize, Frame)> {
        self.sends.lock().unwrap().pop_front()
    }

    fn wait(&self) -> Option<u64> {
        None
    }

    fn expire(&self) {}
}

/// Two devices with an agent, whose ports are captured.
struct Managed {
    engine: Arc<Engine>,
    agent: Arc<Scribe>,
    ports: [Identity; 2],
    logs: [Log; 2],
}

impl Managed {
    fn new(link: Link, rules: &str) -> Self {
        let faults = rules.parse().unwrap();
        let mut cards = [7, 8].map(|end| {
            let mut card = Rig::on(link).card;
            let identity = &mut card.identity;
            (identity.lid, identity.gids[0].gid[15]) = (end.into(), end);
            identity.mac = mac(&identity.gids[0].gid);
            card
        });
        for (index, card) in cards.iter_mut().enumerate() {
            card.set_faults(&faults, index);
        }
        let logs = cards.each_mut().map(Log::of);
        let ports = cards.each_ref().map(|card| card.identity.clone());
        let engine = Engine::new(cards.into(), Box::new(|_, _, _| {}));
        let agent = Arc::new(Scribe::default());
        engine.manage(agent.clone());
        Self { engine, agent, ports, logs }
    }

    /// Has the agent send datagrams from the first port to the second one. Returns them.
    fn send(&self, count: u32) -> Vec<Frame> {
        let prefix = self.engine.enter(1, |card| u32::from(card.identity.qpn_prefixes[0]));
        let frames: Vec<Frame> = (0..count)
            .map(|local| {
                let ids = Ids { local, remote: prefix << 16 };
                let message = Message::Ready(Confirm { ids, private: Vec::new() });
                let mad = Mad { transaction: local.into(), message };
                mad.frame(route(&self.ports[0], &self.ports[1]), 0xffff)
            })
            .collect();
        self.agent.sends.lock().unwrap().extend(frames.iter().map(|frame| (0, frame.clone())));
        self.engine.enter(0, |_| ());
        frames
    }

    /// Packets that the first port counts as sent, and the second one as received.
    fn counts(&self) -> [u64; 2] {
        let sort = Sort::Unicast as usize;
        [
            self.engine.enter(0, |card| card.traffic.sent[sort].packets),
            self.engine.enter(1, |card| card.traffic.received[sort].packets),
        ]
    }

    fn received(&self) -> Vec<Frame> {
        self.agent.received.lock().unwrap().clone()
    }
}

#[test]
fn datagrams_of_the_agent_are_counted_and_captured_at_both_ports() {
    for link in [Link::InfiniBand, Link::Roce] {
        let managed = Managed::new(link, "");
        let sent = managed.send(3);
        assert_eq!(managed.received(), sent);
        assert_eq!(managed.counts(), [3, 3]);
        for (log, inbound) in managed.logs.iter().zip([false, true]) {
            let seen = log.seen(link);
            assert!(seen.iter().all(|seen| seen.inbound == inbound && seen.dropped.is_none()));
            assert_eq!(seen.into_iter().map(|seen| seen.frame).collect::<Vec<_>>(), sent);
        }
    }
}

#[test]
fn faults_strike_datagrams_of_the_agent() {
    for link in [Link::InfiniBand, Link::Roce] {
        let managed = Managed::new(link, "device 0 out qp 1 packet 1 loss; in packet 1 duplicate");
        let sent = managed.send(2);
        assert_eq!(managed.received(), [sent[1].clone(), sent[1].clone()]);
        assert_eq!(managed.counts(), [2, 2]);
        let damaged = Managed::new(link, "device 1 in loss");
        damaged.send(2);
        assert_eq!(damaged.received(), []);
        assert_eq!(damaged.counts(), [2, 0]);
    }
}
