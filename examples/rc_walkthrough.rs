//! A reliable connection from the first call to the last, every step named: a SEND, a READ and a
//! WRITE between two sides, written straight into the device's queues.
//!
//! Both sides in this process:   `cargo run --example rc_walkthrough`
//! Or one in each of two:        `cargo run --example rc_walkthrough -- --listen 127.0.0.1:7471`
//!                               `cargo run --example rc_walkthrough -- --connect 127.0.0.1:7471`
//!
//! Further: `--device NAME`, `--port N` (1), `--gid-index N` (needed on RoCE only if the first
//! RoCE v2 GID is not the right one).

use std::error::Error;
use std::time::{Duration, Instant};
use std::{env, thread};

use mlx5::connect::{Connection, Listener, LocalPort};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5::wqe::{RdmaRead, RdmaWrite, Remote, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + std::marker::Send + Sync>>;

/// How long anything may take that waits for the other side.
const TIMEOUT: Duration = Duration::from_secs(10);
const BUFFER: usize = 64;
const SERVERS_TEXT: &str = "sent by the server with SEND";
const SERVERS_SECOND: &str = "left by the server for a READ";
const CLIENTS_TEXT: &str = "written by the client with WRITE";

fn main() -> Result<()> {
    let options = Options::from_arguments()?;
    match (&options.listen, &options.connect) {
        (Some(address), None) => {
            let listener = Listener::bind(address.as_str())?;
            println!("listening on {}", listener.local_address()?);
            run(Side::Server, listener.accept(Duration::from_secs(600))?, &options)
        }
        (None, Some(address)) => {
            run(Side::Client, Connection::connect(address.as_str(), TIMEOUT)?, &options)
        }
        (None, None) => {
            let listener = Listener::bind("127.0.0.1:0")?;
            let address = listener.local_address()?;
            thread::scope(|scope| {
                let client = scope
                    .spawn(|| run(Side::Client, Connection::connect(address, TIMEOUT)?, &options));
                let server = listener
                    .accept(TIMEOUT)
                    .map_err(Into::into)
                    .and_then(|connection| run(Side::Server, connection, &options));
                server.and(client.join().expect("the client's thread panicked"))
            })
        }
        _ => Err("--listen and --connect exclude each other".into()),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Server,
    Client,
}

/// One side. The TCP connection tells the other side where this one is, and keeps the two in step.
fn run(side: Side, mut connection: Connection, options: &Options) -> Result<()> {
    let name = if side == Side::Server { "server" } else { "client" };
    let say = |step: &str, text: String| println!("{name}  {step:<12} {text}");

    // 1. The device. Opening it gives a context, in which everything else is made.
    let context = match &options.device {
        Some(device) => Context::open(device)?,
        None => Context::open_first()?,
    };
    let device = context.attributes()?;
    let kind = if device.board_id.as_deref() == Some("MLX5-MODEL") {
        "the software model, no device"
    } else {
        device.product()
    };
    say("device", format!("{} ({kind}), firmware {}", device.name, device.firmware));

    // 2. The port: is the link up, how large may packets be, how is it addressed? A LID comes from
    //    InfiniBand's subnet manager; RoCE has none and uses a GID instead.
    let local = LocalPort::new(&context, options.port, options.gid_index)?;
    let port = local.attributes();
    let gid = local.gid().map_or("none".to_owned(), |entry| entry.to_string());
    say(
        "port",
        format!(
            "{} is {}, {}, MTU {}, LID {:#x}, GID {gid}",
            port.port, port.state, port.link_layer, port.active_mtu, port.lid
        ),
    );

    // 3. A protection domain: queue pairs reach the memory of their own domain only.
    let pd = ProtectionDomain::new(&context)?;

    // 4. A completion queue: here the device says which requests are done.
    let cq = CompletionQueue::new(&context, 16)?;
    say("CQ", format!("{} entries of {} bytes", cq.capacity(), cq.cqe_size().bytes()));

    // 5. Memory that the device may reach, pinned and entered into its translation tables. The lkey
    //    is for this side's requests, the rkey lets the peer in.
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = pd.allocate(BUFFER, access)?;
    say(
        "memory",
        format!("{} bytes, lkey {:#x}, rkey {:#x}", region.len(), region.lkey(), region.rkey()),
    );

    // 6. A queue pair: a send queue and a receive queue, both reporting to the CQ.
    let qp = QueuePair::builder(&pd, &cq).max_send_wr(4).max_recv_wr(4).build()?;
    say("QP", format!("number {:#x}, in RESET", qp.number()));

    // 7. Each side tells the other where it is, and where its memory is.
    let mut mine = local.connection_data(&qp);
    mine.region = Some((&region).into());
    let theirs = connection.exchange(&mine)?;
    let offered = theirs.region.ok_or("the peer offers no memory")?;
    say(
        "exchange",
        format!("the peer is QP {:#x}, LID {:#x}, PSN {:#x}", theirs.qpn, theirs.lid, theirs.psn),
    );

    // 8. RESET to INIT: which port, and what the peer may do. From here on receives can be posted.
    let qp = qp.init(&local.init())?;

    // 9. The direct path takes the queues over: from here on no call into a library, no system
    //    call. The receive queue first, since it works from INIT on. A slice is memory that moves
    //    into a request and comes back with its completion. Meanwhile the program cannot access it.
    let mut completions = CqReader::new(&cq)?;
    let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
    let memory = MrSlice::new(region);

    // 10. The client posts a receive before the server can possibly send: a SEND that finds no
    //     receive is answered with "receiver not ready".
    let memory = match side {
        Side::Server => Some(memory),
        Side::Client => {
            receiver.post(RECEIVE, memory)?;
            say("receive", "posted".to_owned());
            None
        }
    };

    // 11. INIT to RTR: who the peer is. From here on its messages arrive.
    let qp = qp.rtr(&local.rtr(&mine, &theirs))?;

    // 12. RTR to RTS: how long to wait for answers, how often to try. From here on requests leave.
    let qp = qp.rts(&local.rts(&mine, &theirs))?;
    let mut channel = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
    say("connected", format!("the device says {}", channel.queue_pair().query()?.state));

    // 13. Both are ready.
    connection.barrier(1)?;

    // 14. SEND: the message goes where the peer's receive says. Both sides get a completion.
    let mut memory = match memory {
        Some(mut memory) => {
            put(&mut memory, SERVERS_TEXT);
            channel.post(SEND, SendMessage::new(memory).signaled())?;
            let mut memory = wait(&mut channel, SEND)?;
            say("SEND", format!("acknowledged: {SERVERS_TEXT:?}"));
            put(&mut memory, SERVERS_SECOND);
            memory
        }
        None => {
            let memory = wait(&mut channel, RECEIVE)?;
            say("receive", format!("arrived: {:?}", text_of(&memory)));
            expect(&memory, SERVERS_TEXT)?;
            memory
        }
    };

    // 15. The server's memory holds its second text from here on. One-sided operations need this
    //     word by other means: the server's CPU will not notice them.
    connection.barrier(2)?;
    if side == Side::Client {
        let remote = Remote::new(offered.address, offered.rkey);

        // 16. READ: the device fetches the server's memory.
        channel.post(READ, RdmaRead::new(memory, remote).signaled())?;
        memory = wait(&mut channel, READ)?;
        say("READ", format!("fetched {:?}", text_of(&memory)));
        expect(&memory, SERVERS_SECOND)?;

        // 17. WRITE: the device puts this side's text into the server's memory.
        put(&mut memory, CLIENTS_TEXT);
        channel.post(WRITE, RdmaWrite::new(memory, remote).signaled())?;
        memory = wait(&mut channel, WRITE)?;
        say("WRITE", format!("acknowledged: {CLIENTS_TEXT:?}"));
    }

    // 18. The client is done, and the server looks. A program without such a barrier posts a SEND, or a
    //     WRITE with immediate: the bytes themselves may become visible in any order.
    connection.barrier(3)?;
    if side == Side::Server {
        say("memory", format!("the client left {:?}", text_of(&memory)));
        expect(&memory, CLIENTS_TEXT)?;
    }

    // 19. Everything is freed: queues, queue pair, memory, CQ, domain, context. The order of the
    //     program's variables does not matter: each owner keeps alive the objects that it uses.
    connection.barrier(4)?;
    say("done", "both sides are".to_owned());
    Ok(())
}

// Ids of requests, which come back with their completions.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const READ: u64 = 3;
const WRITE: u64 = 4;

/// Polls until request `id` is complete, and returns its memory; an error completion says what went
/// wrong, and what usually causes it.
fn wait(channel: &mut Endpoint, id: u64) -> Result<MrSlice> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(returned) = channel.poll().next() {
            let returned = returned?;
            match returned.outcome {
                Outcome::Failed(failure) => return Err(failure.into()),
                _ if returned.id == id => {
                    let one = returned.buffers.one();
                    return one.map_err(|other| format!("not one slice: {other:?}").into());
                }
                other => return Err(format!("unexpected completion {other:?}").into()),
            }
        }
        if Instant::now() > deadline {
            return Err(format!("no completion of request {id} within {TIMEOUT:?}").into());
        }
        std::hint::spin_loop();
    }
}

/// Fills the memory with a text and zeroes.
fn put(memory: &mut MrSlice, text: &str) {
    memory.write(0, &[0; BUFFER]);
    memory.write(0, text.as_bytes());
}

/// The text in the memory, up to the first zero.
fn text_of(memory: &MrSlice) -> String {
    let bytes = memory.to_vec();
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn expect(memory: &MrSlice, wanted: &str) -> Result<()> {
    match text_of(memory) {
        got if got == wanted => Ok(()),
        got => Err(format!("{got:?} is not {wanted:?}").into()),
    }
}

struct Options {
    listen: Option<String>,
    connect: Option<String>,
    device: Option<String>,
    port: u8,
    gid_index: Option<u8>,
}

impl Options {
    fn from_arguments() -> Result<Options> {
        let mut options =
            Options { listen: None, connect: None, device: None, port: 1, gid_index: None };
        let mut arguments = env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            match name.as_str() {
                "--listen" => options.listen = Some(value),
                "--connect" => options.connect = Some(value),
                "--device" => options.device = Some(value),
                "--port" => options.port = value.parse()?,
                "--gid-index" => options.gid_index = Some(value.parse()?),
                _ => return Err(format!("unknown option {name}; see the head of the file").into()),
            }
        }
        Ok(options)
    }
}
