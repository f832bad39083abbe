//! Error and warning formats in C sources.

use std::collections::HashMap;

/// A format, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The file, such as `core/eq.c`.
    pub file: String,
    /// The function.
    pub function: String,
    /// The macro or function that prints it.
    printer: String,
    /// The format, after the texts that its macro puts before it.
    format: String,
}

/// Stands for a conversion.
const HOLE: char = '\u{1}';

impl Message {
    /// Returns the hashes of the words in order, `*` for words that a conversion fills.
    pub fn key(&self) -> String {
        let text = holes(&self.format);
        let mut parts: Vec<String> = Vec::new();
        for word in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != HOLE) {
            let part = match word {
                "" => continue,
                word if word.contains(HOLE) => "*".to_owned(),
                word => format!("{:06x}", hash(word)),
            };
            if part != "*" || parts.last().is_none_or(|last| last != "*") {
                parts.push(part);
            }
        }
        parts.join(" ")
    }

    /// Returns a line as a kernel prints it, with a value for each conversion.
    pub fn line(&self) -> String {
        let mut text = String::new();
        let mut rest = self.format.as_str();
        while let Some(at) = rest.find('%') {
            text += &rest[..at];
            let end = conversion(&rest[at..]);
            text += match rest[at..at + end].chars().last() {
                Some('s') => "name",
                Some('%') => "%",
                _ => "17",
            };
            rest = &rest[at + end..];
        }
        text += rest;
        let text = text.replace("\\t", "\t");
        let (own, verbs) = (self.function.as_str(), self.file.starts_with("ib/"));
        let device = match (verbs, self.printer.starts_with("netdev")) {
            (true, _) => "infiniband mlx5_0",
            (_, true) => "mlx5_core 0000:03:00.0 eth2",
            _ => "mlx5_core 0000:03:00.0",
        };
        match &*self.printer {
            name if name.starts_with("pr_") => format!("[   12.345678] {text}"),
            name if ["netdev", "dev_", "esw_", "pci_"].iter().any(|of| name.starts_with(of)) => {
                format!("[   12.345678] {device}: {text}")
            }
            _ => format!("[   12.345678] {device}: {own}:100:(pid 42): {text}"),
        }
    }
}

/// Hashes a word, without regard to case: FNV-1a, of which 24 bits are kept.
/// `diag/src/decode/messages.rs` has the same function.
fn hash(word: &str) -> u32 {
    let step = |hash: u32, byte: u8| {
        (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    };
    let hash = word.bytes().fold(0x811c_9dc5, step);
    (hash ^ (hash >> 24)) & 0x00ff_ffff
}

/// Returns a format with a mark for each conversion.
fn holes(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text += &rest[..at];
        let end = conversion(&rest[at..]);
        if !rest[at..].starts_with("%%") {
            text.push(HOLE);
        }
        rest = &rest[at + end..];
    }
    // Escapes of C are blanks.
    (text + rest).replace("\\t", " ").replace("\\\"", " ")
}

/// Returns the length of the conversion at the start, with the kernel's letters after `%p`.
fn conversion(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while bytes.get(at).is_some_and(|byte| b"-+ #0123456789.*lhzjtq".contains(byte)) {
        at += 1;
    }
    let Some(letter) = bytes.get(at) else { return bytes.len() };
    if *letter != b'p' {
        return at + 1;
    }
    at += 1;
    while bytes.get(at).is_some_and(u8::is_ascii_alphanumeric) {
        at += 1;
    }
    at
}

/// A C source without comments and directives.
#[derive(Debug)]
pub struct Source {
    text: String,
    /// The texts that its macros put before a format.
    pub prefixes: HashMap<String, String>,
}

impl Source {
    /// Reads a source.
    pub fn new(text: &str) -> Source {
        let (text, prefixes) = without_macros(&without_comments(text));
        Source { text, prefixes }
    }

    /// Returns its error and warning formats in order, with the texts of these macros.
    pub fn messages(&self, file: &str, prefixes: &HashMap<String, String>) -> Vec<Message> {
        let text = &self.text;
        let bytes = text.as_bytes();
        let mut found = Vec::new();
        let (mut at, mut depth, mut function) = (0, 0_usize, String::new());
        while at < bytes.len() {
            match bytes[at] {
                b'"' | b'\'' => at = after_literal(bytes, at),
                b'{' => {
                    if depth == 0 {
                        function = function_before(&text[..at]).unwrap_or(function);
                    }
                    (depth, at) = (depth + 1, at + 1);
                }
                b'}' => (depth, at) = (depth.saturating_sub(1), at + 1),
                byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                    let length = text[at..].find(|letter: char| !is_part(letter));
                    let end = length.map_or(bytes.len(), |length| at + length);
                    let name = &text[at..end];
                    let call = depth > 0 && bytes.get(end) == Some(&b'(') && is_printer(name);
                    if let Some(format) = call.then(|| format_of(&text[end..])).flatten() {
                        let before = prefixes.get(name).map_or("", String::as_str);
                        found.push(Message {
                            file: file.to_owned(),
                            function: function.clone(),
                            printer: name.to_owned(),
                            format: format!("{before}{}", first_line(&format)),
                        });
                    }
                    at = end;
                }
                _ => at += 1,
            }
        }
        found
    }
}

fn is_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns whether a name is that of a macro or function that prints errors or warnings.
fn is_printer(name: &str) -> bool {
    const ENDS: [&str; 5] = ["err", "warn", "crit", "emerg", "alert"];
    const MANNERS: [&str; 3] = ["_once", "_rl", "_ratelimited"];
    let name = MANNERS.iter().find_map(|manner| name.strip_suffix(manner)).unwrap_or(name);
    name == "mlx5e_health_report"
        || name.rsplit_once('_').is_some_and(|(_, last)| ENDS.contains(&last))
}

/// Returns the format in the arguments of a call: the strings that stand together first.
fn format_of(call: &str) -> Option<String> {
    let bytes = call.as_bytes();
    let (mut at, mut depth, mut format) = (0, 0_usize, None::<String>);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = after_literal(bytes, at);
                // A string may go on in the next line.
                let text = call.get(at + 1..end - 1)?.replace("\\\n", "");
                format.get_or_insert_default().push_str(&text);
                at = end;
                continue;
            }
            b'\'' => {
                at = after_literal(bytes, at);
                continue;
            }
            b'(' => depth += 1,
            b')' if depth == 1 => break,
            b')' => depth -= 1,
            b',' if format.is_some() => break,
            _ => {}
        }
        at += 1;
    }
    format
}

/// Returns the first line of a format. Logs have the others in lines of their own.
fn first_line(format: &str) -> &str {
    format.split_once("\\n").map_or(format, |(first, _)| first)
}

/// Returns the place after the literal that begins here.
fn after_literal(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != bytes[start] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Returns the name of the function whose body begins behind this text.
fn function_before(text: &str) -> Option<String> {
    let text = text.trim_end();
    let mut depth = 0;
    let open = text.char_indices().rev().find_map(|(at, letter)| {
        match letter {
            ')' => depth += 1,
            '(' => depth -= 1,
            ';' | '}' if depth == 0 => return Some(None),
            _ => {}
        }
        (letter == '(' && depth == 0).then_some(Some(at))
    })??;
    let before = text[..open].trim_end();
    let name = before.rsplit(|letter| !is_part(letter)).next()?;
    // `__must_hold(lock)` stands between the parameters and the body.
    let declared = before[..before.len() - name.len()].trim_end();
    if declared.ends_with(')') {
        return function_before(declared);
    }
    (text.ends_with(')') && !name.is_empty()).then(|| name.to_owned())
}

/// Removes comments. Strings stay as they are.
fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at, mut from) = (String::new(), 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\'' => at = after_literal(bytes, at),
            b'/' if matches!(bytes.get(at + 1), Some(b'*' | b'/')) => {
                out += &text[from..at];
                let end = if bytes[at + 1] == b'*' { "*/" } else { "\n" };
                at = text[at + 2..].find(end).map_or(bytes.len(), |end| at + 2 + end);
                if bytes.get(at) == Some(&b'*') {
                    at += 2;
                }
                from = at;
            }
            _ => at += 1,
        }
    }
    out + &text[from.min(text.len())..]
}

/// Removes directives of the preprocessor. Returns the texts that macros put before a format, without
/// function, line and process, which the driver prints first.
fn without_macros(text: &str) -> (String, HashMap<String, String>) {
    let mut prefixes = HashMap::new();
    let (mut out, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with('#') {
            out += line;
            out.push('\n');
            continue;
        }
        let mut directive = line.to_owned();
        while directive.ends_with('\\') {
            directive.pop();
            directive += lines.next().unwrap_or_default();
        }
        let name = directive.trim_start_matches(['#', ' ']).strip_prefix("define ");
        let Some((name, body)) = name.and_then(|name| name.trim().split_once('(')) else {
            continue;
        };
        let text = body.split('"').nth(1).filter(|_| is_printer(name)).unwrap_or_default();
        let text = text.rsplit("(pid %d): ").next().unwrap_or_default();
        prefixes.insert(name.to_owned(), text.to_owned());
    }
    (out, prefixes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
#define own_warn(dev, format, ...) \
	mlx5_core_warn(dev, "Own: " format, ##__VA_ARGS__)
/* x_err(dev, "in a comment\n"); */
static int
make_room(struct x *dev, int n)
{
	if (n) {
		x_err(dev, "no room: %d of %s, "
		      "left %pad", n, "a");
		own_warn(dev, "100%% used\n"); // x_err(dev, "no");
	}
	x_info(dev, "fine\n");
	return x_warn(dev);
}
void free_room(struct x *dev) { x_warn_once(dev, "[%d]bad\n", '"'); }
"#;

    fn found() -> Vec<Message> {
        let source = Source::new(SOURCE);
        source.messages("core/a.c", &source.prefixes)
    }

    #[test]
    fn formats_are_found_with_their_functions() {
        let found = found();
        let parts: Vec<_> = found.iter().map(|one| (&*one.function, &*one.format)).collect();
        assert_eq!(
            parts,
            [
                ("make_room", "no room: %d of %s, left %pad"),
                ("make_room", "Own: 100%% used"),
                ("free_room", "[%d]bad"),
            ]
        );
    }

    #[test]
    fn keys_have_a_hash_for_each_word_and_a_mark_for_conversions() {
        let found = found();
        let [no, room, of, left] =
            ["no", "room", "of", "left"].map(|word| format!("{:06x}", hash(word)));
        assert_eq!(found[0].key(), format!("{no} {room} * {of} * {left} *"));
        // A conversion that touches a word fills it.
        assert_eq!(found[2].key(), "* ".to_owned() + &format!("{:06x}", hash("bad")));
        assert_eq!(hash("Room"), hash("room"));
    }

    #[test]
    fn lines_are_as_a_kernel_prints_them() {
        let found = found();
        assert_eq!(
            found[0].line(),
            "[   12.345678] mlx5_core 0000:03:00.0: make_room:100:(pid 42): no room: 17 of name, left 17"
        );
    }
}
