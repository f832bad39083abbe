//! Two hosts, each a network namespace, made of processes: all is gone when they are.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mlx5_sys::verbs::{ibv_gid, ibv_query_gid};

use crate::support::namespace::isolate;
use crate::support::role::Player;
use crate::support::verbs::Device;

/// Plays a role in a namespace of its own, as root of a user namespace.
pub fn play(role: &str) {
    // One after the other: each keeps two processors busy.
    let _turn = crate::support::turn();
    let mut command = Player::command(role);
    isolate(&mut command);
    let mut player = Player::start(command);
    let end = Instant::now() + super::PATIENCE;
    while player.child.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < end, "{role} does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    player.end_well();
}

/// Runs a command, which must succeed, and returns what it prints.
#[track_caller]
fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn words(text: &str) -> Command {
    let mut words = text.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

/// A network namespace with one interface.
pub struct Host {
    /// Keeps the namespace; none for that of this process.
    keeper: Option<Child>,
    /// The interface.
    pub interface: &'static str,
    /// Its IPv4 address.
    pub address: String,
}

impl Host {
    /// Makes a command run on this host, on the model.
    pub fn command(&self, command: Command) -> Command {
        let mut command = match &self.keeper {
            None => command,
            Some(keeper) => {
                let mut inside = Command::new("nsenter");
                inside.args(["-t", &keeper.id().to_string(), "-n"]).arg(command.get_program());
                inside.args(command.get_args());
                for (name, value) in command.get_envs() {
                    let value = value.map(OsString::from);
                    match value {
                        Some(value) => inside.env(name, value),
                        None => inside.env_remove(name),
                    };
                }
                inside
            }
        };
        command.env("MLX5_MODEL_NETWORK", format!("udp:{}", self.interface));
        command.env("MLX5_MODEL_LINK", "roce");
        command
    }

    /// Starts a process that talks to another one.
    pub fn talker(&self) -> Player {
        Player::start(self.command(Player::command("talker")))
    }

    #[track_caller]
    fn run(&self, text: &str) -> String {
        run(self.command(words(text)))
    }

    fn set_up(&self, number: u8) {
        let Self { interface, address, .. } = self;
        self.run("ip link set lo up");
        self.run(&format!("ip address add {address}/24 dev {interface}"));
        self.run(&format!("ip address add fd77::{number}/64 dev {interface} nodad"));
        // Without a look for other nodes with the same address, which takes seconds.
        let mut command = Command::new("sh");
        let quick = format!("echo 0 > /proc/sys/net/ipv6/conf/{interface}/accept_dad");
        command.args(["-c", &quick]);
        run(self.command(command));
        self.run(&format!("ip link set {interface} up"));
    }

    /// Waits until the kernel has noticed that both ends of the link are up. It drops packets before.
    fn wait(&self) {
        let end = Instant::now() + crate::support::LIMIT;
        let look = format!("ip link show dev {}", self.interface);
        while !self.run(&look).contains("state UP") {
            assert!(Instant::now() < end, "{} has no link", self.interface);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Limits the rate of the interface.
    pub fn slow_down(&self, rate: &str) {
        let interface = self.interface;
        self.run(&format!(
            "/usr/sbin/tc qdisc add dev {interface} root tbf rate {rate} burst 32kb limit 64mb"
        ));
    }

    /// Packets that the interface's queue has dropped.
    pub fn dropped(&self) -> u64 {
        let text = self.run(&format!("/usr/sbin/tc -s qdisc show dev {}", self.interface));
        let (_, rest) = text.split_once("dropped ").unwrap_or_else(|| panic!("{text}"));
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{text}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            // Fails only if it has ended by itself.
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

/// Starts a process that keeps a new network namespace.
fn keeper() -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let isolate = || {
        // SAFETY: `unshare` passes no memory.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes only a system call, as required between fork and exec.
    unsafe { command.pre_exec(isolate) };
    command.spawn().expect("cat, in a namespace")
}

/// Two hosts.
pub struct World {
    pub here: Host,
    pub there: Host,
}

impl World {
    /// Hosts that are joined by virtual Ethernet. The first one is this process's namespace.
    pub fn joined() -> Self {
        let keeper = keeper();
        let number = keeper.id();
        run(words(&format!("ip link add left type veth peer name right netns {number}")));
        run(words("ip link add dummy type veth peer name bare"));
        run(words("ip link set bare up"));
        let here = Host { keeper: None, interface: "left", address: "10.77.0.1".into() };
        let there = Host { keeper: Some(keeper), interface: "right", address: "10.77.0.2".into() };
        here.set_up(1);
        there.set_up(2);
        here.wait();
        there.wait();
        Self { here, there }
    }

    /// Hosts that are each joined to this process's namespace: by interfaces `one` and `two`.
    pub fn apart() -> Self {
        let hosts = [("left", "one", 1), ("right", "two", 2)].map(|(interface, near, last)| {
            let keeper = keeper();
            let number = keeper.id();
            run(words(&format!(
                "ip link add {near} type veth peer name {interface} netns {number}"
            )));
            run(words(&format!("ip link set {near} up")));
            let address = format!("10.77.0.{last}");
            let host = Host { keeper: Some(keeper), interface, address };
            host.set_up(last);
            host
        });
        hosts.iter().for_each(Host::wait);
        let [here, there] = hosts;
        Self { here, there }
    }
}

/// Has two talkers exchange messages.
pub fn exchange(talkers: &mut [Player; 2], messages: usize) {
    talkers.iter_mut().for_each(|talker| talker.tell(messages));
    let addresses = talkers.each_mut().map(Player::hear);
    let [one, other] = talkers;
    one.tell(&addresses[1]);
    other.tell(&addresses[0]);
    for (order, answer) in [("", "ready"), ("go", "done"), ("both done", "")] {
        if !order.is_empty() {
            talkers.iter_mut().for_each(|talker| talker.tell(order));
        }
        if !answer.is_empty() {
            talkers
                .iter_mut()
                .for_each(|talker| assert_eq!(talker.hear_within(super::PATIENCE), answer));
        }
    }
}

/// Returns a GID of a device's port.
pub fn gid(device: Device, index: i32) -> [u8; 16] {
    // SAFETY: all zeros is a valid GID, which outlives the call.
    unsafe {
        let mut gid: ibv_gid = std::mem::zeroed();
        assert_eq!(ibv_query_gid(device.context, 1, index, &mut gid), 0);
        gid.raw
    }
}

pub fn hex(gid: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*gid))
}

pub fn unhex(text: &str) -> [u8; 16] {
    u128::from_str_radix(text, 16).expect("hexadecimal digits").to_be_bytes()
}
