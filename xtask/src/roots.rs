//! Root folders of the supported distributions, made by mmdebstrap.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::mirrors::{self, Archive};
use crate::needs;
use crate::setup;

/// A supported distribution.
pub struct Distribution {
    /// Its name and version.
    pub name: &'static str,
    /// The word by which its archive knows it.
    pub suite: &'static str,
    archive: Archive,
}

const fn of(name: &'static str, suite: &'static str, archive: Archive) -> Distribution {
    Distribution { name, suite, archive }
}

const DISTRIBUTIONS: [Distribution; 5] = [
    of("Debian 12", "bookworm", Archive::Debian),
    of("Debian 13", "trixie", Archive::Debian),
    of("Debian unstable", "sid", Archive::Debian),
    of("Ubuntu 22.04", "jammy", Archive::Ubuntu),
    of("Ubuntu 24.04", "noble", Archive::Ubuntu),
];

/// Which root folders are made: the arguments `[--keyring FILE] [SUITE ...]`.
pub struct Wanted {
    /// The keys of the archive, where the host lacks them.
    keyring: Option<PathBuf>,
    /// In the order of the arguments; empty without any.
    pub distributions: Vec<&'static Distribution>,
}

impl Wanted {
    /// Reads arguments.
    ///
    /// # Errors
    /// A suite is unknown, or this user or machine cannot make root folders.
    pub fn read(arguments: &[String]) -> Result<Wanted> {
        let wanted = Wanted::of(arguments)?;
        if setup::is_root() && needs::program_exists("mmdebstrap") {
            return Ok(wanted);
        }
        Err("this command makes root folders: run it as root, with the package mmdebstrap installed"
            .to_owned())
    }

    fn of(arguments: &[String]) -> Result<Wanted> {
        let (keyring, suites) = match arguments {
            [flag, file, suites @ ..] if flag == "--keyring" => (Some(PathBuf::from(file)), suites),
            suites => (None, suites),
        };
        let distributions = suites.iter().map(|suite| named(suite)).collect::<Result<_>>()?;
        Ok(Wanted { keyring, distributions })
    }

    /// The distributions, or all where none is named.
    pub fn or_all(&self) -> Vec<&'static Distribution> {
        if self.distributions.is_empty() {
            return DISTRIBUTIONS.iter().collect();
        }
        self.distributions.clone()
    }

    /// The command that makes a root folder with packages, whose names have commas between them, from
    /// the mirrors that apt on this machine is configured with.
    ///
    /// # Errors
    /// No mirror of the distribution is known.
    pub fn mmdebstrap(
        &self,
        Distribution { suite, archive, .. }: &Distribution,
        packages: &str,
        root: &Path,
    ) -> Result<Command> {
        let mut command = Command::new("mmdebstrap");
        command.args(["--variant=apt", "--include", packages]);
        command.arg(format!("--components={}", archive.components()));
        // A mirror may be a snapshot whose suites are old.
        command.args(["--aptopt=Acquire::Check-Valid-Until \"false\""]);
        if let Some(keyring) = &self.keyring {
            command.arg("--keyring").arg(keyring);
        }
        command.arg(suite).arg(root).arg(mirrors::of(*archive)?);
        Ok(command)
    }
}

/// The distribution of a suite.
///
/// # Errors
/// None has this suite.
pub fn named(suite: &str) -> Result<&'static Distribution> {
    DISTRIBUTIONS.iter().find(|known| known.suite == suite).ok_or_else(|| {
        let known: Vec<_> = DISTRIBUTIONS.iter().map(|known| known.suite).collect();
        format!("the suite `{suite}` is none of {}", known.join(", "))
    })
}

/// Runs a command in a root folder, with mounts that end with it: `ROOT`, then pairs of a folder and its
/// place inside, `--`, and the command. The root is moved, not only changed: in a changed root, the kernel
/// makes no user namespace.
const ENTER: &str = r#"
root=$1
shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
done
shift
cd "$root"
mount --move . /
exec chroot . "$@"
"#;

/// A command that runs what its further arguments say in a root folder, with these folders of the machine
/// at places inside.
pub fn enter(root: &Path, folders: &[(&Path, &Path)]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-e", "-c", ENTER, "enter"]);
    command.arg(root).args(folders.iter().flat_map(|(folder, place)| [folder, place]));
    command.arg("--").stdin(Stdio::null());
    command
}

/// Deletes a root folder, and nothing that is mounted in it.
pub fn delete(root: &Path) -> Result {
    let mut rm = Command::new("rm");
    build::run("rm", rm.args(["-rf", "--one-file-system", "--"]).arg(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<Wanted> {
        Wanted::of(&arguments.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn distributions_are_those_named_or_all() {
        let two = of(&["--keyring", "keys.gpg", "noble", "trixie"]).unwrap();
        let suites: Vec<_> = two.or_all().iter().map(|one| one.suite).collect();
        assert_eq!(suites, ["noble", "trixie"]);
        assert_eq!(two.keyring, Some(PathBuf::from("keys.gpg")));
        assert_eq!(of(&[]).unwrap().or_all().len(), DISTRIBUTIONS.len());
    }

    #[test]
    fn an_unknown_suite_is_refused_with_those_that_are_known() {
        let error = of(&["bookwrom"]).err().unwrap();
        assert_eq!(error, "the suite `bookwrom` is none of bookworm, trixie, sid, jammy, noble");
        // A flag without its file is no suite.
        assert!(of(&["--keyring"]).is_err());
    }
}
