//! Unit tests.

use super::*;

fn endpoint() -> ConnectionData {
    ConnectionData {
        qpn: 0x12_3456,
        psn: 0xab_cdef,
        lid: 7,
        gid: Some("fe80::1".parse().unwrap()),
        mtu: Mtu::Mtu4096,
        responder_depth: 16,
        initiator_depth: 8,
        region: Some(RemoteRegion { address: 0x1000, length: 4096, rkey: 0xdead_beef }),
    }
}

#[test]
fn an_endpoint_has_the_documented_bytes() {
    let bytes = endpoint().encode().unwrap();
    assert_eq!(bytes.len(), 12 + 52);
    assert_eq!(&bytes[..12], b"MLX5\0\x01\0\x01\0\0\0\x34");
    assert_eq!(&bytes[12..28], b"\0\x12\x34\x56\0\xab\xcd\xef\0\x07\x05\x10\x08\0\0\0");
    assert_eq!(&bytes[44..], b"\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\xde\xad\xbe\xef");
}

#[test]
fn endpoints_survive_the_way_there_and_back() {
    for endpoint in [endpoint(), ConnectionData::new(1, Mtu::Mtu256)] {
        let bytes = endpoint.encode().unwrap();
        let (kind, length) = decode_header(bytes[..12].try_into().unwrap()).unwrap();
        assert_eq!((kind, length), (Kind::ConnectionData, bytes.len() - 12));
        assert_eq!(ConnectionData::decode(&bytes[12..]).unwrap(), endpoint);
    }
}

#[test]
fn what_does_not_fit_is_not_sent() {
    let wrong: [fn(&mut ConnectionData); 3] = [
        |it| it.qpn = 1 << 24,
        |it| it.psn = 1 << 24,
        |it| it.region = Some(RemoteRegion { address: 1, length: 0, rkey: 0 }),
    ];
    for change in wrong {
        let mut endpoint = endpoint();
        change(&mut endpoint);
        assert!(matches!(endpoint.encode(), Err(ConnectError::Malformed { .. })));
    }
    assert!(encode_data(&[0; 1024]).is_ok());
    assert!(matches!(encode_data(&[0; 1025]), Err(ConnectError::Malformed { .. })));
}

#[test]
fn every_other_length_is_refused() {
    let mut bytes = endpoint().encode().unwrap();
    let right = bytes.len() - 12;
    bytes.extend([0; 20]);
    for length in (0..bytes.len() - 12).filter(|&length| length != right) {
        let result = ConnectionData::decode(&bytes[12..12 + length]);
        assert!(matches!(result, Err(ConnectError::Malformed { .. })), "{length}: {result:?}");
    }
}
