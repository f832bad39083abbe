//! `cargo xtask ci --deep`: what the gate has no time for, and only what changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
use crate::build;
use crate::checks::{self, Check, ROUNDS, SOAK};
use crate::ci;
use crate::files::{self, Files};
use crate::libclang;
use crate::results::{Kept, Results, Verdict};
use crate::steps::{Done, Steps};

const USAGE: &str = "usage: cargo xtask ci --deep [--results FILE] [--list] [NAME ...]";

/// The check that needs an old libclang, which not every distribution has.
const RDMA_SYS: &str = "rdma-sys";

/// The arguments of the command.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// The file of results, if not the usual one.
    results: Option<PathBuf>,
    task: Task,
    /// The checks to run: all, if none is named.
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Task {
    #[default]
    Run,
    /// Prints what is left, and runs nothing.
    List,
}

/// A check that may have to run, or a round of the soak.
struct Item {
    check: &'static Check,
    /// Its name in the file of results: rounds have numbers.
    name: String,
    hash: String,
}

/// `cargo xtask ci --deep`.
pub fn command(arguments: &[String]) -> Result {
    let options = parse(arguments)?;
    let file = match options.results {
        Some(file) => file,
        None => build::target_directory()?.join("ci/deep.tsv"),
    };
    let items = items(&options.names)?;
    match options.task {
        Task::Run => {
            run(&file, &items)?;
            finish(&file, &items)
        }
        Task::List => {
            table(&Results::read(&file)?, &items);
            Ok(())
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--results" => {
                let file =
                    arguments.next().ok_or_else(|| format!("--results names no file\n{USAGE}"))?;
                options.results = Some(file.into());
            }
            "--list" => options.task = Task::List,
            name if name.starts_with('-') => return Err(format!("cannot take `{name}`\n{USAGE}")),
            name => {
                let check = checks::by_name(name)?;
                if checks::GATE.iter().any(|gate| gate.name == check.name) {
                    return Err(format!(
                        "`{name}` is a check of the gate: `cargo xtask ci --check {name}`"
                    ));
                }
                options.names.push(name.to_owned());
            }
        }
    }
    Ok(options)
}

/// The checks of these names, or all, with the hashes of their files as they are now.
fn items(names: &[String]) -> Result<Vec<Item>> {
    let files = Files::now()?;
    let chosen = |check: &Check| names.is_empty() || names.iter().any(|name| name == check.name);
    let item = |check: &'static Check, name: String| -> Result<Item> {
        Ok(Item { check, name, hash: files.hash(&check.inputs())? })
    };
    let mut items = Vec::new();
    for check in checks::DEEP.iter().filter(|check| chosen(check)) {
        if check.name == RDMA_SYS && libclang::for_rdma_sys().is_none() {
            println!("without `{RDMA_SYS}`: no libclang 15 or older is installed");
            continue;
        }
        items.push(item(check, check.name.to_owned())?);
    }
    if chosen(&SOAK) {
        for round in 1..=ROUNDS {
            items.push(item(&SOAK, format!("{} {round:02}", SOAK.name))?);
        }
    }
    Ok(items)
}

/// Runs the checks that have not passed with the files as they are.
fn run(file: &Path, items: &[Item]) -> Result {
    let mut results = Results::read(file)?;
    let left: Vec<_> = items.iter().filter(|item| must_run(item, &results)).collect();
    let names: Vec<_> = left.iter().map(|item| item.name.clone()).collect();
    println!("{} of {} are left: {}", left.len(), items.len(), in_words(&names));
    if left.is_empty() {
        return Ok(());
    }
    let mut steps = Steps::default();
    if !ci::prepare(&mut steps, ci::toolchains) {
        return steps.finish("cargo xtask ci --deep");
    }
    let commit = files::commit()?;
    let mut keep = |item: &Item, done: Done| -> Result {
        let verdict = if done.outcome.is_ok() { Verdict::Passed } else { Verdict::Failed };
        let elapsed = done.elapsed;
        steps.add(done);
        // A result of files that changed meanwhile is a result of neither.
        if Files::now()?.hash(&item.check.inputs())? != item.hash {
            println!("not kept: files of `{}` changed while it ran", item.name);
            return Ok(());
        }
        results.keep(&item.name, &item.hash, verdict, elapsed, &commit)
    };
    let (rounds, checks): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|item| item.check.name == SOAK.name);
    let together: Vec<_> = checks.iter().map(|item| item.check).collect();
    if !together.is_empty() {
        ci::side_by_side(&together, |check, done| {
            let item = checks.iter().find(|item| item.check.name == check.name);
            keep(item.ok_or("a check that was not started has ended")?, done)
        })?;
    }
    for item in rounds {
        println!("\n== {}", item.name);
        let (_, done) = ci::alone(&item.check)?;
        keep(item, Done { name: item.name.clone(), ..done })?;
    }
    Ok(())
}

/// Returns whether a check has not passed with these files. A round of the soak that failed is not run
/// again: a test that fails now and then would hide behind the rounds that pass.
fn must_run(item: &Item, results: &Results) -> bool {
    match results.of(&item.name, &item.hash) {
        None => true,
        Some(kept) => kept.verdict == Verdict::Failed && item.check.name != SOAK.name,
    }
}

/// Prints the table, and says whether all passed.
fn finish(file: &Path, items: &[Item]) -> Result {
    let left = table(&Results::read(file)?, items);
    println!("results: {}", file.display());
    if left.is_empty() {
        return Ok(());
    }
    Err(format!("{} of {} have not passed on these files", left.len(), items.len()))
}

/// Prints a line for each check, one for all rounds of the soak, and what is left. Returns the names
/// of the checks that have not passed.
fn table(results: &Results, items: &[Item]) -> Vec<String> {
    println!("\ncargo xtask ci --deep:");
    let line = |word: &str, seconds: u64, name: &str, commit: &str| {
        println!("  {word:<6} {seconds:>5} s  {name:<20} {commit}");
    };
    let (rounds, checks): (Vec<_>, Vec<_>) =
        items.iter().partition(|item| item.check.name == SOAK.name);
    for item in checks {
        match results.of(&item.name, &item.hash) {
            Some(Kept { verdict, seconds, commit, .. }) => {
                line(verdict.word(), *seconds, &item.name, commit);
            }
            None => line("left", 0, &item.name, ""),
        }
    }
    if !rounds.is_empty() {
        let kept: Vec<_> =
            rounds.iter().filter_map(|item| results.of(&item.name, &item.hash)).collect();
        let failed = kept.iter().filter(|kept| kept.verdict == Verdict::Failed).count();
        let seconds = kept.iter().map(|kept| Duration::from_secs(kept.seconds)).sum::<Duration>();
        println!(
            "  soak: {} of {ROUNDS} rounds, {failed} failed, {} s",
            kept.len(),
            seconds.as_secs()
        );
    }
    let is_left = |item: &&Item| {
        let kept = results.of(&item.name, &item.hash);
        kept.is_none_or(|kept| kept.verdict == Verdict::Failed)
    };
    let left: Vec<_> = items.iter().filter(is_left).map(|item| item.name.clone()).collect();
    println!("left: {}", in_words(&left));
    left
}

/// Names of checks as the end of a line, the rounds of the soak as one.
fn in_words(names: &[String]) -> String {
    let (rounds, mut names): (Vec<_>, Vec<_>) =
        names.iter().cloned().partition(|name| name.starts_with(SOAK.name));
    match rounds.len() {
        0 if names.is_empty() => return "nothing".to_owned(),
        0 => {}
        count => names.push(format!("{} ({count} rounds)", SOAK.name)),
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// An empty file of results, deleted with the value.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("mlx5-deep-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn arguments_are_read_and_checks_of_the_gate_are_refused() {
        let parse = |text| parse(&words(text));
        let options = parse("--results a.tsv --list miri").unwrap();
        assert_eq!(options.results, Some("a.tsv".into()));
        assert_eq!((options.task, options.names), (Task::List, words("miri")));
        for text in ["--results", "--fast", "none", "clippy"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn passed_checks_are_not_run_again_and_failed_ones_are_except_rounds() {
        let place = Place::new("again");
        let mut results = Results::read(&place.0).unwrap();
        let item = |check: &'static Check, name: &str| Item {
            check,
            name: name.to_owned(),
            hash: "aa".to_owned(),
        };
        let (miri, asan) = (checks::by_name("miri").unwrap(), checks::by_name("asan").unwrap());
        let items = [item(miri, "miri"), item(asan, "asan"), item(&SOAK, "soak 01")];
        assert!(items.iter().all(|item| must_run(item, &results)));
        let took = Duration::from_secs(1);
        for (item, verdict) in items.iter().zip([Verdict::Passed, Verdict::Failed, Verdict::Failed])
        {
            results.keep(&item.name, &item.hash, verdict, took, "c0ffee").unwrap();
        }
        assert_eq!(items.each_ref().map(|item| must_run(item, &results)), [false, true, false]);
        // A failed round is left, so the tier has not passed.
        assert_eq!(table(&results, &items), ["asan", "soak 01"]);
        let changed = Item { hash: "ab".to_owned(), ..item(miri, "miri") };
        assert!(must_run(&changed, &results));
    }
}
