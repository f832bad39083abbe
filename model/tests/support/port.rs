//! TCP ports for programs that take a port as an argument and do not report when they listen.

use std::fs;
use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;

/// Below what Linux gives to outgoing connections, so that none takes a port in between.
const FIRST: u32 = 18_600;
const COUNT: u32 = 14_000;

/// Returns a port without a listener, different at each call.
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test binaries that run at the same time start at different places.
    let offset = process::id().wrapping_mul(37);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + offset.wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("the range ends below 65536");
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
    panic!("no free TCP port from {FIRST} on");
}

/// Returns once a process listens on `port`. The kernel's socket tables tell, since a connection
/// made to find out would be taken for the client.
///
/// # Panics
/// If the server ends first, or after `limit`.
pub fn wait_for_listener(port: &str, server: &mut Process, limit: Duration) {
    let port: u16 = port.parse().expect("a port number");
    let started = Instant::now();
    while !is_listening(port) {
        // Either way the client, started now, fails to connect, and both outputs are shown.
        if server.has_ended() || started.elapsed() > limit {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn is_listening(port: u16) -> bool {
    let local = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let address = fields.next().unwrap_or_default();
            // The remote address lies between; 0A is TCP_LISTEN.
            address.ends_with(&local) && fields.nth(1) == Some("0A")
        })
    })
}

/// The start of the names of this user's sockets.
pub fn names() -> String {
    format!("{}v1/", names_of_all_formats())
}

/// The start of the names of this user's sockets in all formats.
pub fn names_of_all_formats() -> String {
    // SAFETY: geteuid passes no memory and cannot fail.
    format!("mlx5-model/{}/", unsafe { libc::geteuid() })
}

/// The lines of `/proc/net/unix` about sockets of the model.
pub fn sockets() -> Vec<String> {
    let list = fs::read("/proc/net/unix").expect("the kernel lists local sockets");
    let list = String::from_utf8_lossy(&list);
    list.lines().filter(|line| line.contains("@mlx5-model/")).map(str::to_owned).collect()
}

/// Returns once `ready` holds, or the process has ended: what comes then fails, and both outputs
/// are shown.
pub fn wait(process: &mut Process, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() && !process.has_ended() && started.elapsed() < super::LIMIT {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns once a process listens for the service of a port in any port space. The name of its
/// socket ends with the port.
pub fn wait_for_service(port: &str, server: &mut Process) {
    /// `__SO_ACCEPTCON`
    const LISTENS: &str = " 00010000 ";
    let port: u16 = port.parse().expect("a port number");
    let end = format!("{port:04x}");
    wait(server, || {
        sockets()
            .iter()
            .any(|line| line.contains("/cm/") && line.ends_with(&end) && line.contains(LISTENS))
    });
}
