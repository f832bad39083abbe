//! `mlx5 doctor HOST`: both ends of a link compared, and a message by each transport between them.
//!
//! Both sides do the same steps at the same time over one TCP connection. The peer is not trusted:
//! a message has at most 1024 bytes, each step has a time limit, and the number of steps is fixed.
//! [`facts`] are what a side tells, [`compare`] judges them, [`message`] sends.

mod compare;
mod facts;
mod message;

use std::time::Duration;

use mlx5::connect::{ConnectError, Connection, Listener, LocalPort};
use mlx5::ib::{Rc, Uc, Ud};

use super::check::Check;
use super::report::Report;
use super::situation::Situation;
use super::{Arguments, Verdict};
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Output, say};
use facts::Facts;
use message::Station;

/// A side: its device, and what it tells of itself.
struct Side<'a> {
    station: Station<'a>,
    facts: Facts,
}

impl<'a> Side<'a> {
    /// Takes the first active port of the first device that has one.
    fn choose(situations: &'a [Situation<'a>]) -> Result<Side<'a>> {
        let open =
            || situations.iter().filter_map(|situation| Some((situation, situation.context()?)));
        let ports = open().flat_map(|(situation, context)| {
            situation.ports().into_iter().map(move |port| (situation, context, port))
        });
        let active = ports.clone().find(|(situation, _, port)| situation.is_active(*port));
        let Some((situation, context, port)) = active.or_else(|| ports.clone().next()) else {
            let why = situations.first().map_or("there is no device", |all| all.why_not_open());
            return Err(Error::Told(format!(
                "{why}: `mlx5 doctor` without a host says what is wrong, and the cure"
            )));
        };
        let gid_index = situation.arguments.gid_index.map(u8::try_from).transpose();
        let gid_index = gid_index
            .map_err(|_| Error::Usage("a queue pair takes GID indices up to 255".to_owned()))?;
        let local = LocalPort::new(context, port, gid_index)?;
        let facts = Facts::of(situation, &local);
        Ok(Side { station: Station { context, local }, facts })
    }

    /// Meets the peer: compares both ends, and sends messages.
    fn meet(&self, connection: &mut Connection) -> Result<(Facts, Vec<Check>), ConnectError> {
        let theirs = connection.exchange_data(&self.facts.encode())?;
        let theirs = match Facts::decode(&theirs) {
            Ok(theirs) => theirs,
            Err(why) => return Ok((Facts::default(), vec![compare::stranger(&why)])),
        };
        let mut checks = compare::all(&self.facts, &theirs);
        let station = &self.station;
        let long = usize::from(self.facts.mtu.min(theirs.mtu));
        checks.push(message::between::<Rc>(station, connection, message::LONG)?);
        checks.push(message::between::<Uc>(station, connection, message::LONG)?);
        checks.push(message::between::<Ud>(station, connection, long)?);
        Ok((theirs, checks))
    }
}

/// Returns how long a connection, and each step on it, may take.
fn limit(arguments: &Arguments) -> Duration {
    Duration::from_secs(arguments.limit)
}

/// Compares this end with that of `host`.
pub fn examine(
    arguments: &Arguments,
    host: &str,
    situations: &[Situation],
    output: &Output,
) -> Result {
    let side = Side::choose(situations)?;
    let address = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{}", arguments.tcp_port),
        false => format!("{host}:{}", arguments.tcp_port),
    };
    let mut connection = Connection::connect(address, limit(arguments)).map_err(connecting)?;
    let (theirs, checks) = side.meet(&mut connection).map_err(connecting)?;
    let examined = format!("against {} of {host}", theirs.name());
    let device = Some(format!("{} port {}", side.facts.device, side.facts.port));
    let report = Report::new(examined, vec![(device, checks)], Vec::new(), arguments.verbose);
    output.begin()?;
    output.page("doctor", &report, &report.page())?;
    Ok(if report.counts.broken > 0 { Outcome::Bad } else { Outcome::Good })
}

/// Is the other end for hosts that ask, one after the other.
pub fn listen(arguments: &Arguments, address: &str, situations: &[Situation]) -> Result {
    // Fails with the cause before anything listens.
    Side::choose(situations)?;
    let host = if address.is_empty() { "0.0.0.0" } else { address };
    let listener = Listener::bind(format!("{host}:{}", arguments.tcp_port)).map_err(connecting)?;
    let local = listener.local_address().map_err(connecting)?;
    say!("listening on {local}");
    loop {
        let mut connection = match listener.accept(limit(arguments)) {
            Ok(connection) => connection,
            Err(ConnectError::TimedOut { .. }) => continue,
            Err(error) => return Err(connecting(error)),
        };
        let peer =
            connection.peer_address().map_or_else(|_| "a peer".to_owned(), |at| at.to_string());
        // Chosen anew, since the port's state and addresses change.
        let met = Side::choose(situations).map(|side| side.meet(&mut connection));
        match met {
            Ok(Ok((theirs, checks))) => {
                let wrong = checks.iter().filter(|check| check.verdict == Verdict::Broken);
                let wrong: Vec<&str> = wrong.map(|check| check.check.as_str()).collect();
                match wrong.is_empty() {
                    true => say!("{peer}, {}: traffic works", theirs.name()),
                    false => say!("{peer}, {}: broken: {}", theirs.name(), wrong.join(", ")),
                }
            }
            // The next peer may do better.
            Ok(Err(error)) => say!("{peer}: {error}"),
            Err(error) => say!("{peer}: {error}"),
        }
        if arguments.once {
            return Ok(Outcome::Good);
        }
    }
}

fn connecting(error: ConnectError) -> Error {
    let cure = match error {
        ConnectError::Refused { .. } => "; is `mlx5 doctor --listen` running there?",
        _ => "",
    };
    Error::Told(format!("{error}{cure}"))
}
