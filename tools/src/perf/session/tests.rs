use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use proptest::prelude::*;

use mlx5::connect::{ConnectionData, RemoteRegion};
use mlx5::verbs::attr::Mtu;

use super::lines::{LONGEST, MESSAGES};
use super::*;
use crate::perf::plan::{Connecting, Direction, Plan};
use crate::perf::station::Endpoint;

fn pair() -> (Session, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Session::accept(&listener, Duration::from_secs(2)).unwrap(), stream)
}

#[test]
fn a_peer_that_takes_or_says_nothing_is_given_up_after_the_patience() {
    // Lines until the socket's buffers are full.
    let (mut session, _stream) = pair();
    let why = "x".repeat(LIMIT / 2);
    let refused = (0..100).find_map(|_| session.tell(&Say::Refused { why: why.clone() }).err());
    assert!(refused.unwrap().to_string().contains("took no line within 2s"));
    // Single bytes now and then do not make a line.
    let (mut session, mut stream) = pair();
    let is_over = &std::sync::atomic::AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                stream.write_all(b" ").unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let heard = session.hear("plan");
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        heard
    });
    assert!(heard.unwrap_err().to_string().contains("no plan from the peer within 2s"));
}

#[test]
fn the_kernel_looks_for_a_machine_that_is_gone() {
    let (session, _stream) = pair();
    for (level, option, wanted) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 2),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 4000),
    ] {
        let (mut value, mut length) = (0 as libc::c_int, 4 as libc::socklen_t);
        // SAFETY: the value is an `int` of the given size.
        let got = unsafe {
            let fd = session.stream.tcp.as_raw_fd();
            libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut length)
        };
        assert_eq!((got, value), (0, wanted), "option {option}");
    }
}

#[test]
fn the_word_that_messages_flow_is_one() {
    assert!(matches!(parse(GOING_LINE.trim_ascii_end()).unwrap(), Say::Going {}));
}

fn hears(bytes: &[u8]) -> String {
    let (mut session, mut stream) = pair();
    stream.write_all(bytes).unwrap();
    drop(stream);
    match session.hear("anything") {
        Ok(say) => panic!("{say:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_no_peer_is_refused_in_words() {
    assert!(hears(b"").contains("closed the connection"));
    assert!(hears(b"GET / HTTP/1.1\r\n").contains("nobody understands"));
    assert!(hears(b"{\"say\":\"ready\",\"more\":1}\n").contains("nobody understands"));
    assert!(hears(b"{\"say\":\"refused\",\"why\":\"no device\"}\n").contains("no device"));
    assert!(hears(&vec![b'x'; LIMIT + 5000]).contains("longer than"));
}

proptest! {
    #[test]
    fn whatever_comes_is_a_line_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        // Neither call panics.
        let _ = parse(&bytes);
        let mut line = b"{\"say\":\"ends\",\"threads\":".to_vec();
        line.extend(&bytes);
        let _ = parse(&line);
    }

    #[test]
    fn ends_with_any_numbers_are_refused_or_are_those(
        qpn: u32, psn: u32, mtu: u16, address: u64, length: u64, gid: Option<[u8; 16]>, target: u32,
    ) {
        let end = End {
            qpn, psn, lid: 1, gid, mtu, responder_depth: 0, initiator_depth: 255, address,
            length, rkey: 1, target, shared: 0, frame: None,
        };
        let line = serde_json::to_vec(&Say::Ends { threads: vec![vec![end]], cm: None }).unwrap();
        let Say::Ends { threads, .. } = parse(&line).unwrap() else { panic!("other words") };
        if let Ok(endpoint) = threads[0][0].endpoint() {
            prop_assert!(endpoint.target >> 24 == 0);
            let endpoint = endpoint.data;
            prop_assert!(endpoint.qpn >> 24 == 0 && endpoint.psn >> 24 == 0);
            prop_assert_eq!(endpoint.region.unwrap().length, length);
        }
    }
}

#[test]
fn lines_come_one_by_one_however_they_are_cut() {
    let (mut session, mut stream) = pair();
    stream.write_all(b"{\"say\":\"ready\"}\n{\"say\":\"fin").unwrap();
    assert!(matches!(session.hear("").unwrap(), Say::Ready {}));
    assert!(session.hear_within(Duration::from_millis(1)).unwrap().is_none());
    stream.write_all(b"ish\",\"sent\":[[7]]}\n").unwrap();
    assert!(matches!(session.hear("").unwrap(), Say::Finish { sent } if sent == [[7]]));
}

#[test]
fn an_invitation_is_told_where_the_plan_wants_one_and_nowhere_else() {
    let told = crate::perf::plan::tests::plan();
    let by_cm = Plan { connecting: Connecting::RdmaCm, ..told.clone() };
    let token = vec![1; 16];
    let line = |port: u16, token: &[u8]| -> Result<_> {
        let cm = serde_json::json!({ "port": port, "token": token });
        let line = serde_json::json!({ "say": "ends", "threads": [], "cm": cm });
        match parse(line.to_string().as_bytes())? {
            Say::Ends { cm, .. } => Ok(cm),
            other => panic!("{other:?}"),
        }
    };
    let right = line(7, &token).unwrap();
    assert_eq!(invitation(right, &by_cm).unwrap(), right);
    assert_eq!(invitation(None, &told).unwrap(), None);
    for (cm, plan) in [(None, &by_cm), (right, &told), (line(0, &token).unwrap(), &by_cm)] {
        assert!(invitation(cm, plan).unwrap_err().to_string().contains("rdma_cm"));
    }
    assert!(line(7, &token[1..]).is_err());
}

#[test]
fn numbers_of_messages_that_cannot_be_are_refused() {
    let plan = crate::perf::plan::tests::plan();
    let done = |received, wrong| {
        account(Say::Done { received, wrong, counters: Vec::new(), back: None, gaps: None }, &plan)
    };
    let right = done(MESSAGES - 1, 1).unwrap();
    assert_eq!((right.received, right.wrong), (MESSAGES - 1, 1));
    for (received, wrong) in [(MESSAGES, 0), (0, MESSAGES), (u64::MAX, u64::MAX)] {
        let error = done(received, wrong).unwrap_err().to_string();
        assert!(error.contains("no measurement has so many"), "{error}");
    }
    assert!(account(Say::Ready {}, &plan).unwrap_err().to_string().contains("what it saw is due"));
}

#[test]
fn ends_that_cannot_be_are_refused() {
    let end = || {
        let mut endpoint = Endpoint {
            data: ConnectionData::new(7, Mtu::Mtu1024),
            target: 8,
            shared: 9,
            frame: None,
        };
        endpoint.data.region = Some(RemoteRegion { address: 4096, length: 64, rkey: 1 });
        (End::from(&endpoint), endpoint)
    };
    let (right, endpoint) = end();
    assert_eq!(right.endpoint().unwrap(), endpoint);
    let changes: [fn(&mut End); 6] = [
        |end| end.qpn = 1 << 24,
        |end| end.target = 1 << 24,
        |end| end.shared = 1 << 24,
        |end| end.mtu = 1500,
        |end| end.length = 0,
        |end| end.address = u64::MAX - 3,
    ];
    for change in changes {
        let (mut end, _) = end();
        change(&mut end);
        assert!(end.endpoint().is_err(), "{end:?}");
    }
}

#[test]
fn messages_that_a_server_cannot_have_sent_are_refused() {
    let mut plan = crate::perf::plan::tests::plan();
    let done = |back, plan: &Plan| {
        account(Say::Done { received: 1, wrong: 0, counters: Vec::new(), back, gaps: None }, plan)
    };
    let right = Back { sent: vec![vec![7]], messages: 5, nanoseconds: 9 };
    assert!(done(Some(right.clone()), &plan).is_err(), "one way, it sends none");
    plan.direction = Direction::BothWays;
    assert_eq!(done(Some(right.clone()), &plan).unwrap().back, Some(right.clone()));
    let changes: [fn(&mut Back); 4] = [
        |back| back.sent.push(vec![1]),
        |back| back.sent[0][0] = MESSAGES,
        |back| back.messages = 8,
        |back| back.nanoseconds = LONGEST,
    ];
    for change in changes {
        let mut back = right.clone();
        change(&mut back);
        assert!(done(Some(back), &plan).is_err());
    }
    assert!(done(None, &plan).is_err(), "both ways, it says what it sent");
}
