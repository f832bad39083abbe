//! Results of checks that are kept, by the hash of the files that each depends on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;

/// The first line of the file.
const HEADING: &str = "check\thash\tresult\tseconds\tcommit";

/// Results, in one file of lines with tabs.
pub struct Results {
    file: PathBuf,
    /// By the check's name.
    kept: BTreeMap<String, Kept>,
}

/// The newest result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The hash of its files.
    pub hash: String,
    pub verdict: Verdict,
    pub seconds: u64,
    /// The commit that was checked out.
    pub commit: String,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
}

impl Verdict {
    /// Its word in the file and in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
        }
    }
}

impl Results {
    /// Reads the file. One that does not exist has no results.
    ///
    /// # Errors
    /// The file cannot be read, or is not one of results.
    pub fn read(file: &Path) -> Result<Self> {
        let kept = match fs::read_to_string(file) {
            Ok(text) => parse(&text).map_err(|line| {
                format!("{} is no file of results: `{line}`; name another", file.display())
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        };
        Ok(Self { file: file.to_owned(), kept })
    }

    /// Returns the result of a check whose files have this hash.
    pub fn of(&self, check: &str, hash: &str) -> Option<&Kept> {
        self.kept.get(check).filter(|kept| kept.hash == hash)
    }

    /// Keeps a result, and writes the file: a run that is interrupted loses nothing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(
        &mut self,
        check: &str,
        hash: &str,
        verdict: Verdict,
        took: Duration,
        commit: &str,
    ) -> Result {
        let kept = Kept {
            hash: hash.to_owned(),
            verdict,
            seconds: took.as_secs(),
            commit: commit.to_owned(),
        };
        self.kept.insert(check.to_owned(), kept);
        let mut text = HEADING.to_owned() + "\n";
        for (check, Kept { hash, verdict, seconds, commit }) in &self.kept {
            text += &format!("{check}\t{hash}\t{}\t{seconds}\t{commit}\n", verdict.word());
        }
        let failed = |error| format!("cannot write {}: {error}", self.file.display());
        // In one step: what another run reads is whole.
        let beside = self.file.with_extension("new");
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&beside, text).map_err(failed)?;
        fs::rename(&beside, &self.file).map_err(failed)
    }
}

/// Reads the lines of a file.
///
/// # Errors
/// The first line that is none of a result.
fn parse(text: &str) -> Result<BTreeMap<String, Kept>> {
    let mut lines = text.lines();
    match lines.next() {
        None => return Ok(BTreeMap::new()),
        Some(HEADING) => {}
        Some(line) => return Err(line.to_owned()),
    }
    let result = |line: &str| {
        let [check, hash, word, seconds, commit] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let verdict = [Verdict::Passed, Verdict::Failed].into_iter().find(|v| v.word() == word)?;
        let (hash, commit) = (hash.to_owned(), commit.to_owned());
        let kept = Kept { hash, verdict, seconds: seconds.parse().ok()?, commit };
        Some((check.to_owned(), kept))
    };
    lines.map(|line| result(line).ok_or_else(|| line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in a folder that is deleted with it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("mlx5-results-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_result_is_found_again_for_the_same_files_only() {
        let place = Place::new("again");
        let file = place.0.join("deep.tsv");
        let mut results = Results::read(&file).unwrap();
        let took = Duration::from_secs(7);
        results.keep("miri", "aa", Verdict::Passed, took, "c0ffee").unwrap();
        results.keep("asan", "bb", Verdict::Failed, took, "c0ffee").unwrap();
        let results = Results::read(&file).unwrap();
        let kept = results.of("miri", "aa").unwrap();
        assert_eq!((kept.verdict, kept.seconds), (Verdict::Passed, 7));
        assert_eq!(results.of("asan", "bb").unwrap().verdict, Verdict::Failed);
        assert_eq!(results.of("miri", "ab"), None);
    }

    #[test]
    fn a_file_of_something_else_is_refused_with_its_line() {
        for text in ["[package]\n", &format!("{HEADING}\nmiri\taa\tfine\t7\tc0ffee\n")] {
            let place = Place::new("refused");
            fs::create_dir_all(&place.0).unwrap();
            let file = place.0.join("deep.tsv");
            fs::write(&file, text).unwrap();
            let error = Results::read(&file).err().unwrap();
            assert!(error.contains(text.lines().last().unwrap()), "{error}");
        }
    }
}
