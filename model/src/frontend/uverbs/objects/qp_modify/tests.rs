//! Unit tests.

use super::*;

#[test]
fn a_connection_comes_up_state_by_state() {
    for kind in
        [Kind::Rc, Kind::Uc, Kind::Ud, Kind::XrcInitiator, Kind::XrcTarget, Kind::DcInitiator]
    {
        for (from, to) in [(RESET, INIT), (INIT, RTR), (RTR, RTS), (RTS, RTS), (RTS, ERR)] {
            assert!(transition(kind, from, to).is_some(), "{kind:?} {from} to {to}");
            assert!(command(from, to).is_some());
        }
        for (from, to) in [(RESET, RTR), (INIT, RTS), (RTS, INIT), (ERR, INIT), (ERR, RTS)] {
            assert!(transition(kind, from, to).is_none(), "{kind:?} {from} to {to}");
        }
    }
    assert!(transition(Kind::Rc, 7, RESET).is_none());
}

#[test]
fn what_a_transition_needs_is_not_optional_to_the_card() {
    // INIT to RTR needs the path. The card takes it without an optional bit.
    let (needed, _) = transition(Kind::Rc, INIT, RTR).unwrap();
    let told = options(needed) & allowed(Kind::Rc, INIT, RTR);
    assert_eq!(told & opt_param::PRIMARY_ADDR_PATH, 0);
    assert_eq!(told, opt_param::RRE | opt_param::RAE | opt_param::RWE);
}
