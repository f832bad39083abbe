//! The lines of pasted text, without the decoration of mail programs and terminals.

use std::borrow::Cow;

use crate::text::Addressing;

/// The order of bytes in the 32-bit words of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordOrder {
    /// Most significant byte first, as libmlx5 and the kernel print words.
    #[default]
    BigEndian,
    /// Least significant byte first, as a debugger on x86 shows words.
    LittleEndian,
}

/// Settings for input that the bytes alone do not determine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The segment between ctrl segment and operation in WQEs. If unset, as the source suggests,
    /// else none (RC and UC).
    pub addressing: Option<Addressing>,
    /// The order of bytes in 32-bit words of dumps.
    pub words: WordOrder,
}

/// Lines, with the settings to read them by.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    lines: Vec<Cow<'a, str>>,
    /// The settings.
    pub(super) options: Options,
}

impl<'a> Lines<'a> {
    /// Splits and cleans text: removes quotation marks of mails, terminal colours, and trailing
    /// blanks.
    pub(super) fn new(text: &'a str, options: Options) -> Lines<'a> {
        Lines { lines: text.lines().map(clean).collect(), options }
    }

    /// Returns the number of lines.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns a line; empty after the last.
    pub(super) fn get(&self, at: usize) -> &str {
        self.lines.get(at).map_or("", |line| line)
    }

    /// Returns up to three lines joined as one, for text that mail programs have wrapped.
    pub(super) fn unwrapped(&self, at: usize) -> String {
        [self.get(at), self.get(at + 1), self.get(at + 2)].map(str::trim).join(" ")
    }
}

fn clean(line: &str) -> Cow<'_, str> {
    let mut line = line.trim_end();
    while let Some(quoted) = line.trim_start().strip_prefix('>') {
        line = quoted;
    }
    if !line.contains('\x1b') {
        return Cow::Borrowed(line);
    }
    // A colour is ESC, bracket, parameters, letter.
    let mut parts = line.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let sequence = part.strip_prefix('[').unwrap_or(part);
        let end = sequence.find(|letter: char| letter.is_ascii_alphabetic());
        plain.push_str(end.map_or("", |end| &sequence[end + 1..]));
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotation_marks_and_colours_go() {
        let text = "> > \x1b[31mmlx5\x1b[0m: x \r\n  >y\nplain";
        let lines = Lines::new(text, Options::default());
        assert_eq!((lines.get(0), lines.get(1), lines.get(2)), (" mlx5: x", "y", "plain"));
        assert_eq!((lines.len(), lines.get(3)), (3, ""));
        assert_eq!(lines.unwrapped(0), "mlx5: x y plain");
    }
}
