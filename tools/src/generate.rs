//! Files generated from the command line's definition: shell completions and manual pages.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::outcome::{Error, Outcome, Result};
use crate::output::{Form, stdout};

/// Print completions for a shell
///
/// For bash: mlx5 completions bash > ~/.local/share/bash-completion/completions/mlx5
#[derive(Args, Clone, Debug)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the completions of a command line.
    pub(crate) fn run(&self, command: &mut clap::Command) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "mlx5", &mut script);
        io::Write::write_all(&mut stdout(Form::Text), &script).map_err(Error::Output)?;
        Ok(Outcome::Good)
    }
}

/// Write manual pages into a folder: mlx5.1 and one per command
///
/// Then: man -l FOLDER/mlx5.1
#[derive(Args, Clone, Debug)]
pub struct Man {
    /// The folder, which is made if it does not exist
    folder: PathBuf,
}

impl Man {
    /// Writes the manual pages of a command line.
    pub(crate) fn run(&self, mut command: clap::Command) -> Result {
        fs::create_dir_all(&self.folder).map_err(|error| Error::File {
            what: format!("cannot make the folder {}", self.folder.display()),
            error,
        })?;
        // Completes the tree: pages are named by the full command, `mlx5-perf-lat.1`.
        command.build();
        self.write(&command)
    }

    fn write(&self, command: &clap::Command) -> Result {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let file = self.folder.join(format!("{name}.1"));
        let mut page = Vec::new();
        // Writing to a buffer in memory cannot fail.
        let rendered = clap_mangen::Man::new(command.clone()).render(&mut page);
        rendered.and_then(|()| fs::write(&file, &page)).map_err(|error| Error::File {
            what: format!("cannot write {}", file.display()),
            error,
        })?;
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            self.write(below)?;
        }
        Ok(Outcome::Good)
    }
}
