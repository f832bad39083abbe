//! The lines of what was pasted, without what mail and terminals put around them.

use std::borrow::Cow;

use mlx5::diag::text::Addressing;

/// How to read what the bytes do not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What stands between ctrl segment and operation in WQEs; unset, as the source suggests, else
    /// nothing (RC and UC).
    pub addressing: Option<Addressing>,
    /// Whether dumps of 32-bit words show memory as a little-endian machine loads it, and not, as
    /// libmlx5's and the kernel's do, the big-endian values.
    pub little_endian_words: bool,
}

/// Lines, and how to read them.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    lines: Vec<Cow<'a, str>>,
    /// How to read what the bytes do not say.
    pub options: Options,
}

impl<'a> Lines<'a> {
    /// Splits and cleans: quotation marks of mails, colours of terminals and blanks at the end go.
    #[must_use]
    pub fn new(text: &'a str, options: Options) -> Lines<'a> {
        Lines { lines: text.lines().map(clean).collect(), options }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// A line; empty behind the last.
    #[must_use]
    pub fn get(&self, at: usize) -> &str {
        self.lines.get(at).map_or("", |line| line)
    }

    /// Up to three lines as one, for what mail programs have wrapped.
    #[must_use]
    pub fn unwrapped(&self, at: usize) -> String {
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
