//! Unit tests.

use super::*;

#[test]
fn fields_are_where_the_headers_have_them() {
    let mut cqe = Cqe64 {
        hds_ip_ext: L3_OK | L4_OK,
        l4_hdr_type_etc: 4 << 4 | L3_HDR_TYPE_IPV4 << L3_HDR_TYPE_SHIFT | 1,
        vlan_info: 0x6005.into(),
        sop_drop_qpn: 0xff00_0077.into(),
        rss_hash_result: 0x1234_5678.into(),
        check_sum: 0xabcd.into(),
        timestamp: 99.into(),
        ..Cqe64::default()
    };
    let info = PacketInfo::decode(&cqe);
    assert!(info.checksums_ok());
    assert_eq!((info.transport, info.stripped_vlan), (TransportHeader::Tcp, Some(0x6005)));
    assert_eq!((info.flow_tag, info.hash), (0x77, 0x1234_5678));
    assert_eq!((info.checksum, info.timestamp), (0xabcd, 99));
    cqe.hds_ip_ext = L3_OK;
    assert!(!PacketInfo::decode(&cqe).checksums_ok());
    cqe.l4_hdr_type_etc = 2 << 4 | L3_HDR_TYPE_IPV6 << L3_HDR_TYPE_SHIFT;
    let info = PacketInfo::decode(&cqe);
    assert_eq!((info.network, info.transport), (Layer3::Ipv6, TransportHeader::Udp));
    assert_eq!((info.stripped_vlan, info.transport_ok), (None, false));
}
