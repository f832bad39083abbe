//! The command line.

use std::path::PathBuf;

use mlx5_model::card::{Link, Profile};

/// The text of `--help`.
pub const USAGE: &str = "\
usage: mlx5-model-pci --function SOCKET [--function SOCKET ...] [options]

Serves a software ConnectX as a PCI function on each socket, for a vfio-user client such as QEMU's
device vfio-user-pci. All functions are ports of one fabric.

  --function SOCKET   path of the socket of a function; may be repeated
  --link LINK         infiniband (default) or roce
  --profile NAME      complete (default), cx5, cx6, cx6dx (roce alone) or cx7: the generation of
                      ConnectX
  --log LEVEL         none (default); refused: commands that the device refuses; all: every command
";

/// Most functions of a server.
pub const MOST_FUNCTIONS: usize = 16;

/// Which commands the log shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// None.
    #[default]
    None,
    /// Those that the device refuses.
    Refused,
    /// Every one.
    All,
}

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket of each function.
    pub sockets: Vec<PathBuf>,
    /// The link of all ports.
    pub link: Link,
    /// The generation that all functions stand for.
    pub profile: Profile,
    /// Which commands are logged on stderr.
    pub log: Log,
}

/// A defect of a command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadOption {
    /// An argument without its value.
    #[error("{0} needs a value")]
    NoValue(String),
    /// A value that is none of those allowed.
    #[error("{0} {1}: this value is not known")]
    Value(String, String),
    /// An argument that is not known.
    #[error("{0}: this option is not known")]
    Unknown(String),
    /// A profile without ports of the link.
    #[error("--profile {0} has no such ports: set --link roce")]
    Link(&'static str),
    /// No function, or too many.
    #[error("{0} functions: name 1 to {MOST_FUNCTIONS} with --function SOCKET")]
    Functions(usize),
}

impl Options {
    /// Reads a command line without the program's name.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(arguments: &[String]) -> Result<Self, BadOption> {
        let (link, profile) = (Link::InfiniBand, Profile::default());
        let mut options = Self { sockets: Vec::new(), link, profile, log: Log::None };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            if !matches!(name.as_str(), "--function" | "--link" | "--profile" | "--log") {
                return Err(BadOption::Unknown(name.clone()));
            }
            let value = rest.next().ok_or_else(|| BadOption::NoValue(name.clone()))?;
            match (name.as_str(), value.as_str()) {
                ("--function", path) => options.sockets.push(path.into()),
                ("--link", "infiniband") => options.link = Link::InfiniBand,
                ("--link", "roce") => options.link = Link::Roce,
                ("--profile", name) => {
                    let unknown = || BadOption::Value("--profile".into(), name.into());
                    options.profile = Profile::named(name).ok_or_else(unknown)?;
                }
                ("--log", "none") => options.log = Log::None,
                ("--log", "refused") => options.log = Log::Refused,
                ("--log", "all") => options.log = Log::All,
                _ => return Err(BadOption::Value(name.clone(), value.clone())),
            }
        }
        if !options.profile.carries(options.link) {
            return Err(BadOption::Link(options.profile.name()));
        }
        match options.sockets.len() {
            1..=MOST_FUNCTIONS => Ok(options),
            count => Err(BadOption::Functions(count)),
        }
    }
}

#[cfg(test)]
mod tests;
