//! Unit tests.

use super::*;

fn event(kind: u8, subtype: u8, data: &[(usize, u8)]) -> DevxEvent {
    let mut eqe = [0; 64];
    (eqe[1], eqe[3]) = (kind, subtype);
    for (at, byte) in data {
        eqe[0x20 + at] = *byte;
    }
    DevxEvent { kind: EventKind::from_number(kind.into()), cookie: 7, eqe: Some(eqe) }
}

#[test]
fn events_say_what_happened_to_what() {
    let completion = event(0, 0, &[(0x1a, 0x12), (0x1b, 0x34)]);
    assert_eq!((completion.queue(), completion.cq_syndrome()), (Some(0x1234), None));
    let overrun = event(4, 0, &[(3, 9), (11, 1)]);
    assert_eq!((overrun.queue(), overrun.cq_syndrome()), (Some(9), Some(1)));
    let access = event(0x11, 0, &[(0x1b, 0x4a)]);
    assert_eq!(
        access.to_string(),
        "queue 0x4a: WQ_ACCESS_ERROR, the responder refused a request for lack of rights"
    );
    let port = event(9, 4, &[(8, 0x10)]);
    assert_eq!((port.queue(), port.port()), (None, Some((1, PortChange::Active))));
    assert_eq!(port.to_string(), "port 1: Active");
    let bare = DevxEvent { eqe: None, ..access };
    assert_eq!((bare.queue(), bare.bytes()), (None, None));
    assert!(bare.to_string().starts_with("WQ_ACCESS_ERROR"));
}
