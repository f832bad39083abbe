//! The secret that all ranks of a run share, and proofs of knowing it: HMAC-SHA256 of fresh random
//! numbers of both sides.

use std::fmt;
use std::path::Path;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::outcome::{Error, Result};

/// The variable with the secret.
pub const VARIABLE: &str = "MLX5_MESH_SECRET";

/// The shortest secret, in bytes.
const SHORTEST: usize = 16;
/// The longest one.
const LONGEST: usize = 4096;

/// A random number that is used once.
pub type Nonce = [u8; 32];
/// A keyed hash.
pub type Proof = [u8; 32];

/// A key: the shared secret, or one made from it for a connection.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads the secret from a file, or else from [`VARIABLE`].
    ///
    /// # Errors
    /// Returns what is missing or too short, and how to make a secret.
    pub fn find(file: Option<&Path>) -> Result<Key> {
        let cure = "make one: head -c 32 /dev/urandom | base64";
        let (what, text) = match file {
            Some(file) => {
                let what = format!("--secret-file {}", file.display());
                let text = read(file).map_err(|error| Error::File { what: what.clone(), error })?;
                (what, text)
            }
            None => {
                let text = std::env::var_os(VARIABLE).ok_or_else(|| {
                    Error::Usage(format!(
                        "ranks know each other by a shared secret: give --secret-file or set \
                         {VARIABLE}; {cure}"
                    ))
                })?;
                (VARIABLE.to_owned(), text.into_encoded_bytes())
            }
        };
        let secret = text.trim_ascii();
        if !(SHORTEST..=LONGEST).contains(&secret.len()) {
            let length = secret.len();
            return Err(Error::Usage(format!(
                "{what}: a secret has {SHORTEST} to {LONGEST} bytes, and this one {length}; {cure}"
            )));
        }
        Ok(Key(secret.to_vec()))
    }

    /// Makes a secret.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn random() -> Result<(Key, String)> {
        let bytes = nonce()?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Key(text.clone().into_bytes()), text))
    }

    fn hash(&self, purpose: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut hash = <Hmac<Sha256> as hmac::Mac>::new_from_slice(&self.0)
            .expect("HMAC takes keys of any length");
        hash.update(purpose.as_bytes());
        // Lengths keep parts apart.
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash
    }

    /// Returns the proof for these parts. Proofs for different purposes differ.
    #[must_use]
    pub fn proof(&self, purpose: &str, parts: &[&[u8]]) -> Proof {
        self.hash(purpose, parts).finalize().into_bytes().into()
    }

    /// Returns whether a proof, or the beginning of one, is right. Takes the same time for all.
    #[must_use]
    pub fn proves(&self, purpose: &str, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.hash(purpose, parts).verify_truncated_left(proof).is_ok()
    }

    /// Makes the key of a connection.
    #[must_use]
    pub fn of_connection(&self, parts: &[&[u8]]) -> Key {
        Key(self.proof("mlx5 mesh connection", parts).to_vec())
    }
}

/// Reads a file, or a pipe, to the longest secret and one byte more.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(file)?.take(LONGEST as u64 + 2).read_to_end(&mut text)?;
    Ok(text)
}

/// Makes a random number.
///
/// # Errors
/// Returns the system's error.
pub fn nonce() -> Result<Nonce> {
    let mut nonce = [0; 32];
    // SAFETY: the kernel writes at most the given length, which is the array's.
    let got = unsafe { libc::getrandom(nonce.as_mut_ptr().cast(), nonce.len(), 0) };
    // Up to 256 bytes come whole.
    if got != nonce.len() as isize {
        let error = std::io::Error::last_os_error();
        return Err(Error::Told(format!("no random numbers: {error}")));
    }
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_key_one_purpose_and_these_parts() {
        let (key, other) = (Key(b"a secret of words".to_vec()), Key(b"another secret ..".to_vec()));
        let proof = key.proof("a", &[b"bc", b"d"]);
        assert!(key.proves("a", &[b"bc", b"d"], &proof));
        assert!(key.proves("a", &[b"bc", b"d"], &proof[..16]));
        assert!(!other.proves("a", &[b"bc", b"d"], &proof));
        assert!(!key.proves("b", &[b"bc", b"d"], &proof));
        assert!(!key.proves("a", &[b"b", b"cd"], &proof));
        assert!(!key.proves("a", &[b"bc", b"d"], &[]));
        assert_ne!(nonce().unwrap(), nonce().unwrap());
        assert_eq!(format!("{key:?}"), "Key(…)");
    }
}
