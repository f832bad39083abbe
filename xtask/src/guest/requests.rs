//! Requests of a scenario to the host: to end the server, and to pull or plug the function.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::machine::Server;
use crate::Result;

/// Before a request of a scenario.
const HOST: &str = "@host ";

/// How long QEMU may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of the function, and of the slot that it is in, at QEMU.
pub const FUNCTION: &str = "function";
pub const SLOT: &str = "port1";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Kills the server.
    KillServer,
    /// Presses the button by which a person asks to pull the function out.
    Unplug,
    /// Plugs the function in again.
    Plug,
}

/// Reads a line of a scenario; `None` if it is no request.
///
/// # Errors
/// The request is unknown.
fn parse(line: &str) -> Result<Option<Request>> {
    let Some(name) = line.strip_prefix(HOST) else { return Ok(None) };
    match name {
        "kill-server" => Ok(Some(Request::KillServer)),
        "unplug" => Ok(Some(Request::Unplug)),
        "plug" => Ok(Some(Request::Plug)),
        _ => Err(format!("`{name}` is unknown; the host can kill-server, unplug and plug")),
    }
}

/// A guest's monitor and the socket of its function.
pub struct Slot {
    pub monitor: PathBuf,
    pub function: Option<PathBuf>,
}

/// The means by which the host grants requests.
pub struct Host<'a> {
    pub server: Option<&'a mut Server>,
    /// One for each guest.
    pub slots: Vec<Slot>,
}

impl Host<'_> {
    /// Grants the request in a line of a guest, if it is one.
    ///
    /// # Errors
    /// The request is unknown, or cannot be granted.
    pub fn take(&mut self, guest: usize, line: &str) -> Result<bool> {
        let Some(request) = parse(line)? else { return Ok(false) };
        let slot = self.slots.get(guest - 1).ok_or("a request of an unknown guest")?;
        match (request, &slot.function, self.server.as_mut()) {
            (Request::KillServer, _, Some(server)) => server.kill()?,
            (Request::Unplug, Some(_), _) => {
                ask(
                    &slot.monitor,
                    &format!(r#"{{"execute":"device_del","arguments":{{"id":"{FUNCTION}"}}}}"#),
                )?;
            }
            (Request::Plug, Some(socket), _) => {
                let device = device(socket);
                ask(&slot.monitor, &format!(r#"{{"execute":"device_add","arguments":{device}}}"#))?;
            }
            _ => return Err(format!("guest {guest} has no function: {line}")),
        }
        Ok(true)
    }
}

/// QEMU's description of the function behind a socket, as JSON.
pub fn device(socket: &Path) -> String {
    let socket = socket.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let socket = format!(r#"{{"type":"unix","path":"{socket}"}}"#);
    format!(r#"{{"driver":"vfio-user-pci","id":"{FUNCTION}","bus":"{SLOT}","socket":{socket}}}"#)
}

/// Gives QEMU a command, in the protocol of its monitor (QMP).
fn ask(monitor: &Path, command: &str) -> Result {
    let failed = |error| format!("the monitor of QEMU, {}: {error}", monitor.display());
    let mut stream = UnixStream::connect(monitor).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut answers = BufReader::new(stream.try_clone().map_err(failed)?).lines();
    for command in [r#"{"execute":"qmp_capabilities"}"#, command] {
        stream.write_all(format!("{command}\n").as_bytes()).map_err(failed)?;
        // Greetings and events stand between the answers.
        let answer = answers.find(|line| match line {
            Ok(line) => line.starts_with(r#"{"return""#) || line.starts_with(r#"{"error""#),
            Err(_) => true,
        });
        let answer = answer.ok_or("the monitor of QEMU was closed")?.map_err(failed)?;
        if answer.starts_with(r#"{"error""#) {
            return Err(format!("QEMU refuses {command}: {answer}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn lines_of_requests_are_read_and_others_are_not() {
        assert_eq!(parse("@host unplug"), Ok(Some(Request::Unplug)));
        assert_eq!(parse("@host kill-server"), Ok(Some(Request::KillServer)));
        assert_eq!(parse("unplug"), Ok(None));
        assert!(parse("@host reboot").unwrap_err().contains("reboot"));
    }

    #[test]
    fn a_request_for_a_function_that_is_not_there_fails() {
        let slots = vec![Slot { monitor: "/none".into(), function: None }];
        let mut host = Host { server: None, slots };
        assert_eq!(host.take(1, "text"), Ok(false));
        for line in ["@host kill-server", "@host unplug", "@host plug"] {
            assert!(host.take(1, line).unwrap_err().contains("no function"), "{line}");
        }
    }

    #[test]
    fn refusals_of_the_monitor_are_errors() {
        let folder = std::env::temp_dir().join(format!("mlx5-monitor-{}", std::process::id()));
        let _ = std::fs::remove_file(&folder);
        let listener = UnixListener::bind(&folder).unwrap();
        let monitor = thread::spawn(move || {
            for answer in [r#"{"return": {}}"#, r#"{"error": {"desc": "no"}}"#] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut commands = BufReader::new(stream.try_clone().unwrap()).lines();
                stream.write_all(b"{\"QMP\": {}}\n").unwrap();
                commands.next().unwrap().unwrap();
                stream.write_all(b"{\"return\": {}}\n").unwrap();
                assert_eq!(commands.next().unwrap().unwrap(), "{command}");
                stream.write_all(format!("{{\"event\": 1}}\n{answer}\n").as_bytes()).unwrap();
            }
        });
        assert_eq!(ask(&folder, "{command}"), Ok(()));
        assert!(ask(&folder, "{command}").unwrap_err().contains("refuses"));
        monitor.join().unwrap();
        std::fs::remove_file(&folder).unwrap();
    }
}
