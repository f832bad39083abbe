//! Examples against Linux's own network stack in another network namespace. They need a namespace of
//! their own, too, whose interface the model's port has.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use rig::PATIENCE;
use rig::host::{HERE, PORT, THERE, cabled};
use rig::process::Process;

/// Returns a UDP socket of the other host, for datagrams to groups as well.
fn socket(host: &rig::host::Host) -> UdpSocket {
    host.within(|| {
        let socket = UdpSocket::bind((THERE, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

/// Asserts that the kernel of this side is a member of a group.
fn assert_joined(group: Ipv4Addr) {
    let groups = std::fs::read_to_string("/proc/net/igmp").unwrap();
    // As the processor has it.
    let number = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    assert!(groups.contains(&number), "{group}: {groups}");
}

#[test]
fn a_linux_kernel_publishes_to_the_feed() {
    cabled(a_linux_kernel_publishes_to_the_feed, |host| {
        let groups = [Ipv4Addr::new(239, 1, 1, 1), Ipv4Addr::new(239, 1, 1, 2)];
        let [a, b] = groups.map(|group| group.to_string());
        let mut feed = Process::example("feed", &[&a, &b, "9000", PORT]);
        feed.address();
        groups.into_iter().for_each(assert_joined);
        let (socket, mut sent) = (socket(host), 0);
        for number in (0..2_000_u64).chain([u64::MAX]) {
            for (group, missing) in groups.into_iter().zip([17, 71]) {
                let is_missing = number % 100 == missing || matches!(number, 1_500 | 1_501);
                if number == u64::MAX || !is_missing {
                    let message = [number.to_be_bytes(), [0x5a; 8]].concat();
                    socket.send_to(&message, (group, 9000)).unwrap();
                    sent += 1;
                    host.keep_up(sent);
                }
            }
        }
        let text = feed.end();
        assert!(text.contains("2000 messages, "), "{text}");
        assert!(text.contains("missing in both: [1500, 1501]\nlost here: 0 (Receiver)"), "{text}");
    });
}

#[test]
fn a_linux_kernel_receives_the_order_of_each_tick() {
    cabled(a_linux_kernel_receives_the_order_of_each_tick, |host| {
        let (feed, socket) = (SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 3), 20_000), socket(host));
        let venue = socket.local_addr().unwrap().to_string();
        let mac = host.mac().map(|byte| format!("{byte:02x}")).join(":");
        let mut trader = Process::example("order_entry", &[PORT, &feed.to_string(), &venue, &mac]);
        assert_eq!(trader.address(), feed.to_string());
        assert_joined(*feed.ip());
        for number in 0..1_000_u64 {
            let price = 10_000 + number * 7919 % 500;
            let tick = [number, price, 0].map(u64::to_be_bytes).concat();
            socket.send_to(&tick, feed).unwrap();
            // The kernel has checked the checksums that the HCA filled in.
            let mut order = [0; 64];
            let (length, from) = socket.recv_from(&mut order).unwrap();
            assert_eq!((length, from.ip()), (24, HERE.into()));
            assert_eq!(order[..24], tick, "number and price");
        }
        let text = trader.end();
        assert!(text.contains("1000 ticks, each answered by its order"), "{text}");
    });
}
