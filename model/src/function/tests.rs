use super::*;

fn pages(from: u64, count: u64) -> Vec<u64> {
    (from..from + count).map(|page| page << 12).collect()
}

fn booted() -> Function {
    let mut function = Function::powered_on();
    function.enable();
    function.set_issi(ISSI);
    let missing = function.pages.missing_to_start();
    function.pages.give(&pages(0, missing.into())).unwrap();
    function
}

#[test]
fn the_hca_starts_with_interface_and_pages() {
    let mut function = Function::powered_on();
    assert_eq!(function.life(), Life::Disabled);
    function.enable();
    assert_eq!(function.start(), Err(Unready::Issi));
    function.set_issi(ISSI);
    let (boot, all) = (function.pages.missing_to_boot(), function.pages.missing_to_start());
    assert!(0 < boot && boot < all);
    function.pages.give(&pages(0, boot.into())).unwrap();
    assert_eq!(function.pages.missing_to_boot(), 0);
    assert_eq!(function.start(), Err(Unready::Pages(all - boot)));
    function.pages.give(&pages(100, (all - boot).into())).unwrap();
    assert_eq!(function.start(), Ok(()));
    assert_eq!(function.life(), Life::Running);
}

#[test]
fn a_driver_gives_no_more_pages_than_were_asked_for() {
    let mut function = booted();
    assert_eq!(function.pages.give(&pages(1000, 1)), Err(Unasked::TooMany));
    function.pages.want(3);
    assert_eq!(function.pages.give(&pages(0, 1)), Err(Unasked::Twice), "the function has it");
    assert_eq!(function.pages.give(&[5 << 40, 5 << 40]), Err(Unasked::Twice));
    assert_eq!(function.pages.give(&pages(1000, 4)), Err(Unasked::TooMany));
    assert_eq!(function.pages.give(&pages(1000, 2)), Ok(()));
    assert_eq!(function.pages.wanted(), 1);
    function.pages.give_up();
    assert_eq!(function.pages.give(&pages(2000, 1)), Err(Unasked::TooMany));
}

#[test]
fn pages_come_back_when_they_are_not_needed() {
    let mut function = booted();
    let needed = function.pages.count();
    function.start().unwrap();
    assert_eq!(function.spare_pages(), 0, "a running function needs them");
    function.pages.want(2);
    function.pages.give(&pages(1000, 2)).unwrap();
    function.pages.want(-2);
    assert_eq!(function.spare_pages(), 2);
    assert_eq!(function.pages.take(1).len(), 1);
    assert_eq!(function.pages.wanted(), -1);
    function.stop();
    assert_eq!(function.spare_pages(), needed + 1);
    let mut taken = function.pages.take(usize::MAX);
    taken.dedup();
    assert_eq!((taken.len(), function.pages.count()), (needed + 1, 0));
    assert_eq!(function.pages.wanted(), 0);
}

#[test]
fn a_disabled_function_forgets_what_the_driver_chose() {
    let mut function = booted();
    function.choose(0, vec![1]);
    assert_eq!(function.chosen(0), Some(&[1][..]));
    function.start().unwrap();
    function.stop();
    assert_eq!((function.life(), function.issi()), (Life::Enabled, ISSI));
    function.disable();
    assert_eq!((function.life(), function.issi()), (Life::Disabled, 0));
    assert_eq!(function.chosen(0), None);
    assert_eq!(function.pages.count(), 0);
    function.enable();
    assert_eq!(function.issi(), 0);
}
