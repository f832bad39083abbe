//! Sessions of TCP between two stacks of smoltcp, each over a device of its own, on the model.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5::packet::PacketPort;
use mlx5::verbs::Context;
use mlx5_smoltcp::{Session, SessionDevice};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

/// Faults are those of a device of this process, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn port() -> (PacketPort, MutexGuard<'static, ()>) {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    rig::ethernet::choose();
    assert!(mlx5_model::offered());
    (PacketPort::new(&Context::open_first().unwrap(), 1).unwrap(), alone)
}

/// A stack with one socket.
struct Stack {
    device: SessionDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Stack {
    fn new(port: &PacketPort, session: Session) -> Stack {
        let local = session.local();
        let mut device = SessionDevice::new(port, session).unwrap();
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, now());
        interface.update_ip_addrs(|all| all.push(IpCidr::new(local.ip().into(), 0)).unwrap());
        let buffer = || tcp::SocketBuffer::new(vec![0; 1 << 16]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Stack { device, interface, sockets, handle }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn poll(&mut self) {
        self.interface.poll(now(), &mut self.device, &mut self.sockets);
        self.device.check().unwrap();
    }
}

fn now() -> Instant {
    Instant::now()
}

/// A client and a server, connected. Both are on one port, by its own Ethernet address.
fn connected(port: &PacketPort, address: &str) -> (Stack, Stack) {
    let mac = port.mac().unwrap();
    let ip: IpAddr = address.parse().unwrap();
    // Neither sends to the other before both exist, so the ports are known.
    let reserve = |remote| Session::new(SocketAddr::new(ip, 0), remote, mac).unwrap();
    let probe = reserve(SocketAddr::new(ip, 1));
    let server = probe.local();
    drop(probe);
    let client = reserve(server);
    let server = Session::new(server, client.local(), mac).unwrap();
    let (local, remote) = (client.local(), client.remote());
    let (mut client, mut server) = (Stack::new(port, client), Stack::new(port, server));
    server.socket().listen(remote).unwrap();
    let Stack { interface, sockets, handle, .. } = &mut client;
    sockets.get_mut::<tcp::Socket>(*handle).connect(interface.context(), remote, local).unwrap();
    (client, server)
}

/// Sends so many bytes from one to the other, which sends them back.
fn echo(client: &mut Stack, server: &mut Stack, count: usize) {
    let byte = |at: usize| (at * 7 + at / 251) as u8;
    let (mut sent, mut received) = (0, 0);
    let end = std::time::Instant::now() + Duration::from_secs(100);
    while received < count {
        client.poll();
        server.poll();
        let socket = client.socket();
        if socket.may_send() && sent < count {
            let chunk: Vec<u8> = (sent..count.min(sent + 4000)).map(byte).collect();
            sent += socket.send_slice(&chunk).unwrap();
        }
        let mut got = [0; 4096];
        if socket.can_recv() {
            let length = socket.recv_slice(&mut got).unwrap();
            for (at, value) in got[..length].iter().enumerate() {
                assert_eq!(*value, byte(received + at), "byte {}", received + at);
            }
            received += length;
        }
        let socket = server.socket();
        if socket.can_recv() && socket.can_send() {
            let room = socket.send_capacity() - socket.send_queue();
            let length = socket.recv_slice(&mut got[..room.min(4096)]).unwrap();
            assert_eq!(socket.send_slice(&got[..length]).unwrap(), length);
        }
        assert!(std::time::Instant::now() < end, "{sent} sent, {received} received");
    }
}

#[test]
fn a_session_carries_bytes_both_ways_over_both_versions() {
    let (port, _alone) = port();
    for address in ["127.0.0.1", "::1"] {
        let (mut client, mut server) = connected(&port, address);
        echo(&mut client, &mut server, 1 << 20);
        assert_eq!((client.device.damaged(), server.device.damaged()), (0, 0));
        assert_eq!(client.device.losses().unwrap().packets, 0);
        client.socket().close();
        server.socket().close();
        while client.socket().state() != tcp::State::TimeWait
            && client.socket().state() != tcp::State::Closed
        {
            client.poll();
            server.poll();
        }
    }
}

#[test]
fn a_session_survives_loss_reordering_and_damage() {
    let (port, _alone) = port();
    mlx5_model::set_faults(0, "seed 3; loss 1%; out reorder 2%; out duplicate 1%").unwrap();
    let (mut client, mut server) = connected(&port, "127.0.0.1");
    echo(&mut client, &mut server, 1 << 18);
    mlx5_model::set_faults(0, "").unwrap();
}

/// A namespace with a neighbour, and a gateway behind which all else is.
const NAMESPACE: &str = r#"
    set -e
    ip link add left type veth peer name right
    ip address add 10.77.0.1/24 dev left
    ip link set left up
    ip link set right up
    ip neighbour add 10.77.0.2 lladdr 02:00:00:00:77:02 nud permanent dev left
    ip neighbour add 10.77.0.254 lladdr 02:00:00:00:77:fe nud permanent dev left
    ip route add default via 10.77.0.254
    exec "$0" --exact the_kernel_tells_the_way --nocapture
"#;

#[test]
fn the_kernel_tells_the_way() {
    const MARK: &str = "MLX5_SMOLTCP_TEST_WAY";
    if std::env::var_os(MARK).is_none() {
        let mut shell = rig::host::namespace();
        shell.args(["sh", "-c", NAMESPACE]);
        let output = shell.arg(std::env::current_exe().unwrap()).env(MARK, "1").output().unwrap();
        return assert!(output.status.success(), "{output:?}");
    }
    for (remote, last) in [("10.77.0.2:7000", 0x02), ("192.0.2.1:7000", 0xfe)] {
        let session = Session::to(remote.parse().unwrap()).unwrap();
        assert_eq!(session.next_hop(), [2, 0, 0, 0, 0x77, last], "{remote}");
        assert_eq!(session.local().ip(), IpAddr::from([10, 77, 0, 1]));
        assert_ne!(session.local().port(), 0);
    }
    // Nobody answers for this one.
    let silent = Session::to("10.77.0.9:7000".parse().unwrap()).unwrap_err();
    assert_eq!(silent.kind(), std::io::ErrorKind::NotFound);
    assert!(silent.to_string().contains("10.77.0.9"), "{silent}");
}

#[test]
fn the_kernel_keeps_the_local_port() {
    let mac = [2, 0, 0, 0, 0, 1];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let session = Session::new(local, SocketAddr::from(([127, 0, 0, 1], 9)), mac).unwrap();
    assert_ne!(session.local().port(), 0);
    let taken = std::net::TcpListener::bind(session.local());
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let local = session.local();
    drop(session);
    std::net::TcpListener::bind(local).unwrap();
}
