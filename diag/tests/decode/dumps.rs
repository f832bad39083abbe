//! Dumps from public threads, each with its source in the first line, and with random damage.

use std::fs;
use std::path::PathBuf;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../diag/tests/dumps")
}

pub fn dump(name: &str) -> String {
    let path = folder().join(format!("{name}.txt"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of all dumps.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the folder");
    let mut names: Vec<String> = entries
        .map(|entry| {
            let name = entry.expect("an entry").file_name().into_string().expect("text");
            name.strip_suffix(".txt").expect("a text").to_owned()
        })
        .collect();
    names.sort();
    names
}

/// Removes, repeats, changes and inserts up to eight pieces of a dump. `below` returns a random
/// number below its argument.
pub fn damaged(dump: &str, mut below: impl FnMut(u32) -> u32) -> Vec<u8> {
    let mut input = dump.as_bytes().to_vec();
    for _ in 0..=below(8) {
        let at = below(input.len() as u32 + 1) as usize;
        let end = (at + below(40) as usize).min(input.len());
        match below(5) {
            0 => drop(input.drain(at..end)),
            1 => input.insert(at, below(256) as u8),
            2 => input.splice(at..at, b"ffffffffffffffffff".iter().copied()).for_each(drop),
            3 => {
                let again = input[at..end].to_vec();
                input.splice(end..end, again).for_each(drop);
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << below(8);
                }
            }
        }
    }
    input
}
