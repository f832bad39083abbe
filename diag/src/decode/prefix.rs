//! Prefixes of log lines: what launchers and loggers put before a message, and what it says of
//! its origin.

/// The origin of a record, as far as the text has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The time, as it is printed.
    pub time: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// The rank or task of a parallel program.
    pub rank: Option<String>,
}

impl Origin {
    /// Reads the origin from a launcher's prefix and from the start of a message.
    pub(super) fn of(tag: &str, line: &str) -> Origin {
        let mut origin = Origin::default();
        origin.read_tag(tag);
        let mut rest = line.trim_start();
        // Each word of a prefix is one of the known forms; a message begins at the first other one.
        for _ in 0..6 {
            let Some(after) = origin.read_word(rest) else { break };
            rest = after.trim_start();
        }
        origin
    }

    fn read_tag(&mut self, tag: &str) {
        if let Some((time, _)) = tag.split_once('\t') {
            // The JSON line of a container has only a time.
            self.time = Some(time.to_owned()).filter(|time| !time.is_empty());
            return;
        }
        let Some((before, rank)) = tag.split_once('[') else {
            let task = tag.trim_end_matches([':', ' ', '|']);
            self.rank = Some(task.to_owned()).filter(|task| is_number(task));
            return;
        };
        self.time = Some(before.trim().to_owned()).filter(|time| !time.is_empty());
        let rank = rank.split([']', '<']).next().unwrap_or_default();
        self.rank = rank.rsplit(',').next().filter(|rank| is_number(rank)).map(str::to_owned);
    }

    /// Reads one word of a prefix; returns the text after it.
    fn read_word<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if let Some(inside) = text.strip_prefix('[') {
            let (inside, rest) = inside.split_once(']')?;
            let inside = inside.trim();
            if is_time(inside) {
                self.time.get_or_insert_with(|| inside.to_owned());
                return Some(rest);
            }
            // "[host:pid:…]" of UCX, Open MPI and MVAPICH2; "[rank5]" of PyTorch.
            if let Some(rank) = inside.strip_prefix("rank").filter(|rank| is_number(rank)) {
                self.rank.get_or_insert_with(|| rank.to_owned());
                return Some(rest.trim_start_matches(':'));
            }
            let (host, process) = inside.split_once(':')?;
            if is_host(host) {
                self.host.get_or_insert_with(|| host.to_owned());
                if let Some(rank) = process.strip_prefix("mpi_rank_") {
                    self.rank.get_or_insert_with(|| rank.to_owned());
                }
                return Some(rest);
            }
            return None;
        }
        let word = text.split_ascii_whitespace().next()?;
        let rest = &text[word.len()..];
        // "Nov 21 22:27:35 host program: …" of syslog.
        if MONTHS.contains(&word) {
            let mut words = rest.split_ascii_whitespace();
            let (day, clock, host) = (words.next()?, words.next()?, words.next()?);
            if !is_number(day) || !is_time(clock) {
                return None;
            }
            self.time.get_or_insert_with(|| format!("{word} {day} {clock}"));
            let end = text.find(host)? + host.len();
            if is_host(host) {
                self.host.get_or_insert_with(|| host.to_owned());
            }
            return Some(&text[end..]);
        }
        if is_time(word) {
            let so_far = self.time.get_or_insert_with(String::new);
            if !so_far.is_empty() {
                so_far.push(' ');
            }
            so_far.push_str(word);
            return Some(rest);
        }
        // "host:pid:tid [gpu] NCCL WARN …".
        let mut parts = word.split(':');
        let host = parts.next().filter(|host| is_host(host) && !is_number(host))?;
        let numbers: Vec<&str> = parts.collect();
        if numbers.len() == 2 && numbers.iter().all(|number| is_number(number)) {
            self.host.get_or_insert_with(|| host.to_owned());
            return Some(rest);
        }
        None
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 20 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether the text is a date, a clock time, or seconds with a fraction.
fn is_time(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let marks = text.bytes().filter(|byte| matches!(byte, b':' | b'-' | b'.' | b'/')).count();
    let other = text.bytes().all(|byte| {
        byte.is_ascii_digit()
            || matches!(byte, b':' | b'-' | b'.' | b'/' | b'T' | b'Z' | b'+' | b',' | b' ')
    });
    other && digits >= 4 && marks > 0 && text.starts_with(|first: char| first.is_ascii_digit())
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !text.contains(".c")
}

/// Returns a launcher's prefix and the message after it: Open MPI's `--tag-output` and
/// `--timestamp-output`, Docker Compose's `name | `, and the JSON and CRI lines of containers.
pub(super) fn launcher(line: &str) -> Option<(String, String)> {
    if line.starts_with('{') {
        return json(line);
    }
    for stream in ["<stderr>:", "<stdout>:", "<stdout>", "<stderr>"] {
        let Some((tag, message)) = line.split_once(stream) else { continue };
        // "[1,564]", with the time before it if there is one.
        if tag.len() <= 80 && tag.trim_end().ends_with(']') && tag.contains('[') {
            return Some((tag.into(), message.into()));
        }
    }
    // "2024-05-01T10:00:00.0Z stderr F message".
    let mut words = line.splitn(4, ' ');
    if let (Some(time), Some("stdout" | "stderr"), Some("F" | "P"), Some(message)) =
        (words.next(), words.next(), words.next(), words.next())
    {
        return is_time(time).then(|| (format!("{time}\t"), message.to_owned()));
    }
    // "worker-1  | message". A hex dump has a bar behind its bytes.
    let (name, message) = line.split_once(" | ")?;
    let name = name.trim_end();
    (is_host(name) && name.contains(['-', '_'])).then(|| (name.into(), message.into()))
}

/// Returns the part of a launcher's prefix that names the process: not the time.
pub(super) fn process(tag: &str) -> &str {
    match (tag.find('['), tag.find('\t')) {
        (Some(at), None) => &tag[at..],
        (None, None) => tag,
        _ => "",
    }
}

/// Reads the JSON line of a container's log, `{"log":"…\n","stream":"stderr","time":"…"}`.
fn json(line: &str) -> Option<(String, String)> {
    let (message, rest) = string(line, "\"log\":")?;
    let time = string(rest, "\"time\":").map(|(time, _)| time).unwrap_or_default();
    Some((format!("{time}\t"), message.trim_end().to_owned()))
}

/// Returns the string after a key, without its escapes, and the text after it.
fn string<'a>(text: &'a str, key: &str) -> Option<(String, &'a str)> {
    let text = text.split_once(key)?.1.trim_start().strip_prefix('"')?;
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' | 'r' | 't' => value.push(' '),
                'u' => {
                    let code: String = letters.by_ref().take(4).map(|(_, digit)| digit).collect();
                    let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                    value.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// Returns the places inside a line where another message begins: programs that print at the same
/// time do not wait for each other's line ends. No blank is before such a message.
pub(super) fn joints(line: &str) -> Vec<usize> {
    let begins = |(at, _): &(usize, &str)| {
        let before = line[..*at].chars().next_back();
        before.is_some_and(|letter| !letter.is_whitespace() && !matches!(letter, ':' | '>'))
            && inside(&line[at + 1..]).is_some_and(is_ucx)
    };
    let tagged = ["<stdout>:", "<stderr>:"].into_iter().flat_map(|stream| {
        line.match_indices(stream).filter_map(|(at, _)| tag_start(&line[..at])).filter(|at| *at > 0)
    });
    let mut joints: Vec<usize> =
        line.match_indices('[').filter(begins).map(|(at, _)| at).chain(tagged).collect();
    joints.sort_unstable();
    joints
}

/// Returns the text up to a closing bracket. No other bracket is in it, so that a line of brackets is
/// searched once.
fn inside(text: &str) -> Option<&str> {
    let end = text.find(['[', ']'])?;
    text[end..].starts_with(']').then(|| &text[..end])
}

/// Returns where a launcher's prefix begins that ends with `[1,136]`, with its time if there is one.
fn tag_start(before: &str) -> Option<usize> {
    let inside = before.strip_suffix(']')?;
    // Digits and commas alone are in a rank, so that the search ends at the last other letter.
    let open = inside.rfind(|letter: char| !letter.is_ascii_digit() && letter != ',')?;
    if !inside[open..].starts_with('[') {
        return None;
    }
    let is_rank = before[open + 1..before.len() - 1].split(',').all(is_number);
    // "Thu Jul  2 09:28:16 2020".
    let time = open.checked_sub(TIME).filter(|at| {
        before.get(*at..open).is_some_and(|time| {
            time.split_ascii_whitespace().nth(1).is_some_and(|month| MONTHS.contains(&month))
        })
    });
    is_rank.then(|| time.unwrap_or(open))
}

/// Length of the time in a launcher's prefix.
const TIME: usize = "Thu Jul  2 09:28:16 2020".len();

/// Returns whether brackets contain what begins a message of UCX: `1593671296.585300`, or
/// `host:pid:0:tid`.
fn is_ucx(inside: &str) -> bool {
    if let Some((seconds, fraction)) = inside.split_once('.') {
        if seconds.len() == 10 && is_number(seconds) && is_number(fraction) {
            return true;
        }
    }
    let parts: Vec<&str> = inside.split(':').take(5).collect();
    parts.len() == 4
        && is_host(parts[0])
        && parts[1..].iter().all(|number| is_number(number.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(line: &str) -> (String, String) {
        let (tag, message) = launcher(line).unwrap_or_else(|| panic!("{line}"));
        (tag, message)
    }

    #[test]
    fn prefixes_of_launchers_are_separated() {
        assert_eq!(tagged("[1,564]<stderr>:00000000 1"), ("[1,564]".into(), "00000000 1".into()));
        let (tag, text) = tagged("Sun Oct 21 04:41:17 2018[1,620]<stderr>:[h:1:0:1] x");
        assert_eq!(
            (Origin::of(&tag, &text).rank.as_deref(), text.as_str()),
            (Some("620"), "[h:1:0:1] x")
        );
        let (tag, text) =
            tagged(r#"{"log":"00 \"a\"\n","stream":"stderr","time":"2024-05-01T10:00:00Z"}"#);
        assert_eq!(text, "00 \"a\"");
        assert_eq!(Origin::of(&tag, &text).time.as_deref(), Some("2024-05-01T10:00:00Z"));
        assert_eq!(tagged("2024-05-01T10:00:00Z stderr F x y").1, "x y");
        assert_eq!(tagged("worker-1  | x").1, "x");
        for line in ["00000000: 00 | ..", "plain", "{not json", "a | b", "x<stderr>: y"] {
            assert!(launcher(line).is_none(), "{line}");
        }
    }

    #[test]
    fn joints_of_a_line_of_brackets_are_found_in_linear_time() {
        const REPEATED: usize = 1 << 22;
        // A search to the end of the line for each bracket takes an hour.
        for (part, tail) in [("[", ""), ("1]<stderr>:", ""), ("[", "x[1593671296.5]")] {
            let line = format!("x{}{tail}", part.repeat(REPEATED / part.len()));
            let expected = (!tail.is_empty()).then(|| line.len() - tail.len() + 1);
            assert_eq!(joints(&line), Vec::from_iter(expected), "{part} {tail}");
        }
        assert_eq!(joints("a[1,2]<stderr>:b[1,3]<stdout>:"), [1, 16]);
        assert_eq!(joints("a[b[clx-1:17892:0:1]"), [3]);
    }

    #[test]
    fn origins_are_read_from_prefixes() {
        let read = |line| {
            let origin = Origin::of("", line);
            [origin.time, origin.host, origin.rank].map(Option::unwrap_or_default)
        };
        assert_eq!(read("[  12.345] mlx5_core 0000:01:00.0: x"), ["12.345", "", ""]);
        assert_eq!(read("Nov 21 22:27:35 node7 kernel: x"), ["Nov 21 22:27:35", "node7", ""]);
        assert_eq!(read("[1593671296.5] [clx-1:17892:0] x"), ["1593671296.5", "clx-1", ""]);
        assert_eq!(
            read("2024-01-02 03:04:05 n1:22:33 [0] NCCL WARN"),
            ["2024-01-02 03:04:05", "n1", ""]
        );
        assert_eq!(read("[rank5]: x"), ["", "", "5"]);
        assert_eq!(read("[c1:mpi_rank_3][handle_cqe] x"), ["", "c1", "3"]);
        assert_eq!(read("mlx5: x"), ["", "", ""]);
        assert_eq!(read(""), ["", "", ""]);
    }
}
