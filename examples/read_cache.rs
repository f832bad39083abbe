//! A cache that its readers look up by RDMA READ: the server's CPU takes no part. The server changes
//! entries in place, so a READ can find an entry half written. A checksum tells.
//!
//! Both sides in this process: `cargo run --example read_cache`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::connect::{Connection, ConnectionData, Listener, LocalPort};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5::wqe::{RdmaRead, Remote};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ENTRIES: u64 = 64;
/// Lookups while the server changes the entries.
const LOOKUPS: u64 = 500;
const TIMEOUT: Duration = Duration::from_secs(10);

// ANCHOR: entry
/// Version, value, checksum of both. A cache line each, so that neighbors do not share one.
const ENTRY: usize = 64;
const VALUE: std::ops::Range<usize> = 8..56;

/// An entry as the server writes it.
fn entry(version: u64, value: [u8; 48]) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[VALUE].copy_from_slice(&value);
    let sum = checksum(&bytes[..VALUE.end]);
    bytes[VALUE.end..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The version and the value, unless the READ has found an entry half written.
fn whole(bytes: &[u8; ENTRY]) -> Option<(u64, [u8; 48])> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
    if word(VALUE.end)? != checksum(&bytes[..VALUE.end]) {
        return None;
    }
    Some((word(0)?, bytes[VALUE].try_into().ok()?))
}

/// FNV-1a. A checksum does not depend on the order in which the device reads the entry's bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
// ANCHOR_END: entry

fn main() -> Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_address()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let outcome = Connection::connect(address, TIMEOUT).map_err(Into::into).and_then(read);
            done.store(true, Ordering::Release);
            outcome
        });
        let server =
            listener.accept(TIMEOUT).map_err(Into::into).and_then(|peer| serve(peer, &done));
        reader.join().expect("the reader's thread panicked").and(server)
    })
}

/// The server: makes the cache, and changes its entries until the reader is done.
fn serve(connection: Connection, done: &AtomicBool) -> Result<()> {
    let context = Context::open_first()?;
    let pd = ProtectionDomain::new(&context)?;
    // ANCHOR: offer
    // Readers may read, and nothing else. Pages are aligned, so entries have whole cache lines.
    let mut cache = pd.allocate(ENTRIES as usize * ENTRY, Access::REMOTE_READ)?;
    for at in 0..ENTRIES {
        cache.write(at as usize * ENTRY, &entry(0, [0; 48]));
    }
    let offer = |mine: &mut ConnectionData| mine.region = Some((&cache).into());
    let (_endpoint, _, mut connection) = connect(connection, &pd, offer)?;
    // ANCHOR_END: offer

    // A change stops half way: the value is new, version and checksum are old.
    cache.write(VALUE.start, &[1; 24]);
    connection.barrier(2)?;
    connection.barrier(3)?;
    cache.write(0, &entry(1, [1; 48]));
    connection.barrier(4)?;
    connection.barrier(5)?;

    let mut version = 1;
    while !done.load(Ordering::Acquire) {
        version += 1;
        let value = [version as u8; 48];
        cache.write((version % ENTRIES) as usize * ENTRY, &entry(version, value));
    }
    Ok(())
}

/// A reader.
fn read(connection: Connection) -> Result<()> {
    let context = Context::open_first()?;
    let pd = ProtectionDomain::new(&context)?;
    let (endpoint, theirs, mut connection) = connect(connection, &pd, |_| {})?;
    let cache = theirs.region.ok_or("the server offers no memory")?;
    let memory = Some(MrSlice::new(pd.allocate(ENTRY, Access::LOCAL_WRITE)?));
    let remote = Remote::new(cache.address, cache.rkey);
    let mut reader = Reader { endpoint, memory, cache: remote, torn: 0 };

    connection.barrier(2)?;
    println!("during a change: {:?}", whole(&reader.fetch(0)?));
    connection.barrier(3)?;
    connection.barrier(4)?;
    let (version, value) = reader.look_up(0)?;
    println!("after it: version {version}, {}", value[0]);
    connection.barrier(5)?;

    for lookup in 0..LOOKUPS {
        let (version, value) = reader.look_up(lookup % ENTRIES)?;
        if value != [version as u8; 48] {
            return Err(format!("version {version} has the value {value:?}").into());
        }
    }
    println!("{LOOKUPS} lookups, every value is whole");
    Ok(())
}

struct Reader {
    endpoint: Endpoint,
    /// Where the next READ goes. `None` while it does.
    memory: Option<MrSlice>,
    cache: Remote,
    torn: u32,
}

impl Reader {
    // ANCHOR: look-up
    /// Looks an entry up until it is whole.
    fn look_up(&mut self, at: u64) -> Result<(u64, [u8; 48])> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = whole(&self.fetch(at)?) {
                return Ok(found);
            }
            self.torn += 1;
            if Instant::now() > deadline {
                return Err(format!("entry {at} was torn {} times", self.torn).into());
            }
        }
    }

    /// READs the bytes of an entry.
    fn fetch(&mut self, at: u64) -> Result<[u8; ENTRY]> {
        let memory = self.memory.take().ok_or("a READ is in flight")?;
        let read = RdmaRead::new(memory, self.cache.offset(at * ENTRY as u64));
        self.endpoint.post(at, read.signaled())?;
        loop {
            if let Some(returned) = self.endpoint.poll().next() {
                let returned = returned?;
                if let Outcome::Failed(failure) = returned.outcome {
                    return Err(failure.into());
                }
                let memory = returned.buffers.one().map_err(|_| "a READ into one slice")?;
                let mut bytes = [0; ENTRY];
                memory.read(0, &mut bytes);
                self.memory = Some(memory);
                return Ok(bytes);
            }
            std::hint::spin_loop();
        }
    }
    // ANCHOR_END: look-up
}

/// Connects one side. `offer` adds what it tells the other side.
fn connect(
    mut connection: Connection,
    pd: &ProtectionDomain,
    offer: impl FnOnce(&mut ConnectionData),
) -> Result<(Endpoint, ConnectionData, Connection)> {
    let port = LocalPort::new(pd.context(), 1, None)?;
    let cq = CompletionQueue::new(pd.context(), 16)?;
    let qp = QueuePair::builder(pd, &cq).max_send_wr(4).max_recv_wr(1).build()?;
    let mut mine = port.connection_data(&qp);
    offer(&mut mine);
    let theirs = connection.exchange(&mine)?;
    let qp = qp.init(&port.init())?;
    let mut completions = CqReader::new(&cq)?;
    let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
    let qp = qp.rtr(&port.rtr(&mine, &theirs))?.rts(&port.rts(&mine, &theirs))?;
    let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
    connection.barrier(1)?;
    Ok((endpoint, theirs, connection))
}
