//! Atomics of the device on a peer's memory: sequence numbers by fetch-add, and a lock by compare-swap.
//! The lock guards a balance, which its holders change by READ and WRITE.
//!
//! Everything in this process: `cargo run --example atomics`

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Owned, Receiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{CompareSwap, FetchAdd, PostOn, RdmaRead, RdmaWrite, Remote};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLIENTS: u64 = 2;
/// Sequence numbers that each client takes, and deposits that each makes.
const ROUNDS: u64 = 50;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Places in the server's memory.
const SEQUENCE: u64 = 0;
const LOCK: u64 = 64;
const BALANCE: u64 = 128;

fn main() -> Result<()> {
    // 1. The server's memory: words at multiples of eight, that peers may change.
    let context = Context::open_first()?;
    if !context.attributes()?.atomics {
        return Err("this device executes no atomics".into());
    }
    let pd = ProtectionDomain::new(&context)?;
    let rights =
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let board = pd.allocate(4096, rights)?;
    let remote = board.remote(0)?;

    // 2. Clients, each with a connection and a thread of its own.
    let (mut clients, mut servers) = (vec![], vec![]);
    for number in 1..=CLIENTS {
        let (client, server) = Client::new(number, remote, &pd)?;
        clients.push(client);
        servers.push(server);
    }
    let clients = clients.into_iter().map(|client| thread::spawn(move || client.run()));
    let clients: Vec<_> = clients.collect();
    let mut numbers = vec![];
    for client in clients {
        numbers.extend(client.join().expect("a client panicked")?);
    }

    // 3. No number was given twice, and no deposit is lost.
    numbers.sort_unstable();
    println!(
        "numbers 0 to {}, each once: {}",
        numbers.len() - 1,
        numbers.iter().copied().eq(0..CLIENTS * ROUNDS)
    );
    let mut balance = [0; 8];
    board.read(BALANCE as usize, &mut balance);
    println!("balance: {}", u64::from_ne_bytes(balance));
    Ok(())
}

struct Client {
    number: u64,
    endpoint: Endpoint,
    /// Where the next result goes. `None` while a request has it.
    word: Option<MrSlice>,
    remote: Remote,
}

impl Client {
    fn run(mut self) -> Result<Vec<u64>> {
        let numbers = (0..ROUNDS).map(|_| self.next_number()).collect::<Result<Vec<_>>>()?;
        for _ in 0..ROUNDS {
            self.deposit(1)?;
        }
        Ok(numbers)
    }

    // ANCHOR: fetch-add
    /// Takes the next sequence number: returns the word, and adds one to it.
    fn next_number(&mut self) -> Result<u64> {
        let word = self.word.take().ok_or("the word is in use")?;
        self.execute(FetchAdd::new(word, self.remote.offset(SEQUENCE), 1).signaled())
    }
    // ANCHOR_END: fetch-add

    // ANCHOR: compare-swap
    /// Changes the balance while this client holds the lock.
    fn deposit(&mut self, amount: u64) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while self.compare_swap(0, self.number)? != 0 {
            if Instant::now() > deadline {
                return Err("the holder of the lock does not release it".into());
            }
            thread::yield_now(); // a program waits longer each time
        }
        let place = self.remote.offset(BALANCE);
        let word = self.word.take().ok_or("the word is in use")?;
        let balance = self.execute(RdmaRead::new(word, place).signaled())?;
        let mut word = self.word.take().ok_or("the word is in use")?;
        word.write(0, &(balance + amount).to_ne_bytes());
        self.execute(RdmaWrite::new(word, place).signaled())?;
        // The same queue pair releases the lock, so the WRITE is executed before.
        match self.compare_swap(self.number, 0)? {
            holder if holder == self.number => Ok(()),
            holder => Err(format!("client {holder} has broken the lock").into()),
        }
    }

    /// Stores `swap` in the lock if it is `compare`. Returns what it was.
    fn compare_swap(&mut self, compare: u64, swap: u64) -> Result<u64> {
        let word = self.word.take().ok_or("the word is in use")?;
        let lock = self.remote.offset(LOCK);
        self.execute(CompareSwap::new(word, lock, compare, swap).signaled())
    }
    // ANCHOR_END: compare-swap

    /// Waits until the request is complete. Returns the word that it brought.
    fn execute(&mut self, operation: impl PostOn<Rc> + Owned) -> Result<u64> {
        self.endpoint.post(0, operation)?;
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(returned) = self.endpoint.poll().next() {
                let returned = returned?;
                if let Outcome::Failed(failure) = returned.outcome {
                    return Err(failure.into());
                }
                let word = returned.buffers.one().map_err(|_| "a request with one word")?;
                let mut bytes = [0; 8];
                word.read(0, &mut bytes);
                self.word = Some(word);
                return Ok(u64::from_ne_bytes(bytes));
            }
            thread::yield_now();
        }
        Err("no completion".into())
    }

    /// A client, and the server's end of its connection.
    fn new(
        number: u64,
        remote: Remote,
        pd: &ProtectionDomain,
    ) -> Result<(Client, QueuePair<Rc, Rts>)> {
        let port = LocalPort::new(pd.context(), 1, None)?;
        let cq = CompletionQueue::new(pd.context(), 16)?;
        let queue_pair = || -> Result<QueuePair<Rc, Init>> {
            let builder = QueuePair::builder(pd, &cq).max_send_wr(4).max_recv_wr(1);
            Ok(builder.build()?.init(&port.init())?)
        };
        let (qp, peer) = (queue_pair()?, queue_pair()?);
        let (mine, theirs) = (port.connection_data(&qp), port.connection_data(&peer));
        let mut completions = CqReader::new(&cq)?;
        let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
        let qp = qp.rtr(&port.rtr(&mine, &theirs))?.rts(&port.rts(&mine, &theirs))?;
        let peer = peer.rtr(&port.rtr(&theirs, &mine))?.rts(&port.rts(&theirs, &mine))?;
        let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
        let word = Some(MrSlice::new(pd.allocate(8, Access::LOCAL_WRITE)?));
        Ok((Client { number, endpoint, word, remote }, peer))
    }
}
