use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mlx5::connect::{ConnectionData, RemoteRegion};
use proptest::prelude::*;

use super::*;
use crate::perf::plan::Operation;
use crate::perf::plan::tests::plan;
use crate::perf::session::stream::Stream;

const SIZE: &[u8] = b"\0\0\x10\0";
const THEIRS: &[u8] = b"0001:0010:000107:a1b2c3:0000180f:00007f0123456000:00000000\0";

/// READs of a bandwidth test on this many queue pairs.
fn reads(queue_pairs: u32) -> Plan {
    Plan { kind: Kind::Bw, operation: Operation::Read, queue_pairs, ..plan() }
}

fn mine(qpn: u32) -> Endpoint {
    let region = RemoteRegion { address: 0x1000, length: 4096, rkey: 7 };
    let data =
        ConnectionData { lid: 3, region: Some(region), ..ConnectionData::new(qpn, Mtu::Mtu4096) };
    Endpoint { data, target: qpn, shared: 0, frame: None }
}

/// A client and the connection's other end.
fn pair(plan: &Plan) -> (Perftest, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, peer) = listener.accept().unwrap();
    let stream_of_client = Stream::new(accepted, peer, Duration::from_secs(2)).unwrap();
    let program = check::program(plan).unwrap();
    let client = Perftest {
        wire: Wire::on(stream_of_client, program),
        program,
        kind: plan.kind,
        version: None,
        pairs: Vec::new(),
    };
    (client, stream)
}

/// All steps before messages flow.
fn begin(client: &mut Perftest, plan: &Plan) -> Result<Vec<Vec<Endpoint>>> {
    client.greet()?;
    let mine: Vec<Endpoint> = (0..plan.queue_pairs).map(|queue| mine(0x100 + queue)).collect();
    let theirs = client.meet(plan, &[&mine])?;
    client.is_ready()?;
    Ok(theirs)
}

/// The client's outcome with a server that says this and then ends, and the bytes that it heard.
fn told(plan: &Plan, says: &[&[u8]]) -> (Result<Vec<Vec<Endpoint>>>, Vec<u8>) {
    let (mut client, mut stream) = pair(plan);
    stream.write_all(&says.concat()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let found = begin(&mut client, plan);
    drop(client);
    let mut heard = Vec::new();
    // The client may have left unread bytes behind.
    let _ = stream.read_to_end(&mut heard);
    (found, heard)
}

fn version() -> [u8; version::LENGTH] {
    version::RUN.encode()
}

#[test]
fn a_bandwidth_test_meets_each_queue_pair_twice_and_the_first_again() {
    let (version, plan) = (version(), reads(2));
    let second = THEIRS.to_ascii_uppercase();
    let says = [&version[..], SIZE, SIZE, b"3\0", THEIRS, &second, THEIRS, &second, THEIRS];
    let (found, heard) = told(&plan, &says);
    let theirs = found.unwrap();
    assert_eq!((theirs.len(), theirs[0].len()), (1, 2));
    let data = &theirs[0][1].data;
    assert_eq!((data.qpn, data.psn, data.lid, data.mtu), (0x107, 0xa1_b2c3, 1, Mtu::Mtu1024));
    assert_eq!(data.responder_depth, 16);
    let keys = |queue: u32| Keys::of(&mine(0x100 + queue)).by_lid();
    let buffer = check::buffer(&plan).unwrap().to_be_bytes();
    let (first, last) = (keys(0), keys(1));
    let wanted =
        [&version[..], &buffer, b"\0\0\0\x40", b"5\0", &first, &last, &first, &last, &first];
    assert_eq!(heard, wanted.concat());
}

#[test]
fn a_latency_test_meets_its_queue_pair_four_times() {
    let plan = Plan { kind: Kind::Lat, ..reads(1) };
    let version = version();
    let start = [&version[..], SIZE, SIZE, b"5\0"];
    told(&plan, &[&start[..], &[THEIRS; 4]].concat()).0.unwrap();
    let error = told(&plan, &[&start[..], &[THEIRS; 3]].concat()).0.unwrap_err().to_string();
    assert!(error.contains("told 0 of the 59 bytes of its keys"), "{error}");
}

#[test]
fn a_server_that_says_nothing_or_says_it_slowly_is_given_up() {
    let (mut client, mut stream) = pair(&reads(1));
    let error = client.greet().unwrap_err().to_string();
    assert!(error.contains("0 of the 16 bytes of its version: silent for 2s"), "{error}");
    let is_over = AtomicBool::new(false);
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                stream.write_all(b"6").unwrap();
                thread::sleep(Duration::from_millis(200));
            }
        });
        let error = client.greet().unwrap_err().to_string();
        is_over.store(true, Ordering::Relaxed);
        error
    });
    assert!(error.contains("of the 16 bytes of its version: silent for 2s"), "{error}");
}

#[test]
fn a_word_while_messages_flow_is_an_error_and_so_is_the_end() {
    let (mut client, mut stream) = pair(&reads(1));
    client.wire.stays_silent().unwrap();
    stream.write_all(b"x").unwrap();
    while client.wire.stays_silent().is_ok() {}
    drop(stream);
    let error = client.wire.stays_silent().unwrap_err().to_string();
    assert!(error.contains("closed the connection"), "{error}");
}

#[test]
fn the_end_is_a_report_the_keys_and_the_last_word() {
    let plan = reads(1);
    let words: [(&[u8], bool); 4] = [(DONE, true), (b"", true), (b"gone\0", false), (b"do", false)];
    for (last, is_right) in words {
        let (mut client, mut stream) = pair(&plan);
        let version = version();
        let start = [&version[..], SIZE, SIZE, b"5\0", THEIRS, THEIRS, THEIRS].concat();
        let end = [THEIRS, &[0; 5 * 8], THEIRS, last].concat();
        stream.write_all(&[start, end].concat()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        begin(&mut client, &plan).unwrap();
        assert_eq!(client.end(&Report::of(&plan, &[])).is_ok(), is_right);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes after any number of right steps are no server.
    #[test]
    fn noise_is_an_error_of_one_line(
        right in 0..7usize,
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let version = version();
        let steps = [&version[..], SIZE, SIZE, b"5\0", THEIRS, THEIRS, THEIRS];
        // Noise of 59 bytes that are these keys does not come.
        let found = told(&reads(1), &[&steps[..right], &[&noise[..]]].concat()).0;
        let error = found.unwrap_err().to_string();
        prop_assert!(error.chars().all(|c| !c.is_control()), "{}", error);
        prop_assert!(error.contains("ib_read_bw"), "{}", error);
    }
}
