//! Frames of a connection between a rank and the meeting: a length, a tag, and JSON.
//!
//! The tag is a keyed hash of direction, number and content of the frame, so a frame that was changed,
//! left out or repeated ends the connection. Frames are not encrypted.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::secret::Key;

/// The longest content of a frame, in bytes.
pub const LIMIT: usize = 256 << 10;
/// Bytes of a length.
const LENGTH: usize = 4;
/// Bytes of a tag.
const TAG: usize = 16;

/// The side that writes a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The side that accepted the connection.
    Host,
    /// The side that made it.
    Guest,
}

impl Writer {
    fn purpose(self) -> &'static str {
        match self {
            Writer::Host => "frame of the host",
            Writer::Guest => "frame of the guest",
        }
    }
}

/// Makes the frames of one direction.
#[derive(Debug)]
pub struct Sealer {
    key: Key,
    writer: Writer,
    count: u64,
}

impl Sealer {
    /// Creates the writing end.
    #[must_use]
    pub fn new(key: Key, writer: Writer) -> Sealer {
        Sealer { key, writer, count: 0 }
    }

    /// Makes the next frame.
    ///
    /// # Errors
    /// Returns in words that the content is too long.
    pub fn seal<T: Serialize>(&mut self, content: &T) -> Result<Vec<u8>, String> {
        let content = serde_json::to_vec(content).map_err(|error| error.to_string())?;
        if content.len() > LIMIT {
            return Err(format!("a frame of {} bytes: {LIMIT} at most", content.len()));
        }
        let tag = self.key.proof(self.writer.purpose(), &[&self.count.to_be_bytes(), &content]);
        self.count += 1;
        let mut frame = (content.len() as u32).to_be_bytes().to_vec();
        frame.extend(&tag[..TAG]);
        frame.extend(content);
        Ok(frame)
    }
}

/// Takes the frames of one direction out of received bytes.
#[derive(Debug)]
pub struct Opener {
    key: Key,
    writer: Writer,
    count: u64,
    bytes: Vec<u8>,
}

impl Opener {
    /// Creates the reading end of what `writer` writes.
    #[must_use]
    pub fn new(key: Key, writer: Writer) -> Opener {
        Opener { key, writer, count: 0, bytes: Vec::new() }
    }

    /// Adds received bytes. The caller takes all whole [frames](Self::next) out before it adds more, so
    /// that no more than a frame and these bytes are kept.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Returns the next frame, if it is whole.
    ///
    /// # Errors
    /// Returns in words what is wrong with it; nothing can be read after that.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LIMIT {
            return Err(format!("a frame of {length} bytes: {LIMIT} at most"));
        }
        let Some((tag, content)) = rest.split_first_chunk::<TAG>() else { return Ok(None) };
        let Some(content) = content.get(..length) else { return Ok(None) };
        let parts = [&self.count.to_be_bytes()[..], content];
        if !self.key.proves(self.writer.purpose(), &parts, tag) {
            return Err("a frame has a wrong tag: it was changed on its way".to_owned());
        }
        let said = serde_json::from_slice(content)
            .map_err(|error| format!("a frame that nobody understands: {error}"))?;
        self.count += 1;
        self.bytes.drain(..LENGTH + TAG + length);
        Ok(Some(said))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair() -> (Sealer, Opener) {
        let key = Key::random().unwrap().0;
        (Sealer::new(key.clone(), Writer::Guest), Opener::new(key, Writer::Guest))
    }

    #[test]
    fn a_frame_that_is_changed_repeated_or_of_the_other_side_is_refused() {
        let (mut sealer, mut opener) = pair();
        let frame = sealer.seal(&"one").unwrap();
        opener.add(&frame);
        assert_eq!(opener.next::<String>(), Ok(Some("one".to_owned())));
        opener.add(&frame);
        assert!(opener.next::<String>().unwrap_err().contains("wrong tag"));
        let (mut sealer, mut opener) = pair();
        let mut frame = sealer.seal(&"one").unwrap();
        *frame.last_mut().unwrap() ^= 1;
        opener.add(&frame);
        assert!(opener.next::<String>().is_err());
        let (mut sealer, opener) = pair();
        let mut other = Opener::new(opener.key.clone(), Writer::Host);
        other.add(&sealer.seal(&"one").unwrap());
        assert!(other.next::<String>().is_err());
    }

    #[test]
    fn a_frame_is_bounded_on_both_sides() {
        let (mut sealer, mut opener) = pair();
        assert!(sealer.seal(&"x".repeat(LIMIT)).is_err());
        opener.add(&(LIMIT as u32 + 1).to_be_bytes());
        assert!(opener.next::<String>().unwrap_err().contains("at most"));
    }

    proptest! {
        #[test]
        fn however_bytes_are_cut_frames_come_out_the_same(
            texts in prop::collection::vec(".{0,40}", 0..8), step in 1usize..50,
        ) {
            let (mut sealer, mut opener) = pair();
            let bytes: Vec<u8> =
                texts.iter().flat_map(|text| sealer.seal(text).unwrap()).collect();
            let mut found = Vec::new();
            for bytes in bytes.chunks(step) {
                opener.add(bytes);
                while let Some(text) = opener.next::<String>().unwrap() {
                    found.push(text);
                }
            }
            prop_assert_eq!(found, texts);
            prop_assert!(opener.bytes.is_empty());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (_, mut opener) = pair();
            opener.add(&bytes);
            let found = opener.next::<String>();
            prop_assert!(!matches!(found, Ok(Some(_))));
        }
    }
}
