use super::*;

const NORMAL: ibv_flow_attr_type::Type = ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Changes an empty filter, and returns the field that is refused.
fn refused(change: impl FnOnce(&mut Filter)) -> Option<&'static str> {
    let mut filter = Filter::default();
    change(&mut filter);
    match filter.check(NORMAL) {
        Ok(()) => None,
        Err(Error::Attribute { attribute, .. }) => Some(attribute),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn groups_have_the_addresses_of_the_standards() {
    assert_eq!(group_mac(ip("239.129.2.3")), [0x01, 0, 0x5e, 1, 2, 3], "23 bits");
    assert_eq!(group_mac(ip("ff15::1:2ff:fe03")), [0x33, 0x33, 2, 0xff, 0xfe, 3]);
    let mut filter = Filter::default();
    filter.group(ip("239.129.2.3"));
    assert_eq!(filter.destination, Some([0x01, 0, 0x5e, 1, 2, 3]));
    assert_eq!(filter.destination_ip, Some(ip("239.129.2.3")));
    assert_eq!(refused(|filter| filter.group(ip("10.0.0.1"))), Some("group"));
    assert_eq!(refused(|filter| filter.group(ip("fe80::1"))), Some("group"));
}

#[test]
fn an_error_names_the_field() {
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|filter| filter.vlan = Some(4095)), None);
    assert_eq!(refused(|filter| filter.vlan = Some(4096)), Some("vlan"));
    let both = |from, to| {
        refused(|filter| {
            filter.connection(SocketAddr::new(ip(from), 1), SocketAddr::new(ip(to), 2));
        })
    };
    assert_eq!(both("10.0.0.1", "10.0.0.2"), None);
    assert_eq!(both("10.0.0.1", "fe80::1"), Some("source_ip"));
    let kind = |kind, to| {
        refused(|filter| {
            filter.ether_type = Some(kind);
            filter.destination_ip = Some(ip(to));
        })
    };
    assert_eq!((kind(0x0800, "10.0.0.1"), kind(0x86dd, "fe80::1")), (None, None));
    assert_eq!(kind(0x86dd, "10.0.0.1"), Some("ether_type"));
    let ports = Ports { source: Some(1), destination: None };
    let both = refused(|filter| (filter.udp, filter.tcp) = (ports, ports));
    assert_eq!(both, Some("tcp port"));
}

#[test]
fn the_rest_is_not_described() {
    for kind in
        [ibv_flow_attr_type::IBV_FLOW_ATTR_ALL_DEFAULT, ibv_flow_attr_type::IBV_FLOW_ATTR_SNIFFER]
    {
        assert!(Filter::default().check(kind).is_ok());
        let described = Filter { vlan: Some(1), ..Filter::default() };
        assert!(described.check(kind).is_err());
    }
}
