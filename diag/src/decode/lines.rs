//! The lines of pasted text, without the decoration of mail programs, launchers and terminals.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::text::Addressing;

use super::prefix;

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

/// A line that one program has printed: a line of the input, or a part of one.
#[derive(Clone, Debug)]
struct Line<'a> {
    /// The line's content.
    text: Cow<'a, str>,
    /// The prefix of a launcher, such as `[1,5]<stderr>:`; empty if there is none.
    tag: String,
    /// Its first and last line of the input, counted from 1.
    numbers: (usize, usize),
}

/// Lines, with the settings to read them by.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    lines: Vec<Line<'a>>,
    /// The settings.
    pub(super) options: Options,
}

impl<'a> Lines<'a> {
    /// Splits and cleans text: removes quotation marks of mails, terminal colours, prefixes of
    /// launchers, and trailing blanks. Joins the soft line breaks of quoted-printable mails, and
    /// separates messages that programs printed without a line end.
    pub(super) fn new(text: &'a str, options: Options) -> Lines<'a> {
        let mut lines = Vec::new();
        let encoded = is_quoted_printable(text);
        let mut input = text.lines().enumerate();
        while let Some((at, line)) = input.next() {
            let (mut line, mut last) = (Cow::Borrowed(line), at);
            while encoded && line.ends_with('=') && last - at < LONGEST_WRAP {
                let Some((next, more)) = input.next() else { break };
                line.to_mut().pop();
                line.to_mut().push_str(more);
                last = next;
            }
            if encoded {
                line = Cow::Owned(unquoted(&line));
            }
            push(&mut lines, clean(line), (at + 1, last + 1));
        }
        untangle(&mut lines);
        Lines { lines, options }
    }

    /// Returns the number of lines.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns a line; empty after the last.
    pub(super) fn get(&self, at: usize) -> &str {
        self.lines.get(at).map_or("", |line| &line.text)
    }

    /// Returns the launcher's prefix of a line; empty if it has none.
    pub(super) fn tag(&self, at: usize) -> &str {
        self.lines.get(at).map_or("", |line| &line.tag)
    }

    /// Returns the first and last line of the input, counted from 1, for lines from `at` to `end`.
    pub(super) fn numbers(&self, at: usize, end: usize) -> (usize, usize) {
        let number = |at: usize| self.lines.get(at).map_or((at + 1, at + 1), |line| line.numbers);
        let (first, last) = (number(at).0, number(end.saturating_sub(1).max(at)).1);
        (first.min(last), last.max(first))
    }

    /// Returns up to three lines joined as one, for text that mail programs have wrapped.
    pub(super) fn unwrapped(&self, at: usize) -> String {
        [self.get(at), self.get(at + 1), self.get(at + 2)].map(str::trim).join(" ")
    }
}

/// Most lines that quoted-printable text is joined from.
const LONGEST_WRAP: usize = 64;

/// Returns whether the text is a quoted-printable mail: only such texts have both marks.
fn is_quoted_printable(text: &str) -> bool {
    (text.contains("=3D") || text.contains("=20"))
        && text.lines().any(|line| line.ends_with('=') || line.ends_with("=20"))
}

/// Decodes `=3D` and the like. An invalid sequence stays as it is.
fn unquoted(line: &str) -> String {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'=' && byte != b'\n' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Puts the lines of each process of a launcher together: processes that print at the same time mix
/// their lines. Lines without a launcher's prefix keep their places.
fn untangle(lines: &mut [Line<'_>]) {
    for run in lines.chunk_by_mut(|one, next| one.tag.is_empty() == next.tag.is_empty()) {
        let mut processes: HashMap<String, usize> = HashMap::new();
        run.sort_by_cached_key(|line| {
            let count = processes.len();
            *processes.entry(prefix::process(&line.tag).to_owned()).or_insert(count)
        });
    }
}

/// Adds the messages of a line.
fn push<'a>(lines: &mut Vec<Line<'a>>, line: Cow<'a, str>, numbers: (usize, usize)) {
    let joints = prefix::joints(&line);
    if joints.is_empty() && prefix::launcher(&line).is_none() {
        return lines.push(Line { text: line, tag: String::new(), numbers });
    }
    let mut from = 0;
    for joint in joints.into_iter().chain([line.len()]) {
        let part = &line[from..joint];
        let (tag, text) =
            prefix::launcher(part).unwrap_or_else(|| (String::new(), part.to_owned()));
        lines.push(Line { text: Cow::Owned(text), tag, numbers });
        from = joint;
    }
}

fn clean(line: Cow<'_, str>) -> Cow<'_, str> {
    match line {
        Cow::Borrowed(line) => cleaned(line),
        Cow::Owned(line) => Cow::Owned(cleaned(&line).into_owned()),
    }
}

fn cleaned(line: &str) -> Cow<'_, str> {
    let mut line = line.trim_end();
    while let Some(quoted) = line.trim_start().strip_prefix('>') {
        line = quoted;
    }
    // Markdown quotes code with these.
    if let Some(code) = line.trim_start().strip_prefix("``") {
        line = code.trim_matches('`');
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

    fn texts(text: &str) -> Vec<(String, String, (usize, usize))> {
        let lines = Lines::new(text, Options::default());
        let each = |line: Line<'_>| (line.tag, line.text.into_owned(), line.numbers);
        lines.lines.into_iter().map(each).collect()
    }

    #[test]
    fn quotation_marks_and_colours_go() {
        let text = "> > \x1b[31mmlx5\x1b[0m: x \r\n  >y\nplain";
        let lines = Lines::new(text, Options::default());
        assert_eq!((lines.get(0), lines.get(1), lines.get(2)), (" mlx5: x", "y", "plain"));
        assert_eq!((lines.len(), lines.get(3)), (3, ""));
        assert_eq!(lines.unwrapped(0), "mlx5: x y plain");
    }

    #[test]
    fn quotation_marks_of_markdown_go() {
        let lines = Lines::new(" ``00 01``\n```\n`one`", Options::default());
        assert_eq!((lines.get(0), lines.get(1), lines.get(2)), ("00 01", "", "`one`"));
    }

    #[test]
    fn soft_line_breaks_of_mails_are_joined() {
        let lines = texts("status=3D12 ven=\ndor err 129\nnext");
        assert_eq!(lines[0].1, "status=12 vendor err 129");
        assert_eq!((lines[0].2, lines[1].2), ((1, 2), (3, 3)));
        // An equals sign at the end of a line is no such break in other text.
        assert_eq!(texts("a =\nb").len(), 2);
    }

    #[test]
    fn messages_on_one_line_are_separated() {
        let lines = texts("a lkey 0xb5d2][h1:77:0:77] ib_mlx5_log.c:139  Transport\nb");
        assert_eq!(lines[0].1, "a lkey 0xb5d2]");
        assert!(lines[1].1.starts_with("[h1:77:0:77]"));
        assert_eq!((lines[0].2, lines[1].2, lines[2].2), ((1, 1), (1, 1), (2, 2)));
    }
}
