//! How the active side reaches the passive one: in this process, or over TCP.

use std::time::Duration;

use mlx5::connect::{ConnectError, Connection};

use crate::agent::Agent;
use crate::message::{
    Answer, Arrival, Arrived, Ask, Door, Key, Kind, Rights, Shape, VERSION, Wake, Window,
};
use crate::report::Environment;
use crate::verdict::{Verdict, failed, holds, lacking, same};

/// The passive side, as the active one sees it.
#[derive(Debug)]
pub enum Peer {
    /// In this process.
    Here(Box<Agent>),
    /// At the other end of a connection.
    There(Box<Connection>),
}

/// How long one side waits for the other's next line. The active side's cases take less.
pub const STEP: Duration = Duration::from_secs(180);

fn line<T: serde::Serialize>(message: &T) -> Verdict<Vec<u8>> {
    Ok(serde_json::to_vec(message)?)
}

/// Answers the questions of a connection until the other side closes it.
///
/// # Errors
/// Fails if the other side does not speak this protocol, or is silent for minutes.
pub fn serve(connection: &mut Connection, agent: &mut Agent) -> Result<(), ConnectError> {
    connection.set_timeout(STEP);
    loop {
        let asked = match connection.exchange_data(b"") {
            Ok(asked) => asked,
            Err(ConnectError::ClosedEarly { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let answer = match serde_json::from_slice::<Ask>(&asked) {
            Ok(ask) => agent.answer(ask),
            Err(error) => Answer::Failed(format!("not a question of this suite: {error}")),
        };
        let mut answer = serde_json::to_vec(&answer).unwrap_or_default();
        if answer.is_empty() || answer.len() > 1024 {
            // Texts of errors have no limit of their own.
            answer = br#"{"failed":"the peer's answer is too long"}"#.to_vec();
        }
        connection.exchange_data(&answer)?;
    }
}

impl Peer {
    /// Asks a question.
    fn ask(&mut self, ask: Ask) -> Verdict<Answer> {
        let answer = match self {
            Peer::Here(agent) => agent.answer(ask),
            Peer::There(connection) => {
                connection.exchange_data(&line(&ask)?)?;
                let answer = connection.exchange_data(b"")?;
                serde_json::from_slice(&answer)
                    .map_err(|error| failed(format!("not an answer of this suite: {error}")))?
            }
        };
        match answer {
            Answer::Failed(why) => Err(failed(why)),
            Answer::Lacking(why) => Err(lacking(why)),
            answer => Ok(answer),
        }
    }

    fn tell(&mut self, ask: Ask) -> Verdict {
        match self.ask(ask)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Exchanges versions, and returns what the other side says of itself.
    pub fn greet(&mut self) -> Verdict<Environment> {
        match self.ask(Ask::Hello { version: VERSION })? {
            Answer::Hello { version, environment } => {
                same(
                    "version of the exchange; use the same build on both sides",
                    version,
                    VERSION,
                )?;
                Ok(*environment)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Has the other side make a queue pair.
    pub fn open(&mut self, kind: Kind, shape: &Shape) -> Verdict<Door> {
        self.door(Ask::Open { kind, shape: *shape })
    }

    fn door(&mut self, ask: Ask) -> Verdict<Door> {
        match self.ask(ask)? {
            Answer::Door(door) => {
                door.data()?;
                Ok(door)
            }
            other => Err(unexpected(&other)),
        }
    }

    pub fn connect(&mut self, door: Door) -> Verdict {
        self.tell(Ask::Connect { door })
    }

    /// Posts a receive.
    pub fn receive(&mut self, id: u64, at: u32, length: u32) -> Verdict {
        self.receive_into(id, &[(at, length)])
    }

    pub fn receive_into(&mut self, id: u64, pieces: &[(u32, u32)]) -> Verdict {
        self.tell(Ask::Receive { id, pieces: pieces.to_vec(), key: Key::Right })
    }

    /// Posts a receive whose key no region has.
    pub fn receive_wrongly(&mut self, id: u64, at: u32, length: u32) -> Verdict {
        self.tell(Ask::Receive { id, pieces: vec![(at, length)], key: Key::Wrong })
    }

    /// Waits for the next completion.
    pub fn next(&mut self) -> Verdict<Arrival> {
        match self.ask(Ask::Next)? {
            Answer::Arrival(Some(arrival)) => Ok(arrival),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for a message in receive `id`.
    pub fn received(&mut self, id: u64, what: Arrived, length: u32) -> Verdict<u32> {
        match self.next()? {
            Arrival::Received { id: met, what: kind, length: bytes, source, .. } => {
                same("the peer's receive", (met, kind, bytes), (id, what, length))?;
                Ok(source)
            }
            other => Err(failed(format!("instead of a message, the peer has {other:?}"))),
        }
    }

    /// Waits for a receive that fails.
    pub fn receive_fails(&mut self, id: u64, status: mlx5::cqe::Status) -> Verdict {
        let expected = Arrival::Failed { id, of_send: false, status: status.name().to_owned() };
        same("the peer's receive", self.next()?, expected)
    }

    /// Checks that no completion waits.
    pub fn is_quiet(&mut self) -> Verdict {
        match self.ask(Ask::Poll)? {
            Answer::Arrival(None) => Ok(()),
            Answer::Arrival(Some(other)) => {
                Err(failed(format!("a completion of the peer that nobody asked for: {other:?}")))
            }
            other => Err(unexpected(&other)),
        }
    }

    pub fn fill(&mut self, at: u32, length: u32, seed: u8) -> Verdict {
        self.tell(Ask::Fill { at, length, seed })
    }

    /// Checks that its memory has a pattern.
    pub fn check(&mut self, at: u32, length: u32, seed: u8) -> Verdict {
        match self.differs(at, length, seed)? {
            None => Ok(()),
            Some((place, byte)) => Err(failed(format!(
                "byte {place} of {length} in the peer's memory at {at} is {byte:#x}"
            ))),
        }
    }

    /// Returns the first byte of its memory that is not that of a pattern, with its place.
    pub fn differs(&mut self, at: u32, length: u32, seed: u8) -> Verdict<Option<(u32, u8)>> {
        match self.ask(Ask::Check { at, length, seed })? {
            Answer::Differs(differs) => Ok(differs),
            other => Err(unexpected(&other)),
        }
    }

    pub fn write(&mut self, at: u32, bytes: &[u8]) -> Verdict {
        self.tell(Ask::Write { at, bytes: bytes.to_vec() })
    }

    /// Checks a few bytes of its memory.
    pub fn has(&mut self, at: u32, expected: &[u8]) -> Verdict {
        match self.ask(Ask::Read { at, length: expected.len() as u32 })? {
            Answer::Bytes(bytes) => {
                same(format!("the peer's memory at {at}"), &bytes[..], expected)
            }
            other => Err(unexpected(&other)),
        }
    }

    pub fn send(&mut self, id: u64, at: u32, length: u32) -> Verdict {
        self.tell(Ask::Send { id, at, length, wake: Wake::Plain })
    }

    pub fn send_solicited(&mut self, id: u64, at: u32, length: u32) -> Verdict {
        self.tell(Ask::Send { id, at, length, wake: Wake::Solicited })
    }

    /// Waits for the success of its own send.
    pub fn sent(&mut self, id: u64) -> Verdict {
        same("the peer's request", self.next()?, Arrival::Sent { id })
    }

    fn name(&mut self, ask: Ask) -> Verdict<String> {
        match self.ask(ask)? {
            Answer::Name(name) => Ok(name),
            other => Err(unexpected(&other)),
        }
    }

    pub fn is_in_state(&mut self, state: mlx5::verbs::attr::QpState) -> Verdict {
        same("the state of the peer's queue pair", self.name(Ask::State)?, format!("{state:?}"))
    }

    /// Waits for an asynchronous event, by the name of its kind.
    pub fn event(&mut self) -> Verdict<String> {
        self.name(Ask::Event)
    }

    pub fn fail(&mut self) -> Verdict {
        self.tell(Ask::Fail)
    }

    pub fn renew(&mut self) -> Verdict<Door> {
        self.door(Ask::Renew)
    }

    /// Has it bind a window, and returns the window's key.
    pub fn bind(
        &mut self,
        window: Window,
        tag: u8,
        at: u32,
        length: u32,
        rights: Rights,
    ) -> Verdict<u32> {
        match self.ask(Ask::Bind { window, tag, at, length, rights })? {
            Answer::Key(rkey) => {
                holds(rkey != 0, "the window has no key")?;
                Ok(rkey)
            }
            other => Err(unexpected(&other)),
        }
    }

    pub fn unbind(&mut self) -> Verdict {
        self.tell(Ask::Unbind)
    }

    /// Has it take TCP segments, too.
    pub fn listen_tcp(&mut self) -> Verdict {
        self.tell(Ask::ListenTcp)
    }

    pub fn limit(&mut self, receives: u32) -> Verdict {
        self.tell(Ask::Limit { receives })
    }

    pub fn close(&mut self) -> Verdict {
        self.tell(Ask::Close)
    }
}

fn unexpected(answer: &Answer) -> crate::verdict::Stop {
    failed(format!("the peer answers another question: {answer:?}"))
}
