//! One process: makes the queues of each episode, runs it and reports.

use std::time::Duration;

use mlx5::connect::{Connection, ConnectionData, Listener, LocalPort, RemoteRegion};
use mlx5::expert::Publish;
use mlx5::ib::{Dci, Dct, HasQueues, Rc, Uc, Ud, XrcRecv, XrcSend};
use mlx5::ring::{CqReader, ReceiveConfig, RegisterUse, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{AckTimeout, CqeSize, DctRtrAttributes, RtsAttributes};
use mlx5::verbs::{
    CompletionQueue, Context, Init, ProtectionDomain, QueuePair, QueuePairBuilder, Rtr, Rts,
    SharedReceiveQueue, XrcDomain,
};
use mlx5::wqe::Remote;
use mlx5_model::Mode;

use crate::control::Control;
use crate::driver::DriverWire;
use crate::form::{ACCESS_KEY, Form, Peer};
use crate::library::{LibraryWire, Receives};
use crate::memory::{Memory, Theirs};
use crate::oracle::Oracle;
use crate::plan::{Kind, Plan, Side};
use crate::random::Random;
use crate::wire::{Result, Wire};

/// How long the other process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// The objects that last from episode to episode.
pub struct Process {
    side: Side,
    control: Control,
    pd: ProtectionDomain,
    local: LocalPort,
    memory: Memory,
    connection: Connection,
    timeout: AckTimeout,
}

/// The error's text, with what failed before it.
fn text<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

impl Process {
    /// Opens the model and connects to the other process. Queue pairs will have this timeout, which is
    /// as long as its code says.
    pub fn new(side: Side, control: Control, timeout: AckTimeout) -> Result<Self> {
        mlx5_model::set_mode(Mode::Trapped).map_err(|error| error.to_string())?;
        if !mlx5_model::offered() {
            return Err("the model is not offered; set MLX5_MODEL=always".to_owned());
        }
        let context = Context::open_first().map_err(text("opening the device"))?;
        mlx5_model::set_timeouts(0, mlx5_model::Timeouts::SPECIFICATION);
        let local = LocalPort::new(&context, 1, None).map_err(text("port 1"))?;
        let pd = ProtectionDomain::new(&context).map_err(text("a protection domain"))?;
        let memory = Memory::new(&pd)?;
        let connection = match side {
            Side::Driver => {
                let listener = Listener::bind("127.0.0.1:0").map_err(text("listening"))?;
                let address = listener.local_address().map_err(text("listening"))?;
                control.set_port(address.port());
                listener.accept(PATIENCE)
            }
            Side::Library => {
                while control.port() == 0 {
                    std::thread::yield_now();
                }
                Connection::connect(format!("127.0.0.1:{}", control.port()), PATIENCE)
            }
        };
        let connection = connection.map_err(text("connecting to the other process"))?;
        Ok(Self { side, control, pd, local, memory, connection, timeout })
    }

    /// Runs one episode.
    pub fn episode(&mut self, plan: &Plan) -> Result {
        match plan.kind {
            Kind::Rc | Kind::RcShared => self.on::<Rc>(plan),
            Kind::Uc => self.on::<Uc>(plan),
            Kind::Ud => self.on::<Ud>(plan),
            Kind::Xrc => self.on::<XrcSend>(plan),
            Kind::Dc => self.on::<Dci>(plan),
        }
    }

    fn exchange(&mut self, mine: &ConnectionData) -> Result<ConnectionData> {
        self.connection.exchange(mine).map_err(text("exchanging endpoints"))
    }

    fn cq(&self, plan: &Plan) -> Result<CompletionQueue> {
        let receives = if plan.kind.is_shared() { 1 } else { plan.qps as u32 };
        let room = match self.side {
            // The CQ slots that the queues reserve, and CQEs read since the last consumer index.
            Side::Driver => {
                receives * plan.receive_depth.next_power_of_two().max(4) * 2
                    + plan.qps as u32 * plan.requests
                    + plan.publish
            }
            Side::Library => {
                (receives * plan.receive_depth + plan.qps as u32 * plan.send_depth) * 2
            }
        };
        let mut builder = CompletionQueue::builder(self.pd.context(), room);
        if plan.wide_cqes {
            builder = builder.cqe_size(CqeSize::B128);
        }
        builder.build().map_err(text("a CQ"))
    }

    fn shared(
        &self,
        plan: &Plan,
        cq: &CompletionQueue,
    ) -> Result<(Option<SharedReceiveQueue>, Option<XrcDomain>)> {
        if !plan.kind.is_shared() {
            return Ok((None, None));
        }
        let builder =
            SharedReceiveQueue::builder(&self.pd).max_wr(plan.receive_depth).max_sge(plan.sges);
        let (builder, domain) = if plan.kind == Kind::Xrc {
            let domain = XrcDomain::new(self.pd.context()).map_err(text("an XRC domain"))?;
            (builder.xrc(&domain, cq), Some(domain))
        } else {
            (builder, None)
        };
        Ok((Some(builder.build().map_err(text("an SRQ"))?), domain))
    }

    /// The target of dynamic connections, in RTR.
    fn target(
        &self,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
    ) -> Result<QueuePair<Dct, Rtr>> {
        let target = QueuePair::dc_target(&self.pd, cq, srq, ACCESS_KEY);
        let target = target.build().map_err(text("a DC target"))?;
        let target = target.init(&self.local.init()).map_err(text("a DC target to INIT"))?;
        let own = self.local.address(&self.local.connection_data_of(0));
        let attributes = DctRtrAttributes {
            path_mtu: self.local.connection_data_of(0).mtu,
            ..DctRtrAttributes::new(own)
        };
        target.rtr(&attributes).map_err(text("a DC target to RTR"))
    }

    /// Connects the answering ends of XRC connections.
    fn answering(
        &mut self,
        plan: &Plan,
        domain: Option<&XrcDomain>,
        requesters: &[ConnectionData],
    ) -> Result<Answering> {
        let (mut made, mut theirs) = (Vec::new(), Vec::new());
        let Some(domain) = domain else { return Ok((made, theirs)) };
        for requester in &requesters[..plan.qps] {
            let target = QueuePair::target(domain).map_err(text("an XRC target"))?;
            let target = target.init(&self.local.init()).map_err(text("XRC target to INIT"))?;
            let mine = self.local.connection_data_of(target.number());
            theirs.push(self.exchange(&mine)?);
            let rtr = self.local.rtr(&mine, requester);
            let target = target.rtr(&rtr).map_err(text("XRC target to RTR"))?;
            let rts = RtsAttributes { timeout: self.timeout, ..self.local.rts(&mine, requester) };
            made.push(target.rts(&rts.into()).map_err(text("XRC target to RTS"))?);
        }
        Ok((made, theirs))
    }

    fn on<T: Form + HasQueues>(&mut self, plan: &Plan) -> Result
    where
        QueuePair<T, Init>: Takes,
        QueuePair<T, Rts>: Sends<T>,
    {
        self.memory.clear();
        let cq = self.cq(plan)?;
        let (srq, domain) = self.shared(plan, &cq)?;
        let mut made = Vec::new();
        for _ in 0..plan.qps {
            let mut builder = QueuePairBuilder::<T>::new(&self.pd, &cq)
                .max_send_wr(plan.send_depth)
                .max_send_sge(plan.sges)
                .max_inline_data(plan.inline);
            builder = T::with_receives(builder, plan, srq.as_ref());
            made.push(T::init(&self.local, builder).map_err(text("a queue pair to INIT"))?);
        }
        let target = match (&srq, plan.kind) {
            (Some(srq), Kind::Dc) => Some(self.target(&cq, srq)?),
            _ => None,
        };
        // The number that messages are addressed to, beside the queue pair's own.
        let number = match (&srq, &target) {
            (_, Some(target)) => target.number(),
            (Some(srq), None) if plan.kind == Kind::Xrc => {
                srq.number().map_err(text("an SRQ's number"))?
            }
            _ => 0,
        };
        let told = self.connection.exchange_data(&number.to_be_bytes());
        let told = told.map_err(text("exchanging numbers"))?;
        let number = u32::from_be_bytes(told[..].try_into().map_err(text("the peer's number"))?);
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for qp in &made {
            let mut endpoint = self.local.connection_data(qp);
            endpoint.region = Some(RemoteRegion::from(self.memory.region()));
            theirs.push(self.exchange(&endpoint)?);
            mine.push(endpoint);
        }
        let (_answering, answers) = self.answering(plan, domain.as_ref(), &theirs)?;
        let numbers: Vec<u32> = if domain.is_some() {
            _answering.iter().map(QueuePair::number).collect()
        } else {
            made.iter().map(QueuePair::number).collect()
        };
        let region = theirs[0].region.ok_or("the peer offers no memory")?;
        let memory = Theirs { start: Remote::new(region.address, region.rkey) };
        let survives = plan.kill.is_some_and(|(killed, _)| killed != self.side);
        // A survivor gives its peer up after half a second in all.
        let timeout = if survives { self.timeout.min(AckTimeout::default()) } else { self.timeout };
        let mut addresses = Vec::new();
        for (at, endpoint) in theirs.iter().enumerate() {
            let endpoint = answers.get(at).unwrap_or(endpoint);
            let peer = Peer { pd: &self.pd, local: &self.local, endpoint, number };
            addresses.push(T::address(&peer)?);
        }
        let to = |at: usize| answers.get(at).unwrap_or(&theirs[at]).clone();
        let local = self.local.clone();
        let up =
            |at: usize, qp| T::rts(&local, qp, &mine[at], &to(at), timeout).map_err(text("to RTS"));
        let mut oracle = Oracle::new(plan, self.side, self.control, &mut self.memory, memory);
        oracle.connected(&numbers);
        match self.side {
            Side::Driver => {
                let mut completions = CqReader::new(&cq).map_err(text("taking over the CQ"))?;
                if plan.publish != 0 {
                    let every = Publish::Every(plan.publish);
                    completions.publish(every).map_err(text("publishing"))?;
                }
                let mut receives = Vec::new();
                let mut shared = None;
                if let Some(srq) = &srq {
                    let config = ReceiveConfig::default();
                    let queue = Srq::new(srq, &mut completions, config);
                    let mut queue = queue.map_err(text("taking over the SRQ"))?;
                    if let Some(target) = &target {
                        queue.attach(target, &mut completions).map_err(text("attaching"))?;
                    }
                    for qp in &made {
                        qp.attach(&mut queue, &mut completions, plan)?;
                    }
                    shared = Some(queue);
                } else {
                    for qp in &made {
                        if let Some(queue) = T::receives(qp, &mut completions) {
                            receives.push(queue.map_err(text("taking over a receive queue"))?);
                        }
                    }
                }
                let sends = Vec::new();
                let mut wire = DriverWire::<T> { completions, sends, receives, shared, addresses };
                oracle.begin(&mut wire)?;
                let mut qps = Vec::new();
                for (at, qp) in made.into_iter().enumerate() {
                    qps.push(up(at, qp)?);
                }
                let mut random = Random::new(&[plan.seed, plan.episode, 8]);
                for qp in &qps {
                    let own = plan.qps == 1 && random.one_in(2);
                    let config = SendConfig {
                        register: if own { RegisterUse::Own } else { RegisterUse::Shared },
                        requests: plan.requests,
                        copy_last: random.one_in(2),
                        ..SendConfig::default()
                    };
                    wire.sends.push(qp.send_queue(&mut wire.completions, config)?);
                }
                run(&mut oracle, &mut wire, &mut self.connection, plan)
            }
            Side::Library => {
                let queues = if srq.is_some() { 1 } else { plan.qps };
                let mut wire = LibraryWire::<T> {
                    cq,
                    waiting: made,
                    qps: Vec::new(),
                    receives: srq.map_or(Receives::Own, Receives::Shared),
                    addresses,
                    depth: plan.send_depth as usize,
                    posted: vec![Vec::new(); plan.qps],
                    room: vec![plan.receive_depth as usize; queues],
                    queue_of: Default::default(),
                };
                oracle.begin(&mut wire)?;
                for (at, qp) in std::mem::take(&mut wire.waiting).into_iter().enumerate() {
                    wire.qps.push(up(at, qp)?);
                }
                let outcome = run(&mut oracle, &mut wire, &mut self.connection, plan);
                // Before the SRQ and the CQ.
                wire.qps.clear();
                drop(target);
                outcome
            }
        }
    }
}

/// The answering ends of XRC connections, and what the peer told of its own.
type Answering = (Vec<QueuePair<XrcRecv, Rts>>, Vec<ConnectionData>);

/// Runs the episode between barriers.
fn run(
    oracle: &mut Oracle<'_>,
    wire: &mut dyn Wire,
    connection: &mut Connection,
    plan: &Plan,
) -> Result {
    let mut barrier =
        |step| connection.barrier(step).map_err(text("waiting for the other process"));
    barrier(1)?;
    let outcome = oracle.run(wire).and_then(|()| {
        if plan.kill.is_none() {
            barrier(2)?;
        }
        oracle.end(wire)
    });
    outcome.map_err(|error| format!("{error}\n{}{}", oracle.describe(), wire.describe()))?;
    if plan.kill.is_none() {
        barrier(3)?;
    }
    Ok(())
}

/// Attaching a queue pair's receives to a shared queue, where the transport has it.
pub trait Takes {
    /// Does so.
    fn attach(&self, queue: &mut Srq, completions: &mut CqReader, plan: &Plan) -> Result;
}

/// Taking over a send queue.
pub trait Sends<T: Form> {
    /// Does so.
    fn send_queue(&self, completions: &mut CqReader, config: SendConfig) -> Result<SendQueue<T>>;
}

macro_rules! transports {
    ($($name:ident)*) => { $(
        impl Sends<$name> for QueuePair<$name, Rts> {
            fn send_queue(
                &self,
                completions: &mut CqReader,
                config: SendConfig,
            ) -> Result<SendQueue<$name>> {
                SendQueue::new(self, completions, config).map_err(text("taking over a send queue"))
            }
        }
    )* };
}

transports!(Rc Uc Ud XrcSend Dci);

macro_rules! takes {
    ($($name:ident)*) => { $(
        impl Takes for QueuePair<$name, Init> {
            fn attach(
                &self,
                queue: &mut Srq,
                completions: &mut CqReader,
                _: &Plan,
            ) -> Result {
                queue.attach(self, completions).map_err(text("attaching"))
            }
        }
    )* };
}

macro_rules! takes_none {
    ($($name:ident)*) => { $(
        impl Takes for QueuePair<$name, Init> {
            fn attach(&self, _: &mut Srq, _: &mut CqReader, _: &Plan) -> Result {
                Ok(())
            }
        }
    )* };
}

takes!(Rc Uc Ud);
takes_none!(XrcSend Dci);
