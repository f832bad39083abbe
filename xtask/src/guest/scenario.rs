//! Scenarios: shell scripts that run in guests, with what they need in their first lines.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::log::{self, Explained};
use super::machine::MEMORY;
use super::options::{self, Link};
use crate::Result;
use crate::build;

/// How long a scenario may take that names no limit.
const LIMIT: Duration = Duration::from_secs(120);

/// Functions that every scenario uses; it is no scenario.
const LIBRARY: &str = "lib";

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    /// The first line of its comment.
    pub summary: String,
    pub script: String,
    pub needs: Needs,
}

/// The lines `# name: value` of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The link if the scenario runs on one only.
    pub link: Option<Link>,
    /// The guests that it may run in, the default first.
    pub guests: Vec<usize>,
    pub limit: Duration,
    /// Memory of each guest, in MiB.
    pub memory: u32,
    /// Programs of this workspace: examples of `mlx5`, `mlx5`, the command, `hostile_guest`, C programs of the
    /// command's tests (`faults.c`), and `libmlx5_model.so`, the model to be preloaded.
    pub programs: Vec<String>,
    pub device: Device,
    pub tests: Tests,
}

/// Tests of other projects in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tests {
    None,
    /// rdma-core's, with Python.
    Pyverbs,
}

/// Whether guests have the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Function,
    Nothing,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            link: None,
            guests: vec![1],
            limit: LIMIT,
            memory: MEMORY,
            programs: Vec::new(),
            device: Device::Function,
            tests: Tests::None,
        }
    }
}

impl Scenario {
    /// # Errors
    /// There is no such scenario, or its first lines are wrong.
    pub fn load(name: &str) -> Result<Self> {
        let names = names()?;
        if !names.iter().any(|known| known == name) {
            return Err(format!("there is no scenario `{name}`; there are {}", names.join(", ")));
        }
        let script = read(&format!("{name}.sh"))?;
        let needs = parse(&script).map_err(|error| format!("{name}.sh: {error}"))?;
        let summary = script.lines().nth(1).unwrap_or_default().trim_start_matches("# ").to_owned();
        Ok(Self { name: name.to_owned(), summary, script, needs })
    }

    /// The lines of the kernel log that are explained: those of all scenarios and its own.
    ///
    /// # Errors
    /// A list is wrong.
    pub fn explained(&self) -> Result<Vec<Explained>> {
        let mut text = read("all.explained")?;
        let own = format!("{}.explained", self.name);
        if folder().join(&own).is_file() {
            text += &read(&own)?;
        }
        log::explained(&text)
    }
}

/// A file of the scenarios' folder.
///
/// # Errors
/// It cannot be read.
pub fn read(name: &str) -> Result<String> {
    let file = folder().join(name);
    fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

fn folder() -> PathBuf {
    build::root().join("xtask/guest")
}

/// The names of all scenarios, sorted.
///
/// # Errors
/// Their folder cannot be read.
pub fn names() -> Result<Vec<String>> {
    let folder = folder();
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".sh")?.to_owned()))
        .filter(|name| name != LIBRARY)
        .collect();
    names.sort();
    Ok(names)
}

/// Reads the lines `# name: value` at the start of a script.
fn parse(script: &str) -> Result<Needs> {
    let mut needs = Needs::default();
    let comment = script.lines().take_while(|line| line.starts_with('#'));
    for line in comment {
        let Some((name, value)) = line.trim_start_matches('#').split_once(':') else { continue };
        let value = value.trim();
        match name.trim() {
            "link" => needs.link = Some(Link::parse(value)?),
            "guests" => {
                needs.guests =
                    value.split_whitespace().map(options::guests).collect::<Result<_>>()?;
            }
            "limit" => needs.limit = options::limit(value)?,
            "memory" => needs.memory = memory(value)?,
            "programs" => {
                needs.programs = value.split_whitespace().map(str::to_owned).collect();
            }
            "tests" if value == "pyverbs" => needs.tests = Tests::Pyverbs,
            "device" if value == "none" => needs.device = Device::Nothing,
            name if name.contains(' ') => {}
            unknown => return Err(format!("`{unknown}: {value}` is unknown")),
        }
    }
    match needs.guests.is_empty() {
        true => Err("`guests:` names no number".to_owned()),
        false => Ok(needs),
    }
}

/// Sizes that a kernel boots with, and that a machine may have.
fn memory(text: &str) -> Result<u32> {
    let size = text.parse().ok().filter(|size| (256..=8192).contains(size));
    size.ok_or_else(|| format!("`memory: {text}` is not a number of MiB from 256 to 8192"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_from_the_first_comment() {
        let script = "#!/bin/sh\n# A summary: of it.\n# link: roce\n# guests: 2 1\n# limit: 30\n\
                      # memory: 2048\n# programs: mlx5 rc_pingpong\n# tests: pyverbs\nset -e\n# limit: 40\n";
        let needs = parse(script).unwrap();
        let expected = Needs {
            link: Some(Link::Roce),
            guests: vec![2, 1],
            limit: Duration::from_secs(30),
            memory: 2048,
            programs: vec!["mlx5".to_owned(), "rc_pingpong".to_owned()],
            device: Device::Function,
            tests: Tests::Pyverbs,
        };
        assert_eq!(needs, expected);
    }

    #[test]
    fn wrong_needs_are_refused() {
        for line in [
            "# link: token-ring",
            "# guests: 3",
            "# guests:",
            "# limit: x",
            "# gests: 1",
            "# tests: x",
            "# memory: 16",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_scenario_and_every_list_can_be_read() {
        let names = names().unwrap();
        assert!(names.iter().any(|name| name == "probe"), "{names:?}");
        for name in names {
            let scenario = Scenario::load(&name).unwrap();
            assert!(scenario.summary.ends_with('.'), "{name}: `{}`", scenario.summary);
            scenario.explained().unwrap();
        }
        assert!(Scenario::load("none").unwrap_err().contains("probe"));
        assert!(Scenario::load(LIBRARY).is_err());
    }
}
