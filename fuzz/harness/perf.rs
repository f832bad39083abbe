//! The exchange of `mlx5 perf` over loopback TCP, where the input is what the peer says. No queue is
//! made: each line goes through the same checks as on the server's and on the client's side. The fuzz
//! target and the test that replays its corpus share it.

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mlx5_tools::outcome::Result;
use mlx5_tools::perf::plan::{MOST_MEMORY, Plan};
use mlx5_tools::perf::result::environment::Environment;
use mlx5_tools::perf::session::{self, Account, End, Say, Session, VERSION};

/// Bytes of an input that are sent: the sockets hold them without a reader.
const LONGEST: usize = 1 << 16;
/// Lines that are heard of an input.
const LINES: usize = 64;
/// More than any step takes: the peer has said everything before the first begins.
const PATIENCE: Duration = Duration::from_secs(15);
/// The environment of a side.
const ENVIRONMENT: &str = r#"{"device":"mlx5_0","product":"ConnectX-6","model":true,
    "firmware":"1","port":1,"link_layer":"InfiniBand","link_mbps":100000,"mtu":4096,
    "version":"1","optimized":true}"#;
/// The measurements of a client.
const PLANS: [&str; 2] = [
    r#"{"kind":"lat","operation":"send","carrier":"rc","size":8,"inline":true,
        "batch":1,"signal_every":1,"depth":16,"queue_pairs":1,"threads":1,"amount":{"messages":10},
        "warm_up":0,"validate":false,"via":"direct","service_level":0,"pkey_index":0}"#,
    r#"{"kind":"bw","operation":"write","carrier":"rc","size":64,"inline":false,
        "batch":1,"signal_every":1,"depth":16,"queue_pairs":4,"threads":2,
        "amount":{"nanoseconds":1000000},"warm_up":0,"validate":true,"via":"verbs",
        "service_level":0,"pkey_index":0}"#,
];

/// Runs one side on the input. The first byte chooses this side's part, and whether the peer greets
/// correctly. The rest is what the peer says then, and no more.
pub fn perf(input: &[u8]) {
    let Some((first, said)) = input.split_first() else { return };
    let environment: Environment = serde_json::from_str(ENVIRONMENT).expect("an environment");
    let mut sent = Vec::new();
    if first & 1 == 1 {
        let environment = Box::new(environment.clone());
        let hello = Say::Hello { version: VERSION, environment };
        sent = serde_json::to_vec(&hello).expect("a line");
        sent.push(b'\n');
    }
    sent.extend(&said[..said.len().min(LONGEST)]);

    let (mut session, _peer) = hear(&sent);
    let began = Instant::now();
    let plan = PLANS[usize::from(first >> 2 & 1)];
    let ended = match first & 2 {
        0 => serve(&mut session, &environment),
        _ => measure(&mut session, &environment, &serde_json::from_str(plan).expect("a plan")),
    };
    if let Err(error) = ended {
        assert!(!error.to_string().is_empty());
    }
    // The text of an error has words of the peer, so it cannot tell that the patience has run out.
    assert!(began.elapsed() < PATIENCE, "an input of {} bytes took a side's patience", input.len());
}

/// A session whose peer said all that it says, and the peer's end, which leaves no waiting socket behind
/// when it is closed.
fn hear(sent: &[u8]) -> (Session, TcpStream) {
    static LISTENER: OnceLock<TcpListener> = OnceLock::new();
    let listener = LISTENER.get_or_init(|| TcpListener::bind("127.0.0.1:0").expect("a listener"));
    let mut peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
    super::tcp::reset_on_close(&peer);
    peer.write_all(sent).expect("the peer speaks");
    peer.shutdown(Shutdown::Write).expect("the peer says no more");
    (Session::accept(listener, PATIENCE).expect("a session"), peer)
}

/// The server's side, for as many points as the peer plans.
fn serve(session: &mut Session, mine: &Environment) -> Result<()> {
    session.greet(mine)?;
    for _ in 0..LINES {
        let plan = match session.hear("plan")? {
            Say::Plan { plan } => *plan,
            other => return Err(session::unexpected(&other, "a plan")),
        };
        if plan.check().is_err() {
            return Ok(());
        }
        fits_memory(&plan);
        match session.hear("queue pairs")? {
            Say::Ends { threads, .. } => connects(&threads, &plan)?,
            other => return Err(session::unexpected(&other, "its queue pairs")),
        }
        session.tell(&Say::Ready {})?;
        loop {
            match session.hear("the end")? {
                Say::Going {} => {}
                Say::Finish { sent } if session::fits(&sent, &plan) => {
                    let all: u64 = sent.iter().flatten().sum();
                    let counters = Vec::new();
                    session.tell(&Say::Done {
                        received: all,
                        wrong: 0,
                        counters,
                        back: None,
                        gaps: None,
                    })?;
                    break;
                }
                other => return Err(session::unexpected(&other, "the end")),
            }
        }
    }
    Ok(())
}

/// The client's side, for one plan again and again.
fn measure(session: &mut Session, mine: &Environment, plan: &Plan) -> Result<()> {
    plan.check().expect("the plan can be done");
    session.greet(mine)?;
    let mut wrong_messages = 0;
    for _ in 0..LINES {
        session.tell(&Say::Plan { plan: Box::new(plan.clone()) })?;
        match session.hear("queue pairs")? {
            Say::Ends { threads, cm } => {
                connects(&threads, plan)?;
                session::invitation(cm, plan)?;
            }
            other => return Err(session::unexpected(&other, "its queue pairs")),
        }
        match session.hear("readiness")? {
            Say::Ready {} => {}
            other => return Err(session::unexpected(&other, "that it is ready")),
        }
        session.tell(&Say::Finish { sent: vec![vec![1]] })?;
        let Account { received, wrong, counters, back: _, gaps: _ } =
            session::account(session.hear("account")?, plan)?;
        wrong_messages += wrong;
        assert!(received < 1 << 48 && wrong_messages < 1 << 54);
        for counter in counters {
            assert!(counter.difference() <= counter.after);
        }
    }
    Ok(())
}

/// Checks that the peer's queue pairs are those of the plan, and stay the same when they are sent
/// on.
fn connects(threads: &[Vec<End>], plan: &Plan) -> Result<()> {
    let endpoints = session::endpoints(threads, plan)?;
    assert_eq!(endpoints.len(), plan.threads as usize);
    for endpoint in endpoints.iter().flatten() {
        assert!(endpoint.target < 1 << 24 && endpoint.shared < 1 << 24);
        assert!(endpoint.data.qpn < 1 << 24 && endpoint.data.psn < 1 << 24);
        let region = endpoint.data.region.expect("a region");
        assert!(region.length > 0 && region.address.checked_add(region.length - 1).is_some());
        assert_eq!(End::from(endpoint).endpoint()?, *endpoint);
    }
    Ok(())
}

/// Checks that a plan which passes its check can be laid out in memory and counted.
fn fits_memory(plan: &Plan) {
    let layout = plan.layout().expect("a layout");
    let bytes = (layout.out_bytes() + layout.target_bytes()) as u64;
    assert!(bytes * u64::from(plan.queue_pairs) <= MOST_MEMORY);
    assert!(plan.queues_per_thread() >= 1 && layout.target >= layout.out);
    let stall = plan.stall.map_or(0, |stall| stall.at);
    assert!(plan.warm_up.checked_add(stall).is_some());
}
