//! The network interface and the PCI function of a RoCE port, as programs find them.

mod verbs;

use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::LazyLock;
use std::{fs, io};

use mlx5_model::identity::pci;
use mlx5_sys::verbs::*;
use verbs::{Device, devices};

const FUNCTION: &str = "/sys/bus/pci/devices/6d35:00:00.0";
const DEVICE: &str = "/sys/class/infiniband/mlx5_0";

/// Every test comes through here before anything reads the environment.
static ETHERNET: LazyLock<()> = LazyLock::new(|| {
    // SAFETY: the one writer, before any reader: the tests start with this.
    unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
    assert!(mlx5_model::offered());
});

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.trim_end().to_owned()
}

fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

/// The name of the port's interface.
fn interface() -> String {
    LazyLock::force(&ETHERNET);
    let mut names = names(format!("{DEVICE}/device/net"));
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

/// Asks about an interface by `ioctl`. Returns what is written behind the name.
fn asked(request: libc::c_ulong, name: &str) -> io::Result<[u8; 24]> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut about = [0u8; 40];
    about[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the call writes at most a `struct ifreq`, 40 bytes.
    if unsafe { libc::ioctl(socket.as_raw_fd(), request, about.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(about[16..].try_into().unwrap())
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn the_functions_of_the_bus_are_listed_with_the_models_among_them() {
    LazyLock::force(&ETHERNET);
    let listed = names("/sys/bus/pci/devices");
    assert!(listed.contains(&"6d35:00:00.0".to_owned()), "{listed:?}");
    // The machine's own, by a path that is not redirected.
    for own in fs::read_dir("/./sys/bus/pci/devices").into_iter().flatten() {
        let own = own.unwrap().file_name().into_string().unwrap();
        assert!(listed.contains(&own), "{own} is missing");
        assert!(fs::metadata(format!("/sys/bus/pci/devices/{own}/vendor")).is_ok(), "{own}");
    }
    assert!(names("/sys/bus/pci/drivers/mlx5_core").contains(&"6d35:00:00.0".to_owned()));
}

#[test]
fn a_function_has_the_files_that_programs_read() {
    LazyLock::force(&ETHERNET);
    let driver = fs::read_link(format!("{FUNCTION}/driver")).unwrap();
    assert!(driver.ends_with("bus/pci/drivers/mlx5_core"), "{driver:?}");
    assert!(fs::metadata(format!("{FUNCTION}/driver")).unwrap().is_dir());
    let config = fs::read(format!("{FUNCTION}/config")).unwrap();
    assert_eq!(config, pci::header(0x101b, mlx5_model::card::Link::Roce));
    assert_eq!(text(format!("{FUNCTION}/class")), "0x020000");
    assert_eq!(text(format!("{FUNCTION}/subsystem_device")), "0x0001");
    let uevent = text(format!("{FUNCTION}/uevent"));
    for line in
        ["DRIVER=mlx5_core", "PCI_ID=15B3:101B", "PCI_CLASS=20000", "PCI_SLOT_NAME=6d35:00:00.0"]
    {
        assert!(uevent.lines().any(|has| has == line), "{line}: {uevent}");
    }
    let alias = uevent.lines().find_map(|line| line.strip_prefix("MODALIAS=")).unwrap();
    assert_eq!(text(format!("{FUNCTION}/modalias")), alias);
    let resource = text(format!("{FUNCTION}/resource"));
    assert_eq!(resource.lines().count(), 13);
    assert!(resource.lines().all(|line| line.len() == 56), "{resource}");
    let interrupts = names(format!("{FUNCTION}/msi_irqs"));
    assert!(interrupts.len() > 1);
    for interrupt in &interrupts {
        assert!(fs::metadata(format!("/proc/irq/{interrupt}")).is_err(), "the machine has it");
    }
    // The device is found from its function, and the function from its device.
    assert_eq!(names(format!("{FUNCTION}/infiniband")), ["mlx5_0"]);
    let function = fs::canonicalize(format!("{DEVICE}/device")).unwrap();
    assert_eq!(function, Path::new("/sys/devices/pci6d35:00/6d35:00:00.0"));
}

#[test]
fn the_interface_has_one_number_everywhere() {
    let name = interface();
    let index: u32 = text(format!("{DEVICE}/device/net/{name}/ifindex")).parse().unwrap();
    assert_eq!(text(format!("/sys/class/net/{name}/ifindex")), index.to_string());
    let c_name = CString::new(name.clone()).unwrap();
    // SAFETY: the name is a C string, and `back` has room for one.
    unsafe {
        assert_eq!(libc::if_nametoindex(c_name.as_ptr()), index);
        let mut back = [0; libc::IFNAMSIZ];
        assert!(!libc::if_indextoname(index, back.as_mut_ptr()).is_null());
        assert_eq!(CStr::from_ptr(back.as_ptr()), &*c_name);
    }
    assert_eq!(number(&asked(libc::SIOCGIFINDEX, &name).unwrap()), index);
    let attributes = format!("{DEVICE}/ports/1/gid_attrs");
    let entries = names(format!("{attributes}/types"));
    assert!(!entries.is_empty());
    for entry in &entries {
        assert_eq!(text(format!("{attributes}/ndevs/{entry}")), name);
    }
    let device = Device::open(0);
    // SAFETY: the call fills as many entries as there is room for.
    unsafe {
        let mut table: [ibv_gid_entry; 16] = zeroed();
        let got = ibv_query_gid_table(device.context.as_ptr(), table.as_mut_ptr(), table.len(), 0);
        assert_eq!(got as usize, entries.len());
        assert!(table[..got as usize].iter().all(|entry| entry.ndev_ifindex == index));
    }
    device.close();
}

#[test]
fn each_address_has_an_entry_of_either_version_of_roce() {
    LazyLock::force(&ETHERNET);
    let device = Device::open(0);
    // SAFETY: the call fills as many entries as there is room for.
    let (table, got) = unsafe {
        let mut table: [ibv_gid_entry; 16] = zeroed();
        let got = ibv_query_gid_table(device.context.as_ptr(), table.as_mut_ptr(), table.len(), 0);
        (table, got as usize)
    };
    let port = format!("{DEVICE}/ports/1");
    for (index, entry) in table[..got].iter().enumerate() {
        // SAFETY: any bytes are a GID.
        let gid = Ipv6Addr::from(unsafe { entry.gid.raw });
        let is_v2 = index % 2 == 1;
        assert_eq!((entry.gid_index, entry.gid_type), (index as u32, 1 + u32::from(is_v2)));
        assert_eq!(text(format!("{port}/gids/{index}")).parse(), Ok(gid));
        let kind = if is_v2 { "RoCE v2" } else { "IB/RoCE v1" };
        assert_eq!(text(format!("{port}/gid_attrs/types/{index}")), kind);
        let ipv4 = (index / 2 == 1).then_some(Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!((gid.segments()[0] == 0xfe80, gid.to_ipv4_mapped()), (ipv4.is_none(), ipv4));
    }
    assert_eq!(got, 4);
    device.close();
}

/// Creates an address handle to an address from this entry of the GID table. Returns the error.
fn reach(device: &Device, index: u8, to: &str) -> Result<(), i32> {
    let to = match to.parse().unwrap() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    // SAFETY: all zeros are valid attributes; the handle is destroyed once.
    unsafe {
        let mut attributes: ibv_ah_attr = zeroed();
        (attributes.port_num, attributes.is_global) = (1, 1);
        (attributes.grh.sgid_index, attributes.grh.hop_limit) = (index, 64);
        attributes.grh.dgid.raw = to.octets();
        let handle = ibv_create_ah(device.pd.as_ptr(), &mut attributes);
        if handle.is_null() {
            return Err(io::Error::last_os_error().raw_os_error().unwrap());
        }
        assert_eq!(ibv_destroy_ah(handle), 0);
    }
    Ok(())
}

#[test]
fn an_address_that_no_port_has_is_refused_as_linux_refuses_it() {
    LazyLock::force(&ETHERNET);
    let device = Device::open(0);
    let own = "fe80::526b:4bff:fec0:4e00";
    for (index, to, result) in [
        (3, "198.18.0.1", Ok(())),
        (2, "198.18.0.1", Ok(())),
        (1, own, Ok(())),
        (3, "224.0.0.9", Ok(())),
        // Nobody answers in the port's own network.
        (3, "198.18.0.99", Err(libc::ETIMEDOUT)),
        (1, "fe80::dead:beef", Err(libc::ETIMEDOUT)),
        // RoCE v1 asks nobody for a link-local address.
        (0, "fe80::dead:beef", Ok(())),
        // There is no route to another.
        (3, "10.9.9.9", Err(libc::ENETUNREACH)),
        (1, "2001:db8::1", Err(libc::ENETUNREACH)),
        // IPv4 from an IPv6 address, and the other way round.
        (1, "198.18.0.1", Err(libc::EINVAL)),
        (3, own, Err(libc::EINVAL)),
        (4, "198.18.0.1", Err(libc::ENODATA)),
    ] {
        assert_eq!(reach(&device, index, to), result, "from {index} to {to}");
    }
    device.close();
}

#[test]
fn the_interface_says_the_same_by_file_and_by_ioctl() {
    let name = interface();
    let file = |of: &str| text(format!("{DEVICE}/device/net/{name}/{of}"));
    assert_eq!(file("mtu"), number(&asked(libc::SIOCGIFMTU, &name).unwrap()).to_string());
    let address = asked(libc::SIOCGIFHWADDR, &name).unwrap();
    let mac: Vec<String> = address[2..8].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(file("address"), mac.join(":"));
    assert_eq!(address[..2], libc::ARPHRD_ETHER.to_ne_bytes());
    // The link-local GID is made of it.
    let gid = text(format!("{DEVICE}/ports/1/gids/0")).replace(':', "");
    assert_eq!(gid[26..], mac.concat()[6..]);
    assert_eq!(asked(libc::SIOCGIFADDR, &name).unwrap()[4..8], [198, 18, 0, 1]);
    let flags = asked(libc::SIOCGIFFLAGS, &name).unwrap();
    let running = libc::IFF_UP | libc::IFF_RUNNING;
    assert_eq!(i32::from(u16::from_ne_bytes([flags[0], flags[1]])) & running, running);
    assert_eq!(
        (file("operstate"), file("dev_port"), file("dev_id")),
        ("up".into(), "0".into(), "0x0".into())
    );
    assert_eq!(
        fs::canonicalize(format!("{DEVICE}/device/net/{name}/device")).unwrap(),
        fs::canonicalize(format!("{DEVICE}/device")).unwrap()
    );
}

#[test]
fn questions_about_other_interfaces_go_to_the_kernel() {
    let _ = interface();
    assert!(number(&asked(libc::SIOCGIFMTU, "lo").unwrap()) > 0);
    for name in ["mlx5view9", "mlx5view", "nobody"] {
        let error = asked(libc::SIOCGIFMTU, name).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
    }
    // A view cannot be changed, and has no more than the kernel's usual answers.
    let error = asked(libc::SIOCGIFDSTADDR, &interface()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    assert!(asked(libc::SIOCSIFMTU, &interface()).is_err());
    assert_eq!(devices(), ["mlx5_0"]);
}
