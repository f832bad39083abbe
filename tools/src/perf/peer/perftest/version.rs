//! perftest's version, of which the form of its messages depends.

use std::fmt;
use std::ops::RangeInclusive;

/// Bytes of a version in the exchange: text, and zeros behind it.
pub const LENGTH: usize = 16;

/// The version that tests run, which this side says it is.
pub const RUN: Version = Version { major: 6, minor: 6 };

/// The versions whose exchange is the same.
const KNOWN: RangeInclusive<Version> = RUN..=Version { major: 6, minor: 27 };

/// A version of perftest, such as 6.06.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u8,
    minor: u8,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)
    }
}

impl Version {
    /// Returns the version as it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let text = self.to_string();
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Parses a version, which has to be one whose exchange is known.
    ///
    /// # Errors
    /// Returns what was said instead, or which versions are known.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Version, String> {
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let version = Version::of(text).ok_or_else(|| {
            format!("\"{}\" is no version, such as {RUN}", bytes.trim_ascii_end().escape_ascii())
        })?;
        if KNOWN.contains(&version) {
            return Ok(version);
        }
        Err(format!(
            "its version is {version}, and `mlx5 perf` knows the exchange of {} to {}",
            KNOWN.start(),
            KNOWN.end()
        ))
    }

    /// Returns the version of a text with one or two digits, a dot, and two digits.
    fn of(text: &[u8]) -> Option<Version> {
        let dot = text.iter().position(|&byte| byte == b'.')?;
        let (major, minor) = (&text[..dot], &text[dot + 1..]);
        if !(1..=2).contains(&major.len()) || minor.len() != 2 {
            return None;
        }
        Some(Version { major: decimal(major)?, minor: decimal(minor)? })
    }
}

/// Returns the number of at most two digits.
fn decimal(digits: &[u8]) -> Option<u8> {
    let digit = |digit: &u8| digit.is_ascii_digit().then(|| digit - b'0');
    digits.iter().map(digit).try_fold(0, |number, digit| Some(10 * number + digit?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn padded(text: &str) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn the_run_version_is_sent_as_perftest_sends_it() {
        assert_eq!(&RUN.encode(), b"6.06\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(Version::parse(&RUN.encode()), Ok(RUN));
    }

    #[test]
    fn versions_with_the_same_exchange_are_known_and_others_are_named() {
        assert_eq!(Version::parse(&padded("6.27")).unwrap().to_string(), "6.27");
        for unknown in ["5.92", "6.05", "6.28", "6.29", "25.10"] {
            let error = Version::parse(&padded(unknown)).unwrap_err();
            assert!(error.contains(unknown) && error.contains("6.06 to 6.27"), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_version_is_shown() {
        for wrong in ["", "6", "6.", "6.6", "6.060", ".06", "+6.06", "6.+6", " 6.06", "600.06"] {
            let error = Version::parse(&padded(wrong)).unwrap_err();
            assert!(error.contains("is no version"), "{wrong}: {error}");
        }
        let error = Version::parse(b"{\"say\":\"hello\",\"").unwrap_err();
        assert!(error.contains("say"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_known_version_or_an_error_of_one_line(bytes: [u8; LENGTH]) {
            match Version::parse(&bytes) {
                Ok(version) => prop_assert!(bytes.starts_with(version.to_string().as_bytes())),
                Err(error) => prop_assert!(error.chars().all(|c| !c.is_control())),
            }
        }
    }
}
