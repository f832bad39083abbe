//! The words of the model's decoder, compared with what an assembler makes of the texts beside them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::build;

/// The tables: each row begins with a word and its text.
const TABLES: &str = "model/src/frontend/uverbs/process/instruction/a64/test.rs";

/// Extensions whose instructions the tables have.
const ARCHITECTURE: &str = ".arch armv8.7-a+ls64+memtag+sve";

/// Assembles the texts in this folder and compares the words.
///
/// # Errors
/// - The tables have no row, or a text that the assembler refuses.
/// - A word is not that of its text.
pub fn check(folder: &Path) -> Result {
    let file = build::root().join(TABLES);
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let rows: Vec<(u32, &str)> = rows(&text);
    if rows.is_empty() {
        return Err(format!("{TABLES} has no table"));
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (source, object) = (folder.join("words.s"), folder.join("words.o"));
    let texts: Vec<&str> = rows.iter().map(|(_, text)| *text).collect();
    fs::write(&source, format!("{ARCHITECTURE}\n{}\n", texts.join("\n")))
        .map_err(|error| format!("{}: {error}", source.display()))?;
    let mut assemble = Command::new("aarch64-linux-gnu-as");
    build::run("assembling the tables", assemble.arg("-o").arg(&object).arg(&source))?;
    let mut dump = Command::new("aarch64-linux-gnu-objdump");
    let output =
        dump.arg("-d").arg(&object).output().map_err(|error| format!("objdump: {error}"))?;
    let words: Vec<u32> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(word).collect();
    if words.len() != rows.len() {
        return Err(format!("{} rows, but {} instructions", rows.len(), words.len()));
    }
    let wrong = rows.iter().zip(&words).find(|((word, _), assembled)| word != *assembled);
    match wrong {
        Some(((word, text), assembled)) => {
            Err(format!("`{text}` is {assembled:#010x}, not {word:#010x} as in {TABLES}"))
        }
        None => {
            println!("{} words are those of their texts", rows.len());
            Ok(())
        }
    }
}

/// The words and texts of rows such as `(0xf900_0041, "str x1, [x2]", …`, on one line or several.
fn rows(text: &str) -> Vec<(u32, &str)> {
    text.split('(')
        .filter_map(|rest| {
            let (word, rest) = rest.trim_start().strip_prefix("0x")?.split_once(',')?;
            let text = rest.trim_start().strip_prefix('"')?.split('"').next()?;
            Some((u32::from_str_radix(&word.replace('_', ""), 16).ok()?, text))
        })
        .collect()
}

/// The word in a line of a disassembly: a place with a colon, the word, the text.
fn word(line: &str) -> Option<u32> {
    let mut parts = line.split_whitespace();
    parts.next()?.strip_suffix(':')?;
    let word = parts.next().filter(|word| word.len() == 8)?;
    u32::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_on_one_line_and_on_several() {
        let text = "(0xf900_0041, \"str x1, [x2]\", BASE),\n(2, \"ret\")";
        assert_eq!(rows(text), [(0xf900_0041, "str x1, [x2]")]);
        let text = "    (\n        0x4c00_0c50,\n        \"st4 {v16.2d}, [x2]\",\n        BASE,\n";
        assert_eq!(rows(text), [(0x4c00_0c50, "st4 {v16.2d}, [x2]")]);
    }

    #[test]
    fn words_are_read_from_a_disassembly() {
        assert_eq!(word("   4:\tf9000041 \tstr\tx1, [x2]"), Some(0xf900_0041));
        assert_eq!(word("0000000000000000 <.text>:"), None);
        assert_eq!(word("words.o:     file format elf64-littleaarch64"), None);
    }
}
