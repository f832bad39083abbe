//! Reads the structures of `mlx5_ifc.h`: in C, each bit of a field is one `u8`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mlx5_sys::ifc::Field;

/// Folders in which distributions put the kernel's headers, by release.
const INSTALLED: &[&str] = &["/usr/src", "/usr/src/kernels", "/lib/modules"];
/// The release that the layouts were taken from.
const OLDEST: &str = "6.1.";

/// The kernel's header.
pub struct Header {
    /// Path of the file.
    pub path: PathBuf,
    text: String,
    devices: String,
    structures: BTreeMap<String, Structure>,
}

/// A structure of it.
#[derive(Clone, Debug, Default)]
pub struct Structure {
    pub bits: usize,
    pub fields: BTreeMap<String, Place>,
}

/// The place of a field: its first bit, the bits of an element, and the bits of all elements.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub bit: usize,
    pub element: usize,
    pub whole: usize,
}

impl Place {
    /// Whether a field lies there: the whole, or the first element.
    pub fn is(self, field: Field) -> bool {
        self.bit == field.bit_offset()
            && (field.width() == self.whole || field.width() == self.element)
    }
}

impl Structure {
    /// Whether the field, by its name in lower case, is what the structure has as two halves,
    /// `…_high` and `…_low`.
    pub fn has_halves(&self, name: &str, field: Field) -> bool {
        let is_half = |half: &str, bit: usize| {
            let place = self.fields.get(&format!("{name}_{half}"));
            place.is_some_and(|place| (place.bit, place.whole) == (bit, 32))
        };
        field.width() == 64
            && is_half("high", field.bit_offset())
            && is_half("low", field.bit_offset() + 32)
    }
}

impl Header {
    /// The installed header: of Linux 6.1, if there are several.
    ///
    /// # Panics
    /// If there is none.
    pub fn installed() -> Header {
        let mut found = Vec::new();
        for folder in INSTALLED {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                for inside in ["", "build", "source"] {
                    let header = entry.path().join(inside).join("include/linux/mlx5/mlx5_ifc.h");
                    if header.is_file() {
                        found.push(header);
                    }
                }
            }
        }
        found.sort();
        let path =
            found.iter().find(|path| is_oldest(path)).or(found.first()).unwrap_or_else(|| {
                panic!(
                    "no linux/mlx5/mlx5_ifc.h is under {INSTALLED:?}: run `cargo xtask setup`, or \
                 `apt-get install linux-headers-amd64` (on Ubuntu linux-headers-generic)"
                )
            });
        Header::read(path.clone())
    }

    fn read(path: PathBuf) -> Header {
        let beside = |name: &str| {
            let path = path.with_file_name(name);
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            without_comments(&text)
        };
        let (text, devices) = (beside("mlx5_ifc.h"), beside("device.h"));
        let mut header = Header { path: path.clone(), text, devices, structures: BTreeMap::new() };
        let bodies = bodies(&header.text);
        for name in bodies.keys() {
            resolve(name, &bodies, &mut header.structures);
        }
        header
    }

    /// Whether it is of the release that the layouts were taken from.
    pub fn is_oldest(&self) -> bool {
        is_oldest(&self.path)
    }

    /// A structure or union by its name without prefix and suffix.
    pub fn structure(&self, name: &str) -> Option<&Structure> {
        self.structures.get(name)
    }

    /// Constants `PREFIX… = number` of this header and of `device.h`.
    pub fn constants(&self, prefix: &'static str) -> impl Iterator<Item = (String, u64)> + '_ {
        let lines = self.text.lines().chain(self.devices.lines());
        lines.filter_map(move |line| {
            let (name, value) = line.trim().strip_prefix(prefix)?.split_once('=')?;
            let value = value.trim().trim_end_matches(',');
            Some((name.trim().to_owned(), number(value)? as u64))
        })
    }
}

fn is_oldest(path: &Path) -> bool {
    path.iter()
        .any(|part| part.to_string_lossy().trim_start_matches("linux-headers-").starts_with(OLDEST))
}

fn number(text: &str) -> Option<usize> {
    match text.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

/// A structure's name without `mlx5_ifc_` and `_bits`.
fn short(name: &str) -> Option<&str> {
    let name = name.strip_prefix("mlx5_ifc_")?;
    // A few end in `_bits1` and so on, which are others than those without a number.
    Some(name.strip_suffix("_bits").unwrap_or(name))
}

/// The words and signs of every structure, and whether it is a union.
fn bodies(text: &str) -> BTreeMap<String, (bool, Vec<&str>)> {
    let tokens = tokens(text);
    let mut bodies = BTreeMap::new();
    for (at, window) in tokens.windows(3).enumerate() {
        let [kind @ ("struct" | "union"), name, "{"] = window else { continue };
        let Some(name) = short(name) else { continue };
        let end = closing(&tokens, at + 2);
        bodies.insert(name.to_owned(), (*kind == "union", tokens[at + 3..end].to_vec()));
    }
    bodies
}

fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let length = match word(first) {
            true => rest.find(|letter| !word(letter)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// Returns the index of the brace that closes the one at `at`.
fn closing(tokens: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (here, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return here;
        }
    }
    panic!("a brace that is never closed");
}

/// Lays a structure out, and those inside it first.
fn resolve(
    name: &str,
    bodies: &BTreeMap<String, (bool, Vec<&str>)>,
    known: &mut BTreeMap<String, Structure>,
) -> usize {
    if let Some(structure) = known.get(name) {
        return structure.bits;
    }
    // One of another header, by name only: nothing here lies behind such.
    let Some((union, body)) = bodies.get(name) else { return 0 };
    let mut structure = Structure::default();
    structure.bits = members(body, *union, 0, &mut structure.fields, bodies, known);
    let bits = structure.bits;
    known.insert(name.to_owned(), structure);
    bits
}

/// Enters the members that lie from bit `start` on, and gives where they end.
fn members(
    body: &[&str],
    union: bool,
    start: usize,
    fields: &mut BTreeMap<String, Place>,
    bodies: &BTreeMap<String, (bool, Vec<&str>)>,
    known: &mut BTreeMap<String, Structure>,
) -> usize {
    let (mut at, mut bit, mut end) = (0, start, start);
    while at < body.len() {
        let length = match body[at..] {
            [kind @ ("struct" | "union"), "{", ..] => {
                let close = closing(body, at + 1);
                let inner = &body[at + 2..close];
                let inner_end = members(inner, kind == "union", bit, fields, bodies, known);
                // Some have a name. It is skipped, because no field is looked up by it.
                at = close + 1 + usize::from(body.get(close + 1) != Some(&";"));
                inner_end - bit
            }
            ["u8", name, ..] => {
                let (sizes, after) = brackets(body, at + 2);
                let (element, counts) = sizes.split_last().expect("a field has a width");
                at = after;
                enter(fields, name, bit, element.unwrap_or(0), counts)
            }
            ["struct" | "union", kind, name, ..] => {
                let element =
                    resolve(short(kind).expect("a structure of this header"), bodies, known);
                let (counts, after) = brackets(body, at + 3);
                at = after;
                enter(fields, name, bit, element, &counts)
            }
            _ => panic!("not understood: {:?}", &body[at..body.len().min(at + 8)]),
        };
        assert_eq!(body.get(at), Some(&";"), "{body:?}");
        at += 1;
        end = end.max(bit + length);
        if !union {
            bit += length;
        }
    }
    end
}

/// `[a][b]…`: the numbers, and where they end.
fn brackets(body: &[&str], mut at: usize) -> (Vec<Option<usize>>, usize) {
    let mut sizes = Vec::new();
    while body.get(at) == Some(&"[") {
        let empty = body[at + 1] == "]";
        sizes.push(if empty { None } else { number(body[at + 1]) });
        at += if empty { 2 } else { 3 };
    }
    (sizes, at)
}

/// Enters a field of so many elements, and gives how many bits it takes: those of open length none.
fn enter(
    fields: &mut BTreeMap<String, Place>,
    name: &str,
    bit: usize,
    element: usize,
    counts: &[Option<usize>],
) -> usize {
    let open = counts.iter().any(|count| matches!(count, None | Some(0)));
    let count: usize = if open { 1 } else { counts.iter().flatten().product() };
    let whole = element * count;
    // A few have letters of both cases.
    fields.insert(name.to_lowercase(), Place { bit, element, whole });
    if open { 0 } else { whole }
}
