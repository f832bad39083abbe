//! `cargo xtask messages`: the catalogue of messages by which `mlx5 decode` knows Linux's driver.
//!
//! It reads the error and warning formats in the sources of mlx5_core and mlx5_ib, and keeps of each
//! the file, the function, and a hash of each of its words in order. Words of the format that a
//! conversion fills are a `*`. No sentence of the kernel is kept. `diag/src/decode/messages.rs` reads
//! the catalogue, and hashes the words of a log in the same way.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use self::source::{Message, Source};
use crate::Result;
use crate::build;

/// The catalogue, from the workspace.
const CATALOGUE: &str = "diag/src/decode/messages.txt";

/// The folders of a kernel's source that have the driver, and the names of their files here.
const FOLDERS: [(&str, &str); 2] =
    [("drivers/net/ethernet/mellanox/mlx5/core", "core"), ("drivers/infiniband/hw/mlx5", "ib")];

/// The keys of messages, by file and function.
type Catalogue = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// `cargo xtask messages [--lines] SOURCE ...`.
pub fn command(arguments: &[String]) -> Result {
    let (lines, sources) = match arguments.split_first() {
        Some((first, rest)) if first == "--lines" => (true, rest),
        _ => (false, arguments),
    };
    if sources.is_empty() {
        return Err("name the folder of a kernel's source: cargo xtask messages SOURCE ...".into());
    }
    let path = build::root().join(CATALOGUE);
    let mut catalogue = parse(&fs::read_to_string(&path).unwrap_or_default());
    for source in sources {
        let messages = read(Path::new(source))?;
        if lines {
            messages.iter().for_each(|message| println!("{}", message.line()));
            continue;
        }
        let before = count(&catalogue);
        messages.iter().for_each(|message| enter(&mut catalogue, message));
        println!(
            "{source}: {} formats, {} of them new in the catalogue",
            messages.len(),
            count(&catalogue) - before
        );
    }
    if lines {
        return Ok(());
    }
    fs::write(&path, text(&catalogue))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("{CATALOGUE}: {} entries", count(&catalogue));
    Ok(())
}

/// Returns the messages of a kernel's source.
fn read(source: &Path) -> Result<Vec<Message>> {
    let mut texts = Vec::new();
    for (folder, name) in FOLDERS {
        let root = source.join(folder);
        let mut files = Vec::new();
        list(&root, &mut files)?;
        files.sort();
        for file in files {
            let text = fs::read(&file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            let below = file.strip_prefix(&root).unwrap_or(&file);
            let label = format!("{name}/{}", below.display());
            texts.push((label, Source::new(&String::from_utf8_lossy(&text))));
        }
    }
    // Macros of headers are used in other files.
    let prefixes = texts.iter().flat_map(|(_, source)| source.prefixes.clone()).collect();
    Ok(texts.iter().flat_map(|(label, source)| source.messages(label, &prefixes)).collect())
}

/// Adds the sources below a folder.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result {
    let entries = fs::read_dir(folder).map_err(|error| {
        format!("cannot read {}: {error}; is it a kernel's source?", folder.display())
    })?;
    for entry in entries {
        let path =
            entry.map_err(|error| format!("cannot read {}: {error}", folder.display()))?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "c" || kind == "h") {
            files.push(path);
        }
    }
    Ok(())
}

fn enter(catalogue: &mut Catalogue, message: &Message) {
    let functions = catalogue.entry(message.file.clone()).or_default();
    functions.entry(message.function.clone()).or_default().insert(message.key());
}

fn count(catalogue: &Catalogue) -> usize {
    catalogue.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum()
}

/// The head of the catalogue.
const HEAD: &str = "\
# What recognises the error and warning messages of Linux's mlx5_core and mlx5_ib: file, function,
# and a hash of each word of a format, `*` where a conversion stands. Made by `cargo xtask messages`.
";

fn text(catalogue: &Catalogue) -> String {
    let mut text = HEAD.to_owned();
    for (file, functions) in catalogue {
        text += &format!("{file}\n");
        for (function, keys) in functions {
            text += &format!(" {function}\n");
            keys.iter().for_each(|key| text += &format!("  {key}\n"));
        }
    }
    text
}

/// Reads a catalogue. A longer line than its neighbours is indented: file, function, key.
fn parse(text: &str) -> Catalogue {
    let mut catalogue = Catalogue::new();
    let (mut file, mut function) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(key) = line.strip_prefix("  ") {
            let functions = catalogue.entry(file.clone()).or_default();
            functions.entry(function.clone()).or_default().insert(key.to_owned());
        } else if let Some(name) = line.strip_prefix(' ') {
            name.clone_into(&mut function);
        } else {
            line.clone_into(&mut file);
        }
    }
    catalogue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalogue_is_written_as_it_is_read() {
        let source =
            "static int grow(struct x *dev)\n{\n\tx_err(dev, \"no room for %s %d\\n\", a, b);\n}\n";
        let mut catalogue = Catalogue::new();
        let source = Source::new(source);
        let found = source.messages("core/a.c", &source.prefixes);
        found.iter().for_each(|one| enter(&mut catalogue, one));
        assert_eq!(count(&catalogue), 1);
        let written = text(&catalogue);
        assert!(!written.contains("room"), "a word of the kernel is kept: {written}");
        assert_eq!(parse(&written), catalogue);
    }
}
