//! DPDK's `testpmd`, as Debian packages it, in the default mode of its driver for ConnectX. The driver
//! finds the device in PCI's folders, makes its queues and rules by firmware command, writes WQEs and
//! reads CQEs by itself, compressed ones included. Each run has a network namespace of its own, since a
//! promiscuous port receives what others send.

mod support;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};
use std::time::Instant;

use mlx5_model::trace::{Observed, Reader, What};
use mlx5_sys::wqe::opcode;
use support::{LIMIT, Model, namespace, turn};

const PROMPT: &str = "testpmd> ";
/// Frames of `start tx_first` and of the mode `txonly`.
const FRAME: u64 = 64;
/// Frames that go round.
const BURST: u64 = 32;
/// Frames that a port receives before a run ends.
const ENOUGH: u64 = 20_000;

/// A running `testpmd` on a terminal of its own, without which it would keep its output back.
struct Testpmd {
    child: Child,
    terminal: File,
    said: String,
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Fails only if the process has just ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Testpmd {
    /// Starts it on so many devices, with what the driver's argument says for each.
    fn start(devices: usize, argument: &str, options: &[&str]) -> Self {
        Self::start_recorded(devices, argument, options, None)
    }

    /// The same, with a recording of what it does.
    fn start_recorded(
        devices: usize,
        argument: &str,
        options: &[&str],
        recording: Option<&Path>,
    ) -> Self {
        let (mut terminal, mut program) = (-1, -1);
        // SAFETY: the call writes the two descriptors; name and attributes are left out.
        let opened =
            unsafe { libc::openpty(&mut terminal, &mut program, null_mut(), null(), null()) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both were just opened, and have no other owner.
        let (terminal, program) =
            unsafe { (File::from_raw_fd(terminal), File::from_raw_fd(program)) };
        let mut command: Command = Model { roce: true, mode: None }.command("dpdk-testpmd");
        command.env("MLX5_MODEL_DEVICES", devices.to_string());
        command.envs(recording.map(|path| ("MLX5_MODEL_TRACE", path)));
        command.args(["--no-huge", "--no-shconf", "--no-telemetry", "-m", "512", "--iova-mode=va"]);
        command.arg("--lcores=0@(0-1),1@(0-1)");
        for device in 0..devices {
            command.args(["-a", &format!("6d35:00:{device:02x}.0{argument}")]);
        }
        command.args(["--", "-i", "--total-num-mbufs=32768"]).args(options);
        namespace::isolate(&mut command);
        let copy = || Stdio::from(program.try_clone().expect("a descriptor"));
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = command.spawn().expect("a process");
        // The terminal ends with the program.
        drop((command, program));
        let mut running = Self { child, terminal, said: String::new() };
        let started = running.answer(0);
        assert!(!started.contains("Fail to start"), "{started}");
        running
    }

    /// Waits for the prompt, and returns what was said before it, from that place on.
    fn answer(&mut self, from: usize) -> String {
        let deadline = Instant::now() + LIMIT;
        while !self.said[from..].ends_with(PROMPT) {
            let mut waiting =
                libc::pollfd { fd: self.terminal.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the call reads and writes one `pollfd`.
            let ready = unsafe { libc::poll(&mut waiting, 1, 1000) };
            assert!(Instant::now() < deadline, "no answer: {}", self.said);
            if ready == 0 {
                continue;
            }
            let mut bytes = [0; 4096];
            match self.terminal.read(&mut bytes) {
                Ok(n) if n > 0 => self.said.push_str(&String::from_utf8_lossy(&bytes[..n])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                ended => panic!("it has ended ({ended:?}, {:?}): {}", self.child.wait(), self.said),
            }
        }
        self.said[from..].to_owned()
    }

    /// Gives a command, and returns the answer.
    fn ask(&mut self, command: &str) -> String {
        let from = self.said.len();
        self.terminal.write_all(format!("{command}\n").as_bytes()).expect("it reads");
        self.answer(from)
    }

    /// The counters of a port.
    fn port(&mut self, number: usize) -> Port {
        let text = self.ask(&format!("show port stats {number}"));
        let count = |name: &str| -> u64 {
            let from = text.find(name).unwrap_or_else(|| panic!("no {name} in {text}"));
            let words = text[from + name.len()..].split_whitespace();
            words.take(1).collect::<String>().parse().unwrap_or_else(|_| panic!("{name}: {text}"))
        };
        Port {
            received: count("RX-packets:"),
            missed: count("RX-missed:"),
            bytes: count("RX-bytes:"),
            errors: count("RX-errors:") + count("RX-nombuf:") + count("TX-errors:"),
            sent: count("TX-packets:"),
        }
    }

    /// The Ethernet address of a port.
    fn address(&mut self, number: usize) -> String {
        let text = self.ask(&format!("show port info {number}"));
        let (_, after) = text.split_once("MAC address: ").expect("an address");
        after.split_whitespace().take(1).collect()
    }

    /// Gives a command until it says what is expected.
    fn until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{}", self.said);
            std::thread::yield_now();
        }
    }

    /// Ends it, which has to go well.
    fn quit(mut self) {
        self.terminal.write_all(b"quit\n").expect("it reads");
        // Until the other end is closed.
        let mut bytes = [0; 4096];
        while let Ok(n) = self.terminal.read(&mut bytes) {
            if n == 0 {
                break;
            }
            self.said.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        let status = self.child.wait().expect("a status");
        assert!(status.success(), "{status}: {}", self.said);
    }
}

#[derive(Debug)]
struct Port {
    received: u64,
    missed: u64,
    bytes: u64,
    errors: u64,
    sent: u64,
}

/// Frames go round `ports` ports, each of which sends to the next. None is lost or changed.
fn frames_go_round(ports: usize, argument: &str) {
    let _turn = turn();
    let mut testpmd = Testpmd::start(ports, argument, &[]);
    for port in 0..ports {
        let next = testpmd.address((port + 1) % ports);
        testpmd.ask(&format!("set eth-peer {port} {next}"));
    }
    testpmd.ask("start tx_first");
    testpmd.until(|testpmd| testpmd.port(0).received > ENOUGH);
    testpmd.ask("stop");
    let all: Vec<Port> = (0..ports).map(|port| testpmd.port(port)).collect();
    for (number, port) in all.iter().enumerate() {
        let from = &all[(number + ports - 1) % ports];
        assert_eq!((port.missed, port.errors), (0, 0), "{argument}: {all:?}");
        assert_eq!(port.bytes, port.received * FRAME, "{argument}: {all:?}");
        // What is under way when it stops was sent, and is not yet received.
        let missing = from.sent.checked_sub(port.received);
        let limit = BURST * ports as u64;
        assert!(missing.is_some_and(|frames| frames <= limit), "{argument}: {all:?}");
    }
    testpmd.quit();
}

#[test]
fn a_port_receives_what_it_sends_to_itself() {
    frames_go_round(1, "");
}

#[test]
fn two_ports_forward_each_others_frames() {
    frames_go_round(2, "");
}

#[test]
fn cqes_that_are_not_compressed_are_received() {
    frames_go_round(2, ",rxq_cqe_comp_en=0");
}

#[test]
fn one_cqe_after_the_other_is_received() {
    frames_go_round(2, ",rx_vec_en=0");
}

#[test]
fn packets_are_received_in_strides() {
    frames_go_round(2, ",mprq_en=1,rxqs_min_mprq=1");
}

#[test]
fn objects_are_made_by_verbs() {
    frames_go_round(2, ",dv_flow_en=0");
}

#[test]
fn flows_spread_over_four_queues() {
    let _turn = turn();
    let options =
        ["--rxq=4", "--txq=4", "--rxd=512", "--txd=512", "--txonly-multi-flow", "--rss-udp"];
    let mut testpmd = Testpmd::start(2, "", &options);
    testpmd.ask("start tx_first 8");
    testpmd.until(|testpmd| testpmd.port(1).received > ENOUGH);
    let text = testpmd.ask("stop");
    for queue in 0..4 {
        let stream = format!("RX Port= 1/Queue= {queue}");
        let after = text.split_once(&stream).unwrap_or_else(|| panic!("no {stream} in {text}")).1;
        let after = after.split_once("RX-packets:").expect("packets").1;
        let count: u64 = after.split_whitespace().next().unwrap().parse().expect("a number");
        // Of a thousand frames with addresses of their own, each queue has its share.
        assert!(count > ENOUGH / 16, "{stream}: {text}");
    }
    testpmd.quit();
}

/// Rules, and whether the driver takes them. Both engines of the driver say of the others that the device
/// lacks what they need: groups of tables, and actions on headers, which the driver steers by software.
const RULES: [(&str, bool); 7] = [
    ("eth / ipv4 / udp / end actions count / queue index 0 / end", true),
    ("eth / ipv4 / tcp / end actions mark id 5 / queue index 0 / end", true),
    ("eth / ipv4 / tcp dst is 5 / end actions drop / end", true),
    ("eth / ipv6 / end actions rss / end", true),
    ("eth / ipv4 / tcp dst is 7 / end actions count / drop / end", true),
    ("eth / ipv4 / end actions jump group 1 / end", false),
    ("eth / vlan vid is 5 / end actions of_pop_vlan / queue index 0 / end", false),
];

/// Rules are made, and the first one counts each UDP packet that the other port sends.
fn rules_are_made_and_count(argument: &str) {
    let _turn = turn();
    let mut testpmd = Testpmd::start(2, argument, &["--forward-mode=txonly"]);
    for (rule, made) in RULES {
        let answer = testpmd.ask(&format!("flow create 1 ingress pattern {rule}"));
        assert_eq!(answer.contains("created"), made, "{argument}, {rule}: {answer}");
    }
    testpmd.ask("start");
    testpmd.until(|testpmd| testpmd.port(0).sent > ENOUGH);
    testpmd.ask("stop");
    let sent = testpmd.port(0).sent;
    // The last frames may still be on their way.
    let hits = format!("hits: {sent}\r\n");
    let bytes = format!("bytes: {}\r\n", sent * FRAME);
    testpmd.until(|testpmd| testpmd.ask("flow query 1 0 count").contains(&hits));
    let answer = testpmd.ask("flow query 1 0 count");
    assert!(answer.contains(&hits) && answer.contains(&bytes), "{sent} sent: {answer}");
    testpmd.quit();
}

#[test]
fn rules_by_command_are_made_and_count() {
    rules_are_made_and_count(",dv_flow_en=1");
}

#[test]
fn rules_by_verbs_are_made_and_count() {
    rules_are_made_and_count(",dv_flow_en=0");
}

/// Returns the WQEs of an opcode by which it sends what `commands` start, until at least `packets` are sent,
/// with the time of the device's clock at which each was fetched.
fn sent_by(
    (argument, options): (&str, &[&str]),
    commands: &[&str],
    packets: u64,
    code: u8,
) -> Vec<(u64, Vec<u8>)> {
    let _turn = turn();
    let name = format!("mlx5-dpdk-{}{argument}-{code}.trace", std::process::id());
    let recording = std::env::temp_dir().join(name);
    let mut testpmd = Testpmd::start_recorded(1, argument, options, Some(&recording));
    for command in commands {
        testpmd.ask(command);
    }
    testpmd.until(|testpmd| testpmd.port(0).sent >= packets);
    testpmd.ask("stop");
    testpmd.quit();
    let reader = Reader::new(BufReader::new(File::open(&recording).expect("it was recorded")));
    let events = reader.expect("a recording").events();
    let wqes = events.filter_map(|event| {
        let event = event.expect("a whole recording");
        match event.what {
            What::Observed(Observed::SendWqe { bytes, .. }) => {
                Some((event.time, bytes.into_owned()))
            }
            _ => None,
        }
    });
    let wqes: Vec<(u64, Vec<u8>)> = wqes.filter(|(_, wqe)| wqe[3] == code).collect();
    fs::remove_file(&recording).expect("it is there");
    wqes
}

/// What DPDK writes, see the file.
const WRITTEN: &str = include_str!("dpdk_multi_packet.txt");

/// Returns the WQE of that name in the file.
fn written(name: &str) -> Vec<u8> {
    let lines = WRITTEN.lines().skip_while(|line| *line != name).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let bytes = lines.flat_map(|line| line.split(' ').filter(|word| !word.is_empty()));
    bytes.map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect()
}

/// Clears what differs from run to run: number, completion mode, sender's address, key and address.
fn masked(mut wqe: Vec<u8>) -> Vec<u8> {
    wqe[4..7].fill(0);
    wqe[11] = 0;
    let mut at = 32;
    while at < wqe.len() {
        match wqe[at] {
            // 64 bytes of a packet, behind the inline header.
            0x80 => {
                wqe[at + 10..at + 16].fill(0);
                at += 80;
            }
            _ => {
                wqe[at + 4..at + 16].fill(0);
                at += 16;
            }
        }
    }
    wqe
}

#[test]
fn the_packets_of_a_burst_share_wqes() {
    for (name, argument, wqes) in [("memory", "", 1), ("inline", ",txqs_min_inline=1", 3)] {
        let made = (argument, &["--forward-mode=rxonly"][..]);
        let burst = sent_by(made, &["start tx_first"], BURST, opcode::ENHANCED_MPSW);
        assert_eq!(burst.len(), wqes, "{burst:02x?}");
        let (_, first) = burst[0].clone();
        assert_eq!(masked(first), masked(written(name)), "{name}");
    }
}

/// The driver finds the capability by itself. Its WQEs are those that `WaitUntil` writes, with the mask of
/// `SendTimes`, and what is behind one is fetched at its time.
#[test]
fn packets_with_times_wait_for_them() {
    const SEND_ON_TIMESTAMP: &str = "--tx-offloads=0x200000";
    /// Eight seconds of nanoseconds, which the clock counts, and the bits that are compared.
    const MASK: u64 = (8 << 30) - 1;
    let made = ("", &["--forward-mode=txonly", SEND_ON_TIMESTAMP][..]);
    let waits = sent_by(made, &["set txtimes 20000000,0", "start"], 4 * BURST, opcode::WAIT);
    let mut before = None;
    for (fetched, wqe) in waits.iter().take(4) {
        let word = |at: usize| u64::from_be_bytes(wqe[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!((wqe[0], wqe[7], wqe.len()), (opcode::OPMOD_WAIT_TIME, 3, 48), "{wqe:02x?}");
        assert_eq!((word(16), word(24), word(40)), (5 << 32, 0, MASK), "{wqe:02x?}");
        assert!(before.is_none_or(|until| until <= *fetched), "{before:?} {fetched}");
        before = Some(word(32));
    }
    assert!(before.is_some());
}
