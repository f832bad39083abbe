//! The local sockets of the model, and the wait for one of them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;

/// The start of the names of this user's sockets.
pub fn names() -> String {
    format!("{}v2/", names_of_all_formats())
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

/// Returns the name that begins so, among those of this network namespace. Looks until it is there: the
/// kernel makes its list piece by piece, and skips a name if another one is removed meanwhile.
pub fn find(start: &str) -> String {
    let started = Instant::now();
    loop {
        let names = sockets();
        let mut names =
            names.iter().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'));
        if let Some(name) = names.find(|name| name.starts_with(start)) {
            return name.to_owned();
        }
        assert!(started.elapsed() < super::LIMIT, "no socket is named {start}…: {:?}", sockets());
        thread::yield_now();
    }
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
