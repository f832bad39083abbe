//! The passive side: it does what the active side asks, one question at a time.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use mlx5::connect::ConnectionData;
use mlx5::cqe::Completion;
use mlx5::devx::Firmware;
use mlx5::ib::{Dct, RawPacket, Rc, Uc, Ud, XrcRecv};
use mlx5::ring::{CqReader, PacketEvent, PacketRq, ReceiveQueue, Srq};
use mlx5::verbs::attr::{
    AddressVector, DctRtrAttributes, QpState, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::verbs::{
    Context, EventSource, Flow, Init, MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair,
    QueuePairBuilder, Rtr, Rts, SharedReceiveQueue, Type1, Type2, WindowType,
};
use mlx5::wqe::{BindWindow, SendMessage, Sge};

use crate::message::{
    Answer, Arrival, Ask, By, DC_KEY, Door, Key, Kind, MEMORY, PacketDoor, QKEY, Rights, SHORT,
    Shape, VERSION, Wake, Window, pattern,
};
use crate::report::Environment;
use crate::side::{Base, Receive, Side, Spoiled, Terms, receives};
use crate::verdict::{Stop, Verdict, failed, holds};

/// Which port of which device a side uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device; the first one otherwise.
    pub device: Option<String>,
    /// The port, from 1.
    pub port: u8,
    /// The entry of the GID table.
    pub gid_index: Option<u8>,
}

impl Place {
    /// Opens the device.
    pub fn open(&self) -> mlx5::Result<Context> {
        match &self.device {
            Some(name) => Context::open(name),
            None => Context::open_first(),
        }
    }

    pub(crate) fn base(&self, terms: Terms) -> Verdict<Base> {
        Base::new(self.open()?, self.port, self.gid_index, terms)
    }
}

/// The end of a connection that has no send queue.
#[derive(Debug)]
enum TargetEnd {
    XrcWaiting(QueuePair<XrcRecv, Init>),
    Xrc(QueuePair<XrcRecv, Rts>),
    Dc(QueuePair<Dct, Rtr>),
    /// Between two states.
    None,
}

/// A target of extended or dynamic connections.
#[derive(Debug)]
struct Target {
    end: TargetEnd,
    mine: ConnectionData,
    shared: Srq,
    completions: CqReader,
    memory: MemoryRegion,
    srq: SharedReceiveQueue,
}

/// A receiver of Ethernet packets.
#[derive(Debug)]
struct Packets {
    frames: PacketRq,
    memory: MemoryRegion,
    qp: QueuePair<RawPacket, Rts>,
    door: PacketDoor,
    flows: Vec<Flow>,
    /// They keep the ports of the door.
    _held: (UdpSocket, TcpListener, UdpSocket),
}

/// The passive side's queue pair.
#[derive(Debug)]
enum Station {
    Rc(Side<Rc>),
    Command(Side<Rc, Firmware>),
    Uc(Side<Uc>),
    Ud(Side<Ud>),
    Target(Target),
    Packets(Packets),
}

/// Does the same with each kind of side.
macro_rules! sides {
    ($station:expr, $side:ident => $do:expr, $($rest:tt)*) => {
        match $station {
            Station::Rc($side) => $do,
            Station::Command($side) => $do,
            Station::Uc($side) => $do,
            Station::Ud($side) => $do,
            $($rest)*
        }
    };
}

/// A bound window.
#[derive(Debug)]
enum Bound {
    Type1(MemoryWindow<Type1>),
    Type2(MemoryWindow<Type2>),
}

/// The objects of one [`Ask::Open`].
#[derive(Debug)]
struct Work {
    station: Station,
    window: Option<Bound>,
    foreign: MemoryRegion,
    base: Base,
}

/// The passive side.
#[derive(Debug)]
pub struct Agent {
    place: Place,
    terms: Terms,
    environment: Environment,
    work: Option<Work>,
}

impl Agent {
    /// Makes a passive side, which opens nothing yet.
    pub fn new(place: Place, terms: Terms, environment: Environment) -> Agent {
        Agent { place, terms, environment, work: None }
    }

    /// Does what is asked. Whatever is asked, the answer says what became of it.
    pub fn answer(&mut self, ask: Ask) -> Answer {
        let answer = match ask {
            Ask::Hello { .. } => {
                let environment = Box::new(self.environment.clone());
                Ok(Answer::Hello { version: VERSION, environment })
            }
            Ask::Open { kind, shape } => self.open(kind, &shape),
            Ask::Close => {
                self.work = None;
                Ok(Answer::Done)
            }
            other => match &mut self.work {
                Some(work) => work.answer(other),
                None => Err(failed("asked before a queue pair was opened")),
            },
        };
        answer.unwrap_or_else(|stop| match stop {
            Stop::Failed(why) => Answer::Failed(why),
            Stop::NotApplicable(why) => Answer::Lacking(why),
        })
    }

    fn open(&mut self, kind: Kind, shape: &Shape) -> Verdict<Answer> {
        shape.check()?;
        self.work = None;
        let base = self.place.base(self.terms)?;
        let other = ProtectionDomain::new(&base.context)?;
        let foreign = other.allocate(MEMORY, shape.region.access(base.atomics))?;
        let station = Station::new(&base, kind, shape)?;
        let work = self.work.insert(Work { station, window: None, foreign, base });
        Ok(Answer::Door(work.door()?))
    }
}

impl Work {
    fn door(&mut self) -> Verdict<Door> {
        let mut door = Door::new(&self.station.mine(&self.base));
        let memory = self.station.memory();
        door.address = memory.remote_address();
        door.length = memory.len() as u64;
        door.rkey = memory.rkey();
        door.foreign = self.foreign.rkey();
        match &self.station {
            Station::Target(target) => door.srq = target.srq.number()?,
            Station::Packets(packets) => door.packets = Some(packets.door),
            _ => {}
        }
        Ok(door)
    }

    fn answer(&mut self, ask: Ask) -> Verdict<Answer> {
        let spoiled = self.base.terms.spoiled;
        Ok(match ask {
            Ask::Hello { .. } | Ask::Open { .. } | Ask::Close => {
                return Err(failed("asked of no queue pair"));
            }
            Ask::Connect { door } => {
                self.station.connect(&self.base, &door.data()?)?;
                Answer::Done
            }
            Ask::Receive { id, pieces, key } => {
                holds(pieces.len() <= 16, "more pieces than a receive has")?;
                let mut sges = Vec::new();
                for (at, length) in pieces {
                    let mut sge = self.sge(at, length)?;
                    if key == Key::Wrong {
                        sge.lkey ^= 0x5500;
                    }
                    sges.push(sge);
                }
                self.station.receive(id, &sges)?;
                Answer::Done
            }
            Ask::Next => Answer::Arrival(Some(self.next()?)),
            Ask::Poll => Answer::Arrival(self.station.poll()?),
            Ask::Fill { at, length, seed } => {
                let (at, length) = within(at, length)?;
                let bytes: Vec<u8> = pattern(length, seed).collect();
                self.station.memory().write(at, &bytes);
                Answer::Done
            }
            Ask::Check { at, length, seed } => {
                let (at, length) = within(at, length)?;
                let bytes = read(self.station.memory(), at, length, spoiled);
                let differs = bytes.iter().zip(pattern(length, seed)).position(|(a, b)| *a != b);
                Answer::Differs(differs.map(|place| (place as u32, bytes[place])))
            }
            Ask::Write { at, bytes } => {
                let (at, _) = within(at, bytes.len() as u32)?;
                self.station.memory().write(at, &bytes);
                Answer::Done
            }
            Ask::Read { at, length } => {
                let (at, length) = within(at, length)?;
                holds(length <= SHORT, "more bytes than an answer carries")?;
                Answer::Bytes(read(self.station.memory(), at, length, spoiled))
            }
            Ask::Send { id, at, length, wake } => {
                let message = SendMessage::new(self.sge(at, length)?).signaled();
                let message = match wake {
                    Wake::Plain => message,
                    Wake::Solicited => message.solicited(),
                };
                match &mut self.station {
                    Station::Rc(side) => side.post(id, message)?,
                    Station::Command(side) => side.post(id, message)?,
                    Station::Uc(side) => side.post(id, message)?,
                    _ => return Err(failed("this transport does not answer")),
                }
                Answer::Done
            }
            Ask::State => Answer::Name(format!("{:?}", self.station.state()?)),
            Ask::Event => Answer::Name(self.event()?),
            Ask::Fail => {
                match &mut self.station {
                    Station::Rc(side) => side.fail()?,
                    Station::Command(side) => side.fail()?,
                    Station::Uc(side) => side.fail()?,
                    _ => return Err(failed("this transport does not fail on request")),
                }
                Answer::Done
            }
            Ask::Renew => {
                match &mut self.station {
                    Station::Rc(side) => side.renew(&self.base)?,
                    Station::Command(side) => side.renew(&self.base)?,
                    Station::Uc(side) => side.renew(&self.base)?,
                    _ => return Err(failed("this transport is not renewed")),
                }
                Answer::Door(self.door()?)
            }
            Ask::Bind { window, tag, at, length, rights } => {
                let (at, length) = within(at, length)?;
                Answer::Key(self.bind(window, tag, (at, length), rights)?)
            }
            Ask::Unbind => {
                self.unbind()?;
                Answer::Done
            }
            Ask::ListenTcp => {
                let Station::Packets(packets) = &mut self.station else {
                    return Err(failed("no packets here"));
                };
                packets.listen_tcp(&self.base)?;
                Answer::Done
            }
            Ask::Limit { receives } => {
                let srq = match &self.station {
                    Station::Rc(side) => side.srq.as_ref(),
                    Station::Target(target) => Some(&target.srq),
                    _ => None,
                };
                srq.ok_or_else(|| failed("no shared receive queue"))?.set_limit(receives)?;
                Answer::Done
            }
        })
    }

    fn sge(&mut self, at: u32, length: u32) -> Verdict<Sge> {
        let (at, length) = within(at, length)?;
        let memory = self.station.memory();
        Ok(memory.sge(at, length)?)
    }

    fn next(&mut self) -> Verdict<Arrival> {
        let patience = self.base.terms.patience;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(mut arrival) = self.station.poll()? {
                if self.base.terms.spoiled == Spoiled::Completions {
                    spoil(&mut arrival);
                }
                return Ok(arrival);
            }
            if Instant::now() > deadline {
                return Err(failed(format!("the peer has no completion within {patience:?}")));
            }
            std::thread::yield_now();
        }
    }

    /// Waits for an event of the queue pair or of the shared receive queue.
    fn event(&mut self) -> Verdict<String> {
        let number = self.station.mine(&self.base).qpn;
        let patience = self.base.terms.patience;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let event = self.base.context.async_event(Duration::from_millis(50))?;
            let Some(event) = event else { continue };
            match event.source {
                EventSource::QueuePair(source) if source == number => {}
                // One shared receive queue exists in this context.
                EventSource::SharedReceiveQueue(_) => {}
                _ => continue,
            }
            return Ok(match self.base.terms.spoiled {
                Spoiled::Completions => "Spoiled".to_owned(),
                _ => format!("{:?}", event.kind()),
            });
        }
        Err(failed(format!("the peer has no asynchronous event within {patience:?}")))
    }

    fn bind(
        &mut self,
        window: Window,
        tag: u8,
        (at, length): (usize, usize),
        rights: Rights,
    ) -> Verdict<u32> {
        let Station::Rc(side) = &mut self.station else {
            return Err(failed("windows are bound on reliable connections"));
        };
        let mut access = rights.access(self.base.atomics);
        access.remove(mlx5::ib::Access::LOCAL_WRITE);
        match (window, &mut self.window) {
            (Window::Type1, Some(Bound::Type1(_))) | (Window::Type2, Some(Bound::Type2(_))) => {}
            (Window::Type1, bound) => {
                *bound = Some(Bound::Type1(MemoryWindow::new(&self.base.pd)?));
            }
            (Window::Type2, bound) => {
                *bound = Some(Bound::Type2(MemoryWindow::new(&self.base.pd)?));
            }
        }
        match self.window.as_mut() {
            Some(Bound::Type1(window)) => {
                let request = window.bind(&side.memory, at, length, access)?;
                bind(side, window, request)
            }
            Some(Bound::Type2(window)) => {
                let request = window.bind(side.number(), tag, &side.memory, at, length, access)?;
                bind(side, window, request)
            }
            None => Err(failed("no window")),
        }
    }

    fn unbind(&mut self) -> Verdict {
        let (Station::Rc(side), Some(Bound::Type2(window))) = (&mut self.station, &mut self.window)
        else {
            return Err(failed("no window of type 2"));
        };
        side.send()?.unbind(WINDOW, window)?;
        done(side.next()?)
    }
}

/// The id of requests on windows.
const WINDOW: u64 = 0xb1d;

fn bind<K: WindowType>(
    side: &mut Side<Rc>,
    window: &mut MemoryWindow<K>,
    request: BindWindow,
) -> Verdict<u32> {
    // SAFETY: no code holds a reference to the region, which lives beside the queue.
    let rkey = unsafe { side.send()?.bind(WINDOW, window, request.signaled()) }?;
    done(side.next()?)?;
    Ok(rkey)
}

fn done(completion: Completion) -> Verdict {
    match completion {
        Completion::Send(done) if done.id == WINDOW => Ok(()),
        Completion::Failed(failure) => Err(failed(failure)),
        other => Err(failed(format!("instead of a bound window: {other:?}"))),
    }
}

/// Checks that a piece is within the memory.
fn within(at: u32, length: u32) -> Verdict<(usize, usize)> {
    let end = u64::from(at) + u64::from(length);
    holds(end <= MEMORY as u64, format!("{length} bytes at {at} are not in the memory"))?;
    Ok((at as usize, length as usize))
}

fn read(memory: &MemoryRegion, at: usize, length: usize, spoiled: Spoiled) -> Vec<u8> {
    let mut bytes = memory.to_vec(at, length);
    if let (Spoiled::Memory, Some(last)) = (spoiled, bytes.last_mut()) {
        *last ^= 4;
    }
    bytes
}

fn spoil(arrival: &mut Arrival) {
    match arrival {
        Arrival::Sent { id }
        | Arrival::Received { id, .. }
        | Arrival::Packet { id, .. }
        | Arrival::Failed { id, .. } => *id ^= 0x100,
        Arrival::Other(_) => {}
    }
}

impl Station {
    fn new(base: &Base, kind: Kind, shape: &Shape) -> Verdict<Station> {
        Ok(match (kind, shape.by) {
            (Kind::Rc, By::Verbs) => Station::Rc(Side::new(base, shape)?),
            (Kind::Rc, By::Command) => Station::Command(Side::new(base, shape)?),
            (Kind::Uc, _) => Station::Uc(Side::new(base, shape)?),
            (Kind::Ud, _) => Station::Ud(datagrams(base, shape)?),
            (Kind::Xrc, _) => Station::Target(Target::extended(base, shape)?),
            (Kind::Dc, _) => Station::Target(Target::dynamic(base, shape)?),
            (Kind::Ethernet, _) => Station::Packets(Packets::new(base, shape)?),
        })
    }

    fn mine(&self, base: &Base) -> ConnectionData {
        sides!(self, side => side.mine().clone(),
            Station::Target(target) => target.mine.clone(),
            Station::Packets(packets) => base.local.connection_data_of(packets.qp.number()),
        )
    }

    fn memory(&mut self) -> &mut MemoryRegion {
        sides!(self, side => &mut side.memory,
            Station::Target(target) => &mut target.memory,
            Station::Packets(packets) => &mut packets.memory,
        )
    }

    fn connect(&mut self, base: &Base, theirs: &ConnectionData) -> Verdict {
        match self {
            Station::Rc(side) => side.connect(base, theirs),
            Station::Command(side) => side.connect(base, theirs),
            Station::Uc(side) => side.connect(base, theirs),
            Station::Target(target) => target.connect(base, theirs),
            // These reach anyone.
            Station::Ud(_) | Station::Packets(_) => Ok(()),
        }
    }

    fn receive(&mut self, id: u64, pieces: &[Sge]) -> Verdict {
        // SAFETY: the memory lives beside the queue, and no code holds a reference to it.
        unsafe {
            sides!(self, side => side.receive.post(id, pieces)?,
                Station::Target(target) => target.shared.post(id, pieces)?,
                Station::Packets(packets) => packets.frames.post(id, pieces)?,
            )
        }
        Ok(())
    }

    fn poll(&mut self) -> Verdict<Option<Arrival>> {
        let completion = sides!(self, side => side.try_next()?,
            Station::Target(target) => target.completions.poll(&mut target.shared)?,
            Station::Packets(packets) => {
                return Ok(packets.frames.poll()?.map(|event| match event {
                    PacketEvent::Packet(packet) => Arrival::Packet {
                        id: packet.id,
                        length: packet.byte_len,
                        checksums_ok: packet.info().checksums_ok(),
                    },
                    other => Arrival::Other(format!("{other:?}")),
                }));
            }
        );
        Ok(completion.as_ref().map(Arrival::from))
    }

    fn state(&mut self) -> Verdict<QpState> {
        Ok(sides!(self, side => side.state()?,
            Station::Target(target) => match &target.end {
                TargetEnd::Xrc(qp) => qp.query()?.state,
                TargetEnd::Dc(qp) => qp.query()?.state,
                _ => return Err(failed("not connected")),
            },
            Station::Packets(packets) => packets.qp.query()?.state,
        ))
    }
}

/// Makes a datagram queue pair in RTS.
pub fn datagrams(base: &Base, shape: &Shape) -> Verdict<Side<Ud>> {
    let cq = base.cq(shape)?;
    let builder = QueuePairBuilder::<Ud>::new(&base.pd, &cq)
        .max_send_wr(shape.send_wr)
        .max_send_sge(shape.sge)
        .max_inline_data(shape.inline)
        .max_recv_wr(shape.recv_wr)
        .max_recv_sge(shape.sge);
    let port = base.local.attributes().port;
    let qp = builder.build()?.init(&UdInitAttributes::new(port, QKEY));
    let qp = qp.map_err(|refused| refused.error)?;
    let mut completions = CqReader::new(&cq)?;
    let receive = ReceiveQueue::new(&qp, &mut completions, receives(shape))?;
    let qp = qp.rtr().map_err(|refused| refused.error)?;
    let qp = qp.rts(&UnreliableRtsAttributes::default()).map_err(|refused| refused.error)?;
    Side::of(base, shape, cq, completions, Receive::Own(receive), qp)
}

impl Target {
    fn extended(base: &Base, shape: &Shape) -> Verdict<Target> {
        let domain = mlx5::verbs::XrcDomain::new(&base.context)?;
        let cq = base.cq(shape)?;
        let srq = SharedReceiveQueue::builder(&base.pd).max_wr(shape.recv_wr).max_sge(shape.sge);
        let srq = srq.xrc(&domain, &cq).build()?;
        let mut completions = CqReader::new(&cq)?;
        let shared = Srq::new(&srq, &mut completions, receives(shape))?;
        let qp = QueuePair::target(&domain)?.init(&base.init(shape));
        let qp = qp.map_err(|refused| refused.error)?;
        let mine = base.local.connection_data_of(qp.number());
        let memory = base.memory(shape)?;
        Ok(Target { end: TargetEnd::XrcWaiting(qp), mine, shared, completions, memory, srq })
    }

    fn dynamic(base: &Base, shape: &Shape) -> Verdict<Target> {
        let cq = base.cq(shape)?;
        let srq = SharedReceiveQueue::builder(&base.pd).max_wr(shape.recv_wr).max_sge(shape.sge);
        let srq = srq.build()?;
        let mut completions = CqReader::new(&cq)?;
        let mut shared = Srq::new(&srq, &mut completions, receives(shape))?;
        let qp = QueuePair::dc_target(&base.pd, &cq, &srq, DC_KEY).build()?;
        let qp = qp.init(&base.init(shape)).map_err(|refused| refused.error)?;
        let own: AddressVector = base.local.address(&base.local.connection_data_of(0));
        let path_mtu = base.local.attributes().active_mtu;
        let attributes = DctRtrAttributes { path_mtu, ..DctRtrAttributes::new(own) };
        let qp = qp.rtr(&attributes).map_err(|refused| refused.error)?;
        shared.attach(&qp, &mut completions)?;
        let mine = base.local.connection_data_of(qp.number());
        let memory = base.memory(shape)?;
        Ok(Target { end: TargetEnd::Dc(qp), mine, shared, completions, memory, srq })
    }

    fn connect(&mut self, base: &Base, theirs: &ConnectionData) -> Verdict {
        match std::mem::replace(&mut self.end, TargetEnd::None) {
            TargetEnd::XrcWaiting(qp) => {
                let qp = qp.rtr(&base.local.rtr(&self.mine, theirs));
                let qp = qp.map_err(|refused| refused.error)?;
                let qp = qp.rts(&base.local.rts(&self.mine, theirs).into());
                self.end = TargetEnd::Xrc(qp.map_err(|refused| refused.error)?);
                Ok(())
            }
            other => {
                self.end = other;
                Ok(())
            }
        }
    }
}

/// Any port of any address.
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::UNSPECIFIED, 0);

fn udp() -> Verdict<UdpSocket> {
    UdpSocket::bind(ANY).map_err(no_port)
}

fn no_port(error: std::io::Error) -> Stop {
    failed(format!("the system gives no port for packets: {error}"))
}

impl Packets {
    fn new(base: &Base, shape: &Shape) -> Verdict<Packets> {
        let mac = crate::bed::mac(&base.context, base.local.attributes().port)?;
        let (send_cq, cq) = (base.cq(shape)?, base.cq(shape)?);
        let builder = QueuePairBuilder::<RawPacket>::new(&base.pd, &send_cq).receive_cq(&cq);
        let builder = builder.max_recv_wr(shape.recv_wr).max_recv_sge(shape.sge);
        let port = base.local.attributes().port;
        let qp = builder.build()?.init(port).map_err(|refused| refused.error)?;
        let qp = qp.rtr().map_err(|refused| refused.error)?;
        let qp = qp.rts().map_err(|refused| refused.error)?;
        let frames = PacketRq::new(&qp, &cq, receives(shape))?;
        let held = (udp()?, TcpListener::bind(ANY).map_err(no_port)?, udp()?);
        let door = PacketDoor {
            mac,
            udp_port: held.0.local_addr().map_err(no_port)?.port(),
            tcp_port: held.1.local_addr().map_err(no_port)?.port(),
            unwanted: held.2.local_addr().map_err(no_port)?.port(),
        };
        let flow = Flow::builder(port).destination(mac).udp_port(door.udp_port).build(&qp)?;
        let memory = base.memory(shape)?;
        Ok(Packets { frames, memory, qp, door, flows: vec![flow], _held: held })
    }

    fn listen_tcp(&mut self, base: &Base) -> Verdict {
        let flow = Flow::builder(base.local.attributes().port).destination(self.door.mac);
        self.flows.push(flow.tcp_port(self.door.tcp_port).build(&self.qp)?);
        Ok(())
    }
}
