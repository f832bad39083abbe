//! Network namespaces: each is a separate fabric.

mod support;

use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{fs, io};

use mlx5_model as _;
use mlx5_sys::verbs::ibv_wc_status;
use support::namespace;
use support::role::{Player, hear, play, say};
use support::target::{meet, reach, target};
use support::verbs::{Address, Device, Station, Timing};

#[test]
fn role() {
    play(&[("target", target), ("island", island), ("on-interface", on_interface)]);
}

const SHORT: Timing = Timing { code: 14, retries: 1 };

/// Makes a command run in a network namespace of its own: with the right to make one, or else in a
/// user namespace in which it has that right, as the same user.
fn isolate(mut command: Command) -> Command {
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    let map = CString::new(format!("{user} {user} 1")).expect("no zero");
    let isolate = move || {
        // SAFETY: only system calls, as has to be between fork and exec; strings are there.
        unsafe {
            if libc::unshare(libc::CLONE_NEWNET) == 0 {
                return Ok(());
            }
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0 {
                return Err(io::Error::last_os_error());
            }
            let file = libc::open(c"/proc/self/uid_map".as_ptr(), libc::O_WRONLY);
            let length = map.as_bytes().len();
            if file < 0 || libc::write(file, map.as_ptr().cast(), length) != length as isize {
                return Err(io::Error::last_os_error());
            }
            libc::close(file);
        }
        Ok(())
    };
    // SAFETY: the closure makes only system calls, as required between fork and exec.
    unsafe { command.pre_exec(isolate) };
    command
}

/// Speaks to a process of the same namespace, and tries to speak to one of another.
fn island() -> i32 {
    let device = Device::open(0);
    let mut neighbour = Player::of("target");
    let near = Station::new(device);
    let peer = meet(&near, &mut neighbour, 0, Timing::PATIENT);
    reach(&near, peer);
    say(near.address());
    let outside: Address = hear().expect("an address").parse().expect("an address");
    let far = Station::new(device);
    far.connect(outside, SHORT);
    far.write(1, 0, 64, outside);
    let done = far.wait();
    assert_eq!((done.id, done.status), (1, ibv_wc_status::IBV_WC_RETRY_EXC_ERR));
    reach(&near, peer);
    say("alone");
    assert_eq!(hear(), None);
    neighbour.end_well();
    0
}

#[test]
fn processes_of_other_namespaces_are_not_there() {
    let probe = isolate(Command::new("/bin/true")).status();
    assert!(
        probe.as_ref().is_ok_and(|status| status.success()),
        "this test needs a network namespace, which may not be made here ({probe:?}): run it as \
         root, or allow user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, \
         `sysctl user.max_user_namespaces=1000`, and in a container a seccomp profile that lets \
         unshare through)"
    );
    let device = Device::open(0);
    let mut neighbour = Player::of("target");
    let near = Station::new(device);
    let peer = meet(&near, &mut neighbour, 0, Timing::PATIENT);
    reach(&near, peer);

    let mut island = Player::start(isolate(Player::command("island")));
    let inside: Address = island.hear().parse().expect("an address");
    let far = Station::new(device);
    far.connect(inside, SHORT);
    far.write(1, 0, 64, inside);
    let done = far.wait();
    assert_eq!((done.id, done.status), (1, ibv_wc_status::IBV_WC_RETRY_EXC_ERR));
    // All that it lacks is a way: the address is that of a process which lives, and so is this.
    island.tell(near.address());
    assert_eq!(island.hear(), "alone");
    reach(&near, peer);
    island.end_well();
    neighbour.end_well();
    near.destroy();
    far.destroy();
}

/// The address of the interface in the test below, as a GID.
const ADDRESS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];

/// Looks at the port, and speaks over its IPv4 address.
fn on_interface() -> i32 {
    let port = "/sys/class/infiniband/mlx5_0/ports/1";
    let text = |path: String| fs::read_to_string(&path).expect(&path).trim().to_owned();
    let folder = "/sys/class/infiniband/mlx5_0/device/net/d0";
    let shown = Command::new("ip").args(["link", "show", "d0"]).output().expect("iproute2");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&text(format!("{folder}/address"))), "{shown}");
    assert!(shown.contains(&format!("mtu {} ", text(format!("{folder}/mtu")))), "{shown}");
    assert!(shown.starts_with(&format!("{}: d0", text(format!("{folder}/ifindex")))), "{shown}");
    let index = (0..16).find(|index| {
        text(format!("{port}/gids/{index}")) == "0000:0000:0000:0000:0000:ffff:c000:0201"
    });
    let index = index.expect("the address among the GIDs");
    assert_eq!(text(format!("{port}/gid_attrs/ndevs/{index}")), "d0");

    let device = Device::open(0);
    let (near, far) = (Station::new(device), Station::new(device));
    near.connect_over(far.address(), Timing::PATIENT, Some((index, ADDRESS)));
    far.connect_over(near.address(), Timing::PATIENT, Some((index, ADDRESS)));
    near.write(1, 0, 64, far.address());
    let done = near.wait();
    assert_eq!((done.id, done.status), (1, ibv_wc_status::IBV_WC_SUCCESS));
    0
}

#[test]
fn a_port_of_the_machines_fabric_has_the_addresses_of_an_interface() {
    let mut shell = Command::new("sh");
    let script = "ip link add d0 type veth peer name d1 && ip address add 192.0.2.1/24 dev d0 && \
                  ip link set d1 up && ip link set d0 mtu 4200 up && exec \"$@\"";
    let own = std::env::current_exe().expect("the test knows its executable");
    shell.args(["-c", script, "sh"]).arg(own);
    shell.env("MLX5_MODEL_NETWORK", "machine:d0").env_remove("MLX5_MODEL_LINK");
    let mut command = Player::through(shell, "on-interface");
    namespace::isolate(&mut command);
    Player::start(command).end_well();
}
