//! Requests of a scenario to the host.

use super::machine::Server;
use crate::Result;

/// Before a request of a scenario.
const HOST: &str = "@host ";

/// The means by which the host grants requests.
pub struct Host<'a> {
    pub server: Option<&'a mut Server>,
}

impl Host<'_> {
    /// Grants the request in a line of a guest, if it is one.
    ///
    /// # Errors
    /// The request is unknown, or cannot be granted.
    pub fn take(&mut self, line: &str) -> Result<bool> {
        let Some(request) = line.strip_prefix(HOST) else { return Ok(false) };
        match (request, self.server.as_mut()) {
            ("kill-server", Some(server)) => server.kill()?,
            ("kill-server", None) => return Err("there is no server to be killed".to_owned()),
            _ => return Err(format!("`{request}` is unknown; the host can kill-server")),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_a_request_are_left_and_unknown_requests_are_refused() {
        let mut host = Host { server: None };
        assert_eq!(host.take("kill-server"), Ok(false));
        assert!(host.take("@host kill-server").unwrap_err().contains("no server"));
        assert!(host.take("@host reboot").unwrap_err().contains("reboot"));
    }
}
