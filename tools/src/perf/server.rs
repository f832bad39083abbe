//! The server's side: it serves the requests of clients, each client on a thread of its own.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::machine::Machine;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Output, say};
use crate::perf::arguments::Local;
use crate::perf::cm::{Answers, Connections, Expected, Invitation, Service};
use crate::perf::interrupt::Interrupt;
use crate::perf::loops::Signals;
use crate::perf::path::Stamping;
use crate::perf::path::request::{Requested, VisitTransport, visit_transport};
use crate::perf::plan::{Connecting, Direction, Plan};
use crate::perf::result::counted;
use crate::perf::result::environment::Environment;
use crate::perf::session::{self, End, Say, Session};
use crate::perf::station::counters::Counters;
use crate::perf::station::paths;
use crate::perf::station::threads::Crew;
use crate::perf::station::{Connector, Connects, Role, Side, Unconnected};
use crate::perf::watch::{Served, Watch};

/// The default port.
pub const PORT: u16 = 18517;

/// Most clients that are served at once.
const MOST_CLIENTS: usize = 64;

/// Answer the measurements of clients
///
/// Start it on the machine at the other end, then run `mlx5 perf lat HOST` and the like on this one.
/// The client says what is measured; the server is told nothing but where its port and its memory are.
/// It serves clients until it is interrupted, or as many as `--clients` says. Each is served at
/// once, so two that measure at the same time share the device and the CPUs. A silent client is given
/// up and does not hold up others. Any program that can reach the port can have this machine send
/// and receive: keep it in your own network.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    listen: String,
    /// The TCP port to listen on; 0 takes one that is free, and prints it
    #[arg(short, long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// End after so many clients
    #[arg(long, value_name = "N")]
    clients: Option<u64>,
    /// Give up a client that is silent for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = session::PATIENCE.as_secs(),
          value_parser = clap::value_parser!(u64).range(5..=3600))]
    patience: u64,
    #[command(flatten)]
    local: Local,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 perf server                        # then, elsewhere: mlx5 perf lat THIS-HOST
  mlx5 perf server --cpu 3 --clients 1    # for one measurement, on CPU 3";

/// The report on a served client.
#[derive(Debug, Serialize)]
struct Report {
    listened: SocketAddr,
    clients: Vec<Client>,
}

#[derive(Debug, Serialize)]
struct Client {
    peer: SocketAddr,
    points: u64,
    received: u64,
    wrong: u64,
    /// Queue pairs that rdma_cm connected.
    by_rdma_cm: u64,
    /// Why it ended early, if it did.
    error: Option<String>,
}

impl Arguments {
    /// Serves.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        machine.say_model();
        let context = machine.open()?;
        let side = self.local.side(context)?;
        let cpus = self.local.cpus()?;
        let address = (self.listen.as_str(), self.port);
        let cannot = |error| {
            Error::Told(format!("cannot listen on {} port {}: {error}", self.listen, self.port))
        };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let listened = listener.local_addr().map_err(cannot)?;
        say!("listening on {listened}");
        let ended = Mutex::new(Vec::new());
        let service = Service::new(listened);
        let host = Host { side: &side, cpus: &cpus, service: &service };
        thread::scope(|scope| self.serve(scope, &listener, host, &ended))?;
        let clients = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        let report = Report { listened, clients };
        output.report("perf server", &report)?;
        if let Some(error) = report.clients.iter().find_map(|client| client.error.as_ref()) {
            return Err(Error::Told(error.clone()));
        }
        let wrong = report.clients.iter().any(|client| client.wrong != 0);
        Ok(if wrong { Outcome::Bad } else { Outcome::Good })
    }
}

impl Arguments {
    /// Accepts clients, and serves each on a thread.
    fn serve<'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        listener: &TcpListener,
        host: Host<'scope>,
        ended: &'scope Mutex<Vec<Client>>,
    ) -> Result<()> {
        static SERVED: AtomicUsize = AtomicUsize::new(0);
        let keeps = self.clients.is_some();
        let mut taken = 0;
        while self.clients.is_none_or(|clients| taken < clients) {
            let mut session = Session::accept(listener, Duration::from_secs(self.patience))?;
            if SERVED.load(Ordering::Relaxed) >= MOST_CLIENTS {
                let why = format!("{MOST_CLIENTS} clients are served already: try again later");
                say!("{}: refused: {why}", session.peer());
                // A failure means that the client is gone.
                let _ = session.tell(&Say::Refused { why });
                continue;
            }
            taken += 1;
            SERVED.fetch_add(1, Ordering::Relaxed);
            let serve = move || {
                let mut client = Client::new(session.peer());
                if let Err(error) = client.serve(&mut session, host) {
                    // Tells the client, if it still listens.
                    let _ = session.tell(&Say::Refused { why: error.to_string() });
                    client.error = Some(error.to_string());
                }
                say!("{client}");
                if keeps {
                    ended.lock().unwrap_or_else(PoisonError::into_inner).push(client);
                }
                SERVED.fetch_sub(1, Ordering::Relaxed);
            };
            let named = thread::Builder::new().name("client".to_owned());
            if let Err(error) = named.spawn_scoped(scope, serve) {
                SERVED.fetch_sub(1, Ordering::Relaxed);
                say!("a client is not served: no thread can be made: {error}");
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = counted(self.clients.len() as u64, "client");
        write!(f, "served {clients} on {}", self.listened)?;
        self.clients.iter().try_for_each(|client| write!(f, "\n  {client}"))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Client { peer, points, received, wrong, by_rdma_cm, error } = self;
        let (points, received) = (counted(*points, "point"), counted(*received, "message"));
        write!(f, "{peer}: {points}, {received} noticed, {wrong} of them wrong")?;
        if *by_rdma_cm != 0 {
            write!(f, "; {} connected by rdma_cm", counted(*by_rdma_cm, "queue pair"))?;
        }
        if let Some(error) = error {
            write!(f, "; {error}")?;
        }
        Ok(())
    }
}

/// Serves one client in a process of its own: the other side of a loop.
///
/// # Errors
/// Returns why it ended early.
pub fn serve_one(listener: &TcpListener, side: &Side, cpus: &[usize]) -> Result<()> {
    let mut session = Session::accept(listener, session::PATIENCE)?;
    let listened = listener.local_addr().map_err(|error| Error::Told(error.to_string()))?;
    serve_link(&mut session, listened, side, cpus)
}

/// Serves the client of a session to its end. `listened` is the address of this side that the client
/// knows.
///
/// # Errors
/// Returns why it ended early.
pub fn serve_link(
    session: &mut Session,
    listened: SocketAddr,
    side: &Side,
    cpus: &[usize],
) -> Result<()> {
    let service = Service::new(listened);
    let mut client = Client::new(session.peer());
    let served = client.serve(session, Host { side, cpus, service: &service });
    if let Err(error) = &served {
        // The client ends with this error.
        let _ = session.tell(&Say::Refused { why: error.to_string() });
    }
    served
}

impl Client {
    fn new(peer: SocketAddr) -> Client {
        Client { peer, points: 0, received: 0, wrong: 0, by_rdma_cm: 0, error: None }
    }

    /// Serves a client until it is done.
    fn serve(&mut self, session: &mut Session, host: Host<'_>) -> Result<()> {
        let Side { context, port, .. } = host.side;
        session.greet(&Environment::of(context, port.attributes().port)?)?;
        loop {
            let plan = match session.hear("plan") {
                Ok(Say::Plan { plan }) => *plan,
                Ok(other) => return Err(session::unexpected(&other, "a plan")),
                // The client has all that it requested.
                Err(_) if self.points != 0 && session.is_over() => return Ok(()),
                Err(error) => return Err(error),
            };
            plan.check().map_err(Error::Told)?;
            let point = visit_transport(&plan, Point { session, host, plan: &plan })?;
            self.points += 1;
            self.received += point.received;
            self.wrong += point.wrong;
            self.by_rdma_cm += point.by_rdma_cm;
        }
    }
}

/// The objects that a server uses for all its clients.
#[derive(Clone, Copy, Debug)]
struct Host<'a> {
    side: &'a Side,
    cpus: &'a [usize],
    service: &'a Service,
}

/// The numbers of one point.
struct Ended {
    received: u64,
    wrong: u64,
    by_rdma_cm: u64,
}

/// One point, on the server's side.
struct Point<'a> {
    session: &'a mut Session,
    host: Host<'a>,
    plan: &'a Plan,
}

impl VisitTransport for Point<'_> {
    type Output = Result<Ended>;

    fn visit<T: Requested>(self) -> Self::Output {
        let Point { session, host: Host { side, cpus, service }, plan } = self;
        let unconnected = paths::unconnected::<T>(side, plan, Role::Server)?;
        let expected = match plan.connecting {
            Connecting::Told => None,
            Connecting::RdmaCm => Some(service.expect(plan.queue_pairs)?),
        };
        session.tell(&ends(&unconnected, expected.as_ref().map(Expected::invitation)))?;
        let theirs = match session.hear("queue pairs")? {
            Say::Ends { threads, cm: None } => session::endpoints(&threads, plan)?,
            other => return Err(session::unexpected(&other, "its queue pairs")),
        };
        let mut answers = expected.map(|expected| expected.answers(side, session));
        let connector = answers.as_mut().map(|answers| answers as &mut dyn Connector);
        let (stamping, role) = (Stamping::Off, Role::Server);
        let (mut paths, counters) =
            paths::connected(side, plan, stamping, role, unconnected, &theirs, connector)?;
        // Disconnects when it is dropped.
        let connections = answers.map(Answers::into_connections);
        let before = counters.read();
        session.tell(&Say::Ready {})?;
        let signals = Signals::new(paths.len(), Interrupt::default());
        let crew = Crew { plan, signals: &signals, cpus };
        let watch = Watch::new(session, plan, &signals);
        let Served { received, wrong, back, gaps } = match plan.direction {
            Direction::OneWay => watch.one_way(&crew, &mut paths),
            Direction::BothWays => watch.both_ways(&crew, &mut paths),
        }?;
        let counters = Counters::changed(&before, &counters.read());
        session.tell(&Say::Done { received, wrong, counters, back, gaps })?;
        let by_rdma_cm = connections.as_ref().map_or(0, Connections::count);
        Ok(Ended { received, wrong, by_rdma_cm })
    }
}

/// Returns the endpoints of a side, for the peer; and of a server, its invitation.
pub fn ends<T: Connects>(threads: &[Unconnected<T>], cm: Option<Invitation>) -> Say {
    let of_thread = |thread: &Unconnected<T>| thread.endpoints.iter().map(End::from).collect();
    Say::Ends { threads: threads.iter().map(of_thread).collect(), cm }
}
