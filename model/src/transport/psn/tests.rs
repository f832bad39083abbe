//! Unit tests.

use super::*;

#[test]
fn numbers_wrap_at_24_bits() {
    let last = Psn::new(0xff_ffff);
    assert_eq!(last.plus(1), Psn::new(0));
    assert_eq!(Psn::new(0).previous(), last);
    assert_eq!(Psn::new(3).since(last), 4);
    assert_eq!(last.since(Psn::new(3)), -4);
    assert_eq!(last.after(Psn::new(3)), Psn::COUNT - 4);
    assert_eq!(Psn::new(Psn::WINDOW - 1).since(Psn::new(0)), (Psn::WINDOW - 1) as i32);
    assert_eq!(Psn::new(Psn::WINDOW).since(Psn::new(0)), -(Psn::WINDOW as i32));
}
