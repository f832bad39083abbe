//! The faults that are met most often when RoCE is set up, each as the program sees it.

mod verbs;

use std::mem::zeroed;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use mlx5_model::{Timeouts, set_addresses, set_port, set_timeouts, set_vlan_addresses};
use mlx5_sys::verbs::*;
use verbs::{Device, Qp};

/// The ports' addresses, and the entries of the GID tables that have them.
const NEAR: &str = "198.18.0.1";
const FAR: &str = "198.18.0.2";
const V1: u8 = 2;
const V2: u8 = 3;
/// The entry of RoCE v2 that has the link-local address.
const LINK_LOCAL: u8 = 1;

/// Every test comes through here before anything reads the environment.
static PORTS: LazyLock<()> = LazyLock::new(|| {
    // SAFETY: the one writer, before any reader: the tests start with this.
    unsafe {
        std::env::set_var("MLX5_MODEL_LINK", "roce");
        std::env::set_var("MLX5_MODEL_DEVICES", "2");
        std::env::set_var("MLX5_MODEL_MTU", "1024");
    }
    assert!(mlx5_model::offered());
});

/// A queue pair at each of two ports.
struct Pair {
    near: Device,
    far: Device,
    ends: [Qp; 2],
    memory: [Vec<u8>; 2],
    keys: [NonNull<ibv_mr>; 2],
    /// The ports are the process's, so tests take turns.
    _turn: MutexGuard<'static, ()>,
}

impl Pair {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        LazyLock::force(&PORTS);
        let (near, far) = (Device::open(0), Device::open(1));
        for (index, address) in [NEAR, FAR].into_iter().enumerate() {
            assert!(set_timeouts(index, Timeouts::SPECIFICATION));
            assert_eq!(set_addresses(index, &[address.parse().unwrap()]), Ok(true));
            for vlan in [5, 6] {
                assert_eq!(set_vlan_addresses(index, vlan, &[]), Ok(true));
            }
            assert!(set_port(index, true));
        }
        let ends = [near.qp(), far.qp()];
        let mut memory = [vec![1; 64], vec![0; 64]];
        let [from, to] = &mut memory;
        let keys = [near.register(from), far.register(to)];
        Self { near, far, ends, memory, keys, _turn: turn }
    }

    /// Connects both ends, from these entries of their GID tables.
    fn connect(&self, entries: [u8; 2]) {
        self.connect_over(entries, [NEAR, FAR]);
    }

    /// Connects both ends, whose entries have these addresses.
    fn connect_over(&self, [near, far]: [u8; 2], [own, peer]: [&str; 2]) {
        let [one, other] = &self.ends;
        assert_eq!(to_rtr(one, near, peer, ibv_mtu::IBV_MTU_1024, other.number()), 0);
        assert_eq!(to_rtr(other, far, own, ibv_mtu::IBV_MTU_1024, one.number()), 0);
        to_rts(one);
        to_rts(other);
    }

    /// Sends a message. Returns how it ends for the sender.
    fn send(&self) -> ibv_wc_status::Type {
        let [one, other] = &self.ends;
        other.receive(1, self.keys[1], 64);
        one.send(2, self.keys[0], 64, ibv_send_flags(0));
        self.near.poll().status
    }

    /// Waits for the message at its receiver.
    fn expect_message(&self) {
        assert_eq!(self.far.poll().status, ibv_wc_status::IBV_WC_SUCCESS);
        assert_eq!(self.memory[1], self.memory[0]);
    }

    fn close(self) {
        self.ends.into_iter().for_each(Qp::destroy);
        for key in self.keys {
            // SAFETY: each region is given back once, and nothing uses it any more.
            assert_eq!(unsafe { ibv_dereg_mr(key.as_ptr()) }, 0);
        }
        self.near.close();
        self.far.close();
    }
}

/// Moves a queue pair from any state to RTR, towards a queue pair at an address. Returns the errno.
fn to_rtr(qp: &Qp, from: u8, to: &str, mtu: ibv_mtu::Type, number: u32) -> i32 {
    use ibv_qp_attr_mask as mask;
    // SAFETY: all zeros are valid attributes.
    let mut attributes: ibv_qp_attr = unsafe { zeroed() };
    attributes.qp_state = ibv_qp_state::IBV_QPS_RESET;
    assert_eq!(qp.modify(&mut attributes, mask::IBV_QP_STATE.0), 0, "to RESET");
    attributes.qp_state = ibv_qp_state::IBV_QPS_INIT;
    attributes.port_num = 1;
    let init = mask::IBV_QP_STATE.0
        | mask::IBV_QP_PKEY_INDEX.0
        | mask::IBV_QP_PORT.0
        | mask::IBV_QP_ACCESS_FLAGS.0;
    assert_eq!(qp.modify(&mut attributes, init), 0, "to INIT");
    attributes.qp_state = ibv_qp_state::IBV_QPS_RTR;
    (attributes.path_mtu, attributes.dest_qp_num) = (mtu, number);
    (attributes.max_dest_rd_atomic, attributes.min_rnr_timer) = (1, 12);
    let path = &mut attributes.ah_attr;
    (path.port_num, path.is_global) = (1, 1);
    (path.grh.sgid_index, path.grh.hop_limit) = (from, 64);
    path.grh.dgid.raw = match to.parse().unwrap() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let rtr = mask::IBV_QP_STATE.0
        | mask::IBV_QP_AV.0
        | mask::IBV_QP_PATH_MTU.0
        | mask::IBV_QP_DEST_QPN.0
        | mask::IBV_QP_RQ_PSN.0
        | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
        | mask::IBV_QP_MIN_RNR_TIMER.0;
    qp.modify(&mut attributes, rtr)
}

/// Moves a queue pair to RTS. A peer that does not answer is given up after 134 ms.
fn to_rts(qp: &Qp) {
    use ibv_qp_attr_mask as mask;
    // SAFETY: all zeros are valid attributes.
    let mut attributes: ibv_qp_attr = unsafe { zeroed() };
    attributes.qp_state = ibv_qp_state::IBV_QPS_RTS;
    (attributes.timeout, attributes.retry_cnt) = (14, 1);
    (attributes.rnr_retry, attributes.max_rd_atomic) = (7, 1);
    let rts = mask::IBV_QP_STATE.0
        | mask::IBV_QP_TIMEOUT.0
        | mask::IBV_QP_RETRY_CNT.0
        | mask::IBV_QP_RNR_RETRY.0
        | mask::IBV_QP_SQ_PSN.0
        | mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
    assert_eq!(qp.modify(&mut attributes, rts), 0, "to RTS");
}

#[test]
fn a_wrong_gid_index_is_refused_at_rtr() {
    let pair = Pair::new();
    let [one, other] = &pair.ends;
    for (index, errno) in [
        (V2, 0),
        // An empty entry, and one behind the table.
        (4, libc::ENODATA),
        (200, libc::EINVAL),
        // An IPv6 address, to an IPv4 address.
        (LINK_LOCAL, libc::EINVAL),
    ] {
        let got = to_rtr(one, index, FAR, ibv_mtu::IBV_MTU_1024, other.number());
        assert_eq!(got, errno, "from index {index}");
    }
    pair.close();
}

#[test]
fn roce_v1_and_v2_do_not_hear_each_other() {
    for ends in [[V1, V2], [V2, V1]] {
        let pair = Pair::new();
        pair.connect(ends);
        assert_eq!(pair.send(), ibv_wc_status::IBV_WC_RETRY_EXC_ERR, "{ends:?}");
        pair.close();
    }
    for ends in [[V1, V1], [V2, V2]] {
        let pair = Pair::new();
        pair.connect(ends);
        assert_eq!(pair.send(), ibv_wc_status::IBV_WC_SUCCESS, "{ends:?}");
        pair.expect_message();
        pair.close();
    }
}

#[test]
fn an_address_without_neighbour_or_route_is_refused_at_rtr() {
    let pair = Pair::new();
    let [one, other] = &pair.ends;
    for (to, errno) in [("198.18.0.99", libc::ETIMEDOUT), ("203.0.113.1", libc::ENETUNREACH)] {
        let got = to_rtr(one, V2, to, ibv_mtu::IBV_MTU_1024, other.number());
        assert_eq!(got, errno, "to {to}");
    }
    pair.close();
}

#[test]
fn a_path_mtu_above_the_ports_is_refused_at_rtr() {
    let pair = Pair::new();
    assert_eq!(pair.near.port().active_mtu, ibv_mtu::IBV_MTU_1024);
    let [one, other] = &pair.ends;
    for (mtu, errno) in [(ibv_mtu::IBV_MTU_1024, 0), (ibv_mtu::IBV_MTU_2048, libc::EINVAL)] {
        assert_eq!(to_rtr(one, V2, FAR, mtu, other.number()), errno);
    }
    pair.close();
}

#[test]
fn an_address_that_is_removed_ends_its_connections() {
    for removed in [0, 1] {
        let pair = Pair::new();
        pair.connect([V2, V2]);
        assert_eq!(pair.send(), ibv_wc_status::IBV_WC_SUCCESS);
        pair.expect_message();
        assert_eq!(set_addresses(removed, &[]), Ok(true));
        assert_eq!(pair.send(), ibv_wc_status::IBV_WC_RETRY_EXC_ERR, "without address {removed}");
        // Connecting again says why.
        let [one, other] = &pair.ends;
        let errno = [libc::ENODATA, libc::ETIMEDOUT][removed];
        assert_eq!(to_rtr(one, V2, FAR, ibv_mtu::IBV_MTU_1024, other.number()), errno);
        pair.close();
    }
}

#[test]
fn a_connection_survives_another_address_of_its_port() {
    let pair = Pair::new();
    let addresses = |texts: &[&str]| -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    assert_eq!(set_addresses(0, &addresses(&[NEAR, "192.0.2.1"])), Ok(true));
    pair.connect([V2, V2]);
    assert_eq!(set_addresses(0, &addresses(&[NEAR])), Ok(true));
    assert_eq!(pair.send(), ibv_wc_status::IBV_WC_SUCCESS);
    pair.expect_message();
    pair.close();
}

#[test]
fn packets_to_a_port_that_is_down_are_lost() {
    let pair = Pair::new();
    pair.connect([V2, V2]);
    assert!(set_port(1, false));
    assert_eq!(pair.far.port().state, ibv_port_state::IBV_PORT_DOWN);
    assert_eq!(pair.send(), ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    assert!(set_port(1, true));
    pair.connect([V2, V2]);
    assert_eq!(pair.send(), ibv_wc_status::IBV_WC_SUCCESS);
    pair.close();
}

/// Addresses that the ports have in a VLAN, or without one beside their own. Their entries are the next ones.
const BESIDE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V2_BESIDE: u8 = 5;

/// Gives a port its second address.
fn add_address(port: usize, vlan: Option<u16>) {
    let (own, other) = ([NEAR, FAR][port].parse().unwrap(), BESIDE[port].parse().unwrap());
    let set = match vlan {
        Some(vlan) => set_vlan_addresses(port, vlan, &[other]),
        None => set_addresses(port, &[own, other]),
    };
    assert_eq!(set, Ok(true));
}

/// Makes an address handle from this entry of the first port. Returns the errno.
fn reach(device: &Device, from: u8, to: &str) -> i32 {
    let IpAddr::V4(to) = to.parse().unwrap() else { panic!("{to}") };
    // SAFETY: all zeros are valid attributes. The handle is destroyed once.
    unsafe {
        let mut attributes: ibv_ah_attr = zeroed();
        (attributes.port_num, attributes.is_global) = (1, 1);
        (attributes.grh.sgid_index, attributes.grh.hop_limit) = (from, 64);
        attributes.grh.dgid.raw = to.to_ipv6_mapped().octets();
        let handle = ibv_create_ah(device.pd.as_ptr(), &mut attributes);
        if handle.is_null() {
            return verbs::errno();
        }
        ibv_destroy_ah(handle)
    }
}

#[test]
fn a_vlan_that_does_not_match_is_refused_at_rtr() {
    let [_, far] = BESIDE;
    for (vlans, errno) in [
        ([Some(5), Some(5)], 0),
        ([None, None], 0),
        ([Some(5), Some(6)], libc::ETIMEDOUT),
        ([Some(5), None], libc::ETIMEDOUT),
        ([None, Some(5)], libc::ETIMEDOUT),
    ] {
        let pair = Pair::new();
        vlans.into_iter().enumerate().for_each(|(port, vlan)| add_address(port, vlan));
        let [one, other] = &pair.ends;
        let got = to_rtr(one, V2_BESIDE, far, ibv_mtu::IBV_MTU_1024, other.number());
        assert_eq!(got, errno, "{vlans:?}");
        assert_eq!(reach(&pair.near, V2_BESIDE, far), errno, "{vlans:?}");
        // The VLAN has no way to the network of the ports' own addresses.
        let own = if vlans[0].is_some() { libc::ENETUNREACH } else { 0 };
        assert_eq!(reach(&pair.near, V2_BESIDE, FAR), own, "{vlans:?}");
        if errno == 0 {
            pair.connect_over([V2_BESIDE; 2], BESIDE);
            assert_eq!(pair.send(), ibv_wc_status::IBV_WC_SUCCESS, "{vlans:?}");
            pair.expect_message();
        }
        pair.close();
    }
}

#[test]
fn a_connection_ends_when_its_address_moves_to_another_vlan() {
    for moved in [Some(6), None] {
        let pair = Pair::new();
        (0..2).for_each(|port| add_address(port, Some(5)));
        pair.connect_over([V2_BESIDE; 2], BESIDE);
        assert_eq!(set_vlan_addresses(1, 5, &[]), Ok(true));
        add_address(1, moved);
        assert_eq!(pair.send(), ibv_wc_status::IBV_WC_RETRY_EXC_ERR, "{moved:?}");
        pair.close();
    }
}
