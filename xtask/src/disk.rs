//! The disk that is left to build on.

use std::process::{Command, Stdio};

use crate::build;

/// Less than this, in bytes, lets a linker fail without a word about the disk.
const LITTLE: u64 = 1 << 30;

/// Returns the free bytes of the workspace's disk. `None` if `df` does not tell.
pub fn left() -> Option<u64> {
    let mut df = Command::new("df");
    df.args(["--output=avail", "--block-size=1"]).arg(build::root());
    let output = df.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// The number below the heading of `df`.
fn parse(text: &str) -> Option<u64> {
    text.lines().nth(1)?.trim().parse().ok()
}

/// Returns the words about what is left, as the end of a line.
pub fn in_words(left: Option<u64>) -> String {
    left.map_or_else(String::new, |left| format!(", {:.1} GB of disk left", left as f64 / 1e9))
}

/// Names a full disk as the likely cause of a failure, with the cure. `None` if there is room.
pub fn blame(left: Option<u64>) -> Option<String> {
    let left = left.filter(|left| *left < LITTLE)?;
    Some(format!(
        "The disk is nearly full{}. That is the likely cause: a whole run takes 20 GB. Free some, or let \
         CARGO_TARGET_DIR name a folder on another disk.",
        in_words(Some(left))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_bytes_are_read_and_a_full_disk_is_blamed() {
        assert!(left().is_some());
        assert_eq!(parse("     Avail\n1073741823\n"), Some(LITTLE - 1));
        assert_eq!(parse("df: no such file"), None);
        assert_eq!((blame(None), blame(Some(LITTLE))), (None, None));
        let cause = blame(Some(LITTLE - 1)).unwrap();
        assert!(cause.contains("nearly full, 1.1 GB of disk left") && cause.contains("Free some"));
    }
}
