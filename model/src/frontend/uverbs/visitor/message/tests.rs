//! Unit tests.

use super::*;

#[test]
fn messages_come_as_they_went_and_short_ones_are_refused() {
    let mut message = Writer::default();
    message.number(7).bytes(b"abc").number(8);
    let mut wire = Vec::new();
    message.send(&mut wire).unwrap();
    let mut reader = Reader::receive(&mut wire.as_slice()).unwrap();
    assert_eq!(reader.number().unwrap(), 7);
    assert_eq!(reader.bytes().unwrap(), b"abc");
    assert_eq!(reader.number().unwrap(), 8);
    assert!(reader.number().is_err());
    // A length beyond the message, and messages that are cut off or too long.
    let mut wrong = Writer::default();
    wrong.number(u32::MAX);
    let mut wire = Vec::new();
    wrong.send(&mut wire).unwrap();
    assert!(Reader::receive(&mut wire.as_slice()).unwrap().bytes().is_err());
    assert!(Reader::receive(&mut &wire[..6]).is_err());
    assert!(Reader::receive(&mut u32::MAX.to_ne_bytes().as_slice()).is_err());
}
