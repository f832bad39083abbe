//! The arguments, and the task that a client sends to its server.

use std::str::FromStr;
use std::{env, fmt};

use crate::Result;

/// The operation that the client requests.
#[derive(Clone, Copy)]
pub struct Task {
    pub mode: Mode,
    pub size: usize,
    pub iterations: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Mode {
    Send,
    Write,
    Read,
}

impl Task {
    /// From what a client says, which is not trusted.
    pub fn from_bytes(bytes: &[u8]) -> Result<Task> {
        let text = std::str::from_utf8(bytes)?;
        match text.split(' ').collect::<Vec<_>>()[..] {
            [mode, size, "bytes,", iterations, "rounds"] => {
                Task { mode: mode.parse()?, size: size.parse()?, iterations: iterations.parse()? }
                    .checked()
            }
            _ => Err(format!("the client asks for {text:?}: is it rc_pingpong?").into()),
        }
    }

    fn checked(self) -> Result<Task> {
        if self.size == 0 || self.size > 1 << 30 {
            return Err(format!("--size {}: it is 1 to {}", self.size, 1 << 30).into());
        }
        if self.iterations == 0 {
            return Err("--iters 0: at least one is needed".into());
        }
        Ok(self)
    }

    /// From one slot to the next.
    pub fn stride(&self) -> usize {
        self.size.next_multiple_of(64)
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Send => "send",
            Mode::Write => "write",
            Mode::Read => "read",
        };
        write!(f, "{mode} {} bytes, {} rounds", self.size, self.iterations)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Mode, String> {
        match text {
            "send" => Ok(Mode::Send),
            "write" => Ok(Mode::Write),
            "read" => Ok(Mode::Read),
            _ => Err(format!("mode {text:?}: it is send, write or read")),
        }
    }
}

/// The options, as `--help` prints them.
const HELP: &str = "\
Ping-pong over a reliable connection, posted and polled directly: latency and rate.

  rc_pingpong --listen ADDRESS[:PORT]        the server; prints where it listens
  rc_pingpong --connect ADDRESS:PORT         the client, which chooses the test

Options of the client:
  --mode send|write|read    the operation (send)
  --size BYTES              the size of a message (64)
  --iters N                 the number of rounds (10000)

Options of both sides:
  --inline                  put the payload inside the WQE
  --signal-every N          let every Nth request make a completion (1)
  --device NAME             the device (the first one)
  --port N                  its port (1)
  --gid-index N             the GID of that port (chosen by the program)
  --help                    print this
";

/// The arguments.
pub struct Options {
    pub listen: Option<String>,
    pub connect: Option<String>,
    pub task: Task,
    pub inline: bool,
    pub signal_every: u64,
    pub device: Option<String>,
    pub port: u8,
    pub gid_index: Option<u8>,
}

impl Options {
    /// Reads the program's arguments. `None` if they ask for the help, which is printed then.
    pub fn from_arguments() -> Result<Option<Options>> {
        let mut options = Options {
            listen: None,
            connect: None,
            task: Task { mode: Mode::Send, size: 64, iterations: 10_000 },
            inline: false,
            signal_every: 1,
            device: None,
            port: 1,
            gid_index: None,
        };
        let mut arguments = env::args().skip(1);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--help" | "-h" => {
                    print!("{HELP}");
                    return Ok(None);
                }
                "--inline" => options.inline = true,
                "--listen" => options.listen = Some(value()?),
                "--connect" => options.connect = Some(value()?),
                "--mode" => options.task.mode = value()?.parse()?,
                "--size" => options.task.size = number(&name, &value()?)?,
                "--iters" => options.task.iterations = number(&name, &value()?)?,
                "--signal-every" => options.signal_every = number(&name, &value()?)?,
                "--device" => options.device = Some(value()?),
                "--port" => options.port = number(&name, &value()?)?,
                "--gid-index" => options.gid_index = Some(number(&name, &value()?)?),
                _ => return Err(format!("there is no option {name}\n\n{HELP}").into()),
            }
        }
        if options.signal_every == 0 {
            return Err("--signal-every 0: the last request at least must make a completion".into());
        }
        options.task.checked()?;
        Ok(Some(options))
    }
}

/// Reads the value of a numeric option.
fn number<T: FromStr<Err: fmt::Display>>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|error| format!("{name} {value}: {error}").into())
}
