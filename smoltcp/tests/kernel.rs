//! The example `tcp_order` against Linux's own TCP, in another network namespace.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use rig::host::{HERE, PORT, THERE, cabled};
use rig::process::Process;

#[test]
fn a_linux_kernel_acknowledges_each_order() {
    cabled(a_linux_kernel_acknowledges_each_order, |host| {
        let listener = host.within(|| TcpListener::bind((THERE, 0)).unwrap());
        let venue = listener.local_addr().unwrap().to_string();
        let venue_thread = thread::spawn(move || acknowledge(&listener));
        let text = Process::example("tcp_order", &[PORT, &venue]).end();
        assert!(text.contains("500 orders, each acknowledged"), "{text}");
        assert!(text.contains("packets lost here: 0, damaged: 0"), "{text}");
        assert_eq!(venue_thread.join().unwrap(), 500);
    });
}

/// Acknowledges the orders of one session until its end, and returns how many it had.
fn acknowledge(listener: &TcpListener) -> u64 {
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), HERE);
    stream.set_nodelay(true).unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut orders = 0;
    for line in lines {
        let price = 10_000 + orders % 500;
        assert_eq!(line.unwrap(), format!("{orders} buy 100 at {price}"));
        writeln!(stream, "{orders} accepted").unwrap();
        orders += 1;
    }
    orders
}
