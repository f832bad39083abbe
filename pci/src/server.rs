//! Serves functions on sockets: a thread for each, and one client after another.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mlx5_model::card::{Bus, Card, Identity};
use mlx5_model::clock::Clock;
use mlx5_model::engine::{Engine, Interrupt, identities};
use mlx5_model::object::Memic;

use crate::function::{self, Function};
use crate::guest::OWN;
use crate::options::Options;
use crate::socket::{self, Message};

/// How long a store waits for another that it may be combined with. A client that emulates the
/// processor takes some microseconds for the next.
const HOLD: Duration = Duration::from_micros(100);

/// How long the server waits in a shortage of descriptors or memory until it tries again. The kernel
/// does not tell when there are some.
const SHORTAGE: Duration = Duration::from_millis(100);

/// A running server.
pub struct Server {
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// Those of binding the sockets, of the engine's own sockets, and of starting threads.
    pub fn start(options: &Options) -> io::Result<Self> {
        let listeners: Vec<UnixListener> =
            options.sockets.iter().map(|path| bind(path)).collect::<io::Result<_>>()?;
        let parts: Vec<_> =
            listeners.iter().map(|_| function::parts()).collect::<io::Result<_>>()?;
        let identities = of_functions(listeners.len(), options);
        let cards = identities.into_iter().zip(&parts).map(|(identity, (memory, _))| {
            let mut card = Card::new(identity, memory.clone(), Clock::real());
            card.set_memic(Memic::at(OWN));
            card.reset();
            card
        });
        let vectors: Vec<_> = parts.iter().map(|(_, vectors)| vectors.clone()).collect();
        let interrupt: Interrupt = Box::new(move |card, _, vector| vectors[card].raise(vector));
        let engine = Engine::connected(&domain(), cards.collect(), interrupt)?;
        let functions = parts.into_iter().enumerate().map(|(card, (memory, vectors))| {
            Function::new(engine.clone(), card, memory, vectors, options.log)
        });
        let threads = listeners.into_iter().zip(functions).enumerate();
        let threads = threads.map(|(index, (listener, function))| {
            std::thread::Builder::new()
                .name(format!("function {index}"))
                .spawn(move || serve(&listener, function))
        });
        Ok(Self { threads: threads.collect::<io::Result<_>>()? })
    }

    /// Serves until the process ends.
    pub fn wait(self) {
        for thread in self.threads {
            // A thread ends only if it cannot accept connections, and has said so.
            let _ = thread.join();
        }
    }
}

/// Returns the identities of functions. On Ethernet the driver sets the GIDs.
fn of_functions(count: usize, options: &Options) -> Vec<Identity> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = now.map_or(0, |since| since.as_nanos() as u64);
    let of_machine = identities(count, options.link, seed);
    let of_function = |mut identity: Identity| {
        identity.gids.truncate(1);
        Identity { bus: Bus::Pci, profile: options.profile, ..identity }
    };
    of_machine.into_iter().map(of_function).collect()
}

/// Returns the name of a fabric that no other server has.
fn domain() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("pci/{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Binds a socket. The socket of a server that has ended is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let bound = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    };
    bound.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Returns whether a path is a socket without a listener.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = || match UnixStream::connect(path) {
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        Ok(_) => false,
    };
    is_socket && refused()
}

/// Accepts a connection. Waits while the process or the machine has no descriptors or memory left.
fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    use io::ErrorKind::{ConnectionAborted, Interrupted};
    let mut explained = false;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if matches!(error.kind(), ConnectionAborted | Interrupted) => {}
            Err(error) if is_shortage(&error) => {
                if !explained {
                    eprintln!("mlx5-model-pci: connections wait: {error}");
                    explained = true;
                }
                std::thread::sleep(SHORTAGE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether a call failed for lack of descriptors or memory, which may be available later.
fn is_shortage(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    error.raw_os_error().is_some_and(|errno| short.contains(&errno))
}

/// Serves one client after another.
fn serve(listener: &UnixListener, mut function: Function) {
    loop {
        let stream = match accept(listener) {
            Ok(stream) => stream,
            Err(error) => {
                eprintln!("mlx5-model-pci: no further connections: {error}");
                return;
            }
        };
        // A defect that one client's requests show must not take the function from the next.
        let served = catch_unwind(AssertUnwindSafe(|| converse(&stream, &mut function)));
        match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("mlx5-model-pci: the connection is closed: {error}"),
            Err(_) => eprintln!("mlx5-model-pci: the connection is closed: internal error"),
        }
        drop(stream);
        let forgotten = catch_unwind(AssertUnwindSafe(|| function.disconnect()));
        if !matches!(forgotten, Ok(Ok(()))) {
            eprintln!("mlx5-model-pci: the function cannot be reset, and is not served any more");
            return;
        }
    }
}

/// Answers requests until the client leaves.
fn converse(stream: &UnixStream, function: &mut Function) -> io::Result<()> {
    loop {
        if function.holds_stores() && !socket::is_ready(stream, HOLD)? {
            function.release_stores();
        }
        let Some(message) = socket::receive(stream)? else { return Ok(()) };
        answer(stream, function, message)?;
    }
}

/// Answers a request.
fn answer(stream: &UnixStream, function: &mut Function, message: Message) -> io::Result<()> {
    let header = message.header;
    if !header.is_command() {
        return Ok(());
    }
    let outcome = function.answer(message);
    if header.wants_reply() {
        let reply = header.reply(outcome.as_deref().map_err(|refusal| *refusal));
        let mut stream = stream;
        stream.write_all(&reply)?;
    }
    Ok(())
}
