//! Unit tests.

use super::*;

#[test]
fn a_register_has_one_owner_or_sharers() {
    let mut page = [0u8; 2];
    let [first, second] = page.each_mut().map(NonNull::from);
    let own = RegisterClaim::new(first, true).unwrap();
    assert_eq!(RegisterClaim::new(first, true).err(), Some(QueueError::RegisterShared));
    assert_eq!(RegisterClaim::new(first, false).err(), Some(QueueError::RegisterShared));
    let _other = RegisterClaim::new(second, true).unwrap();
    drop(own);
    let sharers = [(); 2].map(|()| RegisterClaim::new(first, false).unwrap());
    assert_eq!(RegisterClaim::new(first, true).err(), Some(QueueError::RegisterShared));
    drop(sharers);
    RegisterClaim::new(first, true).unwrap();
}
