//! An echo server by IP address and port, without `unsafe`: librdmacm connects, and no TCP connection
//! is needed beside. The server has one CQ and one shared receive queue for all clients.
//!
//! ```text
//! cargo run --features cm --example cm_echo -- listen 0.0.0.0:7471
//! cargo run --features cm --example cm_echo -- connect 127.0.0.1:7471 one two
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use mlx5::connect::cm::{
    CmEvent, ConnectionParameters, Established, Identifier, Listening, Requested,
};
use mlx5::endpoint::{
    ConnectionKey, Endpoint, Endpoints, MrSlice, Outcome, Receiver, Returned, SharedReceiver,
};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{
    CompletionQueue, Context, Init, ProtectionDomain, QueuePair, SharedReceiveQueue,
};
use mlx5::wqe::{InlineBytes, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a message. A shorter text ends in zeros.
const ROOM: usize = 64;
/// Receives of the server, for all clients together.
const RECEIVES: u32 = 256;
/// Messages of one client on their way.
const DEPTH: u32 = 8;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", address] => serve(address.parse()?, 1),
        ["listen", address, clients] => serve(address.parse()?, clients.parse()?),
        ["connect", address, ref texts @ ..] => ask(address.parse()?, texts),
        _ => Err("usage: cm_echo listen IP:PORT [CLIENTS] | connect IP:PORT TEXT...".into()),
    }
}

/// Serves so many clients, then ends.
fn serve(address: SocketAddr, clients: usize) -> Result<()> {
    let mut listener = Identifier::new()?.bind(address)?.listen(16)?;
    println!("listening on {}", listener.local_address().ok_or("it is bound")?);
    let Some(first) = listener.get_request(PATIENCE)? else { return Err("no client came".into()) };
    // The address of a listener may be that of several devices. A request is of one.
    let mut server = Server::new(&first.open()?)?;
    server.accept(first)?;
    let mut served = 1;
    // A busy loop. The example `server` shows how to sleep, and `AsFd` of each identifier gives the
    // descriptor to wait for.
    while served < clients || !server.connections.is_empty() {
        if let Some(request) = next(&mut listener, served < clients)? {
            // One that gave up meanwhile does not stop the others.
            match server.accept(request) {
                Ok(()) => served += 1,
                Err(error) => eprintln!("a client was not accepted: {error}"),
            }
        }
        server.echo()?;
        server.forget_disconnected()?;
        std::thread::yield_now();
    }
    println!("{served} clients were served, {} messages echoed", server.echoed);
    Ok(())
}

/// Returns the next request, as long as more are wanted.
fn next(
    listener: &mut Identifier<Rc, Listening>,
    wanted: bool,
) -> Result<Option<Identifier<Rc, Requested>>> {
    if wanted { Ok(listener.try_request()?) } else { Ok(None) }
}

struct Server {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    endpoints: Endpoints,
    connections: Vec<(ConnectionKey, Identifier<Rc, Established>)>,
    echoed: u64,
}

impl Server {
    fn new(context: &Context) -> Result<Server> {
        let pd = ProtectionDomain::new(context)?;
        let cq = CompletionQueue::new(context, 1024)?;
        let srq = SharedReceiveQueue::builder(&pd).max_wr(RECEIVES).build()?;
        let mut completions = CqReader::new(&cq)?;
        let config = ReceiveConfig { receives: RECEIVES };
        let mut receiver = SharedReceiver::new(&srq, &mut completions, config)?;
        let mut pool = MrSlice::new(pd.allocate(RECEIVES as usize * ROOM, Access::LOCAL_WRITE)?);
        for id in 0..u64::from(RECEIVES) {
            let rest = pool.split_off(ROOM);
            receiver.post(id, std::mem::replace(&mut pool, rest))?;
        }
        let endpoints = Endpoints::with_receiver(completions, receiver)?;
        Ok(Server { pd, cq, srq, endpoints, connections: Vec::new(), echoed: 0 })
    }

    // ANCHOR: accept
    /// Accepts a request. What the client sends first is received, however early it comes.
    fn accept(&mut self, request: Identifier<Rc, Requested>) -> Result<()> {
        let qp = QueuePair::builder(&self.pd, &self.cq).shared_receive_queue(&self.srq);
        let qp = qp.max_send_wr(2 * DEPTH).build()?.init(&request.init()?)?;
        let key = self.endpoints.attach(&qp)?;
        match self.connect(qp, request) {
            Ok(connection) => self.connections.push((key, connection)),
            Err(error) => {
                // A client that dies within its first message costs no receive.
                self.endpoints.remove(key)?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn connect(
        &mut self,
        qp: QueuePair<Rc, Init>,
        request: Identifier<Rc, Requested>,
    ) -> Result<Identifier<Rc, Established>> {
        let qp = qp.rtr(&request.rtr()?)?.rts(&request.rts()?)?;
        let parameters = ConnectionParameters { private_data: b"echo", ..Default::default() };
        let connection = request.accept(&qp, &parameters)?.wait(PATIENCE)?;
        let config = SendConfig { requests: 2 * DEPTH, ..SendConfig::default() };
        self.endpoints.insert(qp, config)?;
        Ok(connection)
    }
    // ANCHOR_END: accept

    /// Sends back what has arrived, out of the memory in which it arrived.
    fn echo(&mut self) -> Result<()> {
        while let Some((client, Returned { id, outcome, buffers, .. })) =
            self.endpoints.poll_one()?
        {
            let memory = buffers.one().map_err(|_| "every message has one slice")?;
            match outcome {
                Outcome::Received(_) => {
                    self.endpoints.post(client, id, SendMessage::new(memory).signaled())?;
                    self.echoed += 1;
                }
                // The client has it, or is gone.
                _ => self.endpoints.post_receive(id, memory)?,
            }
        }
        Ok(())
    }

    // ANCHOR: events
    /// Removes the connections whose clients have disconnected.
    fn forget_disconnected(&mut self) -> Result<()> {
        let mut gone = Vec::new();
        for (key, connection) in &mut self.connections {
            if connection.try_event()? == Some(CmEvent::Disconnected) {
                // The answer to the client.
                connection.disconnect()?;
                gone.push(*key);
            }
        }
        self.connections.retain(|(key, _)| !gone.contains(key));
        for key in gone {
            // Echoes that were on their way. Their memory receives again.
            let removed = self.endpoints.remove(key)?;
            for (id, buffers) in removed.sends.into_iter().chain(removed.receives) {
                let memory = buffers.one().map_err(|_| "every message has one slice")?;
                self.endpoints.post_receive(id, memory)?;
            }
        }
        Ok(())
    }
    // ANCHOR_END: events
}

/// Sends one text after the other, and prints what comes back.
fn ask(address: SocketAddr, texts: &[&str]) -> Result<()> {
    // ANCHOR: connect
    let id = Identifier::new()?.resolve(address, PATIENCE)?;
    let context = id.open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let qp = QueuePair::builder(&pd, &cq).max_inline_data(ROOM as u32).build()?;
    let qp = qp.init(&id.init()?)?;
    let mut completions = CqReader::new(&cq)?;
    let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
    receiver.post(0, MrSlice::new(pd.allocate(ROOM, Access::LOCAL_WRITE)?))?;

    let id = id.connect(&qp, &ConnectionParameters::default())?.wait(PATIENCE)?;
    println!("the server says {:?}", text(&id.peer().private_data));
    let qp = qp.rtr(&id.rtr()?)?.rts(&id.rts()?)?;
    let connection = id.establish(&qp)?;
    let mut endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
    // ANCHOR_END: connect
    for words in texts {
        let mut message = [0; ROOM];
        message.get_mut(..words.len()).ok_or("a text too long")?.copy_from_slice(words.as_bytes());
        endpoint.post(1, SendMessage::new(InlineBytes(message)).signaled())?;
        loop {
            let Some(Returned { outcome, buffers, .. }) = endpoint.poll_one()? else {
                std::thread::yield_now();
                continue;
            };
            match outcome {
                Outcome::Received(_) => {
                    let memory = buffers.one().map_err(|_| "the receive has one slice")?;
                    println!("echo: {}", text(&memory.to_vec()));
                    endpoint.post_receive(0, memory)?;
                    break;
                }
                Outcome::Failed(failure) => return Err(failure.into()),
                _ => {}
            }
        }
    }
    connection.close(PATIENCE)?;
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}
