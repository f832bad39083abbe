//! Fences and stores of the data path, read from the assembly that the compiler makes for arm64.
//!
//! A function is a graph of instructions. Of each path through it that returns, the fences are kept,
//! and the stores behind a fence that orders stores, up to the last fence and the store that it
//! orders. The set of these sequences is compared with the lists below, which are those of
//! `docs/ordering.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::build;

/// A function, and all sequences of its paths.
type Expected = (&'static str, &'static [&'static str]);

/// `wqe_then_record`, the record, `record_then_register`, the register's eight words,
/// `flush_register`.
const BLUEFLAME: &str = "dmb oshst, str w, dmb oshst, 8 str x, dsb st";
/// The same with an 8-byte doorbell.
const DOORBELL: &str = "dmb oshst, str w, dmb oshst, str x, dsb st";
/// `ownership_then_cqe`, and nothing is retired.
const LOOK: &str = "dmb oshld";
/// `ownership_then_cqe`, `cqe_then_record`, the consumer record.
const POLL: &str = "dmb oshld, dmb osh, str w";

/// The calls of `xtask/order/src/lib.rs`, and what they leave to other functions. A path that refuses,
/// or leaves the rest to another function, has no fence.
const EXPECTED: &[Expected] = &[
    ("order_post", &["", BLUEFLAME, DOORBELL]),
    ("post_rest", &["", BLUEFLAME, DOORBELL]),
    ("order_batch", &["", DOORBELL]),
    ("order_fire", &["", BLUEFLAME]),
    ("fire_otherwise", &["", DOORBELL]),
    ("fire_next", &["", BLUEFLAME]),
    ("order_receive", &["", "dmb oshst, str w"]),
    ("order_poll", &["", LOOK, POLL]),
];

/// Compiles the functions and compares each.
///
/// # Errors
/// - They do not compile.
/// - A function is missing, or its sequences are not the listed ones.
pub fn check(mut compile: Command, folder: &Path) -> Result {
    build::run("compiling xtask/order for arm64", &mut compile)?;
    // Generic functions are in the first, others in the driver's own.
    let text = assembly(folder, "mlx5_order-")? + &assembly(folder, "mlx5-")?;
    let mut wrong = Vec::new();
    for (name, expected) in EXPECTED {
        let found = sequences(&text, name)?;
        let expected: BTreeSet<String> = expected.iter().map(|it| (*it).to_owned()).collect();
        if found == expected {
            println!("{name}: {}", Vec::from_iter(found).join(" | "));
        } else {
            wrong.push(format!("{name}: found {found:?}, docs/ordering.md has {expected:?}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// The assembly of a crate: the newest, as older builds leave theirs beside it.
fn assembly(folder: &Path, start: &str) -> Result<String> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let is_assembly = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(start) && name.ends_with(".s")
    };
    let files = files.flatten().map(|entry| entry.path()).filter(is_assembly);
    let newest = files.max_by_key(written);
    let file = newest.ok_or_else(|| format!("no {start}….s in {}", folder.display()))?;
    fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// An instruction with what can come after it.
struct Line<'a> {
    instruction: &'a str,
    operands: &'a str,
}

/// The sequences of a function's paths, each as text.
///
/// # Errors
/// There is no such function, or it has a jump that is not understood.
fn sequences(text: &str, name: &str) -> Result<BTreeSet<String>> {
    let (lines, labels) = body(text, name)?;
    let mut found = BTreeSet::new();
    // A place in the function, and what was seen before it. Sequences are short, so the set is too.
    let mut seen = BTreeSet::new();
    let mut todo = vec![(0, Vec::new())];
    while let Some((at, mut before)) = todo.pop() {
        if before.len() > LONGEST {
            return Err(format!("{name} has a loop with a fence or with stores behind one"));
        }
        if !seen.insert((at, before.clone())) {
            continue;
        }
        let Some(Line { instruction, operands }) = lines.get(at) else { continue };
        let target = || {
            let label = operands.rsplit([',', ' ', '\t']).next().unwrap_or_default();
            labels.get(label).copied()
        };
        match *instruction {
            "ret" => {
                found.insert(join(&before));
            }
            // A jump to another function ends the path; what it does is that function's.
            "b" => match target() {
                Some(to) => todo.push((to, before)),
                None => {
                    found.insert(join(&before));
                }
            },
            "br" | "brk" | "udf" => {}
            // Panics do not return.
            "bl" if PANICS.iter().any(|panic| operands.contains(panic)) => {}
            other => {
                if is_branch(other) {
                    let to = target().ok_or_else(|| format!("{name}: `{other} {operands}`"))?;
                    todo.push((to, before.clone()));
                }
                note(other, operands, &mut before);
                todo.push((at + 1, before));
            }
        }
    }
    Ok(found)
}

/// More steps than any call has.
const LONGEST: usize = 64;

/// Parts of the names of functions that do not return.
const PANICS: &[&str] = &["panic", "unwrap_failed", "expect_failed", "slice_index_fail", "_fail"];

fn is_branch(instruction: &str) -> bool {
    let conditional = instruction.strip_prefix("b.").is_some();
    conditional || matches!(instruction, "cbz" | "cbnz" | "tbz" | "tbnz")
}

/// Adds an instruction to a sequence, if it belongs there: a fence, or a store behind one that orders
/// stores. Stores to the stack do not.
fn note(instruction: &str, operands: &str, before: &mut Vec<String>) {
    let is_fence = matches!(instruction, "dmb" | "dsb");
    let is_store = instruction.starts_with("st");
    let is_behind_fence = before.iter().any(|step| step != LOOK);
    if is_fence {
        before.push(format!("{instruction} {operands}"));
    } else if is_store && is_behind_fence && !operands.contains("[sp") {
        let file = operands.trim_start_matches('{').chars().next().unwrap_or('?');
        before.push(format!("{instruction} {file}"));
    }
}

/// Joins the steps up to the last fence and the store that it orders, with equal neighbors counted.
fn join(steps: &[String]) -> String {
    let is_fence = |step: &String| step.starts_with("dmb") || step.starts_with("dsb");
    let mut end = steps.iter().rposition(is_fence).map_or(0, |last| last + 1);
    if end > 0 && steps[end - 1] != "dsb st" && end < steps.len() {
        end += 1;
    }
    let mut parts: Vec<(&str, usize)> = Vec::new();
    for step in &steps[..end] {
        match parts.last_mut() {
            Some((last, count)) if last == step => *count += 1,
            _ => parts.push((step, 1)),
        }
    }
    let text = |(step, count): &(&str, usize)| match count {
        1 => (*step).to_owned(),
        _ => format!("{count} {step}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The instructions of a function and the places of its labels.
fn body<'a>(text: &'a str, name: &str) -> Result<(Vec<Line<'a>>, BTreeMap<&'a str, usize>)> {
    // The names of functions that the compiler mangles contain their own.
    let starts = |line: &str| {
        let label = line.strip_suffix(':').unwrap_or_default();
        label == name || label.starts_with('_') && label.contains(name)
    };
    let mut rest = text.lines().skip_while(|line| !starts(line));
    if rest.next().is_none() {
        return Err(format!("the compiler made no function {name}"));
    }
    let (mut lines, mut labels) = (Vec::new(), BTreeMap::new());
    for line in rest.take_while(|line| !line.starts_with(".Lfunc_end")) {
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, lines.len());
            continue;
        }
        let line = line.trim();
        if line.is_empty() || line.starts_with('.') || line.starts_with("//") {
            continue;
        }
        let (instruction, operands) = line.split_once(['\t', ' ']).unwrap_or((line, ""));
        lines.push(Line { instruction, operands: operands.trim() });
    }
    Ok((lines, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &str = "\
order_post:
\tstr\tx9, [x12]
\tcbz\tw8, .LBB0_2
\t//APP
\tdmb\toshst
\t//NO_APP
\tstr\tw8, [x10]
\tdmb\toshst
\tstr\tx9, [x8]
\tstr\tx9, [x8, #8]
\tstr\tx9, [sp, #8]
\tdsb\tst
\tstr\tx8, [x0, #200]
\tret
.LBB0_2:
\tb.ne\t.LBB0_3
\tb\telsewhere
.LBB0_3:
\tbl\t_ZN4core9panicking5panic
.Lfunc_end0:
";

    #[test]
    fn every_path_gives_its_fences_and_the_stores_between() {
        let found = sequences(POST, "order_post").unwrap();
        let whole = "dmb oshst, str w, dmb oshst, 2 str x, dsb st";
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["", whole]);
    }

    #[test]
    fn a_fence_that_is_missing_on_one_path_shows() {
        let text = POST.replace("\tdmb\toshst\n\tstr\tx9, [x8]", "\tstr\tx9, [x8]");
        assert_ne!(text, POST);
        let found = sequences(&text, "order_post").unwrap();
        assert!(found.contains("dmb oshst, str w, 2 str x, dsb st"), "{found:?}");
        // A jump over the fence.
        let text = POST.replace("\tcbz\tw8, .LBB0_2\n", "\tcbz\tw8, .LBB0_9\n");
        let text = text.replace("\tstr\tw8, [x10]", ".LBB0_9:\n\tstr\tw8, [x10]");
        let found = sequences(&text, "order_post").unwrap();
        assert!(found.contains("dmb oshst, 2 str x, dsb st"), "{found:?}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(sequences(POST, "order_batch").unwrap_err().contains("no function order_batch"));
        let unknown = POST.replace(".LBB0_2\n", ".LBB0_7\n");
        assert!(sequences(&unknown, "order_post").is_err());
        let endless = POST.replace("\tdsb\tst\n", "\tdsb\tst\n\tcbz\tw8, .LBB0_1\n");
        let endless = endless.replace("\tstr\tx9, [x12]", ".LBB0_1:\n\tstr\tx9, [x12]");
        assert!(sequences(&endless, "order_post").unwrap_err().contains("loop"));
    }
}
