use super::*;

#[test]
fn a_part_is_claimed_once_until_it_is_dropped() {
    let object = 7u64;
    let claim = Claim::new(&object, Part::Sends).unwrap();
    assert_eq!(Claim::new(&object, Part::Sends).unwrap_err().status(), Status::InUse);
    let _other = Claim::new(&object, Part::Receives).unwrap();
    drop(claim);
    Claim::new(&object, Part::Sends).unwrap();
}

#[test]
fn a_register_has_one_queue_that_copies_or_many_that_ring() {
    // No register is at an odd address.
    let alone = RegisterClaim::new(1, Own::Copies).unwrap();
    for own in [Own::Copies, Own::Rings] {
        assert_eq!(RegisterClaim::new(1, own).unwrap_err().status(), Status::RegisterShared);
    }
    drop(alone);
    let first = RegisterClaim::new(1, Own::Rings).unwrap();
    let second = RegisterClaim::new(1, Own::Rings).unwrap();
    drop(first);
    assert_eq!(RegisterClaim::new(1, Own::Copies).unwrap_err().status(), Status::RegisterShared);
    drop(second);
    RegisterClaim::new(1, Own::Copies).unwrap();
}
