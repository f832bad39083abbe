//! The command line of `cargo xtask guest`.

use std::time::Duration;

use crate::Result;

pub const USAGE: &str = "\
usage: cargo xtask guest [--link infiniband|roce] [--kernel KERNEL] [--guests 1|2] [--limit SECONDS]
                         [--accel tcg|kvm] [--refresh] SCENARIO
       cargo xtask guest [options] --shell
       cargo xtask guest --list
kernels: 6.1, 6.12 (default), backports, unstable, or a package's version as 6.18.15+deb13";

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's.
    V6_1,
    /// Debian 13's.
    V6_12,
    /// The newest one of Debian 13's backports.
    Backports,
    Unstable,
    /// This version, from any of these.
    Version(String),
}

impl Kernel {
    pub fn name(&self) -> &str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Backports => "backports",
            Self::Unstable => "unstable",
            Self::Version(version) => version,
        }
    }

    /// The suites that have it.
    pub fn suites(&self) -> &'static [&'static str] {
        match self {
            Self::V6_1 => &["bookworm"],
            Self::V6_12 => &["trixie"],
            Self::Backports => &["trixie", "trixie-backports"],
            Self::Unstable => &["unstable"],
            Self::Version(_) => &["bookworm", "trixie", "trixie-backports", "unstable"],
        }
    }

    /// The package that depends on all its parts.
    pub fn package(&self) -> String {
        match self {
            Self::Version(version) => format!("linux-image-{version}-cloud-amd64"),
            _ => "linux-image-cloud-amd64".to_owned(),
        }
    }

    /// # Errors
    /// There is no kernel of this name, and it is no version.
    fn parse(name: &str) -> Result<Self> {
        let named = [Self::V6_1, Self::V6_12, Self::Backports, Self::Unstable];
        if let Some(kernel) = named.into_iter().find(|kernel| kernel.name() == name) {
            return Ok(kernel);
        }
        let of_a_version = |byte: u8| byte.is_ascii_alphanumeric() || b".+-~".contains(&byte);
        // A version of a package has three numbers at least, as in `6.18.15+deb13`.
        let numbers = name.split('.').filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        if numbers.count() >= 3 && name.bytes().all(of_a_version) {
            return Ok(Self::Version(name.to_owned()));
        }
        Err(format!(
            "there is no kernel `{name}`; there are 6.1, 6.12, backports, unstable, and the \
             versions in the names of Debian's packages, as 6.18.15+deb13"
        ))
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
                "--kernel" => options.kernel = Kernel::parse(value()?)?,
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
    fn a_kernel_is_a_suites_or_a_version() {
        let kernel = |text: &str| parse(&format!("probe --kernel {text}")).unwrap().kernel;
        assert_eq!(kernel("backports").package(), "linux-image-cloud-amd64");
        assert_eq!(kernel("backports").suites().last(), Some(&"trixie-backports"));
        let version = kernel("6.18.15+deb13");
        assert_eq!(version.package(), "linux-image-6.18.15+deb13-cloud-amd64");
        assert!(version.suites().contains(&"trixie-backports"));
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for text in [
            "",
            "--link",
            "--link ethernet probe",
            "--kernel 5.10 probe",
            "--kernel ../6.12.1 probe",
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
