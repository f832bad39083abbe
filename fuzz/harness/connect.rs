//! The driver's exchange with a peer over loopback TCP, where the input is what the peer sends. The
//! fuzz target and the test that replays its corpus share it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use mlx5::connect::{ConnectError, Connection, ConnectionData, Listener};
use mlx5::verbs::attr::Mtu;

/// Exchanges of one input.
const STEPS: u8 = 4;
/// Bytes of an input that are sent: the sockets hold them without a reader.
const LONGEST: usize = 1 << 14;
/// Bytes of a message with an endpoint, of its header, and from which on it tells of memory.
const MESSAGE: usize = 64;
const HEADER: usize = 12;
const REGION: usize = 44;
/// More than any exchange takes: the peer has sent everything before the first begins.
const PATIENCE: Duration = Duration::from_secs(15);

/// A connection, and its peer's end, which leaves no waiting socket behind when it is closed.
fn pair() -> (Connection, TcpStream) {
    static LISTENER: OnceLock<Listener> = OnceLock::new();
    let listener = LISTENER.get_or_init(|| Listener::bind("127.0.0.1:0").expect("a listener"));
    let peer = TcpStream::connect(listener.local_address().expect("an address")).expect("a peer");
    super::tcp::reset_on_close(&peer);
    (listener.accept(PATIENCE).expect("a connection"), peer)
}

/// Takes the exchanges that the first byte chooses; the peer sends the other bytes, and no more.
pub fn connect(input: &[u8]) {
    let Some((steps, sent)) = input.split_first() else { return };
    let sent = &sent[..sent.len().min(LONGEST)];
    let (mut connection, mut peer) = pair();
    peer.write_all(sent).expect("the peer sends");
    peer.shutdown(Shutdown::Write).expect("the peer sends no more");

    let mut mine = ConnectionData::new(7, Mtu::Mtu1024);
    let mut failed = false;
    // Where the next message of the peer begins, while nothing failed.
    let mut at = 0;
    for step in 0..STEPS {
        let result = match steps >> (2 * step) & 3 {
            0 | 1 => connection.exchange(&mine).map(|theirs| {
                assert!(theirs.qpn < 1 << 24 && theirs.psn < 1 << 24, "{theirs:?}");
                if !failed {
                    assert_eq!(told(&theirs), without_address_of_nothing(&sent[at..at + MESSAGE]));
                }
                mine = theirs;
                MESSAGE
            }),
            2 => connection.exchange_data(b"mine").map(|theirs| {
                if !failed {
                    assert_eq!(theirs, sent[at + HEADER..at + HEADER + theirs.len()]);
                }
                HEADER + theirs.len()
            }),
            _ => connection.barrier(step).map(|()| HEADER + 1),
        };
        match result {
            Ok(length) => at += length,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let quick = !matches!(error, ConnectError::TimedOut { .. } | ConnectError::Io(_));
                assert!(quick, "{error}");
                failed = true;
            }
        }
    }
}

/// The message that tells a peer of that endpoint.
fn told(endpoint: &ConnectionData) -> [u8; MESSAGE] {
    let (mut connection, mut peer) = pair();
    peer.shutdown(Shutdown::Write).expect("the peer sends nothing");
    let answer = connection.exchange(endpoint);
    assert!(matches!(answer, Err(ConnectError::ClosedEarly { got: 0, .. })), "{answer:?}");
    let mut message = [0; MESSAGE];
    peer.read_exact(&mut message).expect("what the connection told");
    message
}

/// The message, with zeros for address and key where it offers no memory: they say nothing then.
fn without_address_of_nothing(message: &[u8]) -> [u8; MESSAGE] {
    let mut message: [u8; MESSAGE] = message.try_into().expect("a message");
    if message[REGION + 8..REGION + 16] == [0; 8] {
        message[REGION..].fill(0);
    }
    message
}
