//! The folder that stands for sysfs: other users can neither change it, nor block it, nor have
//! files written through it. Changes by the clean-up of temporary folders are repaired.

mod support;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use mlx5_model as _;
use support::Model;
use support::role::play;
use support::users::{ATTACKER, As, VICTIM, as_root};
use support::verbs::Device;

#[test]
fn role() {
    play(&[("links", links), ("squatter", squatter), ("open", open_to_all)]);
}

/// A folder for temporary files, as open as `/tmp`. It goes with this structure.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, mode: u32) -> Self {
        let path = PathBuf::from(format!("/tmp/mlx5-folder-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("an entry"));
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A folder that stays is in the system's folder of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn places(variables: &[(&str, &Path)]) {
    // SAFETY: roles are played by one thread.
    unsafe {
        std::env::remove_var("XDG_RUNTIME_DIR");
        variables.iter().for_each(|(name, value)| std::env::set_var(name, value));
    }
}

/// Opens a device, as programs find it, and gives the real folder that stands for sysfs.
fn opens() -> PathBuf {
    Device::open(0).close();
    let board = fs::File::open("/sys/class/infiniband/mlx5_0/board_id").expect("an attribute");
    let path = fs::read_link(format!("/proc/self/fd/{}", board.as_raw_fd())).expect("its path");
    let text = fs::read_to_string("/sys/class/infiniband/mlx5_0/board_id").expect("its text");
    assert_eq!(text.trim(), "MLX5-MODEL", "at {}", path.display());
    path
}

/// Copies a folder with everything in it for all to read, with another text for the board.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("its mode");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&path, &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&path).expect("a link"), &target).expect("a link");
        } else {
            let text = if entry.file_name() == "board_id" {
                b"ATTACKER\n".to_vec()
            } else {
                fs::read(&path).expect("its bytes")
            };
            fs::write(&target, text).expect("a file");
            fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).expect("its mode");
        }
    }
}

/// The names that the model gave to the attacker, as it would give them to the victim.
fn victims(temporary: &Temporary) -> Vec<(PathBuf, PathBuf)> {
    let renamed = |name: String| {
        let path = temporary.0.join(&name);
        (path, temporary.0.join(name.replace(&ATTACKER.to_string(), &VICTIM.to_string())))
    };
    let names: Vec<_> = temporary.names().into_iter().map(renamed).collect();
    assert!(!names.is_empty(), "the model has left nothing");
    names
}

/// Another user puts links to a file of the victim where the model is about to write.
fn links() -> i32 {
    let precious = Temporary::new("precious", 0o755);
    let file = precious.0.join("file");
    fs::write(&file, "precious").expect("a file");
    std::os::unix::fs::chown(&file, Some(VICTIM), Some(VICTIM)).expect("its owner");
    // Under the name of the tree, and under one that the process's number is part of.
    for numbered in [false, true] {
        let temporary = Temporary::new("links", 0o1777);
        places(&[("TMPDIR", &temporary.0)]);
        As::user(ATTACKER, || drop(opens())).runs();
        let victim = As::user(VICTIM, || drop(opens()));
        As::user(ATTACKER, || {
            for (_, name) in victims(&temporary) {
                let number = if numbered { format!(".{}", victim.child) } else { String::new() };
                let root = PathBuf::from(format!("{}{number}", name.display()));
                let folder = root.join("sys/class/infiniband_verbs");
                fs::create_dir_all(&folder).expect("a folder");
                for path in folder.ancestors().take_while(|path| *path != temporary.0) {
                    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("a mode");
                }
                symlink(&file, folder.join("abi_version")).expect("a link");
            }
        })
        .runs();
        victim.runs();
        assert_eq!(fs::read_to_string(&file).expect("a file"), "precious");
    }
    0
}

#[test]
fn links_of_another_user_are_not_followed() {
    as_root("links");
}

/// Another user puts a tree of its own in the victim's place, before the victim starts.
fn squatter() -> i32 {
    let temporary = Temporary::new("squatter", 0o1777);
    places(&[("TMPDIR", &temporary.0)]);
    As::user(ATTACKER, || drop(opens())).runs();
    let squat = || victims(&temporary).iter().for_each(|(own, name)| copy(own, name));
    // The attacker's own folder is of no use to others, so root copies and gives it away.
    squat();
    for (_, name) in victims(&temporary) {
        if fs::metadata(&name).is_ok_and(|about| about.uid() == 0) {
            As::user(0, || chown_all(&name, ATTACKER)).runs();
        }
    }
    let before = temporary.names();
    // The first process makes another folder, which the second one shares.
    for _ in 0..2 {
        As::user(VICTIM, || {
            let path = opens();
            assert!(path.starts_with(&temporary.0), "{} is somewhere else", path.display());
            let about = fs::metadata(&path).expect("a file");
            assert_eq!(about.uid(), VICTIM);
        })
        .runs();
    }
    assert_eq!(temporary.names().len(), before.len() + 1, "{:?}", temporary.names());
    0
}

fn chown_all(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).expect("an owner");
    if fs::symlink_metadata(path).is_ok_and(|about| about.is_dir()) {
        for entry in fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry")) {
            chown_all(&entry.path(), user);
        }
    }
}

#[test]
fn names_taken_by_another_user_deny_nothing() {
    as_root("squatter");
}

/// Places where others could replace the folder are passed over.
fn open_to_all() -> i32 {
    let (open, foreign) = (Temporary::new("open", 0o777), Temporary::new("foreign", 0o1777));
    let good = Temporary::new("good", 0o1777);
    std::os::unix::fs::chown(&foreign.0, Some(ATTACKER), Some(ATTACKER)).expect("its owner");
    for bad in [&open, &foreign] {
        places(&[("XDG_RUNTIME_DIR", &bad.0), ("TMPDIR", &good.0)]);
        As::user(VICTIM, || {
            let path = opens();
            assert!(path.starts_with(&good.0), "{}", path.display());
        })
        .runs();
        assert_eq!(bad.names(), [""; 0]);
    }
    // The user's own is taken first.
    let own = Temporary::new("own", 0o700);
    std::os::unix::fs::chown(&own.0, Some(VICTIM), Some(VICTIM)).expect("its owner");
    places(&[("XDG_RUNTIME_DIR", &own.0), ("TMPDIR", &good.0)]);
    As::user(VICTIM, || assert!(opens().starts_with(&own.0))).runs();
    0
}

#[test]
fn folders_that_others_can_change_are_not_used() {
    as_root("open");
}

/// `ibv_devices` with these variables, in this folder.
fn devices(variables: &[(&str, &Path)], folder: &Path) {
    let mut command = Model::default().command("ibv_devices");
    command.env_remove("XDG_RUNTIME_DIR").envs(variables.iter().copied()).current_dir(folder);
    let output = command.output().expect("ibv_devices runs");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("mlx5_0"), "{said}{complaint}");
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => files.extend(self::files(&entry.path())),
            _ => files.push(entry.path()),
        }
    }
    files.sort();
    files
}

#[test]
fn a_tree_that_lost_its_files_is_written_anew() {
    let temporary = Temporary::new("emptied", 0o755);
    let run = || devices(&[("TMPDIR", &temporary.0)], Path::new("/"));
    run();
    let all = files(&temporary.0);
    assert!(!all.is_empty());
    for removed in [all.clone(), vec![all[all.len() / 2].clone()]] {
        removed.iter().for_each(|file| fs::remove_file(file).expect("a file"));
        run();
        assert_eq!(files(&temporary.0), all);
    }
    // A text that was cut off, as by a full disk.
    let text = all.iter().find(|file| file.ends_with("board_id")).expect("an attribute");
    fs::write(text, "").expect("a file");
    run();
    assert_eq!(fs::read_to_string(text).expect("a file"), "MLX5-MODEL\n");
}

#[test]
fn drafts_of_killed_starts_are_removed() {
    let temporary = Temporary::new("drafts", 0o755);
    let run = || devices(&[("TMPDIR", &temporary.0)], Path::new("/"));
    run();
    let all = files(&temporary.0);
    // A start that is killed while it writes: by the size that files may have.
    let private = temporary.0.join(&temporary.names()[0]);
    fs::remove_file(&all[0]).expect("a file");
    let mut command = Model::default().command("sh");
    command.args(["-c", "ulimit -f 0; exec ibv_devices"]);
    command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", &temporary.0);
    let output = command.output().expect("sh runs");
    assert!(!output.status.success(), "{output:?}");
    let drafts = || {
        let names = fs::read_dir(&private).expect("a folder").map(|entry| entry.expect("an entry"));
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("draft-")).count()
    };
    assert_eq!(drafts(), 1, "the start was killed by SIGXFSZ: {output:?}");
    run();
    assert_eq!(drafts(), 0);
    assert_eq!(files(&temporary.0), all);
}

#[test]
fn the_temporary_folder_may_be_relative_or_a_link() {
    let temporary = Temporary::new("relative", 0o755);
    fs::create_dir(temporary.0.join("inner")).expect("a folder");
    symlink("inner", temporary.0.join("link")).expect("a link");
    for name in ["inner", "link"] {
        devices(&[("TMPDIR", Path::new(name))], &temporary.0);
        assert!(!files(&temporary.0.join("inner")).is_empty());
    }
    // One that is not there is not made.
    devices(&[("TMPDIR", &temporary.0.join("missing"))], Path::new("/"));
    assert!(!temporary.0.join("missing").exists());
}
