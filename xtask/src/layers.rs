//! `cargo xtask layers`: the order of each crate's top-level modules, and what breaks it. The modules in a
//! large module have an order as well.
//!
//! A module may use the modules before it in the order, and none after it. What counts is every path
//! that leads there (`crate::`, `$crate::`, and `super::`) outside of comments, texts and tests. The module
//! that has them all (`lib.rs`, `main.rs`, `mod.rs`) may name each. A method that a higher module adds to a
//! lower module's type has no path, so a call of it is not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use crate::Result;
use crate::build;
use orders::{ORDERS, Order};

mod orders;

/// The packages that are checked where none is named.
const CHECKED: &[&str] = &[
    "mlx5",
    "mlx5-diag",
    "mlx5-conformance",
    "mlx5-c",
    "mlx5-model",
    "mlx5-model-pci",
    "mlx5-monitor",
    "mlx5-tools",
];

/// `cargo xtask layers [PACKAGE ...]`.
pub fn command(packages: &[String]) -> Result {
    if packages.is_empty() {
        return check();
    }
    packages.iter().try_for_each(|package| check_package(package))
}

/// Checks the packages of [`CHECKED`].
///
/// # Errors
/// How many uses and modules break an order; each is printed before.
pub fn check() -> Result {
    CHECKED.iter().try_for_each(|package| check_package(package))
}

fn check_package(package: &str) -> Result {
    let mut orders = ORDERS.iter().filter(|order| order.package == package).peekable();
    if orders.peek().is_none() {
        let known = CHECKED.join(", ");
        return Err(format!("no order is known for the package `{package}`; name one of {known}"));
    }
    orders.try_for_each(check_order)
}

fn check_order(order: &Order) -> Result {
    let mut files = Vec::new();
    read(&build::root(), order.folder, &mut files)?;
    let found = Uses::of(order.folder, order.inside, &files);
    let broken = found.against(order);
    for line in &broken {
        eprintln!("{line}");
    }
    let name = order.name();
    match broken.len() {
        0 => {
            let (modules, uses) = (found.modules.len(), found.edges.len());
            println!("{name}: {modules} modules, {uses} dependencies, none upward");
            Ok(())
        }
        count => Err(format!("order of `{name}` broken in {count} places; each is printed above")),
    }
}

impl Order {
    /// The package, and the module in it if it is not the root.
    fn name(&self) -> String {
        [&[self.package], self.inside].concat().join("::")
    }
}

/// Reads all source files of a folder, with their paths from the workspace.
fn read(root: &Path, folder: &str, files: &mut Vec<(String, String)>) -> Result {
    let told =
        |path: &str, error| format!("cannot read {path}: {error}; check the folder's rights");
    let entries = fs::read_dir(root.join(folder)).map_err(|error| told(folder, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| told(folder, error))?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(root, &path, files)?;
        } else if path.ends_with(".rs") {
            let text = fs::read_to_string(entry.path()).map_err(|error| told(&path, error))?;
            files.push((path, text));
        }
    }
    files.sort();
    Ok(())
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: String,
    line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Which module of a crate uses which.
#[derive(Debug, Default)]
struct Uses {
    /// The modules that have an order, and where the module around them declares each.
    modules: BTreeMap<String, Place>,
    /// By using and used module: where.
    edges: BTreeMap<(String, String), BTreeSet<Place>>,
}

impl Uses {
    fn of(folder: &str, inside: &[&str], files: &[(String, String)]) -> Self {
        let mut sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(folder, inside, path, text)).collect();
        let mut tests = BTreeSet::new();
        let mut found = Self::default();
        // Names that the module around them has of one: by them it is used, too.
        let mut renamed = BTreeMap::new();
        for source in &mut sources {
            let seen = source.scan();
            tests.extend(seen.test_modules);
            if source.is_around(&source.module) {
                for (name, line) in seen.modules {
                    found.modules.insert(name, Place { file: source.path.clone(), line });
                }
                renamed.extend(seen.renamed);
            }
            source.paths = seen.paths;
        }
        for source in sources {
            let is_test = (1..=source.module.len()).any(|n| tests.contains(&source.module[..n]));
            let user = source.inner(&source.module).filter(|_| !is_test).cloned();
            let Some(user) = user else { continue };
            for (name, line) in source.paths {
                let module = renamed.get(&name).unwrap_or(&name);
                if *module != user && found.modules.contains_key(module) {
                    let place = Place { file: source.path.clone(), line };
                    let edge = (user.clone(), module.clone());
                    found.edges.entry(edge).or_default().insert(place);
                }
            }
        }
        found
    }

    /// Returns the violations of the order, one line each.
    fn against(&self, order: &Order) -> Vec<String> {
        let mut broken = Vec::new();
        let place_of = |name: &str| order.modules.iter().position(|(module, _)| *module == name);
        let package = order.name();
        for (name, declared) in &self.modules {
            if place_of(name).is_none() {
                broken.push(format!(
                    "{declared}: module `{name}` has no place in the order of `{package}`; add it \
                     with a reason to ORDERS in xtask/src/layers/orders.rs"
                ));
            }
        }
        for (name, _) in order.modules {
            if !self.modules.contains_key(*name) {
                broken.push(format!(
                    "xtask/src/layers/orders.rs: the order of `{package}` names `{name}`, which the crate \
                     does not have; remove the row"
                ));
            }
        }
        for ((user, used), places) in &self.edges {
            let cycle = self.way(used, user);
            let upward = match (place_of(user), place_of(used)) {
                (Some(own), Some(other)) => other > own,
                // Without a place for both, only a cycle is wrong for sure.
                _ => cycle.is_some(),
            };
            if !upward {
                continue;
            }
            let cycle = cycle.map_or(String::new(), |way| {
                format!(" (a cycle: `{user}` → `{}`)", way.join("` → `"))
            });
            for place in places {
                broken.push(format!(
                    "{place}: `{user}` uses `{used}`, which stands above it{cycle}; move what is \
                     used down to `{user}` or below, or this code up to `{used}`"
                ));
            }
        }
        broken
    }

    /// The shortest way by which one module uses another.
    fn way<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut ways = VecDeque::from([vec![from]]);
        let mut seen = BTreeSet::from([from]);
        while let Some(way) = ways.pop_front() {
            let last = way[way.len() - 1];
            if last == to {
                return Some(way);
            }
            for (_, used) in self.edges.keys().filter(|(user, _)| user == last) {
                if seen.insert(used) {
                    ways.push_back([&way[..], &[used]].concat());
                }
            }
        }
        None
    }
}

/// A token: a name, or one character of anything else. Texts and comments have none.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    line: usize,
}

/// A source file.
struct Source {
    path: String,
    /// Its module, from the crate's root.
    module: Vec<String>,
    /// The module whose modules have an order.
    inside: Vec<String>,
    tokens: Vec<Token>,
    paths: Vec<(String, usize)>,
}

/// The paths and modules found in a file.
#[derive(Default)]
struct Seen {
    /// Modules that it declares, and lines.
    modules: Vec<(String, usize)>,
    /// Files' modules that only tests have.
    test_modules: Vec<Vec<String>>,
    /// The modules that paths lead to, among those that have an order, and lines.
    paths: Vec<(String, usize)>,
    /// Names that it takes from modules, each with the module.
    renamed: Vec<(String, String)>,
}

impl Source {
    fn new(folder: &str, around: &[&str], path: &str, text: &str) -> Self {
        let inside = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
        let mut module: Vec<String> =
            inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        let is_root = module.len() == 1 && matches!(module[0].as_str(), "lib" | "main");
        if is_root || module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        let inside = around.iter().map(|&name| name.to_owned()).collect();
        Self { path: path.to_owned(), module, inside, tokens: tokens(text), paths: Vec::new() }
    }

    /// Whether a module is the one around those that have an order.
    fn is_around(&self, module: &[String]) -> bool {
        module == self.inside
    }

    /// The one of these modules that a module is, or is in.
    fn inner<'a>(&self, module: &'a [String]) -> Option<&'a String> {
        module.strip_prefix(&self.inside[..])?.first()
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// Whether `::` stands there.
    fn is_separator(&self, at: usize) -> bool {
        self.text(at) == ":" && self.text(at + 1) == ":"
    }

    fn scan(&self) -> Seen {
        let mut seen = Seen::default();
        // Modules written out in the file: the depth of their braces, for `super`.
        let mut inline: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0usize);
        while at < self.tokens.len() {
            let module = || {
                let inline = inline.iter().map(|(name, _)| name.clone());
                self.module.iter().cloned().chain(inline).collect::<Vec<_>>()
            };
            match self.text(at) {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inline.pop_if_at(depth);
                }
                "#" if self.is_for_tests(at) => {
                    let item = self.after_attributes(at);
                    if let Some(name) = self.declared(item) {
                        seen.test_modules.push([module(), vec![name.to_owned()]].concat());
                    }
                    at = self.after_item(item);
                    continue;
                }
                "mod" if self.text(at + 2) == "{" => {
                    if self.is_around(&module()) {
                        seen.modules.push((self.text(at + 1).to_owned(), self.tokens[at].line));
                    }
                    inline.push((self.text(at + 1).to_owned(), depth));
                    at += 2;
                    continue;
                }
                "mod" if self.text(at + 2) == ";" && self.is_around(&module()) => {
                    seen.modules.push((self.text(at + 1).to_owned(), self.tokens[at].line));
                }
                "use" if self.is_around(&module()) => {
                    let start = if self.text(at + 1) == "crate" { at + 4 } else { at + 1 };
                    self.rename(start, None, &mut seen.renamed);
                }
                "crate" | "super" | "self" if self.is_separator(at + 1) && !self.follows(at) => {
                    self.walk(at, &module(), &mut seen.paths);
                }
                _ => {}
            }
            at += 1;
        }
        seen
    }

    /// Whether a name is not the first of its path, or no use of it: `pub(in crate::x)`.
    fn follows(&self, at: usize) -> bool {
        let before = |n: usize| at.checked_sub(n).map_or("", |at| self.text(at));
        before(1) == "in" && before(2) == "(" || before(1) == ":" && before(2) == ":"
    }

    /// Follows a path, or a tree of them, that goes on from `base`; gives where it ends.
    fn walk(&self, at: usize, base: &[String], paths: &mut Vec<(String, usize)>) -> usize {
        let next = |base: &[String], paths: &mut Vec<_>| match self.is_separator(at + 1) {
            true => self.walk(at + 3, base, paths),
            false => at + 1,
        };
        match self.text(at) {
            "crate" => next(&[], paths),
            "self" => next(base, paths),
            "super" => next(base.split_last().map_or(&[][..], |(_, above)| above), paths),
            "{" => {
                let mut at = at + 1;
                while !matches!(self.text(at), "}" | "") {
                    at = self.walk(at, base, paths);
                    // What is left of this branch (`::c as d`), up to the next.
                    while !matches!(self.text(at), "," | "}" | "") {
                        at = if self.text(at) == "{" { self.after_group(at) } else { at + 1 };
                    }
                    at += usize::from(self.text(at) == ",");
                }
                at + 1
            }
            name => {
                if self.is_around(base) {
                    paths.push((name.to_owned(), self.tokens.get(at).map_or(0, |t| t.line)));
                } else if self.is_separator(at + 1) {
                    let base = [base, &[name.to_owned()]].concat();
                    if self.inside.starts_with(&base) {
                        return self.walk(at + 3, &base, paths);
                    }
                }
                at + 1
            }
        }
    }

    /// Notes the names that a `use` of the module around takes from modules; gives where it ends.
    fn rename(&self, at: usize, from: Option<&str>, to: &mut Vec<(String, String)>) -> usize {
        let mut at = at;
        let mut first = from;
        loop {
            if self.text(at) == "{" {
                at += 1;
                while !matches!(self.text(at), "}" | "") {
                    at = self.rename(at, first, to);
                    at += usize::from(self.text(at) == ",");
                }
                return at + 1;
            }
            if !self.is_separator(at + 1) {
                break;
            }
            first = first.or(Some(self.text(at)));
            at += 3;
        }
        let renamed = self.text(at + 1) == "as";
        let name = self.text(if renamed { at + 2 } else { at });
        if let Some(module) = first {
            to.push((name.to_owned(), module.to_owned()));
        }
        at + if renamed { 3 } else { 1 }
    }

    /// Returns the end of a group whose opening bracket is at `at`.
    fn after_group(&self, at: usize) -> usize {
        let mut depth = 0;
        for (offset, token) in self.tokens[at..].iter().enumerate() {
            match token.text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at + offset + 1;
            }
        }
        self.tokens.len()
    }

    /// Whether an attribute begins there that leaves what follows to tests.
    fn is_for_tests(&self, at: usize) -> bool {
        let [open, cfg, arguments] = [1, 2, 3].map(|n| self.text(at + n));
        open == "[" && cfg == "cfg" && arguments == "(" && self.never_holds(at + 4).0
    }

    /// Whether a condition of `cfg` never holds outside of tests, and where it ends.
    fn never_holds(&self, at: usize) -> (bool, usize) {
        let name = self.text(at);
        if self.text(at + 1) != "(" {
            let mut end = at + 1;
            while !matches!(self.text(end), "," | ")" | "") {
                end += 1;
            }
            return (matches!(name, "test" | "doctest"), end);
        }
        let mut parts = Vec::new();
        let mut part = at + 2;
        while !matches!(self.text(part), ")" | "") {
            let (never, end) = self.never_holds(part);
            parts.push(never);
            part = end + usize::from(self.text(end) == ",");
        }
        let never = match name {
            "all" => parts.contains(&true),
            "any" => !parts.is_empty() && !parts.contains(&false),
            // The opposite of a condition that may hold may hold, too.
            _ => false,
        };
        (never, part + 1)
    }

    /// Returns the start of the item that the attributes at `at` belong to.
    fn after_attributes(&self, at: usize) -> usize {
        let mut at = at;
        while self.text(at) == "#" {
            at = self.after_group(at + 1);
        }
        at
    }

    /// The name of a module that an item declares as a file of its own.
    fn declared(&self, item: usize) -> Option<&str> {
        let mut at = item;
        if self.text(at) == "pub" {
            at += 1;
            if self.text(at) == "(" {
                at = self.after_group(at);
            }
        }
        (self.text(at) == "mod" && self.text(at + 2) == ";").then(|| self.text(at + 1))
    }

    /// Returns the end of the item, field, variant, arm or statement that starts there.
    fn after_item(&self, item: usize) -> usize {
        const ITEMS: [&str; 14] = [
            "pub", "fn", "mod", "use", "impl", "struct", "enum", "const", "static", "type",
            "trait", "unsafe", "extern", "async",
        ];
        // A comma ends what is no item; within an item it may stand between `<` and `>`. `pub` may
        // begin a field as well, which its colon tells.
        let visible = self.text(item) == "pub";
        let name =
            item + if self.text(item + 1) == "(" { self.after_group(item + 1) - item } else { 1 };
        let is_field = visible && self.text(name + 1) == ":" && !self.is_separator(name + 1);
        let is_item = ITEMS.contains(&self.text(item)) && !is_field;
        let keyword = if visible { name } else { item };
        let mut at = item;
        loop {
            match self.text(at) {
                "" | ")" | "]" | "}" => return at,
                ";" => return at + 1,
                "," if !is_item => return at + 1,
                "{" if self.text(keyword) != "use" => return self.after_group(at),
                "(" | "[" | "{" => at = self.after_group(at),
                _ => at += 1,
            }
        }
    }
}

/// Modules written out in a file, by the depth of their braces.
trait Inline {
    fn pop_if_at(&mut self, depth: usize);
}

impl Inline for Vec<(String, usize)> {
    fn pop_if_at(&mut self, depth: usize) {
        if self.last().is_some_and(|(_, own)| *own == depth) {
            self.pop();
        }
    }
}

/// Cuts a source into tokens. Comments, texts, characters and lifetimes have none.
fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let get = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            byte if byte.is_ascii_whitespace() => at += 1,
            b'/' if get(at + 1) == b'/' => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if get(at + 1) == b'*' => {
                let mut depth = 0;
                while at < bytes.len() {
                    match (bytes[at], get(at + 1)) {
                        (b'/', b'*') => (depth, at) = (depth + 1, at + 2),
                        (b'*', b'/') => (depth, at) = (depth - 1, at + 2),
                        _ => at += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            b'"' => at = after_text(bytes, at),
            b'\'' => {
                at += 1;
                if is_name(get(at)) && get(at) < 0x80 && get(at + 1) != b'\'' {
                    // A lifetime.
                    while is_name(get(at)) {
                        at += 1;
                    }
                } else {
                    at += if get(at) == b'\\' { 2 } else { 1 };
                    while at < bytes.len() && bytes[at] != b'\'' {
                        at += 1;
                    }
                    at += 1;
                }
            }
            byte if is_name(byte) => {
                while is_name(get(at)) {
                    at += 1;
                }
                let name = &text[start..at];
                let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
                let is_raw = matches!(name, "r" | "br" | "cr") && get(at + hashes) == b'"';
                if is_raw {
                    at = after_raw(bytes, at + hashes + 1, hashes);
                } else if matches!(name, "b" | "c") && get(at) == b'"' {
                    at = after_text(bytes, at);
                } else if name == "r" && hashes == 1 {
                    // A raw name: the name itself follows.
                    at += 1;
                } else if !(name == "b" && get(at) == b'\'') {
                    found.push(Token { text: name.to_owned(), line });
                }
            }
            byte => {
                found.push(Token { text: char::from(byte).to_string(), line });
                at += 1;
            }
        }
        let end = at.min(bytes.len());
        line += bytes[start..end].iter().filter(|byte| **byte == b'\n').count();
    }
    found
}

/// Returns the end of a string literal whose quotation mark is at `start`.
fn after_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the end of a raw string literal whose content starts at `start`.
fn after_raw(bytes: &[u8], start: usize, hashes: usize) -> usize {
    let end = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let found = bytes[start..].windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len(), |at| start + at + end.len())
}

#[cfg(test)]
mod tests;
