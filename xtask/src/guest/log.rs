//! Logs of the guest's kernel and of the server: lines that fail a scenario, and lines with a known
//! reason.

use crate::Result;

/// A line that is explained.
#[derive(Debug, PartialEq, Eq)]
pub struct Explained {
    /// Text with `*` for any characters, found anywhere in a line.
    pattern: String,
    reason: String,
}

/// Reads a list: lines such as `PATTERN -- REASON`. Lines with `#` and empty lines are left out.
///
/// # Errors
/// A line has no pattern or no reason.
pub fn explained(text: &str) -> Result<Vec<Explained>> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| match line.split_once(" -- ") {
            Some((pattern, reason)) if !pattern.trim().is_empty() && !reason.trim().is_empty() => {
                let (pattern, reason) = (pattern.trim().to_owned(), reason.trim().to_owned());
                Ok(Explained { pattern, reason })
            }
            _ => Err(format!("`{line}` is not of the form `PATTERN -- REASON`")),
        })
        .collect()
}

/// The drivers whose failures count.
const DRIVERS: [&str; 3] = ["mlx5_core", "mlx5_ib", "infiniband"];
/// Words of a driver's failure, in lower case.
const FAILURES: [&str; 7] = ["error", "fail", "timeout", "timed out", "cannot", "unable", "fatal"];
/// Words that only a fault of the kernel, of a driver or of the server prints.
const FAULTS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "Call Trace:",
    "Kernel panic",
    "blocked for more than",
    "left behind",
    "internal error",
    "panicked at",
];

/// The lines that report a fault and are not explained.
pub fn unexplained<'a>(log: &'a str, explained: &[Explained]) -> Vec<&'a str> {
    log.lines()
        .map(str::trim_end)
        .filter(|line| is_fault(line) && !explained.iter().any(|known| known.explains(line)))
        .collect()
}

fn is_fault(line: &str) -> bool {
    let lower = line.to_lowercase();
    FAULTS.iter().any(|fault| line.contains(fault))
        || DRIVERS.iter().any(|driver| line.contains(driver))
            && FAILURES.iter().any(|failure| lower.contains(failure))
}

impl Explained {
    fn explains(&self, line: &str) -> bool {
        let mut rest = Some(line);
        for part in self.pattern.split('*') {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, behind)| behind);
        }
        rest.is_some()
    }

    /// Printed for lines that this explains.
    pub fn note(&self, log: &str) -> Option<String> {
        let count = log.lines().filter(|line| is_fault(line) && self.explains(line)).count();
        (count > 0).then(|| format!("{count} × `{}`: {}", self.pattern, self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[    1.0] Linux version 6.12.1 (debian-kernel@lists.debian.org)
[    1.1] mlx5_core 0000:00:01.0: firmware version: 16.35.2000
[    1.2] mlx5_core 0000:00:01.0: mlx5_cmd_out_err: ACCESS_REG(0x805) op_mod(0x1) failed, status bad\r
[    1.3] infiniband mlx5_0: Couldn't open port 1
[    1.4] mlx5_core 0000:00:01.0: wait_func: MANAGE_PAGES timeout. Will cause a leak
[    1.5] WARNING: CPU: 0 PID: 1 at kernel/irq/msi.c:1
[    1.6] ata1: failed to identify
";

    #[test]
    fn failures_of_the_drivers_and_faults_of_the_kernel_are_found() {
        let found = unexplained(LOG, &[]);
        let of = |text: &str| found.iter().any(|line| line.contains(text));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(of("ACCESS_REG") && of("MANAGE_PAGES") && of("WARNING"));
    }

    #[test]
    fn what_a_driver_leaves_at_the_function_is_a_fault() {
        let log = "mlx5-model-pci: TEARDOWN_HCA: left behind: 2 mkeys\n\
                   mlx5-model-pci: 0x200 CREATE_MKEY op_mod 0x0: status 0x3\n";
        assert_eq!(unexplained(log, &[]).len(), 1);
    }

    #[test]
    fn an_explained_line_is_left_out_and_noted() {
        let list = "# registers\n\nACCESS_REG(0x805)*failed -- the register is optional\n";
        let explained = explained(list).unwrap();
        assert_eq!(unexplained(LOG, &explained).len(), 2);
        let note = explained[0].note(LOG).unwrap();
        assert_eq!(note, "1 × `ACCESS_REG(0x805)*failed`: the register is optional");
        assert_eq!(explained[0].note("mlx5_core failed"), None);
    }

    #[test]
    fn the_parts_of_a_pattern_stand_in_its_order() {
        let explained = explained("failed*ACCESS_REG -- other order").unwrap();
        assert_eq!(unexplained(LOG, &explained).len(), 3);
    }

    #[test]
    fn a_pattern_without_a_reason_is_refused() {
        for text in ["mlx5_core", "mlx5_core --", " -- why", "mlx5_core -- "] {
            assert!(super::explained(text).is_err(), "{text:?}");
        }
    }
}
