//! Unit tests.

use core::ptr::NonNull;

use mlx5_sys::cqe::Cqe64;

use super::*;

/// A CQE where CQEs lie.
#[repr(align(64))]
struct Aligned(Cqe64);

fn info(cqe: &Cqe64) -> PacketInfo {
    let aligned = Aligned(*cqe);
    // SAFETY: 64 bytes that live through the call, aligned, which no device writes.
    let cqe = unsafe { CqeRef::new(NonNull::from(&aligned.0).cast(), false, 0) };
    PacketWords::of(&cqe).info()
}

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
    let result = info(&cqe);
    assert!(result.checksums_ok());
    assert_eq!((result.transport, result.stripped_vlan), (TransportHeader::Tcp, Some(0x6005)));
    assert_eq!((result.flow_tag, result.hash), (0x77, 0x1234_5678));
    assert_eq!((result.checksum, result.timestamp.raw()), (0xabcd, 99));
    cqe.hds_ip_ext = L3_OK;
    assert!(!info(&cqe).checksums_ok());
    cqe.l4_hdr_type_etc = 2 << 4 | L3_HDR_TYPE_IPV6 << L3_HDR_TYPE_SHIFT;
    let result = info(&cqe);
    assert_eq!((result.network, result.transport), (Layer3::Ipv6, TransportHeader::Udp));
    assert_eq!((result.stripped_vlan, result.transport_ok), (None, false));
}
