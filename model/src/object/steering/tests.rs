//! Unit tests.

use super::*;

const TIR: Destination = Destination::Tir(0x40);

/// A packet that all entries match.
struct Blank;

impl SteeredPacket for Blank {
    fn fields(&self) -> &[u8; MATCH] {
        &[0; MATCH]
    }

    fn length(&self) -> usize {
        0
    }

    fn edited(&self, _: &Edits<'_>) -> Option<Self> {
        Some(Self)
    }
}

/// Tables of the levels from zero on, each with one entry that all packets match. `destinations`
/// gives an entry's list from the next destination: the next level's table, or a TIR at the end.
fn chain(levels: u8, destinations: impl Fn(Destination) -> Vec<Destination>) -> Steering {
    let mut steering = Steering::default();
    let mut next = TIR;
    for level in (0..levels).rev() {
        let value = Box::new([0; MATCH]);
        let destinations = destinations(next);
        let changes = PacketChanges::default();
        let entry = FlowEntry { value, tag: 0, destinations, counters: Vec::new(), changes };
        let criteria = Box::new([0; MATCH]);
        let group = FlowGroup { range: (0, 0), criteria, entries: [(0, entry)].into() };
        let groups = [(1, group)].into();
        let table = FlowTable {
            uid: 0,
            kind: NIC_RX,
            level,
            size: 1,
            miss: None,
            tunnels: TunnelActions::default(),
            groups,
            next_group: 2,
        };
        let number = steering.tables.add(table).unwrap();
        steering.roots.insert(NIC_RX, number);
        next = Destination::Table(number);
    }
    steering
}

fn receivers(steering: &Steering) -> usize {
    steering.classify(NIC_RX, Blank).tirs.len()
}

#[test]
fn packets_that_visit_too_many_tables_or_tirs_are_dropped() {
    let twice = |next| vec![next, next];
    assert_eq!(receivers(&chain(8, twice)), 256);
    for levels in [12, 129] {
        assert_eq!(receivers(&chain(levels, twice)), 0, "{levels} levels");
    }
    let many = |next| match next {
        TIR => vec![TIR; 256],
        table => vec![table; 16],
    };
    assert_eq!(receivers(&chain(2, many)), 0, "few tables, and too many TIRs");
}

#[test]
fn packets_go_through_all_levels_and_to_a_full_list() {
    assert_eq!(receivers(&chain(129, |next| vec![next])), 1);
    assert_eq!(receivers(&chain(1, |next| vec![next; 256])), 256);
}
