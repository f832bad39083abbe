//! The catalogue of messages of Linux's mlx5_core and mlx5_ib.
//!
//! `cargo xtask messages` makes `messages.txt` from the sources of a kernel. It has files, functions,
//! and for each format the hashes of its words in order. `*` stands where a conversion stands in the
//! format. A line is known by the words of its message, and by the function that the driver prints.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// A message that a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The source file, such as `core/eq.c`.
    pub file: &'static str,
    /// The function that prints it.
    pub function: &'static str,
}

/// A format of the catalogue.
#[derive(Clone, Debug)]
struct Entry {
    known: Known,
    /// The hashes of its words that stand together, between conversions.
    runs: Vec<Vec<u32>>,
    /// Whether the message begins with a word of the format.
    is_anchored: bool,
}

/// The entries, found by the first word of each and by function.
struct Catalogue {
    entries: Vec<Entry>,
    by_word: HashMap<u32, Vec<usize>>,
    by_function: HashMap<&'static str, Known>,
    /// Functions with messages that have no words of their own.
    wordless: HashSet<&'static str>,
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| read(include_str!("messages.txt")));

/// Most words of a message that are compared.
const WORDS: usize = 64;

/// Most words that a conversion fills.
const GAP: usize = 24;

/// Returns the message of the driver that a text is, with the name of the function where the line has
/// one.
pub(super) fn find(message: &str, function: Option<&str>) -> Option<Known> {
    find_of(message, function, 2)
}

/// Returns the message that a text is, as [`find`] does, if at least `least` words of it are known.
pub(super) fn find_of(message: &str, function: Option<&str>, least: usize) -> Option<Known> {
    let catalogue = &*CATALOGUE;
    let words: Vec<u32> = words(message).take(WORDS).map(hash).collect();
    let mut best: Option<((usize, bool), Known)> = None;
    for (place, word) in words.iter().enumerate() {
        for entry in catalogue.by_word.get(word).into_iter().flatten() {
            let entry = &catalogue.entries[*entry];
            if entry.is_anchored && place > 0 || !entry.matches(&words[place..]) {
                continue;
            }
            let same = function == Some(entry.known.function);
            let count: usize = entry.runs.iter().map(Vec::len).sum();
            // Few words alone are no evidence.
            if (count >= least || same) && best.is_none_or(|(found, _)| (count, same) > found) {
                best = Some(((count, same), entry.known));
            }
        }
    }
    best.map(|(_, known)| known)
}

/// Returns the file of a function that prints messages.
pub(super) fn of_function(name: &str) -> Option<Known> {
    CATALOGUE.by_function.get(name).copied()
}

/// Returns whether a function prints messages without words of their own.
pub(super) fn is_wordless(function: &str) -> bool {
    CATALOGUE.wordless.contains(function)
}

/// All files and functions of the catalogue.
#[cfg(test)]
pub(super) fn all() -> Vec<Known> {
    let mut all: Vec<Known> = CATALOGUE.entries.iter().map(|entry| entry.known).collect();
    all.extend(CATALOGUE.by_function.values());
    all
}

impl Entry {
    /// Returns whether words begin with the first run, and have the others behind it in order.
    fn matches(&self, words: &[u32]) -> bool {
        let Some((first, rest)) = self.runs.split_first() else { return false };
        if !words.starts_with(first) {
            return false;
        }
        let mut at = first.len();
        for run in rest {
            let gaps = words[at..].windows(run.len()).take(GAP + 1);
            let Some(gap) = gaps.into_iter().position(|window| window == run.as_slice()) else {
                return false;
            };
            at += gap + run.len();
        }
        true
    }
}

/// Returns the words of a message: letters and digits.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let others = |letter: char| !letter.is_ascii_alphanumeric();
    message.split(others).filter(|word| !word.is_empty())
}

/// Hashes a word, without regard to case: FNV-1a, of which 24 bits are kept.
/// `xtask/src/messages/source.rs` has the same function.
fn hash(word: &str) -> u32 {
    let step = |hash: u32, byte: u8| {
        (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    };
    let hash = word.bytes().fold(0x811c_9dc5, step);
    (hash ^ (hash >> 24)) & 0x00ff_ffff
}

fn read(text: &'static str) -> Catalogue {
    let mut catalogue = Catalogue {
        entries: Vec::new(),
        by_word: HashMap::new(),
        by_function: HashMap::new(),
        wordless: HashSet::new(),
    };
    let (mut file, mut function) = ("", "");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(key) = line.strip_prefix("  ") {
            let known = Known { file, function };
            catalogue.by_function.entry(function).or_insert(known);
            let entry = Entry { known, runs: runs(key), is_anchored: !key.starts_with('*') };
            if let Some(first) = entry.runs.first().and_then(|run| run.first()) {
                let at = catalogue.entries.len();
                catalogue.by_word.entry(*first).or_default().push(at);
                catalogue.entries.push(entry);
            } else {
                catalogue.wordless.insert(function);
            }
        } else if let Some(name) = line.strip_prefix(' ') {
            function = name;
        } else {
            file = line;
        }
    }
    catalogue
}

/// Reads the key of a format: its runs of words.
fn runs(key: &str) -> Vec<Vec<u32>> {
    let hashes = |run: &str| -> Vec<u32> {
        run.split_ascii_whitespace().filter_map(|word| u32::from_str_radix(word, 16).ok()).collect()
    };
    key.split('*').map(hashes).filter(|run| !run.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::kernel;

    fn found(message: &str, function: Option<&str>) -> Option<(&'static str, &'static str)> {
        find(message, function).map(|known| (known.file, known.function))
    }

    #[test]
    fn messages_are_known_by_their_words_in_order() {
        assert_eq!(
            found("maximum number of vectors is allocated, 63", None),
            Some(("core/eq.c", "create_comp_eq"))
        );
        let slot = found("CREATE_QP(0x500) timed out while waiting for a slot.", None);
        assert_eq!(slot, Some(("core/cmd.c", "cmd_work_handler")));
        assert_eq!(found("vectors of maximum number allocated is", None), None);
        assert_eq!(found("maximum number", None), None);
        assert_eq!(found("", None), None);
    }

    #[test]
    fn a_single_word_needs_its_function() {
        assert_eq!(found("err -5", None), None);
        assert_eq!(found("err -5", Some("cmd_exec")), Some(("core/cmd.c", "cmd_exec")));
        assert_eq!(of_function("mlx5_ib_post_send").map(|known| known.file), Some("ib/wr.c"));
        assert_eq!(of_function("ib_post_send"), None);
        assert!(is_wordless("mlx5_ib_post_send") && !is_wordless("cmd_exec"));
    }

    #[test]
    fn the_function_decides_between_equal_words() {
        let of = |function| {
            found("Failed to lock SW reset semaphore", Some(function)).map(|known| known.0)
        };
        assert_eq!(of("lock_sem_sw_reset"), Some("core/health.c"));
        assert_eq!(of("mlx5_crdump_collect"), Some("core/diag/crdump.c"));
    }

    #[test]
    fn every_function_of_the_catalogue_has_a_family() {
        for Known { file, function } in all() {
            assert!(kernel::find(file, function, "").is_some(), "{file} {function}");
        }
    }

    #[test]
    fn any_text_is_compared_in_bounded_time() {
        let long = "failed to create ".repeat(100_000);
        let start = std::time::Instant::now();
        assert!(found(&long, Some("x")).is_none_or(|known| !known.0.is_empty()));
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
        assert_eq!(found("é\u{0}\u{7f}…", Some("é")), None);
    }
}
