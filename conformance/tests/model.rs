//! The suite on the model: every bed's way to the passive side, a hostile active side, and runs that do
//! something wrong on purpose.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use mlx5::connect::{Connection, Listener};
use mlx5_conformance::report::{Environment, Front, Reach, Report, Result as Ended};
use mlx5_conformance::{Agent, Other, PATIENCE, Place, Run, Spoiled, Terms, all, serve};

const STEP: Duration = Duration::from_secs(30);

/// A shape of queues as it is asked for, but for their size.
const SHAPE: &str = "\"by\":\"verbs\",\"send_record\":\"kept\",\"receiving\":\"own\",\"recv_wr\":64,\"sge\":4,\"inline\":64,\
        \"cqes\":255,\"wide_cqes\":false,\"compression\":null,\"scatter\":\"receives\",\
        \"region\":{\"read\":true,\"write\":true,\"atomic\":true,\"bind\":false},\
        \"queue_pair\":{\"read\":true,\"write\":true,\"atomic\":true,\"bind\":false},\
        \"rnr_micros\":10,\"rnr_retries\":7,\"timeout_micros\":67000,\"retries\":7";

/// On a port of Ethernet no case is left out.
static ETHERNET: LazyLock<()> = LazyLock::new(|| {
    // SAFETY: every test comes through here before it calls anything that reads the environment.
    unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
});

fn place() -> Place {
    LazyLock::force(&ETHERNET);
    Place { device: None, port: 1, gid_index: None }
}

fn front() -> Front {
    LazyLock::force(&ETHERNET);
    Front::Model(mlx5_model::profile().expect("the model"))
}

fn agent() -> Agent {
    let environment = Environment::of(&place().open().unwrap(), 1, front()).unwrap();
    let terms = Terms { patience: PATIENCE, spoiled: Spoiled::Nothing };
    Agent::new(place(), terms, environment)
}

/// A passive side behind a TCP port, for one active side.
fn listening() -> (SocketAddr, thread::JoinHandle<Result<(), String>>) {
    LazyLock::force(&ETHERNET);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let serving = thread::spawn(move || {
        let mut connection = listener.accept(STEP).unwrap();
        serve(&mut connection, &mut agent()).map_err(|error| error.to_string())
    });
    (address, serving)
}

fn failures(report: &Report) -> Vec<(&str, &str)> {
    let failed = report.cases.iter().filter(|row| row.result == Ended::Failed);
    failed.map(|row| (&row.case[..], row.reason.as_deref().unwrap_or_default())).collect()
}

#[test]
fn all_cases_pass_with_the_passive_side_behind_tcp() {
    let (address, serving) = listening();
    let connection = Connection::connect(address, STEP).unwrap();
    let run = Run::new(place(), front(), Other::Host(Box::new(connection)));
    let report = run.run(|_| {}).unwrap();
    assert_eq!(failures(&report), []);
    assert!(report.is_good() && report.reach == Reach::Hosts && report.passive.is_some());
    assert_eq!(report.active.profile.as_deref(), Some("profile complete, assumed"));
    let first = report.to_string().lines().next().unwrap_or_default().to_owned();
    assert!(first.ends_with("inside the process, profile complete, assumed"), "{first}");
    assert_eq!(report.counts.not_applicable, 0);
    serving.join().unwrap().unwrap();
}

#[test]
fn all_cases_pass_with_the_passive_side_on_another_place() {
    let run = Run::new(place(), front(), Other::Port(place()));
    let report = run.run(|_| {}).unwrap();
    assert_eq!(failures(&report), []);
    assert!(report.reach == Reach::Ports && report.counts.passed > 100);
}

#[test]
fn passive_sides_on_one_port_want_packets_of_different_numbers() {
    let ports = || {
        let (address, _serving) = listening();
        let mut connection = Connection::connect(address, STEP).unwrap();
        let question =
            format!("{{\"open\":{{\"kind\":\"ethernet\",\"shape\":{{{SHAPE},\"send_wr\":64}}}}}}");
        connection.exchange_data(question.as_bytes()).unwrap();
        let door = String::from_utf8(connection.exchange_data(b"").unwrap()).unwrap();
        let number = |name: &str| -> u16 {
            let (_, rest) = door.split_once(&format!("\"{name}\":")).expect(&door);
            rest.split([',', '}']).next().unwrap().parse().unwrap()
        };
        (connection, [number("udp_port"), number("tcp_port"), number("unwanted")])
    };
    let (one, other) = (ports(), ports());
    for (first, second) in one.1.iter().zip(other.1) {
        assert_ne!(*first, second);
    }
    assert_ne!(one.1[0], one.1[2]);
}

#[test]
fn questions_that_no_active_side_asks_are_refused_and_do_no_harm() {
    let (address, serving) = listening();
    let mut connection = Connection::connect(address, STEP).unwrap();
    let mut ask = |question: &str| {
        connection.exchange_data(question.as_bytes()).unwrap();
        String::from_utf8(connection.exchange_data(b"").unwrap()).unwrap()
    };
    for (question, words) in [
        ("", "not a question"),
        ("{", "not a question"),
        ("\"shut-down\"", "not a question"),
        ("{\"read\":{\"at\":0,\"length\":4,\"more\":1}}", "not a question"),
        ("{\"read\":{\"at\":-1,\"length\":4}}", "not a question"),
        ("\"next\"", "before a queue pair"),
    ] {
        let answer = ask(question);
        assert!(answer.contains(words), "{question}: {answer}");
    }
    let open =
        |size| format!("{{\"open\":{{\"kind\":\"rc\",\"shape\":{{{SHAPE},\"send_wr\":{size}}}}}}}");
    assert!(ask(&open(100_000_000)).contains("no case has queues"));
    let door = ask(&open(64));
    assert!(door.contains("\"door\""), "{door}");
    let most = u32::MAX;
    for (question, words) in [
        (format!("{{\"read\":{{\"at\":{most},\"length\":{most}}}}}"), "not in the memory"),
        ("{\"read\":{\"at\":0,\"length\":65536}}".to_owned(), "more bytes than"),
        (format!("{{\"fill\":{{\"at\":1,\"length\":{most},\"seed\":0}}}}"), "not in the memory"),
        ("{\"write\":{\"at\":65535,\"bytes\":[1,2]}}".to_owned(), "not in the memory"),
        (
            "{\"send\":{\"id\":1,\"at\":65536,\"length\":1,\"wake\":\"plain\"}}".to_owned(),
            "not in the",
        ),
        ("\"unbind\"".to_owned(), "no window"),
        ("{\"limit\":{\"receives\":1}}".to_owned(), "no shared receive queue"),
        (
            door.replace("{\"door\":{", "{\"connect\":{\"door\":{\"more\":1,") + "}",
            "not a question",
        ),
    ] {
        let answer = ask(&question);
        assert!(answer.contains(words), "{question}: {answer}");
    }
    let mut far = serde_json::from_str::<serde_json::Value>(&door).unwrap();
    far["door"]["qpn"] = (1_u32 << 24).into();
    let answer = ask(&serde_json::json!({ "connect": far }).to_string());
    assert!(answer.contains("24 bits"), "{answer}");
    // The next active side finds all as it was.
    assert_eq!(ask("\"close\""), "\"done\"");
    drop(connection);
    serving.join().unwrap().unwrap();
}

/// The cases that pass although something is wrong on purpose.
fn unnoticed(spoiled: Spoiled) -> BTreeSet<String> {
    let mut run = Run::new(place(), front(), Other::Loopback);
    run.spoiled = spoiled;
    // On the model, a completion that is not there soon does not come.
    run.patience = Duration::from_millis(150);
    let report = run.run(|_| {}).unwrap();
    let passed = report.cases.iter().filter(|row| row.result == Ended::Passed);
    passed.map(|row| row.case.clone()).collect()
}

/// Each case fails in at least one of the runs in which requests do nothing, the peer's bytes are wrong,
/// or completions and events of either side are.
#[test]
fn every_case_notices_something_that_is_wrong() {
    let mut left = all().map(|case| case.name.to_owned()).collect::<BTreeSet<_>>();
    for spoiled in [Spoiled::Requests, Spoiled::Memory, Spoiled::Completions, Spoiled::Own] {
        let passed = unnoticed(spoiled);
        left.retain(|case| passed.contains(case));
    }
    // One reads capabilities alone. The other makes requests of its own, which are not spoiled.
    assert_eq!(left.into_iter().collect::<Vec<_>>(), ["devx.capabilities", "endpoint.failure"]);
}
