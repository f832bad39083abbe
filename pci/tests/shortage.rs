//! A server without descriptors: connections wait until there are some.

mod support;

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use support::driver::Driver;
use support::{Client, connect_last};

/// How long the server may take for what it does at once.
const LIMIT: Duration = Duration::from_secs(30);

/// A server in its own process, which ends with this value.
struct Server(Child);

impl Server {
    fn start(socket: &Path) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_mlx5-model-pci"));
        program.arg("--function").arg(socket).stderr(Stdio::piped());
        Self(program.spawn().expect("the server starts"))
    }

    /// Sets how many descriptors the process may have. Returns how many it might have before.
    fn limit(&self, most: libc::rlim_t) -> libc::rlim_t {
        let resource = libc::RLIMIT_NOFILE;
        let process = self.0.id() as libc::pid_t;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the calls read and write `limit`.
        unsafe {
            assert_eq!(libc::prlimit(process, resource, std::ptr::null(), &mut limit), 0);
            let before = std::mem::replace(&mut limit.rlim_cur, most);
            assert_eq!(libc::prlimit(process, resource, &limit, std::ptr::null_mut()), 0);
            before
        }
    }

    fn log(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.0.stderr.take().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("the server is killed");
    }
}

/// Connects to a socket as soon as the server listens.
fn connect(socket: &PathBuf) -> Client {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(_) => return Client::connect(socket),
            Err(error) => {
                let early =
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
                assert!(early && start.elapsed() < LIMIT, "{error}");
                std::thread::yield_now();
            }
        }
    }
}

/// Shows that a client is served.
fn works(client: Client) {
    client.stream.set_read_timeout(Some(LIMIT)).unwrap();
    Driver::new(client).boot();
}

#[test]
fn connections_wait_for_descriptors() {
    let name = format!("mlx5-model-pci-{}.shortage", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let mut server = Server::start(&socket);
    let mut log = server.log();
    works(connect(&socket));
    let before = server.limit(0);
    // The server may hold this connection's descriptor already, but not the next one's.
    drop(Client::connect(&socket));
    let client = connect_last(&socket);
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("Too many open files"), "{line}");
    server.limit(before);
    works(client);
}
