//! Ranks that rank 0 starts itself: a list of hosts, and a program such as ssh.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::outcome::{Error, Result};
use crate::output::{say, stderr_of_programs};

/// Most ranks of one host.
const MOST: u32 = 1024;

/// Reads a list of hosts, one a line, with a number of ranks behind it if there are more than one: `c1`,
/// `c2 4`, or `c2 slots=4` as Open MPI writes it. `#` begins a comment.
///
/// # Errors
/// Returns which file cannot be read, or which line is wrong.
pub fn read(file: &Path) -> Result<Vec<String>> {
    let what = format!("--hosts {}", file.display());
    let text =
        std::fs::read_to_string(file).map_err(|error| Error::File { what: what.clone(), error })?;
    let hosts = parse(&text).map_err(|wrong| Error::Usage(format!("{what}, {wrong}")))?;
    if hosts.is_empty() {
        return Err(Error::Usage(format!("{what}: it names no host")));
    }
    Ok(hosts)
}

fn parse(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        let wrong = || format!("line {}: a host and a number of ranks, such as `c1 4`", at + 1);
        let count = match words.next() {
            None => 1,
            Some(word) => {
                let number = word.strip_prefix("slots=").unwrap_or(word);
                number.parse().ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(wrong)?
            }
        };
        if words.next().is_some() || host.starts_with('-') {
            return Err(wrong());
        }
        hosts.extend(std::iter::repeat_n(host.to_owned(), count as usize));
    }
    Ok(hosts)
}

/// The started ranks. Those that still run when this is dropped are ended.
#[derive(Debug, Default)]
pub struct Started(Vec<(u32, String, Child)>);

impl Started {
    /// Starts a rank: `remote HOST COMMAND…`. The secret goes to its standard input.
    ///
    /// # Errors
    /// Returns that the program cannot be started.
    pub fn start(
        &mut self,
        rank: u32,
        host: &str,
        remote: &[String],
        command: &[String],
        secret: &str,
    ) -> Result<()> {
        let Some((program, options)) = remote.split_first() else {
            return Err(Error::Usage("--ssh names no program".to_owned()));
        };
        let mut starting = Command::new(program);
        starting.args(options).arg(host).arg(shell(command));
        // Ctrl-C is for this process alone, which has the others end.
        starting.process_group(0);
        starting.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr_of_programs());
        let mut child = starting.spawn().map_err(|error| {
            Error::Told(format!("rank {rank} on {host}: {program} cannot be started: {error}"))
        })?;
        if let Some(mut input) = child.stdin.take() {
            // If it has ended already, its rank does not come, which the result tells.
            let _ = input.write_all(secret.as_bytes());
        }
        self.0.push((rank, host.to_owned(), child));
        Ok(())
    }

    /// Returns ranks that have ended badly since the last call, and how.
    pub fn ended(&mut self) -> Vec<(u32, String)> {
        let (mut running, mut ended) = (Vec::new(), Vec::new());
        for (rank, host, mut child) in std::mem::take(&mut self.0) {
            match child.try_wait() {
                Ok(Some(status)) if !status.success() => {
                    ended.push((
                        rank,
                        format!("the program that starts it on {host} ended with {status}"),
                    ));
                }
                _ => running.push((rank, host, child)),
            }
        }
        self.0 = running;
        ended
    }

    /// Waits for their ends, for at most this time, and tells who ended badly.
    pub fn finish(mut self, time: Duration) {
        let deadline = Instant::now() + time;
        for (rank, host, child) in &mut self.0 {
            loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(Some(status)) => {
                        say!("rank {rank} on {host} ended with {status}");
                        break;
                    }
                    Ok(None) if Instant::now() < deadline => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.0 {
            if matches!(child.try_wait(), Ok(None)) {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Returns words as one line for a shell.
fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_as_many_ranks_as_their_line_says() {
        let text = "c1\n\n# none\nc2 2 # two\nc3 slots=1\n";
        assert_eq!(parse(text).unwrap(), ["c1", "c2", "c2", "c3"]);
        for wrong in ["c1 x", "c1 0", "c1 2 3", "-oProxyCommand=x", "c1 99999"] {
            assert!(parse(wrong).unwrap_err().contains("line 1"), "{wrong}");
        }
    }

    #[test]
    fn words_reach_the_shell_as_they_are() {
        let words = ["mlx5", "--lat=-s 8", "it's", ""].map(str::to_owned);
        assert_eq!(shell(&words), r"mlx5 '--lat=-s 8' 'it'\''s' ''");
    }
}
