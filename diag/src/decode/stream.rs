//! Decoding of input that is longer than memory, or that goes on.

use super::lines::Options;
use super::record::DecodedRecord;

/// Bytes of text that are looked at together.
const WINDOW: usize = 1 << 20;

/// A decoder of text that comes in pieces.
///
/// It keeps up to two mebibytes of text. A completion is linked to a WQE only within that distance,
/// and a dump that is longer is cut.
#[derive(Clone, Debug)]
pub struct Stream {
    options: Options,
    window: usize,
    text: String,
    /// Lines and records that are done.
    lines: usize,
    records: usize,
}

impl Stream {
    /// Creates a decoder.
    #[must_use]
    pub fn new(options: Options) -> Stream {
        Stream { options, window: WINDOW, text: String::new(), lines: 0, records: 0 }
    }

    /// Adds text and returns the records that are complete. Line numbers and links count from the
    /// start of the stream.
    pub fn push(&mut self, text: &str) -> Vec<DecodedRecord> {
        self.text.push_str(text);
        if self.text.len() < 2 * self.window {
            return Vec::new();
        }
        // Records that begin in the first half are complete: the second half is behind them.
        let half = boundary(&self.text, self.text.len() - self.window);
        let Some(half) = self.text[..half].rfind('\n') else { return self.flush() };
        let mut cut = self.text[..half].bytes().filter(|byte| *byte == b'\n').count() + 1;
        let mut records = super::text(&self.text, self.options);
        records.retain(|record| {
            let Some((first, last)) = record.lines.filter(|(first, _)| *first <= cut) else {
                return false;
            };
            cut = cut.max(last).max(first);
            true
        });
        let end =
            self.text.match_indices('\n').nth(cut - 1).map_or(self.text.len(), |(at, _)| at + 1);
        self.text.drain(..end);
        self.done(records, cut)
    }

    /// Returns the records in the rest of the text: no more is to come, or not soon.
    pub fn flush(&mut self) -> Vec<DecodedRecord> {
        let text = std::mem::take(&mut self.text);
        let records = super::text(&text, self.options);
        self.done(records, text.lines().count())
    }

    /// Counts the records and lines that are done.
    fn done(&mut self, mut records: Vec<DecodedRecord>, lines: usize) -> Vec<DecodedRecord> {
        let count = records.len();
        for record in &mut records {
            record.lines =
                record.lines.map(|(first, last)| (first + self.lines, last + self.lines));
            // A WQE behind the window is in no list.
            record.wqe = record.wqe.filter(|wqe| *wqe <= count).map(|wqe| wqe + self.records);
        }
        self.lines += lines;
        self.records += count;
        records
    }
}

/// Returns the last boundary of a character that is not behind `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gives_the_records_of_the_whole_text_in_bounded_memory() {
        let mut text = String::new();
        for at in 0..200 {
            text += &format!(
                "é noise\na on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)\nRC QP {at:#x} wqe[{at}]: SEND s--\n"
            );
        }
        let mut stream = Stream { window: 1000, ..Stream::new(Options::default()) };
        let mut found = Vec::new();
        for piece in text.split_inclusive(' ') {
            found.extend(stream.push(piece));
            assert!(stream.text.len() < 4000);
        }
        found.extend(stream.flush());
        let whole = super::super::text(&text, Options::default());
        let parts = |records: &[DecodedRecord]| -> Vec<_> {
            records.iter().map(|record| (record.title.clone(), record.lines, record.wqe)).collect()
        };
        assert_eq!(parts(&found), parts(&whole));
    }
}
