//! The command line of `cargo xtask guest`.

use std::time::Duration;

use crate::Result;

pub const USAGE: &str = "\
usage: cargo xtask guest [--link infiniband|roce] [--kernel 6.1|6.12] [--guests 1|2] [--limit SECONDS]
                         [--accel tcg|kvm] [--refresh] SCENARIO
       cargo xtask guest [options] --shell
       cargo xtask guest --list";

/// The link of the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    InfiniBand,
    Roce,
}

impl Link {
    pub fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "infiniband",
            Self::Roce => "roce",
        }
    }

    /// # Errors
    /// There is no link of this name.
    pub fn parse(name: &str) -> Result<Self> {
        [Self::InfiniBand, Self::Roce]
            .into_iter()
            .find(|link| link.name() == name)
            .ok_or_else(|| format!("there is no link `{name}`; there are infiniband and roce"))
    }
}

/// A Debian kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    V6_1,
    V6_12,
}

impl Kernel {
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// The suite whose kernel it is.
    pub fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
        }
    }
}

/// The executor of the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    Tcg,
    Kvm,
}

impl Accelerator {
    /// QEMU's argument.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Tcg => "tcg,thread=multi",
            Self::Kvm => "kvm",
        }
    }
}

/// Whether packages that are unpacked already are used, or the mirror's newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packages {
    Cached,
    Newest,
}

/// The work of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    Scenario(String),
    Shell,
    List,
}

/// A parsed command line. An option that is `None` is left to the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub task: Task,
    pub link: Option<Link>,
    pub kernel: Kernel,
    pub guests: Option<usize>,
    pub limit: Option<Duration>,
    pub accelerator: Accelerator,
    pub packages: Packages,
}

impl Options {
    /// The scenario without options.
    pub fn of(task: Task) -> Self {
        Self {
            task,
            link: None,
            kernel: Kernel::V6_12,
            guests: None,
            limit: None,
            accelerator: Accelerator::Tcg,
            packages: Packages::Cached,
        }
    }

    /// # Errors
    /// An argument is unknown or has a wrong value, or nothing says what to run.
    pub fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::of(Task::List);
        let mut task = None;
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            let mut value =
                || rest.next().ok_or_else(|| format!("{argument} needs a value\n{USAGE}"));
            match argument {
                "--link" => options.link = Some(Link::parse(value()?)?),
                "--kernel" => options.kernel = kernel(value()?)?,
                "--guests" => options.guests = Some(guests(value()?)?),
                "--limit" => options.limit = Some(limit(value()?)?),
                "--accel" => options.accelerator = accelerator(value()?)?,
                "--refresh" => options.packages = Packages::Newest,
                "--shell" => set(&mut task, Task::Shell)?,
                "--list" => set(&mut task, Task::List)?,
                unknown if unknown.starts_with('-') => {
                    return Err(format!("unknown option `{unknown}`\n{USAGE}"));
                }
                name => set(&mut task, Task::Scenario(name.to_owned()))?,
            }
        }
        options.task = task.ok_or_else(|| format!("no scenario is named\n{USAGE}"))?;
        if options.task == Task::Shell && options.guests.is_some_and(|guests| guests > 1) {
            return Err("--shell has one terminal, so it takes one guest".to_owned());
        }
        Ok(options)
    }
}

fn set(task: &mut Option<Task>, new: Task) -> Result {
    match task.replace(new) {
        None => Ok(()),
        Some(_) => Err(format!("name one scenario, or --shell, or --list\n{USAGE}")),
    }
}

fn kernel(name: &str) -> Result<Kernel> {
    [Kernel::V6_1, Kernel::V6_12]
        .into_iter()
        .find(|kernel| kernel.name() == name)
        .ok_or_else(|| format!("there is no kernel `{name}`; there are 6.1 and 6.12"))
}

/// The number of guests in an option or a scenario.
///
/// # Errors
/// It is neither 1 nor 2.
pub fn guests(text: &str) -> Result<usize> {
    match text {
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err(format!("`{text}` guests: there are 1 and 2")),
    }
}

/// A number of seconds in an option or a scenario.
///
/// # Errors
/// It is no number from 1 to 86400.
pub fn limit(text: &str) -> Result<Duration> {
    match text.parse() {
        Ok(seconds @ 1..=86400) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{text}` seconds: name a number from 1 to 86400")),
    }
}

fn accelerator(name: &str) -> Result<Accelerator> {
    match name {
        "tcg" => Ok(Accelerator::Tcg),
        "kvm" => Ok(Accelerator::Kvm),
        _ => Err(format!("there is no accelerator `{name}`; there are tcg and kvm")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn options_may_stand_on_both_sides_of_the_scenario() {
        let options = parse("--link roce probe --kernel 6.1 --guests 2 --limit 30 --accel kvm");
        let expected = Options {
            link: Some(Link::Roce),
            kernel: Kernel::V6_1,
            guests: Some(2),
            limit: Some(Duration::from_secs(30)),
            accelerator: Accelerator::Kvm,
            ..Options::of(Task::Scenario("probe".to_owned()))
        };
        assert_eq!(options.unwrap(), expected);
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for text in [
            "",
            "--link",
            "--link ethernet probe",
            "--kernel 5.10 probe",
            "--guests 3 probe",
            "--guests 0 probe",
            "--limit 0 probe",
            "--limit x probe",
            "--accel hvf probe",
            "--fast probe",
            "probe reload",
            "--shell probe",
            "--shell --guests 2",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
