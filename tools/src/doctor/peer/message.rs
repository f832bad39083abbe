//! A short and a long message by each transport, in both directions at once.

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::{ConnectError, Connection, ConnectionData, LocalPort};
use mlx5::cqe::ReceiveDone;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::{Access, HasQueues, Rc, Receives, Transport, Uc, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::{AckTimeout, RtsAttributes, UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Context, Init, ProtectionDomain, QueuePair, QueuePairBuilder,
    Reset, Rts,
};
use mlx5::wqe::{SendMessage, UdAddress};

use super::super::check::{Check, Group, Question};

/// Bytes of the long message of a connection: many packets of each MTU.
pub const LONG: usize = 64 << 10;
/// Bytes of the short message: one packet of each MTU.
const SHORT: usize = 64;
/// How long a message may take. A reliable connection reports its loss before.
const ARRIVAL: Duration = Duration::from_secs(3);
/// The Q_Key of both sides' datagrams.
const QKEY: u32 = 0x0d0c_7012;

/// The port that messages leave by.
pub struct Station<'a> {
    pub context: &'a Context,
    pub local: LocalPort,
}

type Failed = Box<dyn Error>;

/// The differences between the transports.
pub trait Wire: Transport + HasQueues + Receives + Sized {
    fn init(qp: QueuePair<Self, Reset>, local: &LocalPort)
    -> Result<QueuePair<Self, Init>, Failed>;

    fn connect(
        qp: QueuePair<Self, Init>,
        local: &LocalPort,
        ends: Ends,
    ) -> Result<QueuePair<Self, Rts>, Failed>;

    fn post(link: &mut Link<Self>, message: MrSlice) -> Result<(), Failed>;

    /// Returns where a message lies in the memory of its receive.
    fn place(done: &ReceiveDone) -> std::ops::Range<usize> {
        0..done.byte_len as usize
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    mine: &'a ConnectionData,
    theirs: &'a ConnectionData,
}

/// A connected queue pair.
pub struct Link<T: Transport> {
    endpoint: Endpoint<T>,
    pd: ProtectionDomain,
    /// The peer, for datagrams.
    to: Option<UdAddress>,
}

impl Wire for Rc {
    fn init(qp: QueuePair<Rc, Reset>, local: &LocalPort) -> Result<QueuePair<Rc, Init>, Failed> {
        Ok(qp.init(&local.init())?)
    }

    fn connect(
        qp: QueuePair<Rc, Init>,
        local: &LocalPort,
        Ends { mine, theirs }: Ends,
    ) -> Result<QueuePair<Rc, Rts>, Failed> {
        let attributes = RtsAttributes {
            timeout: AckTimeout::at_least(Duration::from_millis(67)),
            retry_cnt: 3,
            ..local.rts(mine, theirs)
        };
        Ok(qp.rtr(&local.rtr(mine, theirs))?.rts(&attributes)?)
    }

    fn post(link: &mut Link<Rc>, message: MrSlice) -> Result<(), Failed> {
        Ok(link.endpoint.post(SEND, SendMessage::new(message).signaled())?)
    }
}

impl Wire for Uc {
    fn init(qp: QueuePair<Uc, Reset>, local: &LocalPort) -> Result<QueuePair<Uc, Init>, Failed> {
        Ok(qp.init(&local.init())?)
    }

    fn connect(
        qp: QueuePair<Uc, Init>,
        local: &LocalPort,
        Ends { mine, theirs }: Ends,
    ) -> Result<QueuePair<Uc, Rts>, Failed> {
        Ok(qp.rtr(&local.rtr(mine, theirs).into())?.rts(&local.rts(mine, theirs).into())?)
    }

    fn post(link: &mut Link<Uc>, message: MrSlice) -> Result<(), Failed> {
        Ok(link.endpoint.post(SEND, SendMessage::new(message).signaled())?)
    }
}

impl Wire for Ud {
    fn init(qp: QueuePair<Ud, Reset>, local: &LocalPort) -> Result<QueuePair<Ud, Init>, Failed> {
        Ok(qp.init(&UdInitAttributes::new(local.attributes().port, QKEY))?)
    }

    fn connect(
        qp: QueuePair<Ud, Init>,
        _: &LocalPort,
        _: Ends,
    ) -> Result<QueuePair<Ud, Rts>, Failed> {
        Ok(qp.rtr()?.rts(&UnreliableRtsAttributes::default())?)
    }

    fn post(link: &mut Link<Ud>, message: MrSlice) -> Result<(), Failed> {
        let to = link.to.as_ref().ok_or("a datagram without an address")?;
        Ok(link.endpoint.post(SEND, SendMessage::new(message).signaled().to(to))?)
    }

    fn place(done: &ReceiveDone) -> std::ops::Range<usize> {
        done.datagram()
    }
}

/// A queue pair that can receive, and is not connected yet.
struct Half<T: Transport> {
    qp: QueuePair<T, Init>,
    receiver: Receiver,
    completions: CqReader,
    pd: ProtectionDomain,
    mine: ConnectionData,
}

impl<T: Wire> Half<T> {
    fn new(station: &Station, long: usize) -> Result<Half<T>, Failed> {
        let Station { context, local } = station;
        let pd = ProtectionDomain::new(context)?;
        let cq = CompletionQueue::new(context, 16)?;
        let qp = QueuePairBuilder::<T>::new(&pd, &cq).max_send_wr(4).max_recv_wr(4).build()?;
        let mine = local.connection_data(&qp);
        let qp = T::init(qp, local)?;
        let mut completions = CqReader::new(&cq)?;
        let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
        for _ in [SHORT, long] {
            let room = ReceiveDone::HEADER_BYTES + long.max(SHORT);
            receiver.post(RECEIVE, MrSlice::new(pd.allocate(room, Access::LOCAL_WRITE)?))?;
        }
        Ok(Half { qp, receiver, completions, pd, mine })
    }

    fn connect(self, local: &LocalPort, theirs: &ConnectionData) -> Result<Link<T>, Failed> {
        let Half { qp, receiver, completions, pd, mine } = self;
        let handle = AddressHandle::new(&pd, &local.address(theirs))?;
        let to = UdAddress::new(&handle, theirs.qpn, QKEY);
        let qp = T::connect(qp, local, Ends { mine: &mine, theirs })?;
        let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
        Ok(Link { endpoint, pd, to: Some(to) })
    }
}

impl<T: Wire> Link<T> {
    /// Sends a message of `length` bytes, and waits for the peer's of the same length.
    fn swap(&mut self, length: usize) -> Result<(), Failed> {
        let pattern: Vec<u8> = (0..length).map(|index| (index * 7 + index / 251) as u8).collect();
        let mut leaving = MrSlice::new(self.pd.allocate(length, Access::LOCAL_WRITE)?);
        leaving.write(0, &pattern);
        T::post(self, leaving)?;
        let deadline = Instant::now() + ARRIVAL;
        let (mut sent, mut arrived) = (false, false);
        while !sent || !arrived {
            for returned in self.endpoint.poll() {
                let returned = returned?;
                match returned.outcome {
                    Outcome::Failed(failure) => return Err(failure.to_string().into()),
                    Outcome::Received(done) => {
                        let memory =
                            returned.buffers.one().map_err(|_| "a receive of one buffer")?;
                        if memory.to_vec().get(T::place(&done)) != Some(&pattern[..]) {
                            return Err("what arrived is not what was sent".into());
                        }
                        arrived = true;
                    }
                    _ => sent = true,
                }
            }
            if Instant::now() > deadline {
                let what = if sent { "nothing arrived" } else { "nothing was sent" };
                return Err(format!("{what} within {} s", ARRIVAL.as_secs()).into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Tells the peer how a step went here, and returns how it went there. The first failure is
/// returned, with its side.
fn agree(
    connection: &mut Connection,
    mine: Result<(), String>,
) -> Result<Result<(), String>, ConnectError> {
    /// Most bytes of an error.
    const ERROR: usize = 512;
    let text = mine.as_ref().err().map_or("", String::as_str);
    let theirs = connection.exchange_data(&text.as_bytes()[..text.len().min(ERROR)])?;
    Ok(match (mine, &theirs[..]) {
        (Err(here), _) => Err(format!("here: {here}")),
        (Ok(()), []) => Ok(()),
        (Ok(()), there) => Err(format!("there: {}", String::from_utf8_lossy(there))),
    })
}

/// Splits a result for [`agree`], which needs a text for each error.
fn told<V>(result: Result<V, Failed>) -> (Option<V>, Result<(), String>) {
    match result {
        Ok(value) => (Some(value), Ok(())),
        // An empty text would mean success to the peer.
        Err(error) if error.to_string().is_empty() => (None, Err("it failed".to_owned())),
        Err(error) => (None, Err(error.to_string())),
    }
}

/// Sends a short and a long message each way.
///
/// # Errors
/// The connection by TCP failed. Whatever else fails is in the check.
pub fn between<T: Wire>(
    station: &Station,
    connection: &mut Connection,
    long: usize,
) -> Result<Check, ConnectError> {
    let question = Question::new(
        Group::Traffic,
        format!("{} messages", T::NAME),
        format!("a message of {SHORT} bytes and one of {long} each way, compared byte by byte"),
        "switches and addresses between the two hosts are proven by messages alone",
    );
    Ok(match try_between::<T>(station, connection, long)? {
        Ok(()) => question.good(format!("{SHORT} and {long} bytes arrived on both sides")),
        Err((arrived, error)) => question.broken(format!("{arrived}{error}"), cure(arrived)),
    })
}

/// The state of a test whose messages fail, for the text.
const NONE: &str = "";
const SHORT_ONLY: &str = "short messages arrive, and the long one does not: ";

fn cure(arrived: &'static str) -> &'static str {
    match arrived {
        SHORT_ONLY => "a switch between has a smaller MTU: raise it, or use a smaller path MTU",
        _ => {
            "is it the same network? ping the address of the GID; look at VLAN, switch and firewall \
             (UDP port 4791)"
        }
    }
}

/// The failure, with what arrived before it.
type Tried = Result<(), (&'static str, String)>;

fn try_between<T: Wire>(
    station: &Station,
    connection: &mut Connection,
    long: usize,
) -> Result<Tried, ConnectError> {
    let (half, made) = told(Half::<T>::new(station, long));
    let made = agree(connection, made)?;
    let (Some(half), Ok(())) = (half, made.clone()) else {
        return Ok(made.map_err(|error| (NONE, error)));
    };
    let theirs = connection.exchange(&half.mine)?;
    let (link, connected) = told(half.connect(&station.local, &theirs));
    let connected = agree(connection, connected)?;
    let (Some(mut link), Ok(())) = (link, connected.clone()) else {
        return Ok(connected.map_err(|error| (NONE, error)));
    };
    for (length, before) in [(SHORT, NONE), (long, SHORT_ONLY)] {
        let (_, swapped) = told(link.swap(length));
        if let Err(error) = agree(connection, swapped)? {
            return Ok(Err((before, error)));
        }
    }
    Ok(Ok(()))
}
