//! Runs the `console` blocks of `docs/tools.md`, and compares their output with the page.
//!
//! A block is one session of bash in an empty folder, with `mlx5` in PATH, on the model. Its environment
//! has nothing else. `MLX5_WORKED_COMMAND` names an installed `mlx5`; otherwise the built one is copied.
//! In a session:
//!
//! - `$ ` begins a command, `> ` goes on with it, `# ` is a remark;
//! - all other lines are what the command above them prints, on standard output and standard error;
//!   numbers may differ, `…` in a line stands for anything, and a line of `…` for any number of lines;
//! - a line `[exit status N]` ends a command that has to end so, and other commands end with 0;
//! - `&` works, and commands that still run when the block ends are ended then. A command in the
//!   background writes to a file, or its lines come at any place.
//!
//! A block of commands that cannot run here is marked `sh`. The line before it says why:
//! `<!-- not run: REASON -->`.
//!
//! Every command says that the model was chosen. A block need not show it.

mod rig;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rig::copy_command;

/// How long a block may take: many times what the longest needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The line that every command prints on the model.
const ON_THE_MODEL: &str = "mlx5: on the model, a software ConnectX";

/// One block of the page.
struct Block {
    /// Line of the page on which it begins, from 1.
    line: usize,
    steps: Vec<Step>,
}

/// A command, and its expected output.
struct Step {
    line: usize,
    command: String,
    prints: Vec<String>,
    status: i32,
}

/// A command's output and exit status.
struct Done {
    lines: Vec<String>,
    status: i32,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, text) in page.lines().enumerate() {
        let line = index + 1;
        match &mut open {
            None if text.trim_end() == "```console" => {
                open = Some(Block { line, steps: Vec::new() });
            }
            None => {}
            Some(_) if text.trim_end() == "```" => blocks.extend(open.take()),
            Some(block) => block.read(line, text),
        }
    }
    assert!(open.is_none(), "the page ends inside a block");
    blocks
}

impl Block {
    fn read(&mut self, line: usize, text: &str) {
        if let Some(command) = text.strip_prefix("$ ") {
            let command = command.to_owned();
            self.steps.push(Step { line, command, prints: Vec::new(), status: 0 });
            return;
        }
        if text.starts_with("# ") {
            return;
        }
        let step = self.steps.last_mut().unwrap_or_else(|| panic!("line {line}: no command yet"));
        let status = text
            .strip_prefix("[exit status ")
            .and_then(|rest| rest.strip_suffix(']')?.parse().ok());
        let more = if text == ">" { Some("") } else { text.strip_prefix("> ") };
        if let Some(more) = more.filter(|_| step.prints.is_empty()) {
            step.command.push('\n');
            step.command.push_str(more);
        } else if let Some(status) = status {
            step.status = status;
        } else {
            step.prints.push(text.to_owned());
        }
    }

    /// The session: each command followed by a mark with its number and status.
    fn script(&self) -> String {
        let mut script = String::from("trap 'kill $(jobs -p) 2>/dev/null' EXIT\n");
        for (number, step) in self.steps.iter().enumerate() {
            let command = &step.command;
            writeln!(script, "{command}\nstatus=$?; printf '\\n\\036%d %d\\n' {number} $status")
                .expect("text takes all");
        }
        script
    }

    /// Runs it, and returns what each command did.
    fn run(&self) -> Result<Vec<Done>, String> {
        let folder =
            std::env::temp_dir().join(format!("mlx5-worked-{}-{}", std::process::id(), self.line));
        fs::create_dir(&folder).expect("a folder of its own");
        let printed = self.run_in(&folder);
        let logs = logs(&folder);
        fs::remove_dir_all(&folder).expect("the folder is still there");
        let (text, ended) = printed?;
        let done = self.split(&text);
        if done.len() < self.steps.len() {
            let step = &self.steps[done.len()];
            return Err(format!(
                "line {}: `{}` did not come to its end ({ended}):\n{text}{logs}",
                step.line, step.command
            ));
        }
        Ok(done)
    }

    fn run_in(&self, folder: &Path) -> Result<(String, &'static str), String> {
        // Outside of the folder that the commands see.
        let script = folder.with_extension("sh");
        let transcript = folder.with_extension("out");
        fs::write(&script, self.script()).expect("the script is written");
        let out = fs::File::create(&transcript).expect("the transcript is made");
        let mut session = Command::new("/bin/bash")
            .arg(&script)
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", installed().display()))
            .env("MLX5_MODEL", "always")
            .stdin(Stdio::null())
            .stderr(out.try_clone().expect("the same file"))
            .stdout(out)
            // So that all of it can be ended together.
            .process_group(0)
            .spawn()
            .expect("bash starts");
        let began = Instant::now();
        let ended = loop {
            if session.try_wait().expect("a child").is_some() {
                break "the session ended before it";
            }
            if began.elapsed() > PATIENCE {
                break "it took too long";
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // SAFETY: a signal to the group of the child, which is waited for below only, so its number
        // is still its own if it took too long; an ended one's group is empty but for what it left.
        unsafe { libc::kill(-(session.id() as i32), libc::SIGKILL) };
        session.wait().expect("a child");
        let text = fs::read(&transcript).expect("the transcript is read");
        fs::remove_file(&script).and_then(|()| fs::remove_file(&transcript)).expect("there");
        let text = String::from_utf8(text).map_err(|error| error.to_string())?;
        Ok((text, ended))
    }

    fn split(&self, text: &str) -> Vec<Done> {
        let mut done = Vec::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            let Some(mark) = line.strip_prefix('\u{1e}') else {
                lines.push(line.to_owned());
                continue;
            };
            let (number, status) = mark.split_once(' ').expect("number and status");
            assert_eq!(number.parse(), Ok(done.len()), "marks come in order");
            // The mark begins with the end of a line, so that it stands alone in any case.
            if lines.last().is_some_and(String::is_empty) {
                lines.pop();
            }
            done.push(Done {
                lines: std::mem::take(&mut lines),
                status: status.parse().expect("a number"),
            });
        }
        done
    }
}

/// What the commands in the background have written.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("the folder is still there").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            let log = fs::read(entry.path()).expect("a log");
            let (name, log) = (entry.file_name(), String::from_utf8_lossy(&log).into_owned());
            writeln!(text, "{}:\n{log}", name.to_string_lossy()).expect("text takes all");
        }
    }
    text
}

impl Step {
    fn check(&self, done: &Done) -> Result<(), String> {
        let shows_it = self.prints.iter().any(|line| line.starts_with(ON_THE_MODEL));
        let printed: Vec<&String> =
            done.lines.iter().filter(|line| shows_it || !line.starts_with(ON_THE_MODEL)).collect();
        let wrong = if done.status != self.status {
            Some(format!("ended with {}, not with {}", done.status, self.status))
        } else if let Some(index) = mismatch(&self.prints, &printed) {
            let line = self.prints.get(index).map_or("(its end)", String::as_str);
            Some(format!("does not print what line {} shows: {line}", self.line + index + 1))
        } else {
            None
        };
        let Some(wrong) = wrong else { return Ok(()) };
        let mut text = format!("line {}: `{}` {wrong}\nIt prints:\n", self.line, self.command);
        for line in printed {
            writeln!(text, "{line}").expect("text takes all");
        }
        Err(text)
    }
}

/// The index of the first expected line that nothing printed fits, if they do not fit each other.
fn mismatch(expected: &[String], printed: &[&String]) -> Option<usize> {
    let mut furthest = 0;
    fits(expected, printed, 0, &mut furthest).then_some(()).map_or(Some(furthest), |()| None)
}

fn fits(expected: &[String], printed: &[&String], done: usize, furthest: &mut usize) -> bool {
    *furthest = done.max(*furthest);
    match expected.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.trim() == "…" => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..], done + 1, furthest))
        }
        Some((line, rest)) => printed.split_first().is_some_and(|(first, others)| {
            line_fits(line, first) && fits(rest, others, done + 1, furthest)
        }),
    }
}

/// Whether they are alike but for numbers, blanks and what `…` stands for.
fn line_fits(expected: &str, printed: &str) -> bool {
    let printed = shape(printed);
    let expected = shape(expected);
    let mut pieces = expected.split('…');
    let Some(mut rest) = pieces.next().and_then(|first| printed.strip_prefix(first)) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Each number, decimal or hexadecimal, as `#`, each run of blanks as one, none at the end.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut characters = line.trim_end().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '0'..='9' => {
                let hexadecimal = character == '0' && characters.next_if_eq(&'x').is_some();
                let more =
                    |next: &char| next.is_ascii_digit() || hexadecimal && next.is_ascii_hexdigit();
                while characters.next_if(more).is_some() {}
                shape.push('#');
            }
            ' ' | '\t' => {
                while characters.next_if(|next| matches!(next, ' ' | '\t')).is_some() {}
                shape.push(' ');
            }
            other => shape.push(other),
        }
    }
    shape
}

/// The folder of an installed `mlx5`, or of a copy of the built one with nothing beside it.
fn installed() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(command) = std::env::var_os("MLX5_WORKED_COMMAND") {
            let command = PathBuf::from(command);
            assert!(command.is_absolute() && command.is_file(), "{}", command.display());
            return command.parent().expect("a file is in a folder").to_owned();
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("worked");
        fs::create_dir_all(&folder).expect("a folder for a copy");
        let copy = folder.join("mlx5");
        // A name of its own first: another run of this test may be using the copy.
        let new = folder.join(std::process::id().to_string());
        copy_command(&new);
        fs::rename(new, copy).expect("the copy has its name");
        folder
    });
    &FOLDER
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tools.md");
    fs::read_to_string(page).expect("docs/tools.md")
}

/// All blocks, or only the blocks that begin on the lines `MLX5_WORKED_LINES` (`12,80`).
#[test]
fn the_page_shows_what_the_commands_print() {
    let chosen: Option<Vec<usize>> = std::env::var("MLX5_WORKED_LINES")
        .ok()
        .map(|lines| lines.split(',').map(|line| line.parse().expect("a line")).collect());
    let blocks = blocks(&page());
    assert!(!blocks.is_empty(), "the page has none");
    let mut wrong = Vec::new();
    for block in &blocks {
        if chosen.as_ref().is_some_and(|lines| !lines.contains(&block.line)) {
            continue;
        }
        match block.run() {
            Err(why) => wrong.push(why),
            Ok(done) => {
                // What follows a failure is mostly its consequence.
                let failed =
                    block.steps.iter().zip(&done).find_map(|(step, done)| step.check(done).err());
                wrong.extend(failed);
            }
        }
    }
    assert!(wrong.is_empty(), "docs/tools.md\n\n{}", wrong.join("\n"));
}

/// The lines of blocks that are neither run nor say why not.
fn silent(page: &str) -> Vec<usize> {
    let mut silent = Vec::new();
    let (mut open, mut before) = (false, "");
    for (index, line) in page.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let is_told = before.starts_with("<!-- not run: ") && before.ends_with(" -->");
            // A block in another language is text, such as a line of a manifest.
            if !open && matches!(language, "" | "sh" | "bash" | "shell") && !is_told {
                silent.push(index + 1);
            }
            open = !open;
        }
        before = line;
    }
    silent
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    assert!(silent(&page()).is_empty(), "docs/tools.md, lines {:?}", silent(&page()));
    let fenced = |language| format!("```{language}\nmlx5 info\n```\n");
    assert_eq!(silent(&format!("{}\n{}", fenced("sh"), fenced("console"))), [1]);
    assert!(silent(&format!("<!-- not run: two hosts -->\n{}", fenced("sh"))).is_empty());
    assert_eq!(silent(&fenced("")), [1]);
}

#[test]
fn a_block_that_is_wrong_fails_and_says_where() {
    let judge = |text: &str| -> Result<(), String> {
        let page = format!("words\n```console\n{text}\n```\n");
        let blocks = blocks(&page);
        let [block] = blocks.as_slice() else { panic!("one block") };
        let done = block.run()?;
        block.steps.iter().zip(&done).try_for_each(|(step, done)| step.check(done))
    };
    let good = [
        "$ echo 1 2.5 0x7f\n1 77.25   0xabcdef",
        "# a remark\n$ echo a; echo b; echo c >&2\n…\nc",
        "$ echo first word last\nfirst … last",
        "$ (exit 3)\n[exit status 3]",
        "$ for word in a b; do\n>   echo $word\n> done\na\nb",
        "$ printf 'no end of line'\nno end of line",
        "$ x=5\n$ sleep 1000 &\n$ test $x = 5",
        "$ mlx5 --version\nmlx5 0.1.0",
        "$ mlx5 info > out 2>&1\n$ head -1 out\nthe model, a software ConnectX…",
    ];
    for text in good {
        assert_eq!(judge(text), Ok(()), "{text}");
    }
    let bad = [
        ("$ echo a\nb", "line 3: `echo a` does not print what line 4 shows: b"),
        ("$ echo a\na\nb", "line 5"),
        ("$ echo a; echo b\na", "(its end)"),
        ("$ false", "ended with 1, not with 0"),
        ("$ true\n$ exit 3", "line 4: `exit 3` did not come to its end"),
        ("$ echo a\n…\nb", "line 5"),
    ];
    for (text, says) in bad {
        let why = judge(text).expect_err(text);
        assert!(why.contains(says), "{text}: {why}");
    }
}
