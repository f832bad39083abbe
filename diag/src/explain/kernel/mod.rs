//! Families of messages of Linux's mlx5_core and mlx5_ib: what failed, and whose object it is.
//!
//! The driver's source decides a message's family: file, function and, where one function reports
//! several failures, words of the message. A family names a cause only if the message itself says so.
//! Otherwise it has a first check.

mod device;
mod ethernet;
mod steering;
mod verbs;

use core::fmt;

/// The party whose object or decision failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// The hardware: the HCA, its PCIe link, its ports and modules.
    Device,
    /// The firmware of the HCA.
    Firmware,
    /// An object of Linux's driver itself.
    Driver,
    /// A request of a program by verbs, or of another kernel module.
    Program,
    /// The administrator's configuration.
    Administrator,
    /// The host: its memory, interrupts and kernel.
    Host,
}

impl Owner {
    /// Every owner.
    pub const ALL: [Owner; 6] = [
        Owner::Device,
        Owner::Firmware,
        Owner::Driver,
        Owner::Program,
        Owner::Administrator,
        Owner::Host,
    ];

    /// Returns a sentence on who is concerned.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Owner::Device => "It concerns the hardware.",
            Owner::Firmware => "It concerns the firmware.",
            Owner::Driver => {
                "It concerns an object of the kernel's driver, and no program's verbs call."
            }
            Owner::Program => "It concerns a request of a program, or of another kernel module.",
            Owner::Administrator => "It concerns the administrator's configuration.",
            Owner::Host => "It concerns the host: its memory, interrupts or kernel.",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::Device => "device",
            Owner::Firmware => "firmware",
            Owner::Driver => "driver",
            Owner::Program => "program",
            Owner::Administrator => "configuration",
            Owner::Host => "host",
        })
    }
}

/// A family of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The source file, or the beginning of its name with `*` behind it.
    file: &'static str,
    /// Functions separated by `|`, each whole or as a beginning with `*`. Empty for all.
    functions: &'static str,
    /// Words in lower case separated by `|`, of which the message has one. Empty for any message.
    words: &'static str,
    /// Whose object it is.
    pub owner: Owner,
    /// What failed, in a few words.
    pub title: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// The cause, if the message itself tells it. Otherwise empty.
    pub cause: &'static str,
    /// The first check.
    pub check: &'static str,
}

impl Family {
    fn is_of(&self, file: &str, function: &str, message: &str) -> bool {
        is_like(self.file, file)
            && (self.functions.is_empty()
                || self.functions.split('|').any(|known| is_like(known, function)))
            && (self.words.is_empty() || self.words.split('|').any(|word| message.contains(word)))
    }
}

/// Returns whether a name is a pattern, or begins as a pattern with `*` does.
fn is_like(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Declares families, the more specific before others: file, functions, words; owner and title;
/// meaning, cause, check.
macro_rules! families {
    ($($file:literal $functions:literal $words:literal $owner:ident $title:literal
        $meaning:literal $cause:literal $check:literal;)*) => {
        pub(super) const FAMILIES: &[super::Family] = &[$(super::Family {
            file: $file,
            functions: $functions,
            words: $words,
            owner: super::Owner::$owner,
            title: $title,
            meaning: $meaning,
            cause: $cause,
            check: $check,
        }),*];
    };
}
use families;

/// Returns the family of a message by its source and text; `None` if the source is not of the driver.
#[must_use]
pub fn find(file: &str, function: &str, message: &str) -> Option<&'static Family> {
    let message = message.to_ascii_lowercase();
    all().find(|family| family.is_of(file, function, &message))
}

fn all() -> impl Iterator<Item = &'static Family> {
    [device::FAMILIES, verbs::FAMILIES, ethernet::FAMILIES, steering::FAMILIES]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_says_what_failed_and_what_to_check() {
        for family in all() {
            let texts = [family.title, family.meaning, family.check];
            assert!(texts.iter().all(|text| !text.is_empty()), "{family:?}");
            assert!(family.meaning.ends_with('.') && !family.title.ends_with('.'), "{family:?}");
            assert_eq!(family.words, family.words.to_ascii_lowercase(), "{family:?}");
        }
        for owner in Owner::ALL {
            assert!(all().any(|family| family.owner == owner), "{owner}");
        }
    }

    #[test]
    fn the_more_specific_family_comes_first() {
        let of =
            |function, message| find("core/cmd.c", function, message).map(|family| family.title);
        assert_ne!(
            of("wait_func", "X timeout while waiting for command semaphore"),
            of("wait_func", "")
        );
        assert_eq!(find("other/file.c", "x", ""), None);
    }
}
