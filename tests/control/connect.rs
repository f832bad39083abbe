//! The exchange of connection data against peers of every kind, over real sockets.
//!
//! Each hostile peer must lead to its own error, and within the timeout.

#[path = "../../model/tests/support/port.rs"]
#[allow(dead_code, reason = "no program listens on it here")]
mod port;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::connect::{ConnectError, Connection, ConnectionData, Listener, RemoteRegion, VERSION};
use mlx5::endpoint::{Endpoint, MrSlice};
use mlx5::ib::Access;
use mlx5::verbs::attr::Mtu;
use mlx5::verbs::{Context, ProtectionDomain};
use mlx5_model as _;
use proptest::prelude::*;

/// Long enough for a loaded machine where nothing is expected to time out.
const PATIENCE: Duration = Duration::from_secs(20);

fn endpoint(qpn: u32) -> ConnectionData {
    ConnectionData {
        psn: 0x00ab_cdef,
        lid: 7,
        gid: Some("fe80::7".parse().unwrap()),
        responder_depth: 16,
        region: Some(RemoteRegion { address: 0x7000_0000, length: 4096, rkey: 0x1234 }),
        ..ConnectionData::new(qpn, Mtu::Mtu1024)
    }
}

/// The bytes that this side sends for an endpoint, as a peer sees them.
fn bytes_of(endpoint: &ConnectionData) -> Vec<u8> {
    let raw = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connection =
        Connection::connect(raw.local_addr().unwrap(), Duration::from_millis(200)).unwrap();
    let (mut peer, _) = raw.accept().unwrap();
    connection.exchange(endpoint).unwrap_err();
    drop(connection);
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns the result of an exchange with a peer that runs `act`, and its duration.
fn exchange_with(
    timeout: Duration,
    act: impl FnOnce(TcpStream) + Send + 'static,
) -> (Result<ConnectionData, ConnectError>, Duration) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let peer = thread::spawn(move || act(TcpStream::connect(address).unwrap()));
    let mut connection = listener.accept(timeout).unwrap();
    let start = Instant::now();
    let result = connection.exchange(&endpoint(1));
    let took = start.elapsed();
    // A peer that waits for the end of the connection finds it.
    drop(connection);
    peer.join().unwrap();
    (result, took)
}

/// The same for a peer that sends `bytes`, reads what it is told, and keeps the connection open.
fn told(bytes: Vec<u8>) -> Result<ConnectionData, ConnectError> {
    let (result, took) = exchange_with(PATIENCE, move |mut stream| {
        stream.write_all(&bytes).unwrap();
        // Ends when the other side closes; a reset, where it left bytes unread, ends it too.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert!(took < PATIENCE / 2, "judged only after {took:?}");
    result
}

#[test]
fn two_sides_tell_each_other_everything_and_meet_at_barriers() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let client = thread::spawn(move || {
        let mut connection = Connection::connect(address, PATIENCE).unwrap();
        let theirs = connection.exchange(&endpoint(2)).unwrap();
        assert_eq!(connection.exchange_data(b"").unwrap(), [7; 1024]);
        for step in 0..=255 {
            connection.barrier(step).unwrap();
        }
        theirs
    });
    let mut connection = listener.accept(PATIENCE).unwrap();
    assert!(connection.peer_address().unwrap().ip().is_loopback());
    assert_eq!(connection.exchange(&endpoint(3)).unwrap(), endpoint(2));
    assert_eq!(connection.exchange_data(&[7; 1024]).unwrap(), b"");
    for step in 0..=255 {
        connection.barrier(step).unwrap();
    }
    assert_eq!(client.join().unwrap(), endpoint(3));
}

#[test]
fn a_program_may_wait_for_ever() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let client = thread::spawn(move || {
        let mut connection = Connection::connect(address, Duration::MAX).unwrap();
        connection.barrier(1).unwrap();
        connection.exchange_data(b"there").unwrap()
    });
    let mut connection = listener.accept(Duration::MAX).unwrap();
    connection.barrier(1).unwrap();
    assert_eq!(connection.exchange_data(b"here").unwrap(), b"there");
    assert_eq!(client.join().unwrap(), b"here");
}

#[test]
fn a_peer_that_sends_nothing_is_given_up_at_the_timeout() {
    let timeout = Duration::from_millis(150);
    let (result, took) = exchange_with(timeout, |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert!(matches!(result, Err(ConnectError::TimedOut { .. })), "{result:?}");
    assert!(took >= timeout && took < PATIENCE, "{took:?}");
}

#[test]
fn a_peer_that_drips_gains_no_time() {
    let timeout = Duration::from_millis(300);
    let bytes = bytes_of(&endpoint(9));
    let (result, took) = exchange_with(timeout, move |mut stream| {
        // Much slower than the timeout allows for the whole, much faster for each byte.
        for byte in bytes {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    // With the time counted anew for each byte, all of them would have come.
    assert!(matches!(result, Err(ConnectError::TimedOut { .. })), "{result:?}");
    assert!(took >= timeout, "{took:?}");
}

#[test]
fn a_peer_of_another_protocol_is_named() {
    let result = told(b"GET / HTTP/1.1\r\n\r\n".to_vec());
    assert!(
        matches!(result, Err(ConnectError::NotThisProtocol { got }) if &got == b"GET "),
        "{result:?}"
    );
}

#[test]
fn a_peer_of_another_version_is_named() {
    let mut bytes = bytes_of(&endpoint(9));
    bytes[4..6].copy_from_slice(&(VERSION + 1).to_be_bytes());
    let result = told(bytes);
    assert!(
        matches!(result, Err(ConnectError::Version { theirs, ours: VERSION }) if theirs == VERSION + 1),
        "{result:?}"
    );
}

#[test]
fn a_peer_that_announces_too_much_is_not_waited_for() {
    for announced in [1025, 1 << 20, u32::MAX] {
        let mut bytes = bytes_of(&endpoint(9));
        bytes[8..12].copy_from_slice(&u32::to_be_bytes(announced));
        let result = told(bytes);
        assert!(
            matches!(result, Err(ConnectError::TooLong { announced: got, limit: 1024 }) if got == announced),
            "{announced}: {result:?}"
        );
    }
}

#[test]
fn a_peer_that_announces_another_length_than_its_message_has_is_refused() {
    for announced in [0, 51, 53, 1024] {
        let mut bytes = bytes_of(&endpoint(9));
        bytes[8..12].copy_from_slice(&u32::to_be_bytes(announced));
        let result = told(bytes);
        assert!(matches!(result, Err(ConnectError::Malformed { .. })), "{announced}: {result:?}");
    }
}

#[test]
fn a_peer_that_sends_more_than_it_announced_is_heard_to_the_end_of_the_message() {
    // What follows belongs to the next step, where it is no barrier.
    let mut bytes = bytes_of(&endpoint(9));
    bytes.extend([0x5a; 4096]);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let peer = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&bytes).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut connection = listener.accept(PATIENCE).unwrap();
    assert_eq!(connection.exchange(&endpoint(1)).unwrap(), endpoint(9));
    let result = connection.barrier(0);
    assert!(matches!(result, Err(ConnectError::NotThisProtocol { .. })), "{result:?}");
    drop(connection);
    peer.join().unwrap();
}

#[test]
fn a_peer_that_closes_early_is_told_from_one_that_is_slow() {
    let bytes = bytes_of(&endpoint(9));
    for length in [0, 5, 12, 40, bytes.len() - 1] {
        let part = bytes[..length].to_vec();
        let (result, took) = exchange_with(PATIENCE, move |mut stream| {
            stream.write_all(&part).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert!(
            matches!(result, Err(ConnectError::ClosedEarly { .. })),
            "after {length}: {result:?}"
        );
        assert!(took < PATIENCE / 2);
    }
}

#[test]
fn fields_that_hold_what_they_cannot_are_named() {
    let bytes = bytes_of(&endpoint(9));
    for (offset, value, field) in [
        (12, 0xff, "queue pair number"),
        (16, 0x01, "PSN"),
        (22, 0, "path MTU"),
        (22, 6, "path MTU"),
        (25, 1, "reserved field"),
        (52, 0xff, "region's length"),
        (7, 4, "kind of the message"),
    ] {
        let mut bytes = bytes.clone();
        if field == "region's length" {
            // An address near the end, so that a length can pass it.
            bytes[12 + 32..12 + 40].copy_from_slice(&[0xff; 8]);
        }
        bytes[offset] = value;
        match told(bytes) {
            Err(ConnectError::Malformed { field: got, .. }) => assert_eq!(got, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn sides_at_different_steps_are_told_so() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let client = thread::spawn(move || {
        let mut connection = Connection::connect(address, PATIENCE).unwrap();
        connection.barrier(4)
    });
    let mut connection = listener.accept(PATIENCE).unwrap();
    let ours = connection.barrier(3).unwrap_err();
    assert!(matches!(ours, ConnectError::OutOfStep { .. }), "{ours:?}");
    assert!(ours.to_string().contains("barrier 4"), "{ours}");
    assert!(matches!(client.join().unwrap(), Err(ConnectError::OutOfStep { .. })));

    let client = thread::spawn(move || {
        let mut connection = Connection::connect(address, PATIENCE).unwrap();
        connection.exchange(&endpoint(2))
    });
    let mut connection = listener.accept(PATIENCE).unwrap();
    let ours = connection.barrier(3).unwrap_err();
    assert!(ours.to_string().contains("it sent endpoint"), "{ours}");
    assert!(client.join().unwrap().unwrap_err().to_string().contains("it sent barrier"));
}

#[test]
fn nobody_there_is_an_error_of_its_own() {
    let held = port::free();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, held.number()));
    let result = Connection::connect(address, PATIENCE);
    assert!(matches!(result, Err(ConnectError::Refused { address: at }) if at == address));
    let result = Connection::connect("no port", PATIENCE);
    assert!(matches!(result, Err(ConnectError::Address { .. })), "{result:?}");

    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let result = listener.accept(Duration::from_millis(50));
    assert!(matches!(result, Err(ConnectError::TimedOut { .. })), "{result:?}");
    assert!(start.elapsed() >= Duration::from_millis(50));
    let taken = listener.local_address().unwrap();
    let result = Listener::bind(taken);
    assert!(matches!(result, Err(ConnectError::Listen { .. })), "{result:?}");
}

#[test]
fn a_listener_survives_a_hostile_peer() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let mut hostile = TcpStream::connect(address).unwrap();
    hostile.write_all(&[0xff; 64]).unwrap();
    let result = listener.accept(PATIENCE).unwrap().exchange(&endpoint(1));
    assert!(matches!(result, Err(ConnectError::NotThisProtocol { .. })), "{result:?}");

    let client = thread::spawn(move || {
        Connection::connect(address, PATIENCE).unwrap().exchange(&endpoint(2)).unwrap()
    });
    let theirs = listener.accept(PATIENCE).unwrap().exchange(&endpoint(1)).unwrap();
    assert_eq!((theirs, client.join().unwrap()), (endpoint(2), endpoint(1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any bytes at all, then the end: an error or an endpoint, at once.
    #[test]
    fn random_bytes_end_in_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (result, took) = exchange_with(PATIENCE, move |mut stream| {
            // The other side may have given up already.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        prop_assert!(result.is_err());
        prop_assert!(took < PATIENCE / 2);
    }

    /// A good message with some bytes changed: nothing panics, and what is accepted is in range.
    #[test]
    fn changed_messages_never_panic(changes in proptest::collection::vec((0usize..64, any::<u8>()), 1..4)) {
        let mut bytes = MESSAGE.with(Clone::clone);
        for (offset, value) in changes {
            bytes[offset] = value;
        }
        let (result, took) = exchange_with(PATIENCE, move |mut stream| {
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        if let Ok(endpoint) = result {
            prop_assert!(endpoint.qpn < 1 << 24 && endpoint.psn < 1 << 24);
        }
        prop_assert!(took < PATIENCE / 2);
    }
}

thread_local! {
    static MESSAGE: Vec<u8> = bytes_of(&endpoint(9));
}

/// Receives of the builder and of the program, posted before the peer was known, come back with the
/// error if the device refuses the peer's address.
#[test]
fn a_builder_returns_the_receives_if_the_peer_is_refused() {
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let builder = Endpoint::builder(&context).protection_domain(&pd).receives(3, 64);
    let mut unconnected = builder.build().unwrap();
    let full = MrSlice::new(pd.allocate(32, Access::LOCAL_WRITE).unwrap());
    let refused = unconnected.receiver().post(7, full).unwrap_err();
    assert!(refused.to_string().contains("3 CQ slots"), "{refused}");

    // No queue pair has a number of more than 24 bits.
    let nobody = ConnectionData { qpn: 1 << 24, ..unconnected.connection_data() };
    let failed = unconnected.connect(&nobody).unwrap_err();
    let lengths = |buffers: &mlx5::endpoint::Buffers| buffers.slices()[0].len();
    let receives: Vec<_> =
        failed.arguments.iter().map(|(id, buffers)| (*id, lengths(buffers))).collect();
    assert_eq!(receives, [(0, 64), (1, 64), (2, 64)], "{failed}");
}

#[test]
fn a_builder_refuses_receives_that_no_memory_can_hold() {
    let context = Context::open_first().unwrap();
    let message = |count, bytes| {
        Endpoint::builder(&context).receives(count, bytes).build().unwrap_err().to_string()
    };
    assert_eq!(message(2, 0), "length is 0: memory has at least 1 byte");
    let most = usize::MAX;
    assert_eq!(message(2, most), format!("bytes of a receive is {most}: too many in all"));
    assert!(message(2, most / 2).contains("ENOMEM"));
}

#[test]
fn a_builder_makes_the_queues_that_were_asked_for() {
    let context = Context::open_first().unwrap();
    let builder = Endpoint::builder(&context).port(1).max_send_wr(20).max_inline_data(100);
    let unconnected = builder.receives(5, 8).build().unwrap();
    let own = unconnected.connection_data();
    let endpoint = unconnected.connect(&own).unwrap();
    let queues = endpoint.queue_pair().capacities();
    assert!(queues.max_inline_data >= 100, "{queues:?}");
    assert_eq!(endpoint.send_queue().request_limit(), 20);
    assert_eq!(endpoint.receive_queue().outstanding(), 5);
    assert!(
        Endpoint::builder(&context).port(9).build().unwrap_err().to_string().contains("port 9")
    );
    // Their CQ has room for all, also where it has not one entry more.
    for requests in [1, 62, 63, 64, 127] {
        let unconnected = Endpoint::builder(&context).max_send_wr(requests).build().unwrap();
        let own = unconnected.connection_data();
        let endpoint = unconnected.connect(&own).unwrap();
        assert_eq!(endpoint.send_queue().request_limit(), requests);
    }
}
