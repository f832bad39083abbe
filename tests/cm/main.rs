//! Connections by librdmacm: every step of both sides, refusals, ends and events. Queue pairs of
//! connections work on both layers.

mod connection;
mod datagram;
mod ends;
mod events;
mod interop;
mod refusals;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mlx5::connect::cm::{
    CmTransport, ConnectionParameters, Established, Identifier, Listening, Requested, RouteResolved,
};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver, Returned};
use mlx5::ib::{Access, Rc, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::InitAttributes;
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{Inline, SendMessage};
use mlx5_model as _;
use rig::process::{self, Process};

const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a receive.
const ROOM: usize = 64;

/// A listener at a free port.
fn listener() -> Identifier<Rc, Listening> {
    let id = Identifier::new().unwrap().bind("127.0.0.1:0".parse().unwrap()).unwrap();
    id.listen(16).unwrap()
}

/// A datagram service at a free port.
fn service() -> Identifier<Ud, Listening> {
    let id = Identifier::datagrams().unwrap().bind("127.0.0.1:0".parse().unwrap()).unwrap();
    id.listen(16).unwrap()
}

fn address<T: CmTransport>(listener: &Identifier<T, Listening>) -> SocketAddr {
    listener.local_address().unwrap()
}

/// A client whose route to an address is known.
fn resolved(to: SocketAddr) -> Identifier<Rc, RouteResolved> {
    Identifier::new().unwrap().resolve(to, PATIENCE).unwrap()
}

/// The same, of a datagram service.
fn resolved_service(to: SocketAddr) -> Identifier<Ud, RouteResolved> {
    Identifier::datagrams().unwrap().resolve(to, PATIENCE).unwrap()
}

fn request<T: CmTransport>(listener: &mut Identifier<T, Listening>) -> Identifier<T, Requested> {
    listener.get_request(PATIENCE).unwrap().expect("a request")
}

fn domain(context: Context) -> ProtectionDomain {
    ProtectionDomain::new(&context).unwrap()
}

/// A queue pair in INIT, with one receive posted.
struct End {
    qp: QueuePair<Rc, Init>,
    receiver: Receiver,
    completions: CqReader,
}

impl End {
    fn new(pd: &ProtectionDomain, init: &InitAttributes) -> End {
        let cq = CompletionQueue::new(pd.context(), 64).unwrap();
        let qp = QueuePair::builder(pd, &cq).max_inline_data(ROOM as u32).build().unwrap();
        let qp = qp.init(init).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut receiver = Receiver::new(&qp, &mut completions, config).unwrap();
        receiver.post(7, slice(pd)).unwrap();
        End { qp, receiver, completions }
    }
}

fn slice(pd: &ProtectionDomain) -> MrSlice {
    MrSlice::new(pd.allocate(ROOM, Access::LOCAL_WRITE).unwrap())
}

/// One side of an established connection.
struct Side {
    endpoint: Endpoint,
    connection: Identifier<Rc, Established>,
    pd: ProtectionDomain,
}

impl Side {
    fn new(
        pd: &ProtectionDomain,
        end: (Receiver, CqReader),
        qp: QueuePair<Rc, Rts>,
        connection: Identifier<Rc, Established>,
    ) -> Side {
        let (receiver, completions) = end;
        let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap();
        Side { endpoint, connection, pd: pd.clone() }
    }

    fn send(&mut self, text: &str) {
        let message = SendMessage::new(Inline(text.as_bytes())).signaled();
        self.endpoint.post(1, message).map_err(|refused| refused.error).unwrap();
    }

    /// Waits for a message of text.
    fn hear(&mut self) -> String {
        String::from_utf8(self.receive()).unwrap()
    }

    /// Waits for a message, and posts its receive again.
    fn receive(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let Some(Returned { outcome, buffers, .. }) = self.endpoint.poll_one().unwrap() else {
                std::thread::yield_now();
                continue;
            };
            match outcome {
                Outcome::Received(done) => {
                    let memory = buffers.one().unwrap();
                    let mut bytes = memory.to_vec();
                    bytes.truncate(done.byte_len as usize);
                    self.endpoint.post_receive(7, memory).map_err(|refused| refused.error).unwrap();
                    return bytes;
                }
                Outcome::Failed(failure) => panic!("{failure}"),
                _ => {}
            }
        }
        panic!("no message");
    }
}

/// A client and a server that are connected.
fn connected(listener: &mut Identifier<Rc, Listening>) -> (Side, Side) {
    let id = resolved(address(listener));
    let pd = domain(id.open().unwrap());
    let client = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&client.qp, &ConnectionParameters::default()).unwrap();

    let request = request(listener);
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();

    let id = asked.wait(PATIENCE).unwrap();
    let mine = client.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let id = id.establish(&mine).unwrap();
    let client = Side::new(&pd, (client.receiver, client.completions), mine, id);
    let connection = accepted.wait(PATIENCE).unwrap();
    let server = Side::new(&pd, (server.receiver, server.completions), qp, connection);
    (client, server)
}

/// Sends a message each way.
fn talk(client: &mut Side, server: &mut Side) {
    client.send("hello server");
    assert_eq!(server.hear(), "hello server");
    server.send("hello client");
    assert_eq!(client.hear(), "hello client");
}

#[test]
fn the_example_echoes_what_each_client_says() {
    let mut server = Process::example("cm_echo", &["listen", "127.0.0.1:0", "3"]);
    let address = server.address();
    let clients: Vec<_> = ["one", "two", "three"]
        .into_iter()
        .map(|name| {
            let texts = [name, "and more", "and the last"];
            let arguments = [&["connect", &address][..], &texts].concat();
            (name, Process::example("cm_echo", &arguments))
        })
        .collect();
    for (name, client) in clients {
        let text = client.end();
        let expected =
            format!("the server says \"echo\"\necho: {name}\necho: and more\necho: and the last\n");
        assert_eq!(text, expected);
    }
    assert!(server.end().ends_with("3 clients were served, 9 messages echoed\n"));
}

#[test]
fn the_example_of_a_group_reaches_both_receivers() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = format!("239.12.{high}.{low}");
    let mut receivers =
        [(); 2].map(|()| Process::example("mckey", &["receive", &group, "127.0.0.1", "3"]));
    for receiver in &mut receivers {
        assert_eq!(receiver.address(), group);
    }
    let sender = Process::example("mckey", &["send", &group, "127.0.0.1", "3"]);
    assert_eq!(sender.end(), "3 datagrams were sent\n");
    for receiver in receivers {
        let text = receiver.end();
        let expected: String =
            (0..3).map(|number| format!("{number}: datagram {number} to all\n")).collect();
        assert_eq!(text, expected);
    }
}

#[test]
fn without_a_device_an_identifier_says_what_is_missing() {
    let arguments = ["connect", "127.0.0.1:7471", "hello"];
    let variable = ("MLX5_MODEL", "never");
    let errors = Process::example_where("cm_echo", &arguments, variable).fail();
    for part in ["rdma_create_event_channel failed", "modprobe rdma_ucm"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

/// Runs the tests again: by default, the model's port is of InfiniBand.
#[test]
fn all_of_it_holds_on_roce() {
    if let Some(text) = process::on_roce(&["--skip", "all_of_it_holds_on_roce"]) {
        assert!(text.contains(" 0 failed"), "{text}");
    }
}
