//! Unit tests.

use super::*;
use crate::card::Link;
use crate::command::test::Rig;
use crate::engine::Registers as _;

fn clock() -> (Page, Card) {
    let cards = vec![Rig::on(Link::InfiniBand).card];
    let engine = Engine::new(cards, Box::new(|_, _, _| {}));
    (Page::of_clock(0, &engine, &Arc::default()), Rig::on(Link::InfiniBand).card)
}

#[test]
#[should_panic(expected = "no 4 bytes at 8 of a register page")]
fn store_to_a_clock_which_has_no_mapping_is_refused() {
    let (page, mut card) = clock();
    page.execute(&mut card, 8, &[1; 4]);
}

#[test]
#[should_panic(expected = "no 8 bytes at 0 of a register page")]
fn stores_to_a_clock_which_has_no_mapping_are_not_looked_for() {
    clock().0.take();
}
