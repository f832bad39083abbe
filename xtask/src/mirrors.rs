//! The mirrors that apt on this machine is configured with.

use std::process::{Command, Stdio};

use crate::Result;

/// The archive of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    Debian,
    Ubuntu,
}

impl Archive {
    /// The origin that its release files name.
    fn origin(self) -> &'static str {
        match self {
            Self::Debian => "Debian",
            Self::Ubuntu => "Ubuntu",
        }
    }

    /// The last part of a mirror's address.
    fn folder(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Ubuntu => "ubuntu",
        }
    }

    /// The components that have the packages of a build.
    pub fn components(self) -> &'static str {
        match self {
            Self::Debian => "main",
            Self::Ubuntu => "main,universe",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Debian => Self::Ubuntu,
            Self::Ubuntu => Self::Debian,
        }
    }
}

/// The address of a mirror of this archive: a configured one, or the folder beside a configured one
/// of the other archive, since most hosts mirror both.
///
/// # Errors
/// apt cannot be asked, or has no such mirror.
pub fn of(archive: Archive) -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot ask apt for its mirrors: {error}"))?;
    choose(&String::from_utf8_lossy(&output.stdout), archive).ok_or_else(|| {
        format!(
            "apt on this machine has no mirror of {}; run `apt-get update` if it should have one",
            archive.origin()
        )
    })
}

/// Chooses from lines with an origin and an address each.
fn choose(configured: &str, archive: Archive) -> Option<String> {
    let mirror = |archive: Archive| {
        configured
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(origin, _)| *origin == archive.origin())
            .map(|(_, address)| address.trim_end_matches('/'))
            .find(|address| address.ends_with(&format!("/{}", archive.folder())))
    };
    mirror(archive).map(str::to_owned).or_else(|| {
        let beside = mirror(archive.other())?.strip_suffix(archive.other().folder())?;
        Some(format!("{beside}{}", archive.folder()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "Debian http://mirror.test/debian-security/\n\
                          Debian http://mirror.test/debian/\n\
                          Other https://other.test/ubuntu/\n";

    #[test]
    fn a_configured_mirror_is_chosen() {
        assert_eq!(choose(DEBIAN, Archive::Debian).unwrap(), "http://mirror.test/debian");
        let both = format!("{DEBIAN}Ubuntu http://second.test/ubuntu/\n");
        assert_eq!(choose(&both, Archive::Ubuntu).unwrap(), "http://second.test/ubuntu");
    }

    #[test]
    fn the_other_archive_is_looked_for_on_the_same_host() {
        assert_eq!(choose(DEBIAN, Archive::Ubuntu).unwrap(), "http://mirror.test/ubuntu");
        assert_eq!(choose("Other https://other.test/ubuntu/\n", Archive::Ubuntu), None);
    }
}
