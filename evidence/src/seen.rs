//! Answers of devices that others have sent: files of `mlx5 conform --evidence`.
//!
//! Nobody trusts a file that was sent: it has a bounded size, every text a bounded length and a closed
//! alphabet, every question and fact is one of the ledger, and what is not known is refused.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::expected::{Expectations, Expected, Judgement};

/// The version of the format.
const FORMAT: u32 = 1;
/// The most bytes of a file.
const LARGEST: u64 = 64 * 1024;
/// The most answers of a file.
const ANSWERS: usize = 512;
/// The most trials of an answer.
const TRIALS: usize = 64;
/// The most characters of a text.
const LONGEST: usize = 64;
/// The most characters of a source.
const SOURCE: usize = 200;
/// The folder of files that were taken into the ledger.
const FOLDER: &str = "seen";

/// What one device answered.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The version of the format.
    pub format: u32,
    /// Where the answers were published. Files of the ledger have one, and files that are sent none.
    #[serde(default)]
    pub source: Option<String>,
    /// The device.
    pub device: Device,
    /// The device of the passive side, if it was another.
    #[serde(default)]
    pub peer: Option<Device>,
    /// The software around it.
    pub system: System,
    /// What it answered.
    #[serde(default, rename = "answer")]
    pub answers: Vec<Answer>,
    /// Questions that it did not answer.
    #[serde(default)]
    pub unanswered: Vec<Unanswered>,
}

/// A device, by its kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What was behind libibverbs.
    pub bed: Bed,
    /// The product.
    pub product: String,
    /// The PCI number, where it was known.
    #[serde(default)]
    pub part: Option<u32>,
    /// The version of the firmware.
    pub firmware: String,
    /// `Ethernet` or `InfiniBand`.
    pub link: Link,
}

/// What was behind libibverbs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Bed {
    /// The model, in the process.
    Model,
    /// The model, in a virtual machine.
    Guest,
    /// A device.
    Device,
}

/// The link of a port.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Link {
    /// RoCE.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// The software around a device.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The distribution.
    #[serde(default)]
    pub distribution: Option<String>,
    /// Linux's version.
    #[serde(default)]
    pub kernel: Option<String>,
    /// The version of rdma-core.
    #[serde(default, rename = "rdma-core")]
    pub rdma_core: Option<String>,
    /// The version of the suite.
    pub mlx5: String,
}

/// An answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The question.
    pub question: String,
    /// The fact that it asks about.
    pub fact: String,
    /// The unit.
    pub unit: Unit,
    /// One value for each trial.
    pub seen: Values,
}

/// The unit of values.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Unit {
    /// Bytes in the order of memory, in hexadecimal digits.
    #[serde(rename = "bytes")]
    Bytes,
    /// How many.
    #[serde(rename = "count")]
    Count,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Thousands of cycles in a second.
    #[serde(rename = "kHz")]
    Kilohertz,
}

/// Values of an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Values {
    /// Numbers.
    Numbers(Vec<u64>),
    /// Bytes, in hexadecimal digits.
    Bytes(Vec<String>),
}

/// A question without an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Unanswered {
    /// The question.
    pub question: String,
    /// Why.
    pub why: Why,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Why {
    /// The device, the port or a permission lacks what it needs.
    #[serde(rename = "not applicable")]
    NotApplicable,
    /// The time was too short.
    #[serde(rename = "no time")]
    Budget,
    /// Something else went wrong on the way.
    #[serde(rename = "failed")]
    Failed,
}

impl Seen {
    /// Reads a file that was sent, or one of the ledger.
    ///
    /// # Errors
    /// It cannot be read, or it is not such a file. The text says what is wrong.
    pub fn read(path: &Path, expectations: &Expectations) -> Result<Self, String> {
        let failed = |error: &dyn Display| format!("{}: {error}", path.display());
        // A pipe may never end.
        if !fs::metadata(path).map_err(|error| failed(&error))?.is_file() {
            return Err(failed(&"not a regular file"));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| failed(&error))?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        Self::parse(&bytes, expectations).map_err(|error| failed(&error))
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// It is not the content of such a file. The text says what is wrong.
    pub fn parse(bytes: &[u8], expectations: &Expectations) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            format: Option<u32>,
        }
        if bytes.len() as u64 > LARGEST {
            return Err(format!("longer than {LARGEST} bytes, which no such file is"));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| format!("not a text: {error}"))?;
        let version: Version = toml::from_str(text).map_err(|error| told(text, &error))?;
        match version.format {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(format!(
                    "format {other}, and this command reads format {FORMAT}: use the \
                     version of the file's suite"
                ));
            }
            None => return Err("no format: not a file of `mlx5 conform --evidence`".to_owned()),
        }
        let seen: Self = toml::from_str(text).map_err(|error| told(text, &error))?;
        seen.check(expectations)?;
        Ok(seen)
    }

    fn check(&self, expectations: &Expectations) -> Result<(), String> {
        for device in [Some(&self.device), self.peer.as_ref()].into_iter().flatten() {
            plain("product", &device.product, LONGEST)?;
            plain("firmware", &device.firmware, LONGEST)?;
        }
        let System { distribution, kernel, rdma_core, mlx5 } = &self.system;
        plain("mlx5", mlx5, LONGEST)?;
        for (name, text) in
            [("distribution", distribution), ("kernel", kernel), ("rdma-core", rdma_core)]
        {
            text.as_ref().map_or(Ok(()), |text| plain(name, text, LONGEST))?;
        }
        if let Some(source) = &self.source {
            plain("source", source, SOURCE)?;
        }
        if self.answers.len() + self.unanswered.len() > ANSWERS {
            return Err(format!("more than {ANSWERS} questions"));
        }
        let answered = self.answers.iter().map(|answer| &answer.question);
        let mut names: Vec<_> =
            answered.chain(self.unanswered.iter().map(|one| &one.question)).collect();
        names.sort_unstable();
        for name in &names {
            plain("question", name, LONGEST)?;
            if !expectations.knows(name) {
                return Err(format!(
                    "the question {name} is not one of evidence/tables/questions.csv: use the version \
                     of the file's suite"
                ));
            }
        }
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("the question {} is there twice", twice[0]));
        }
        self.answers.iter().try_for_each(|answer| self.check_answer(answer, expectations))
    }

    fn check_answer(&self, answer: &Answer, expectations: &Expectations) -> Result<(), String> {
        let Answer { question, fact, unit, seen } = answer;
        plain("fact", fact, LONGEST)?;
        let expected = expectations.of(question, self.device.link);
        let expected =
            expected.ok_or_else(|| format!("{question} does not ask about this link"))?;
        if expected.fact != *fact {
            return Err(format!("{question} asks about {}, not about {fact}", expected.fact));
        }
        if expected.unit != *unit {
            let [asked, given] = [expected.unit, *unit].map(Unit::name);
            return Err(format!("{question} is answered in {asked}, not in {given}"));
        }
        if !(1..=TRIALS).contains(&seen.trials()) {
            return Err(format!("{question} has {} trials, not 1 to {TRIALS}", seen.trials()));
        }
        let is_hex = |text: &String| {
            text.len() <= LONGEST
                && text.len() % 2 == 0
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match (unit, seen) {
            (Unit::Bytes, Values::Bytes(texts)) if texts.iter().all(is_hex) => Ok(()),
            (Unit::Bytes, _) => Err(format!("{question}: not bytes in hexadecimal digits")),
            (_, Values::Numbers(_)) => Ok(()),
            (_, Values::Bytes(_)) => Err(format!("{question}: not numbers")),
        }
    }

    /// Returns each answer with what the ledger says of it.
    pub fn judged<'a>(
        &'a self,
        expectations: &'a Expectations,
    ) -> impl Iterator<Item = (&'a Answer, &'a Expected, Judgement)> {
        self.answers.iter().filter_map(|answer| {
            let expected = expectations.of(&answer.question, self.device.link)?;
            Some((answer, expected, expected.judge(&answer.seen)))
        })
    }

    /// Reads the files of the ledger, in the order of their names.
    ///
    /// # Errors
    /// A file cannot be read, is not of a device, or has no source.
    pub fn all(folder: &Path, expectations: &Expectations) -> Result<Vec<Self>, String> {
        let folder = folder.join(FOLDER);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut paths = Vec::new();
        match fs::read_dir(&folder) {
            Ok(entries) => {
                for entry in entries {
                    paths.push(entry.map_err(failed)?.path());
                }
            }
            // Git keeps no empty folders.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        paths.sort();
        let read = |path: &PathBuf| {
            let seen = Self::read(path, expectations)?;
            if seen.source.is_none() || !seen.is_of_devices() {
                return Err(format!("{}: no source, or not of a device", path.display()));
            }
            Ok(seen)
        };
        paths.iter().map(read).collect()
    }

    /// Takes a file that was sent into the ledger at `folder`. `source` says where it was published.
    /// Facts stay as they are: docs/evidence.md shows the answers beside them. Returns the path of the
    /// new file.
    ///
    /// # Errors
    /// The file is not one of devices, has no answer, or was taken before. The source is not a short
    /// text, or the ledger cannot be written.
    pub fn merge(
        folder: &Path,
        file: &Path,
        source: &str,
        expectations: &Expectations,
    ) -> Result<PathBuf, String> {
        let mut seen = Self::read(file, expectations)?;
        if !seen.is_of_devices() {
            return Err(format!("{}: answers of the model, not of a device", file.display()));
        }
        if seen.answers.is_empty() {
            return Err(format!("{}: no answer: it says nothing of a fact", file.display()));
        }
        plain("source", source, SOURCE)?;
        if source.trim().is_empty() {
            return Err("an answer of a device needs a source".to_owned());
        }
        if let Some(taken) =
            Self::all(folder, expectations)?.into_iter().find(|other| other.is_like(&seen))
        {
            let source = taken.source.unwrap_or_default();
            return Err(format!("{}: these answers are there, from {source}", file.display()));
        }
        seen.source = Some(source.to_owned());
        let folder = folder.join(FOLDER);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let name = seen.name();
        for number in 1..=ANSWERS {
            let path = folder.join(format!("{name}_{number}.toml"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    file.write_all(seen.to_string().as_bytes()).map_err(failed)?;
                    return Ok(path);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(format!("{}: too many files of {name}", folder.display()))
    }

    /// Returns whether devices answered, on both sides, and not the model.
    fn is_of_devices(&self) -> bool {
        let mut sides = [Some(&self.device), self.peer.as_ref()].into_iter().flatten();
        sides.all(|side| side.bed == Bed::Device)
    }

    /// Returns whether another file has the same answers of the same device, whatever its source.
    fn is_like(&self, other: &Self) -> bool {
        let source = other.source.clone();
        Self { source, ..self.clone() } == *other
    }

    /// Returns the name of its file in the ledger: product, firmware and link.
    fn name(&self) -> String {
        let Device { product, firmware, link, .. } = &self.device;
        let name = format!("{product}_{firmware}_{link:?}").to_lowercase();
        name.replace(
            |character: char| !(character.is_ascii_alphanumeric() || character == '.'),
            "-",
        )
        .trim_start_matches(['.', '-'])
        .to_owned()
    }
}

/// Returns an error of a stranger's file in words that a terminal only shows.
fn told(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count();
    let is_shown = |character: &char| character.is_ascii_graphic() || *character == ' ';
    let message: String = error.message().chars().filter(is_shown).take(SOURCE).collect();
    format!("line {line}: {message}")
}

/// Checks a text that goes into the page and into names of files.
fn plain(name: &str, text: &str, longest: usize) -> Result<(), String> {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || " .,_+-()/:#".contains(character);
    match text.len() <= longest && text.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "{name}: at most {longest} letters, digits, blanks and `.,_+-()/:#` are expected"
        )),
    }
}

impl Values {
    /// Returns the number of trials.
    pub fn trials(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }
}

impl Display for Values {
    /// Writes the values as the file has them.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = match self {
            Self::Numbers(values) => values.iter().map(u64::to_string).collect(),
            Self::Bytes(values) => values.iter().map(|text| format!("\"{text}\"")).collect(),
        };
        write!(f, "[{}]", values.join(", "))
    }
}

impl Unit {
    const ALL: [Self; 4] = [Self::Bytes, Self::Count, Self::Microseconds, Self::Kilohertz];

    /// Returns the unit of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Microseconds => "us",
            Self::Kilohertz => "kHz",
        }
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { bed, product, part, firmware, link } = self;
        let bed = format!("{bed:?}").to_lowercase();
        writeln!(f, "bed = \"{bed}\"\nproduct = \"{product}\"")?;
        part.map_or(Ok(()), |part| writeln!(f, "part = {part}"))?;
        writeln!(f, "firmware = \"{firmware}\"\nlink = \"{link:?}\"")
    }
}

impl Display for Seen {
    /// Writes the file. Texts that were checked need no escapes.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { format, source, device, peer, system, answers, unanswered } = self;
        writeln!(f, "format = {format}")?;
        source.as_ref().map_or(Ok(()), |source| writeln!(f, "source = \"{source}\""))?;
        write!(f, "\n[device]\n{device}")?;
        peer.as_ref().map_or(Ok(()), |peer| write!(f, "\n[peer]\n{peer}"))?;
        writeln!(f, "\n[system]")?;
        let System { distribution, kernel, rdma_core, mlx5 } = system;
        for (name, text) in
            [("distribution", distribution), ("kernel", kernel), ("rdma-core", rdma_core)]
        {
            text.as_ref().map_or(Ok(()), |text| writeln!(f, "{name} = \"{text}\""))?;
        }
        writeln!(f, "mlx5 = \"{mlx5}\"")?;
        for Answer { question, fact, unit, seen } in answers {
            writeln!(f, "\n[[answer]]\nquestion = \"{question}\"\nfact = \"{fact}\"")?;
            writeln!(f, "unit = \"{}\"\nseen = {seen}", unit.name())?;
        }
        for Unanswered { question, why } in unanswered {
            let why = match why {
                Why::NotApplicable => "not applicable",
                Why::Budget => "no time",
                Why::Failed => "failed",
            };
            writeln!(f, "\n[[unanswered]]\nquestion = \"{question}\"\nwhy = \"{why}\"")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
