//! Facts, as they are in files.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Test;

/// All facts, by area.
#[derive(Debug)]
pub struct Ledger {
    /// The areas, by name.
    pub areas: Vec<Area>,
}

/// The facts of one file.
#[derive(Debug)]
pub struct Area {
    /// The name of the file, without its ending.
    pub name: String,
    /// In the order of the file.
    pub facts: Vec<Fact>,
}

/// One statement about a device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Its name in tests, code and prose: a letter and three digits.
    pub id: String,
    /// The statement.
    pub claim: String,
    /// The numbers.
    #[serde(default)]
    pub values: String,
    /// Devices and firmware.
    #[serde(default)]
    pub device: String,
    /// How often, and by which method.
    #[serde(default)]
    pub trials: String,
    /// Where it is published.
    pub source: String,
    /// How good the source is.
    pub quality: Quality,
    /// Whether this project agrees.
    pub stance: Stance,
    /// What the model, the driver, `diag` or `doctor` do.
    #[serde(default)]
    pub here: String,
    /// Why the project differs, or why nothing is modelled.
    #[serde(default)]
    pub why: String,
    /// The tests that show it.
    #[serde(default)]
    pub tests: Vec<Test>,
    /// Tables with its numbers.
    #[serde(default)]
    pub tables: Vec<String>,
}

/// How good a source is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Quality {
    /// Strong: raw data, many trials, or confirmed by the vendor.
    A,
    /// Plausible: one author, a few trials, or derived.
    B,
    /// An anecdote: one trial, or no raw data.
    C,
}

/// Whether this project agrees with a fact.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Stance {
    /// A test shows it.
    Agrees,
    /// The project does something else, and says why.
    Differs,
    /// Nothing here does this, and the reason is given.
    Absent,
    /// Not compared yet.
    Open,
}

impl Ledger {
    /// Reads the files of a folder.
    ///
    /// # Errors
    /// A file cannot be read, or a fact breaks a rule. The text names both.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let facts = folder.join("facts");
        let failed = |error| format!("{}: {error}", facts.display());
        let mut areas = Vec::new();
        for entry in fs::read_dir(&facts).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            areas.push(Area::read(&path).map_err(|error| format!("{}: {error}", path.display()))?);
        }
        areas.sort_by(|a, b| a.name.cmp(&b.name));
        let ledger = Self { areas };
        ledger.check(folder)?;
        Ok(ledger)
    }

    /// Returns all facts.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.areas.iter().flat_map(|area| &area.facts)
    }

    fn check(&self, folder: &Path) -> Result<(), String> {
        let mut ids: Vec<&str> = self.facts().map(|fact| fact.id.as_str()).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two facts are called {}", twice[0]));
        }
        for fact in self.facts() {
            let broken = |rule: &str| Err(format!("{}: {rule}", fact.id));
            if fact.stance == Stance::Agrees && fact.tests.is_empty() {
                return broken("a fact that the project agrees with names the test that shows it");
            }
            let has_reason = matches!(fact.stance, Stance::Differs | Stance::Absent);
            if has_reason == fact.why.is_empty() {
                return broken("`why` is for facts that differ or are absent, and these need it");
            }
            for table in &fact.tables {
                if !folder.join("tables").join(table).with_extension("csv").is_file() {
                    return broken(&format!("there is no table {table}"));
                }
            }
        }
        Ok(())
    }
}

impl Area {
    fn read(path: &Path) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            fact: Vec<Fact>,
        }
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let File { fact: facts } = toml::from_str(&text).map_err(|error| error.to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, facts })
    }

    /// Returns the number of facts with a stance.
    pub fn count(&self, stance: Stance) -> usize {
        self.facts.iter().filter(|fact| fact.stance == stance).count()
    }
}

impl Stance {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Agrees, Self::Differs, Self::Absent, Self::Open];

    /// Returns its words in the page.
    pub fn words(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs on purpose",
            Self::Absent => "not modelled",
            Self::Open => "not compared yet",
        }
    }
}
