//! The private data of a request for a connection.

use std::hash::{BuildHasher as _, RandomState};

use super::{TOKEN, Token};

/// The first bytes.
const MAGIC: [u8; 8] = *b"mlx5perf";
/// Bytes of the number of a connection.
const NUMBER: usize = 4;
/// Bytes of all.
const LENGTH: usize = MAGIC.len() + TOKEN + NUMBER;

impl Token {
    /// Makes an unpredictable token.
    pub(super) fn random() -> Token {
        // The hasher's keys are random.
        let keys = RandomState::new();
        let mut token = [0; TOKEN];
        token[..8].copy_from_slice(&keys.hash_one(0).to_ne_bytes());
        token[8..].copy_from_slice(&keys.hash_one(1).to_ne_bytes());
        Token(token)
    }
}

/// The connection that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requested {
    /// The point.
    pub(super) token: Token,
    /// The number of the connection, from 0, over all threads of the point.
    pub(super) number: u32,
}

impl Requested {
    /// Returns the private data.
    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        let (token, number) = rest.split_at_mut(TOKEN);
        magic.copy_from_slice(&MAGIC);
        token.copy_from_slice(&self.token.0);
        number.copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads private data, which InfiniBand fills with zeros; `None` if it is none of this program.
    pub(super) fn parse(bytes: &[u8]) -> Option<Requested> {
        let (magic, rest) = bytes.split_first_chunk::<{ MAGIC.len() }>()?;
        let (token, rest) = rest.split_first_chunk::<TOKEN>()?;
        let (number, rest) = rest.split_first_chunk::<NUMBER>()?;
        let fits = *magic == MAGIC && rest.iter().all(|&byte| byte == 0);
        fits.then(|| Requested { token: Token(*token), number: u32::from_be_bytes(*number) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_differ() {
        assert_ne!(Token::random(), Token::random());
    }

    #[test]
    fn private_data_of_another_program_or_length_names_no_connection() {
        let requested = Requested { token: Token([7; TOKEN]), number: 3 };
        let bytes = requested.to_bytes();
        // As InfiniBand fills it.
        let filled = [&bytes[..], &[0; 28]].concat();
        assert_eq!(Requested::parse(&filled), Some(requested));
        assert_eq!(Requested::parse(&bytes), Some(requested));
        assert_eq!(Requested::parse(&bytes[..LENGTH - 1]), None);
        assert_eq!(Requested::parse(&[&bytes[..], &[1]].concat()), None);
        assert_eq!(Requested::parse(&[0; 56]), None);
        assert_eq!(Requested::parse(&[]), None);
    }

    proptest! {
        #[test]
        fn all_private_data_is_refused_or_comes_back(
            data in prop::collection::vec(any::<u8>(), 0..=255), with_magic: bool,
        ) {
            let data = if with_magic { [&MAGIC[..], &data].concat() } else { data };
            if let Some(requested) = Requested::parse(&data) {
                prop_assert_eq!(&requested.to_bytes()[..], &data[..LENGTH]);
            }
        }
    }
}
