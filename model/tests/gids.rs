//! The GID table of a RoCE port whose addresses come and go.

mod verbs;

use std::fs;
use std::io::{self, Write};
use std::mem::zeroed;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use mlx5_model::{FixedAddresses, set_addresses, set_vlan_addresses};
use mlx5_sys::verbs::*;
use verbs::{Device, Qp};

const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";
/// The address that the port has at first.
const FIRST: &str = "198.18.0.1";

/// Every test comes through here before anything reads the environment.
static ETHERNET: LazyLock<()> = LazyLock::new(|| {
    // SAFETY: the one writer, before any reader: the tests start with this.
    unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
    assert!(mlx5_model::offered());
});

/// Opens the device. The port is the process's, so tests take turns. Each begins with the first address.
fn open() -> (MutexGuard<'static, ()>, Device) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&ETHERNET);
    let device = Device::open(0);
    set(&[FIRST]);
    set_vlan(5, &[]);
    // From here on, the file of events has those of the test alone.
    while readable(&device) {
        event(&device);
    }
    (turn, device)
}

fn set(addresses: &[&str]) {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(set_addresses(0, &addresses), Ok(true));
}

fn set_vlan(vlan: u16, addresses: &[&str]) {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(set_vlan_addresses(0, vlan, &addresses), Ok(true));
}

/// Whether an event waits.
fn readable(device: &Device) -> bool {
    // SAFETY: the context is open, and the call reads and writes one `pollfd`.
    unsafe {
        let fd = device.context.as_ref().async_fd;
        let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut wait, 1, 0) == 1
    }
}

/// Takes an event: its type, and its port.
fn event(device: &Device) -> (ibv_event_type, i32) {
    // SAFETY: all zeros is a valid event, which the call fills. It is acknowledged once.
    unsafe {
        let mut event: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(device.context.as_ptr(), &mut event), 0);
        ibv_ack_async_event(&mut event);
        (event.event_type, event.element.port_num)
    }
}

/// Takes this number of changes of the GID table, and no more are there.
#[track_caller]
fn expect_changes(device: &Device, count: usize) {
    for number in 0..count {
        assert!(readable(device), "{number} events of {count}");
        assert_eq!(event(device), (ibv_event_type::IBV_EVENT_GID_CHANGE, 1));
    }
    assert!(!readable(device), "more than {count} events");
}

/// Returns the address and the version of each entry in use, by index: by `ioctl`.
fn table(device: &Device) -> Vec<(u32, String, u32)> {
    // SAFETY: all zeros are valid entries, of which the call fills as many as there is room for. Any bytes
    // are a GID.
    unsafe {
        let mut table: [ibv_gid_entry; 16] = zeroed();
        let got = ibv_query_gid_table(device.context.as_ptr(), table.as_mut_ptr(), table.len(), 0);
        let shown = |entry: &ibv_gid_entry| {
            let address = Ipv6Addr::from(entry.gid.raw).to_canonical();
            (entry.gid_index, address.to_string(), entry.gid_type)
        };
        table[..usize::try_from(got).unwrap()].iter().map(shown).collect()
    }
}

/// Returns the same by the files of sysfs.
fn files() -> Vec<(u32, String, u32)> {
    let text = |path: String| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let entry = |index: u32| {
        let gid: Ipv6Addr = text(format!("{PORT}/gids/{index}")).unwrap().parse().unwrap();
        let kind = text(format!("{PORT}/gid_attrs/types/{index}"));
        let named = text(format!("{PORT}/gid_attrs/ndevs/{index}")).is_ok();
        assert_eq!((kind.is_ok(), named), (!gid.is_unspecified(), !gid.is_unspecified()));
        let kind = match kind.ok()?.as_str() {
            "IB/RoCE v1" => 1,
            "RoCE v2" => 2,
            other => panic!("{other}"),
        };
        Some((index, gid.to_canonical().to_string(), kind))
    };
    (0..16).filter_map(entry).collect()
}

/// Checks the entries behind those of the default GID: address and index of its entry of version 1.
#[track_caller]
fn expect_pairs(device: &Device, pairs: &[(u32, &str)]) {
    let default = "fe80::526b:4bff:fec0:4e00";
    let pairs = [(0, default)].into_iter().chain(pairs.iter().copied());
    let pairs = pairs.flat_map(|(index, address)| {
        [1, 2].map(|kind| (index + kind - 1, address.to_owned(), kind))
    });
    let expected: Vec<_> = pairs.collect();
    assert_eq!(table(device), expected);
    assert_eq!(files(), expected);
}

/// Asks for an entry. Returns the error.
fn query(device: &Device, index: u32) -> Result<(), i32> {
    // SAFETY: all zeros is a valid entry, which the call fills.
    unsafe {
        let mut entry: ibv_gid_entry = zeroed();
        match ibv_query_gid_ex(device.context.as_ptr(), 1, index, &mut entry, 0) {
            0 => Ok(()),
            errno => Err(errno),
        }
    }
}

#[test]
fn entries_come_and_go_with_addresses() {
    let (_turn, device) = open();
    expect_pairs(&device, &[(2, FIRST)]);
    set(&[FIRST, "192.0.2.7", "2001:db8::7"]);
    expect_changes(&device, 4);
    expect_pairs(&device, &[(2, FIRST), (4, "192.0.2.7"), (6, "2001:db8::7")]);
    set(&["192.0.2.7", "2001:db8::7"]);
    expect_changes(&device, 2);
    expect_pairs(&device, &[(4, "192.0.2.7"), (6, "2001:db8::7")]);
    assert_eq!(
        [2, 3, 4].map(|index| query(&device, index)),
        [Err(libc::ENODATA), Err(libc::ENODATA), Ok(())]
    );
    // A new address takes the first free places.
    set(&["192.0.2.7", "2001:db8::7", "192.0.2.8"]);
    expect_changes(&device, 2);
    expect_pairs(&device, &[(2, "192.0.2.8"), (4, "192.0.2.7"), (6, "2001:db8::7")]);
    // The default GID is not one of the addresses.
    set(&[]);
    expect_changes(&device, 6);
    expect_pairs(&device, &[]);
    set(&["fe80::526b:4bff:fec0:4e00"]);
    expect_changes(&device, 0);
    device.close();
}

/// Moves a queue pair to RTR, from this entry of the GID table to an address. Returns the error.
fn connect(qp: &Qp, index: u8, to: &str) -> i32 {
    use ibv_qp_attr_mask as mask;
    let to: IpAddr = to.parse().unwrap();
    // SAFETY: all zeros are valid attributes.
    let mut attributes: ibv_qp_attr = unsafe { zeroed() };
    attributes.qp_state = ibv_qp_state::IBV_QPS_INIT;
    attributes.port_num = 1;
    let init = mask::IBV_QP_STATE.0
        | mask::IBV_QP_PKEY_INDEX.0
        | mask::IBV_QP_PORT.0
        | mask::IBV_QP_ACCESS_FLAGS.0;
    assert_eq!(qp.modify(&mut attributes, init), 0);
    attributes.qp_state = ibv_qp_state::IBV_QPS_RTR;
    attributes.path_mtu = ibv_mtu::IBV_MTU_1024;
    (attributes.max_dest_rd_atomic, attributes.min_rnr_timer) = (1, 12);
    let path = &mut attributes.ah_attr;
    (path.port_num, path.is_global) = (1, 1);
    (path.grh.sgid_index, path.grh.hop_limit) = (index, 64);
    path.grh.dgid.raw = match to {
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

/// Checks the interfaces of all entries in use: by number, and by name.
#[track_caller]
fn expect_interfaces(device: &Device, names: &[&str]) {
    let number = |name: &str| {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: the name is a C string, and lives through the call.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    };
    // SAFETY: all zeros are valid entries, of which the call fills as many as there is room for.
    let entries: Vec<(u32, u32)> = unsafe {
        let mut table: [ibv_gid_entry; 16] = zeroed();
        let got = ibv_query_gid_table(device.context.as_ptr(), table.as_mut_ptr(), table.len(), 0);
        let shown = |entry: &ibv_gid_entry| (entry.gid_index, entry.ndev_ifindex);
        table[..usize::try_from(got).unwrap()].iter().map(shown).collect()
    };
    let file = |index: u32| fs::read_to_string(format!("{PORT}/gid_attrs/ndevs/{index}")).unwrap();
    let named: Vec<String> =
        entries.iter().map(|(index, _)| file(*index).trim().to_owned()).collect();
    assert_eq!(named, names);
    for ((index, interface), name) in entries.iter().zip(names) {
        assert_eq!(*interface, number(name), "entry {index}");
    }
}

#[test]
fn addresses_of_a_vlan_have_entries_of_its_interface() {
    const VIEW: &str = "mlx5view0";
    const OF_VLAN: &str = "mlx5view0.5";
    let (_turn, device) = open();
    // The same address as without a VLAN, and another one.
    set_vlan(5, &[FIRST, "192.0.2.7"]);
    expect_changes(&device, 4);
    expect_pairs(&device, &[(2, FIRST), (4, FIRST), (6, "192.0.2.7")]);
    let names = [[VIEW; 4], [OF_VLAN; 4]].concat();
    expect_interfaces(&device, &names);
    let text = |file: &str| {
        let path = format!("/sys/class/net/{OF_VLAN}/{file}");
        fs::read_to_string(&path).map(|text| text.trim().to_owned())
    };
    assert!(text("uevent").unwrap().lines().any(|line| line == "DEVTYPE=vlan"));
    let below = fs::read_to_string(format!("/sys/class/net/{VIEW}/ifindex")).unwrap();
    assert_eq!(text("iflink").unwrap(), below.trim());
    assert_ne!(text("ifindex").unwrap(), below.trim());
    // Addresses without a VLAN come and go by themselves.
    set(&[]);
    expect_changes(&device, 2);
    expect_pairs(&device, &[(4, FIRST), (6, "192.0.2.7")]);
    set(&[FIRST]);
    expect_changes(&device, 2);
    set_vlan(5, &["192.0.2.7"]);
    expect_changes(&device, 2);
    expect_pairs(&device, &[(2, FIRST), (6, "192.0.2.7")]);
    // All entries of an interface that is gone make one event.
    set_vlan(5, &["192.0.2.7", "192.0.2.8"]);
    expect_changes(&device, 2);
    set_vlan(5, &[]);
    expect_changes(&device, 1);
    expect_pairs(&device, &[(2, FIRST)]);
    assert!(text("uevent").is_err());
    expect_interfaces(&device, &[VIEW; 4]);
    device.close();
}

#[test]
fn only_vlans_that_there_may_be_can_have_addresses() {
    let (_turn, device) = open();
    for vlan in [0, 4095, u16::MAX] {
        assert_eq!(set_vlan_addresses(0, vlan, &[]), Err(FixedAddresses::Vlan(vlan)));
    }
    set_vlan(4094, &[FIRST]);
    expect_changes(&device, 2);
    set_vlan(4094, &[]);
    expect_changes(&device, 1);
    assert_eq!(set_vlan_addresses(9, 5, &[]), Ok(false));
    device.close();
}

#[test]
fn the_place_of_an_entry_in_use_stays_taken() {
    let (_turn, device) = open();
    let qp = device.qp();
    assert_eq!(connect(&qp, 3, FIRST), 0);
    set(&["192.0.2.7"]);
    // The queue pair holds entry 3, which nobody sees any more.
    expect_changes(&device, 4);
    let seen: Vec<(u32, String)> =
        table(&device).into_iter().skip(2).map(|(index, address, _)| (index, address)).collect();
    assert_eq!(seen, [(2, "192.0.2.7".to_owned()), (4, "192.0.2.7".to_owned())]);
    assert_eq!(query(&device, 3), Err(libc::ENODATA));
    let other = device.qp();
    assert_eq!(connect(&other, 3, "192.0.2.7"), libc::ENODATA);
    qp.destroy();
    set(&["192.0.2.7", "192.0.2.8"]);
    assert_eq!(query(&device, 3), Ok(()));
    other.destroy();
    device.close();
}

#[test]
fn an_address_handle_holds_its_entry() {
    let (_turn, device) = open();
    // SAFETY: all zeros are valid attributes, and the handle is destroyed once.
    unsafe {
        let mut attributes: ibv_ah_attr = zeroed();
        (attributes.port_num, attributes.is_global) = (1, 1);
        (attributes.grh.sgid_index, attributes.grh.hop_limit) = (2, 64);
        attributes.grh.dgid.raw =
            FIRST.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
        let handle = ibv_create_ah(device.pd.as_ptr(), &mut attributes);
        assert!(!handle.is_null(), "{}", io::Error::last_os_error());
        set(&[]);
        set(&["192.0.2.7"]);
        assert_eq!(query(&device, 2), Err(libc::ENODATA));
        assert_eq!(ibv_destroy_ah(handle), 0);
    }
    set(&["192.0.2.7", "192.0.2.8"]);
    assert_eq!(query(&device, 2), Ok(()));
    device.close();
}

#[test]
fn the_interface_has_the_first_ipv4_address_of_now() {
    let (_turn, device) = open();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ask_of = |name: &str| {
        let mut about = [0u8; 40];
        about[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the call writes at most a `struct ifreq`, 40 bytes.
        let asked =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFADDR, about.as_mut_ptr()) };
        match asked {
            0 => Ok(<[u8; 4]>::try_from(&about[20..24]).unwrap()),
            _ => Err(io::Error::last_os_error().raw_os_error()),
        }
    };
    let ask = || ask_of("mlx5view0");
    assert_eq!(ask(), Ok([198, 18, 0, 1]));
    assert_eq!(ask_of("mlx5view0.5"), Err(Some(libc::ENODEV)));
    set_vlan(5, &["2001:db8::5", "192.0.2.5"]);
    assert_eq!((ask_of("mlx5view0.5"), ask()), (Ok([192, 0, 2, 5]), Ok([198, 18, 0, 1])));
    set_vlan(5, &[]);
    set(&["2001:db8::7", "192.0.2.7"]);
    assert_eq!(ask(), Ok([192, 0, 2, 7]));
    set(&["2001:db8::7"]);
    assert_eq!(ask(), Err(Some(libc::EADDRNOTAVAIL)));
    device.close();
}

#[test]
fn an_address_that_finds_no_place_is_left_out() {
    let (_turn, device) = open();
    let addresses: Vec<String> = (1..=9).map(|last| format!("192.0.2.{last}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    set(&addresses);
    let pairs: Vec<(u32, &str)> = (2..).step_by(2).zip(addresses).take(7).collect();
    expect_pairs(&device, &pairs);
    device.close();
}

/// Binds a new id of an event channel to an IPv4 address, by commands of `rdma_user_cm.h`.
fn bind(channel: &fs::File, ip: [u8; 4]) -> io::Result<()> {
    /// `RDMA_USER_CM_CMD_CREATE_ID`, `RDMA_USER_CM_CMD_BIND_IP`, `RDMA_PS_TCP`.
    const CREATE_ID: u32 = 0;
    const BIND_IP: u32 = 2;
    const TCP: u16 = 0x0106;
    let command = |number: u32, body: &[u8], answer: u16| {
        let mut bytes = number.to_ne_bytes().to_vec();
        bytes.extend((body.len() as u16).to_ne_bytes());
        bytes.extend(answer.to_ne_bytes());
        bytes.extend(body);
        (&*channel).write(&bytes)
    };
    let mut id = 0u32;
    let mut create = [0u64.to_ne_bytes(), (&raw mut id as u64).to_ne_bytes()].concat();
    create.extend(TCP.to_ne_bytes());
    create.extend([2, 0, 0, 0, 0, 0]);
    command(CREATE_ID, &create, 4)?;
    // Behind a place for an answer a `sockaddr_in`, in the place of a `sockaddr_in6`.
    let mut address = [0; 36];
    address[8..10].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[12..16].copy_from_slice(&ip);
    // The model has written it behind the compiler's back.
    // SAFETY: the variable lives.
    let id = unsafe { (&raw const id).read_volatile() };
    command(BIND_IP, &[&address[..], &id.to_ne_bytes()].concat(), 0).map(drop)
}

#[test]
fn a_new_address_can_be_bound_to_by_the_connection_manager() {
    let (_turn, device) = open();
    let channel =
        fs::File::options().read(true).write(true).open("/dev/infiniband/rdma_cm").unwrap();
    let refused = bind(&channel, [192, 0, 2, 7]).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    set(&["192.0.2.7"]);
    bind(&channel, [192, 0, 2, 7]).unwrap();
    let refused = bind(&channel, [198, 18, 0, 1]).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    device.close();
}
