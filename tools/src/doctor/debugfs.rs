//! Folders of Linux's mlx5 driver in debugfs: `/sys/kernel/debug/mlx5/ADDRESS/…`.

use std::fs;
use std::io::ErrorKind;

use super::check::{Check, Question};
use super::situation::Situation;

/// The folder at which debugfs is mounted.
const ROOT: &str = "sys/kernel/debug";

/// Why a folder cannot be read.
#[derive(Clone, Debug)]
pub enum Absent {
    /// The driver does not have it here.
    Nothing(&'static str),
    /// It may be there, and this process cannot read it.
    Hidden { why: String, cure: &'static str },
}

impl Absent {
    /// Answers a check that only this folder could answer.
    pub fn answer(self, question: Question) -> Check {
        match self {
            Absent::Nothing(why) => question.not_applicable(why),
            Absent::Hidden { why, cure } => question.unknown(why, Some(cure.to_owned())),
        }
    }
}

/// Returns the path of a folder of the examined function, if its files can be listed.
///
/// # Errors
/// Why they cannot.
pub fn folder(situation: &Situation, name: &str) -> Result<String, Absent> {
    if situation.model {
        return Err(Absent::Nothing("the model has no driver in the kernel"));
    }
    let function = situation.function().ok_or(Absent::Nothing("there is no function"))?;
    let path = format!("{ROOT}/mlx5/{}/{name}", function.address);
    let refused = match fs::read_dir(situation.tree.path(&path)) {
        Ok(_) => return Ok(path),
        Err(error) => error,
    };
    let is_mounted = !situation.tree.list(ROOT).is_empty();
    Err(match refused.kind() {
        ErrorKind::NotFound if !situation.tree.is_own() => {
            Absent::Nothing("the copied files have no such folder of debugfs")
        }
        ErrorKind::NotFound if is_mounted => Absent::Nothing("the driver has no such folder here"),
        ErrorKind::NotFound => Absent::Hidden {
            why: format!("debugfs is not mounted at /{ROOT}"),
            cure: "mount -t debugfs none /sys/kernel/debug    # as root",
        },
        _ => Absent::Hidden {
            why: format!("/{path}: {refused}; root alone reads debugfs"),
            cure: "sudo mlx5 doctor",
        },
    })
}

/// Reads the files of a folder as values by their names. Files that are empty or cannot be read are
/// left out.
pub fn values(situation: &Situation, folder: &str) -> Vec<(String, String)> {
    let names = situation.tree.list(folder).into_iter();
    names
        .filter_map(|name| {
            let value = situation.tree.read(&format!("{folder}/{name}"))?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (!value.is_empty()).then_some((name, value))
        })
        .collect()
}
