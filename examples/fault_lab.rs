//! Shows how a program sees and handles each fault: lost packets, a pulled cable, a CQ overrun, a
//! command without an answer, a device failure.
//!
//! The software ConnectX makes the faults: each step is a process of its own, whose environment has
//! the rule (docs/model.md, "Faults"). The steps themselves do not know who makes them.
//!
//! All steps: `cargo run --example fault_lab`

use std::env;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::{AckTimeout, RtsAttributes};
use mlx5::verbs::{CompletionQueue, Context, Init, MemoryRegion, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::RdmaWrite;
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A step: name, the fault, and the program.
type Step = (&'static str, &'static str, fn(&Lab) -> Result<()>);

const STEPS: [Step; 6] = [
    ("late", "out packet 1-2 loss", late),
    ("lost", "out packet 1-3 loss", lost),
    ("cable", "command alloc_pd 2 flap for 100ms", cable),
    ("overrun", "command alloc_pd 2 overrun cq", overrun),
    ("command", "command create_qp 1 timeout", command),
    ("device", "command alloc_pd 2 fatal", device),
];

const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    if let Some(name) = env::args().nth(1) {
        let step = STEPS.iter().find(|step| step.0 == name).ok_or("no such step")?;
        return (step.2)(&Lab::new()?);
    }
    for (name, fault, _) in STEPS {
        println!("\n{name}: {fault}");
        let mut step = Command::new(env::current_exe()?);
        let step = step.arg(name).env("MLX5_MODEL", "always").env("MLX5_MODEL_FAULTS", fault);
        // As many tries as the specification has. Devices with RoCE add some.
        let step = step.env("MLX5_MODEL_TIMEOUTS", "specification");
        if !step.status()?.success() {
            return Err(format!("the step {name} failed").into());
        }
    }
    Ok(())
}

/// Two packets are lost. The device sends them again: the program sees only that it took longer.
fn late(lab: &Lab) -> Result<()> {
    let mut connection = lab.connect()?;
    let start = Instant::now();
    connection.write(lab)?;
    let outcome = connection.outcome(TIMEOUT)?.ok_or("no completion")?;
    let waited = start.elapsed().as_millis();
    println!("  completion: {}, after {waited} ms", name_of(&outcome));
    Ok(())
}

// ANCHOR: lost
/// Each try of a WRITE is lost. The request fails, and the queue pair with it: connect anew.
fn lost(lab: &Lab) -> Result<()> {
    let mut connection = lab.connect()?;
    connection.write(lab)?;
    let Outcome::Failed(failure) = connection.outcome(TIMEOUT)?.ok_or("no completion")? else {
        return Err("the write was not lost".into());
    };
    println!("  failure: {}, vendor syndrome {:#x}", failure.status.name(), failure.vendor_error);
    lab.recover(connection)
}
// ANCHOR_END: lost

/// The cable is pulled and plugged in again. What is under way is sent again: nothing to do, as long
/// as the tries last longer than the fault.
fn cable(lab: &Lab) -> Result<()> {
    let mut connection = lab.connect_with(7)?;
    lab.provoke();
    connection.write(lab)?;
    lab.print_events(2)?;
    println!("  completion: {}", name_of(&connection.outcome(TIMEOUT)?.ok_or("no completion")?));
    Ok(())
}

/// A CQ overran. It never completes anything again, and its queue pairs fail: make both anew.
fn overrun(lab: &Lab) -> Result<()> {
    let connection = lab.connect()?;
    lab.provoke();
    // Both queues of both sides, and both queue pairs.
    lab.print_events(4)?;
    lab.recover(connection)
}

/// The firmware does not answer a command. The kernel gives up waiting, and the object does not
/// exist for the program: ask again, or report the device as broken.
fn command(lab: &Lab) -> Result<()> {
    match lab.connect() {
        Ok(_) => return Err("the command was answered".into()),
        Err(error) => println!("  error: {error}"),
    }
    lab.connect()?.write(lab)?;
    println!("  the second try: connected");
    Ok(())
}

// ANCHOR: device
/// The device failed. It completes nothing, and executes only commands that free objects: end, and
/// open the device again after the driver has reset it.
fn device(lab: &Lab) -> Result<()> {
    let mut connection = lab.connect()?;
    lab.provoke();
    lab.print_events(1)?;
    connection.write(lab)?;
    // After some million polls that find nothing, the crate asks whether the device works.
    let error = loop {
        match connection.client.poll_one() {
            Ok(Some(_)) => return Err("the device completes requests".into()),
            Ok(None) => {}
            Err(error) => break error,
        }
    };
    println!("  poll: {error}");
    match lab.connect() {
        Ok(_) => return Err("the device makes objects".into()),
        Err(error) => println!("  error: {error}"),
    }
    Ok(())
}
// ANCHOR_END: device

/// The device, and what all steps use.
struct Lab {
    context: Context,
    port: LocalPort,
    pd: ProtectionDomain,
    board: MemoryRegion,
}

impl Lab {
    fn new() -> Result<Lab> {
        let context = Context::open_first()?;
        let port = LocalPort::new(&context, 1, None)?;
        let pd = ProtectionDomain::new(&context)?;
        let board = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Lab { context, port, pd, board })
    }

    fn connect(&self) -> Result<Connection> {
        self.connect_with(2)
    }

    /// Connects a client to a server that it can WRITE to. A request is tried 1 + `retries` times.
    fn connect_with(&self, retries: u8) -> Result<Connection> {
        let (qp, cq) = self.queue_pair()?;
        let (server, server_cq) = self.queue_pair()?;
        let (mine, theirs) = (self.port.connection_data(&qp), self.port.connection_data(&server));
        let server = server.rtr(&self.port.rtr(&theirs, &mine))?;
        let server = server.rts(&self.port.rts(&theirs, &mine))?;
        let mut completions = CqReader::new(&cq)?;
        let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
        let tries = RtsAttributes {
            timeout: AckTimeout::at_least(Duration::from_millis(20)),
            retry_cnt: retries,
            ..self.port.rts(&mine, &theirs)
        };
        let qp = qp.rtr(&self.port.rtr(&mine, &theirs))?.rts(&tries)?;
        let client = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
        let memory = Some(MrSlice::new(self.pd.allocate(64, Access::LOCAL_WRITE)?));
        Ok(Connection { client, memory, _server: (server, server_cq) })
    }

    fn queue_pair(&self) -> Result<(QueuePair<Rc, Init>, CompletionQueue)> {
        let cq = CompletionQueue::new(&self.context, 16)?;
        let qp = QueuePair::builder(&self.pd, &cq).max_send_wr(4).max_recv_wr(4).build()?;
        Ok((qp.init(&self.port.init())?, cq))
    }

    /// Gives a broken connection up, with the memory of its requests, and makes another one.
    fn recover(&self, connection: Connection) -> Result<()> {
        let closed = connection.client.close()?;
        println!("  closed: {} requests were under way", closed.sends.len());
        drop((closed, connection._server));
        let mut connection = self.connect()?;
        connection.write(self)?;
        let outcome = connection.outcome(TIMEOUT)?.ok_or("no completion")?;
        println!("  a new connection: {}", name_of(&outcome));
        Ok(())
    }

    /// Gives the command at which the rules of some steps let their fault happen.
    fn provoke(&self) {
        match ProtectionDomain::new(&self.context) {
            Ok(_) => println!("  another protection domain: made"),
            Err(error) => println!("  another protection domain: {error}"),
        }
    }

    /// Prints the next asynchronous events, this many.
    fn print_events(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            let event = self.context.async_event(TIMEOUT)?.ok_or("no event")?;
            println!("  event: {}", event.explanation().map_or("unknown", |(name, _)| name));
        }
        Ok(())
    }
}

/// A client, and a server that only has to be there.
struct Connection {
    client: Endpoint,
    memory: Option<MrSlice>,
    _server: (QueuePair<Rc, Rts>, CompletionQueue),
}

impl Connection {
    /// Posts a WRITE to the server.
    fn write(&mut self, lab: &Lab) -> Result<()> {
        let memory = self.memory.take().ok_or("one write each connection")?;
        let place = lab.board.remote(0)?;
        Ok(self.client.post(1, RdmaWrite::new(memory, place).signaled())?)
    }

    /// Returns the outcome of the oldest request; `None` if it takes too long.
    fn outcome(&mut self, patience: Duration) -> Result<Option<Outcome>> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(returned) = self.client.poll().next() {
                return Ok(Some(returned?.outcome));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }
}

fn name_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Failed(failure) => failure.status.name(),
        _ => "success",
    }
}
