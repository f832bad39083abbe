//! Captures by `MLX5_MODEL_CAPTURE`: what tshark makes of them, and what becomes of the file.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mlx5_model::capture::{Direction, Writer};
use mlx5_model::engine::identities;
use mlx5_model::wire::opcode::Opcode;
use mlx5_model::wire::route::Global;
use mlx5_model::wire::{AtomicEth, Deth, Frame, Header, Link, Reth, Route, Service};
use support::capture::{Folder, dissect, read};
use support::process::{Output, Process};
use support::role::{Player, hear, play, say};
use support::verbs::{Device, PATIENCE, Station, connect, exchange};
use support::{LIMIT, Model};

const INFINIBAND: Model = Model { roce: false, mode: None };
const ROCE: Model = Model { roce: true, mode: None };

#[test]
fn role() {
    play(&[("talker", talker), ("endless", endless), ("writer", writer), ("counted", counted)]);
}

/// Two stations, ready to talk.
fn stations() -> (Station, Station) {
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    (one, other)
}

/// Sends messages back and forth within the process.
fn talker() -> i32 {
    let (one, other) = stations();
    for _ in 0..10 {
        exchange(&one, &other);
    }
    0
}

/// Talks, misses a receive, and says all counters of the port.
fn counted() -> i32 {
    let (one, other) = stations();
    exchange(&one, &other);
    one.write(1, 0, 5000, other.address());
    one.expect(1);
    one.read(2, 0, 100, other.address());
    one.expect(2);
    one.send(3, 0, 64);
    other.receive(4, 0, 64);
    one.expect(3);
    other.expect(4);
    let port = Path::new("/sys/class/infiniband/mlx5_0/ports/1");
    for folder in ["counters", "hw_counters"] {
        for entry in fs::read_dir(port.join(folder)).expect("a folder of counters") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let count = fs::read_to_string(port.join(folder).join(name)).expect("a counter");
            say(format!("{folder}/{name} {}", count.trim()));
        }
    }
    say("end");
    0
}

/// Writes more within the process than a file may have.
fn writer() -> i32 {
    let (one, other) = stations();
    for id in 0..MOST / MESSAGE as u64 {
        one.write(id, 0, MESSAGE, other.address());
        one.expect(id);
    }
    0
}

/// Limit of files' sizes, and bytes of a message.
const MOST: u64 = 1 << 20;
const MESSAGE: usize = 32 << 10;

/// Sends messages until it is killed.
fn endless() -> i32 {
    let (one, other) = stations();
    exchange(&one, &other);
    say("begun");
    let _ = hear();
    loop {
        exchange(&one, &other);
    }
}

fn captured(role: &str, capture: &Path) -> Command {
    let mut command = Player::command(role);
    command.env("MLX5_MODEL_CAPTURE", capture);
    command
}

/// The encodings of the packets of an operation on a service whose group has this code: sends,
/// writes, READs and atomics, alone and in pieces.
mod pieces {
    pub const SEND: &[u8] = &[0x00, 0x01, 0x02];
    pub const SEND_ONLY: &[u8] = &[0x04];
    pub const WRITE: &[u8] = &[0x06, 0x07, 0x08];
    pub const WRITE_ONLY: &[u8] = &[0x0a];
    pub const READ: &[u8] = &[0x0c, 0x0d, 0x0e, 0x0f];
    pub const READ_ONLY: &[u8] = &[0x0c, 0x10];
    pub const COMPARE: &[u8] = &[0x13, 0x12];
    pub const ADD: &[u8] = &[0x14, 0x12];
}

const ACKNOWLEDGE: u8 = 0x11;
const UC: u8 = 1 << 5;
const UD: u8 = 3 << 5;
const XRC: u8 = 5 << 5;

/// Runs a pair of processes, and checks what each has captured. On RoCE they are of version 2.
#[track_caller]
fn shows(model: Model, program: &str, arguments: &[&str], service: u8, expected: &[u8]) {
    shows_from(model, "1", program, arguments, service, expected);
}

/// The same, over Ethernet from the GID of this index.
#[track_caller]
fn shows_from(
    model: Model,
    gid: &str,
    program: &str,
    arguments: &[&str],
    service: u8,
    expected: &[u8],
) {
    let folder = Folder::new(&format!("shows-{program}-{gid}"));
    let with_gid = [arguments, &["-F", "-x", gid]].concat();
    let arguments = if model.roce { &with_gid } else { &with_gid[..arguments.len() + 1] };
    let variables = [("MLX5_MODEL_CAPTURE", &*folder.each())];
    let (server, client) = model.pair_where(program, arguments, &variables);
    server.assert_success();
    client.assert_success();
    let captures = folder.captures();
    assert_eq!(captures.len(), 2, "{program}");
    for capture in captures {
        let (frames, opcodes) = (read(&capture), dissect(&capture));
        assert_eq!(frames.len(), opcodes.len(), "{program}");
        let own = |frame: &&support::capture::Passed| frame.bth().map(|bth| bth[0]);
        assert_eq!(frames.iter().map(|frame| own(&frame)).collect::<Vec<_>>(), opcodes);
        let found: BTreeSet<u8> = opcodes.into_iter().flatten().collect();
        let expected: BTreeSet<u8> = expected.iter().map(|opcode| service | opcode).collect();
        assert!(found.is_superset(&expected), "{program}: {found:x?}, not all of {expected:x?}");
        assert!(frames.iter().any(|frame| frame.inbound));
        assert!(frames.iter().any(|frame| !frame.inbound));
    }
}

#[test]
fn operations_of_every_transport_are_shown_on_both_links() {
    for model in [INFINIBAND, ROCE] {
        for (service, name) in [(0, "RC"), (XRC, "XRC")] {
            let of = |program: &str, size: &str, expected: &[u8]| {
                let arguments = ["-n", "20", "-s", size, "-c", name];
                shows(model, program, &arguments, service, &[expected, &[ACKNOWLEDGE]].concat());
            };
            let fetches = |program: &str, size: &str, expected: &[u8]| {
                shows(model, program, &["-n", "20", "-s", size, "-c", name], service, expected);
            };
            of("ib_send_bw", "65536", pieces::SEND);
            of("ib_send_lat", "100", pieces::SEND_ONLY);
            of("ib_write_bw", "65536", pieces::WRITE);
            of("ib_write_lat", "100", pieces::WRITE_ONLY);
            fetches("ib_read_bw", "65536", pieces::READ);
            fetches("ib_read_lat", "100", pieces::READ_ONLY);
        }
        for (kind, expected) in [("CMP_AND_SWAP", pieces::COMPARE), ("FETCH_AND_ADD", pieces::ADD)]
        {
            shows(model, "ib_atomic_lat", &["-n", "20", "-A", kind], 0, expected);
        }
        let uc = ["-n", "20", "-c", "UC", "-s"];
        let unreliable = |program: &str, size: &str, expected: &[u8]| {
            shows(model, program, &[&uc[..], &[size]].concat(), UC, expected);
        };
        unreliable("ib_send_lat", "65536", pieces::SEND);
        unreliable("ib_send_lat", "100", pieces::SEND_ONLY);
        unreliable("ib_write_lat", "65536", pieces::WRITE);
        unreliable("ib_write_lat", "100", pieces::WRITE_ONLY);
        let ud = ["-n", "20", "-c", "UD", "-s", "1000"];
        shows(model, "ib_send_lat", &ud, UD, pieces::SEND_ONLY);
    }
}

#[test]
fn packets_of_roce_v1_are_dissected_as_such() {
    for gid in ["0", "2"] {
        let connected = ["-n", "20", "-s", "65536"];
        shows_from(ROCE, gid, "ib_write_bw", &connected, 0, pieces::WRITE);
        let datagrams = ["-n", "20", "-c", "UD", "-s", "1000"];
        shows_from(ROCE, gid, "ib_send_lat", &datagrams, UD, pieces::SEND_ONLY);
    }
}

/// Returns the names that tshark gives to the messages of the communication manager in a capture,
/// which it dissects without a doubt.
#[track_caller]
fn messages(capture: &Path) -> BTreeSet<String> {
    dissect(capture);
    let mut command = support::installed("tshark");
    command.args(["-T", "fields", "-e", "_ws.col.Info", "-Y", "infiniband.bth.opcode == 100"]);
    let output = command.arg("-r").arg(capture).output().expect("tshark starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().filter_map(|line| Some(line.trim().strip_prefix("CM: ")?.to_owned())).collect()
}

/// Starts a program with a capture.
fn with_capture(model: Model, arguments: &[&str], capture: &Path) -> Process {
    let mut command = model.command(arguments[0]);
    command.args(&arguments[1..]).env("MLX5_MODEL_CAPTURE", capture);
    Process::start(arguments[0], command)
}

#[test]
fn messages_of_connections_are_shown() {
    let connected =
        ["ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest", "DisconnectReply"];
    for model in [INFINIBAND, ROCE] {
        let folder = Folder::new("connections");
        let port = support::port::free();
        let sides = |port: &str, server: &[&str], client: &[&str]| {
            let name = server[0];
            let files = ["server", "client"].map(|side| folder.file(&format!("{name}-{side}")));
            let mut server = with_capture(model, server, &files[0]);
            support::sockets::wait_for_service(port, &mut server);
            let client = with_capture(model, client, &files[1]).finish(LIMIT);
            client.assert_success();
            server.finish(LIMIT).assert_success();
            files.map(|file| messages(&file))
        };
        // Both sides wait until the connection has ended.
        let server = ["ucmatose", "-c", "1", "-C", "2", "-p", &port];
        let client = ["ucmatose", "-c", "1", "-C", "2", "-p", &port, "-s", "127.0.0.1"];
        for found in sides(&port, &server, &client) {
            assert_eq!(found, connected.map(str::to_owned).into());
        }
        let refused = folder.file("refused");
        let output = with_capture(model, &client, &refused).finish(LIMIT);
        assert!(!output.status.success(), "{output}");
        let expected = ["ConnectRequest", "ConnectReject"].map(str::to_owned);
        assert_eq!(messages(&refused), expected.into());
        let server = ["udaddy", "-c", "2"];
        let client = ["udaddy", "-c", "2", "-s", "127.0.0.1"];
        // The port that the program has built in.
        for found in sides("7174", &server, &client) {
            let expected = ["ServiceIDResReq", "ServiceIDResReqResp"];
            assert_eq!(found, expected.map(str::to_owned).into());
        }
    }
}

#[test]
fn frames_of_ethernet_are_shown_as_they_are() {
    let folder = Folder::new("raw");
    let mut command = ROCE.command("raw_ethernet_bw");
    let capture = folder.file("raw.pcapng");
    command.args(["--client", "-d", "mlx5_0", "-F", "-n", "20", "-s", "200"]);
    command.args(["-B", "02:00:00:00:00:01", "-E", "02:00:00:00:00:02"]);
    command.args(["-J", "10.0.0.1", "-j", "10.0.0.2", "-K", "4321", "-k", "4322"]);
    command.env("MLX5_MODEL_CAPTURE", &capture);
    Process::start("raw_ethernet_bw", command).finish(LIMIT).assert_success();
    let frames = read(&capture);
    let bytes = fs::read(&capture).expect("the capture");
    let hardware = "mlx5-model: a software ConnectX (profile complete, assumed)";
    assert!(String::from_utf8_lossy(&bytes).contains(hardware));
    assert!(dissect(&capture).iter().all(Option::is_none));
    assert!(frames.len() >= 20, "{}", frames.len());
    for frame in &frames {
        assert!(!frame.inbound, "a frame to a foreign address comes back");
        assert_eq!(frame.bytes[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(frame.comment, None);
    }
}

/// Every packet that a public specification names, on every kind of route.
#[test]
fn every_packet_is_dissected() {
    let folder = Folder::new("packets");
    let gid = |last: u8| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, last];
    let mapped = |last: u8| {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 198, 18, 0, last]);
        gid
    };
    let global = |source, destination| Global {
        traffic_class: 0x20,
        flow_label: 0x12345,
        hop_limit: 64,
        source,
        destination,
    };
    let local = |global| Route::InfiniBand { level: 3, source: 7, destination: 9, global };
    let (v4, v6) = (global(mapped(1), mapped(2)), global(gid(1), gid(2)));
    const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const TWO: [u8; 6] = [2, 0, 0, 0, 0, 2];
    let over = |global| Route::Ethernet {
        source: ONE,
        destination: TWO,
        tag: None,
        global,
        port: Some(0xc123),
    };
    for (link, routes) in
        [(Link::InfiniBand, [local(None), local(Some(v6))]), (Link::Roce, [over(v4), over(v6)])]
    {
        let capture = folder.file(&format!("{link:?}"));
        let file = File::create(&capture).expect("a new file");
        let mut writer = Writer::new(file, "test", 1, &identities(1, link, 0)).expect("written");
        let mut written = Vec::new();
        for byte in 0..=u8::MAX {
            let Some((service, opcode)) = Opcode::decode(byte) else { continue };
            // These have no public format.
            if service == Service::Dc || opcode as u8 >= Opcode::MaskedCompareSwap as u8 {
                continue;
            }
            let length =
                if opcode.is_send() || opcode.is_write() || is_data(opcode) { 37 } else { 0 };
            for route in routes {
                let mut header = Header::new(route, opcode, 0xffff, 0x123456, 0xabcdef);
                header.service = service;
                header.ack_request = true;
                header.datagram = Some(Deth { q_key: 0x1111_1111, source: 0x345678 });
                header.xrc_srq = Some(0x987654);
                header.reth = Some(Reth { address: 0x7f00_0000_1000, key: 0x8200, length });
                header.atomic = Some(AtomicEth {
                    address: 0x7f00_0000_2000,
                    key: 0x8300,
                    swap_or_add: 1,
                    compare: 2,
                });
                let frame = header.frame(length as usize, |payload| {
                    payload.fill(0x5a);
                    Ok::<_, std::convert::Infallible>(())
                });
                let Ok(frame) = frame;
                let time = 1_700_000_000_123_456_789 + written.len() as u64;
                let out = Direction::Outbound;
                writer.frame(0, out, time, &frame, None).expect("written");
                written.push(Some(byte));
            }
        }
        if link == Link::Roce {
            let mut frame = [0; 60];
            frame[..6].fill(0xff);
            // A type for experiments (RFC 5342).
            frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            let frame = Frame::new(frame.to_vec());
            writer.frame(0, Direction::Inbound, u64::MAX, &frame, Some(&"test")).expect("written");
            written.push(None);
        }
        drop(writer);
        assert_eq!(dissect(&capture), written, "{link:?}");
        let frames = read(&capture);
        assert_eq!(frames[1].time, 1_700_000_000_123_456_790);
        if link == Link::Roce {
            assert_eq!(frames.last().unwrap().comment.as_deref(), Some("dropped: test"));
            assert_eq!(frames[0].bytes[..12], [TWO, ONE].concat());
        }
    }
}

fn is_data(opcode: Opcode) -> bool {
    use Opcode::{ReadResponseFirst, ReadResponseLast, ReadResponseMiddle, ReadResponseOnly};
    matches!(opcode, ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly)
}

/// `ibv_devinfo`, which opens the device.
fn devinfo(capture: &str) -> Output {
    let mut command = INFINIBAND.command("ibv_devinfo");
    command.env("MLX5_MODEL_CAPTURE", capture);
    Process::start("ibv_devinfo", command).finish(LIMIT)
}

#[test]
fn a_file_that_exists_is_left_alone() {
    let folder = Folder::new("exists");
    let file = folder.file("one.pcapng");
    let name = file.to_str().unwrap();
    devinfo(name).assert_success();
    let before = fs::read(&file).unwrap();
    assert!(read(&file).is_empty() && !before.is_empty());
    let refused = devinfo(name);
    assert!(!refused.status.success(), "{refused}");
    for part in ["MLX5_MODEL_CAPTURE", name, "the file exists", "remove it", "%p"] {
        assert!(refused.stderr.contains(part), "{part} in {refused}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    // Each process has a name of its own.
    for _ in 0..2 {
        devinfo(&folder.each()).assert_success();
    }
    assert_eq!(folder.captures().len(), 3);
}

#[test]
fn a_capture_that_cannot_be_started_opens_no_device() {
    for (name, reason) in [("/dev/full", "No space"), ("/nowhere/capture", "No such file")] {
        let refused = devinfo(name);
        assert!(!refused.status.success() && refused.stderr.contains(reason), "{refused}");
        assert!(refused.stderr.contains(name), "{refused}");
    }
}

/// Removes the last block if it is cut: the kernel ends a write to a file between two pages when the
/// process is killed.
fn drop_cut_block(capture: &Path) {
    let bytes = fs::read(capture).expect("it is there");
    let mut whole = 0;
    // Type and length of a block, which includes both.
    while let Some(length) = bytes.get(whole + 4..whole + 8) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        if bytes.len() - whole < length {
            break;
        }
        whole += length;
    }
    File::options().write(true).open(capture).unwrap().set_len(whole as u64).unwrap();
}

#[test]
fn a_killed_process_leaves_all_frames_that_passed() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let folder = Folder::new(&format!("killed-{signal}"));
        let capture = folder.file("capture");
        let mut endless = Player::start(captured("endless", &capture));
        assert_eq!(endless.hear(), "begun");
        let least = read(&capture).len();
        assert!(least > 0, "what was done is written");
        endless.tell("go on");
        let began = Instant::now();
        while fs::metadata(&capture).unwrap().len() < 1 << 16 {
            assert!(began.elapsed() < PATIENCE, "the capture does not grow");
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: the call passes no memory, and the child has not been waited for.
        unsafe { libc::kill(endless.child.id() as i32, signal) };
        assert!(!endless.end().success());
        if signal == libc::SIGKILL {
            drop_cut_block(&capture);
        }
        // The reader refuses a block that is cut off.
        assert!(read(&capture).len() > least);
        assert_eq!(dissect(&capture).len(), read(&capture).len());
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_program() {
    let folder = Folder::new("full");
    let capture = folder.file("capture");
    let mut command = support::installed("prlimit");
    command.arg(format!("--fsize={MOST}")).arg(std::env::current_exe().unwrap());
    let mut command = Player::through(command, "writer");
    command.env("MLX5_MODEL_CAPTURE", &capture);
    let output = Process::start("writer", command).finish(LIMIT);
    output.assert_success();
    let told: Vec<&str> =
        output.stderr.lines().filter(|line| line.contains("the capture ends here")).collect();
    assert_eq!(told.len(), 1, "{output}");
    assert_eq!(fs::metadata(&capture).unwrap().len(), MOST);
}

#[test]
fn counters_in_sysfs_equal_what_the_capture_shows() {
    let folder = Folder::new("counted");
    let capture = folder.file("capture");
    let mut player = Player::start(captured("counted", &capture));
    let mut counters = BTreeMap::new();
    loop {
        let line = player.hear();
        let Some((name, count)) = line.split_once(' ') else { break };
        counters.insert(name.to_owned(), count.parse::<u64>().expect(&line));
    }
    player.end_well();
    let frames = read(&capture);
    let sum = |inbound: bool| {
        let those = frames.iter().filter(|frame| frame.inbound == inbound);
        those
            .fold((0, 0), |(packets, bytes), frame| (packets + 1, bytes + frame.bytes.len() as u64))
    };
    let requests = |opcodes: &[u8]| {
        let is = |bth: &[u8]| opcodes.contains(&bth[0]);
        frames.iter().filter(|frame| frame.inbound && frame.bth().is_some_and(is)).count() as u64
    };
    // An acknowledge whose syndrome says that no receive is posted.
    let is_rnr = |bth: &[u8]| bth[0] == ACKNOWLEDGE && bth[12] >> 5 == 1;
    let rnr = frames.iter().filter(|frame| frame.inbound && frame.bth().is_some_and(is_rnr));
    let rnr = rnr.count() as u64;
    assert!(rnr > 0 && sum(true).0 > 0);
    for (name, expected) in [
        ("counters/port_xmit_packets", sum(false).0),
        ("counters/port_xmit_data", sum(false).1 / 4),
        ("counters/port_rcv_packets", sum(true).0),
        ("counters/port_rcv_data", sum(true).1 / 4),
        ("counters/unicast_xmit_packets", sum(false).0),
        ("counters/multicast_xmit_packets", 0),
        ("counters/port_rcv_errors", 0),
        ("hw_counters/rnr_nak_retry_err", rnr),
        ("hw_counters/out_of_buffer", rnr),
        ("hw_counters/rx_write_requests", requests(&[0x06, 0x0a])),
        ("hw_counters/rx_read_requests", requests(&[0x0c])),
        ("hw_counters/duplicate_request", 0),
        ("hw_counters/lifespan", 0),
    ] {
        assert_eq!(counters.get(name), Some(&expected), "{name} of {counters:?}");
    }
}

#[test]
fn a_pipe_is_written_to_until_its_reader_is_gone() {
    let folder = Folder::new("pipe");
    let pipe = folder.file("pipe");
    assert!(support::installed("mkfifo").arg(&pipe).status().unwrap().success());
    let talker = Process::start("talker", captured("talker", &pipe));
    let mut start = [0; 4];
    let mut reader = File::open(&pipe).expect("it is there");
    reader.read_exact(&mut start).expect("the first block");
    assert_eq!(start, 0x0a0d_0d0a_u32.to_le_bytes());
    drop(reader);
    let output = talker.finish(LIMIT);
    output.assert_success();
    assert!(!output.stderr.contains("mlx5-model"), "{output}");
}
