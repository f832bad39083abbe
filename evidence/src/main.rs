//! `cargo xtask evidence`: runs the tests that facts name, and writes docs/evidence.md. With `--merge`,
//! takes the answers of a device into the ledger.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use mlx5_evidence::{
    Comparison, Expectations, Judgement, Ledger, Outcome, Seen, Stance, folder, page, run,
};

const USAGE: &str = "usage: cargo xtask evidence [--write | --merge FILE SOURCE]";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ended = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => evidence(false),
        ["--write"] => evidence(true),
        ["--merge", file, source] => merge(Path::new(file), source),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes the answers of a device into the ledger, and prints those that contradict a fact.
fn merge(file: &Path, source: &str) -> Result<(), String> {
    let expectations = Expectations::read();
    let path = Seen::merge(&folder(), file, source, &expectations)?;
    println!("{}: run `cargo xtask evidence --write`", path.display());
    let seen = Seen::read(&path, &expectations)?;
    for (answer, expected, judgement) in seen.judged(&expectations) {
        if judgement == Judgement::Contradicts {
            let (fact, question) = (&answer.fact, &answer.question);
            println!("{fact}, {question}: {}, and the fact says {}", answer.seen, expected.values);
        }
    }
    Ok(())
}

/// Runs the tests. Writes the page, or holds it to what came out.
fn evidence(writes: bool) -> Result<(), String> {
    let ledger = Ledger::read(&folder())?;
    let place = folder().join("../docs/evidence.md");
    let scratch = env::temp_dir().join(format!("mlx5-evidence-{}", std::process::id()));
    fs::create_dir(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let outcomes = run(ledger.facts().flat_map(|fact| &fact.tests), &scratch);
    let comparisons = Comparison::all(&scratch);
    // It holds nothing that cannot be made again.
    let _ = fs::remove_dir_all(&scratch);
    let failed = outcomes?.into_values().filter(|&outcome| outcome != Outcome::Passed).count();
    if failed > 0 {
        return Err(format!("{failed} tests of facts failed or are missing"));
    }
    let expectations = Expectations::read();
    let seen = Seen::all(&folder(), &expectations)?;
    let page = page(&ledger, &comparisons?, &seen, &expectations);
    for stance in Stance::ALL {
        let count = ledger.facts().filter(|fact| fact.stance == stance).count();
        println!("{count:>4} {}", stance.words());
    }
    let failed = |error| format!("{}: {error}", place.display());
    if writes {
        return fs::write(&place, page).map_err(failed);
    }
    if fs::read_to_string(&place).map_err(failed)? == page {
        return Ok(());
    }
    Err("docs/evidence.md is not what the facts and tests say: `cargo xtask evidence --write`"
        .to_owned())
}
