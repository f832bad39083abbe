//! A copy of the executable, with nothing beside it and nothing in its environment.

mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rig::folder::Folder;
use rig::{copy_command, finish};

const WRITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/write.py");

/// A folder with the executable, and an empty one for temporary files.
struct Installed {
    folder: Folder,
    temporary: PathBuf,
}

impl Installed {
    fn new(name: &str) -> Installed {
        let folder = Folder::new(name);
        copy_command(&folder.file("mlx5"));
        let temporary = folder.file("temporary");
        fs::create_dir(&temporary).unwrap();
        Installed { folder, temporary }
    }

    fn mlx5(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.file("mlx5"));
        command.args(arguments).current_dir("/").env_clear().env("TMPDIR", &self.temporary);
        command
    }

    /// Folders that hold the model's library. (The model itself keeps one for its devices' files.)
    fn left(&self) -> usize {
        let entries = fs::read_dir(&self.temporary).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries.map(name).filter(|name| name.to_str().unwrap().contains("trace")).count()
    }
}

#[test]
fn an_executable_alone_has_the_model_in_it() {
    let installed = Installed::new("alone");
    let printed = finish(&mut installed.mlx5(&["run", "--", "/usr/bin/ibv_devinfo"]), 0);
    assert!(printed.out.contains("MLX5-MODEL"), "{}", printed.out);
    let traced = ["trace", "--model", "--kind", "command", "--", "/usr/bin/ibv_devinfo"];
    let printed = finish(&mut installed.mlx5(&traced), 0);
    assert!(printed.err.contains("QUERY_HCA_CAP"), "{}", printed.err);
    let linted = ["lint", "--model", "--", "/usr/bin/python3", WRITE];
    let printed = finish(&mut installed.mlx5(&linted), 0);
    assert!(printed.out.contains("0 defects"), "{}", printed.out);
    assert_eq!(installed.left(), 0, "nothing stays in the folder for temporary files");
}

#[test]
fn a_program_on_the_model_ends_the_command_as_it_ends() {
    let installed = Installed::new("ends");
    let shell = |script: &str, status: i32| {
        finish(&mut installed.mlx5(&["run", "--", "/bin/sh", "-c", script]), status)
    };
    let printed = shell("echo out; echo err >&2; exit 7", 7);
    assert_eq!((printed.out.as_str(), printed.err.as_str()), ("out\n", "err\n"));
    shell("kill -9 $$", 128 + 9);
    // Processes that the program starts are on the model too.
    let printed = shell("/usr/bin/ibv_devices; /usr/bin/ibv_devices", 0);
    assert_eq!(printed.out.matches("mlx5_0").count(), 2, "{}", printed.out);
    let missing = finish(&mut installed.mlx5(&["run", "--", "/nowhere/program"]), 3);
    assert!(missing.err.contains("cannot run /nowhere/program"), "{}", missing.err);
    assert_eq!(installed.left(), 0);
}

#[test]
fn a_folder_that_the_loader_cannot_take_is_named_with_the_cure() {
    let installed = Installed::new("blank");
    for name in ["a b", "a:b"] {
        let folder = installed.folder.file(name);
        fs::create_dir(&folder).unwrap();
        let refused = refusal(&installed, &folder);
        assert!(refused.contains("a blank or a colon") && refused.contains("TMPDIR"), "{refused}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
    let refused = refusal(&installed, Path::new("/nowhere"));
    assert!(refused.contains("/nowhere") && refused.contains("TMPDIR"), "{refused}");
}

/// The error of a command whose folder for temporary files is this one.
fn refusal(installed: &Installed, temporary: &Path) -> String {
    let mut command = installed.mlx5(&["run", "--", "/bin/true"]);
    finish(command.env("TMPDIR", temporary), 3).err
}
