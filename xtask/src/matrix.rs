//! `cargo xtask matrix`: what a user of each supported distribution gets, in root folders of them.
//!
//! A root folder has the packages that README names, and nothing else. The toolchain, the downloaded
//! crates and the sources are those of this machine. cargo works offline in it.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::demo;
use crate::mirrors::{self, Archive};
use crate::needs;
use crate::nightly;
use crate::setup;

const USAGE: &str = "usage: cargo xtask matrix [--keyring FILE] [SUITE ...]";

/// The distributions: name, suite, archive.
const DISTRIBUTIONS: &[(&str, &str, Archive)] = &[
    ("Debian 12", "bookworm", Archive::Debian),
    ("Debian 13", "trixie", Archive::Debian),
    ("Debian unstable", "sid", Archive::Debian),
    ("Ubuntu 24.04", "noble", Archive::Ubuntu),
];

/// The packages that README names for a build.
const PACKAGES: &str = "gcc,libibverbs-dev,libclang-dev";

/// The further packages of the feature `rdma-sys`, besides an old libclang.
const PACKAGES_OF_RDMA_SYS: [&str; 2] = ["librdmacm-dev", "pkg-config"];

/// Runs a command in a root folder, with mounts that end with it: `ROOT SOURCES TOOLCHAIN CARGO_HOME`,
/// then the command.
const ENTER: &str = r#"
root=$1 sources=$2 toolchain=$3 cargo_home=$4
shift 4
mkdir -p "$root/src" "$root/opt/rust" "$root/opt/cargo/registry"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$sources" "$root/src"
mount --bind "$toolchain" "$root/opt/rust"
mount --bind "$cargo_home/registry" "$root/opt/cargo/registry"
exec chroot "$root" "$@"
"#;

/// How a part of a row ended.
enum Cell {
    Passed,
    Failed,
    /// Something before it failed, or the distribution has not what it needs.
    NotRun,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::NotRun => "–",
        })
    }
}

/// One line of the table.
struct Row {
    distribution: &'static str,
    rdma_core: String,
    libclang: String,
    features: &'static str,
    /// Build, demo, tests.
    cells: [Cell; 3],
    note: String,
}

/// `cargo xtask matrix [--keyring FILE] [SUITE ...]`.
pub fn command(arguments: &[String]) -> Result {
    let (keyring, suites) = match arguments {
        [flag, file, suites @ ..] if flag == "--keyring" => (Some(Path::new(file)), suites),
        suites => (None, suites),
    };
    let known = |suite: &String| DISTRIBUTIONS.iter().any(|(_, known, _)| known == suite);
    if let Some(unknown) = suites.iter().find(|suite| !known(suite)) {
        return Err(format!("there is no suite `{unknown}`\n{USAGE}"));
    }
    if !setup::is_root() || !needs::program_exists("mmdebstrap") {
        return Err("`matrix` makes root folders: run it as root, with the package mmdebstrap \
                    installed"
            .to_owned());
    }
    build::run(
        "cargo fetch",
        build::cargo("fetch").args(["--locked", "--target", nightly::TARGET]),
    )?;
    let mut rows = Vec::new();
    for (name, suite, archive) in DISTRIBUTIONS {
        if suites.is_empty() || suites.iter().any(|chosen| chosen == suite) {
            rows.extend(distribution(name, suite, *archive, keyring)?);
        }
    }
    print(&rows);
    let bad = rows.iter().filter(|row| !row.note.is_empty()).count();
    if bad == 0 { Ok(()) } else { Err(format!("{bad} of {} rows did not pass", rows.len())) }
}

/// The rows of one distribution. Its root folder is deleted at the end.
fn distribution(
    name: &'static str,
    suite: &str,
    archive: Archive,
    keyring: Option<&Path>,
) -> Result<Vec<Row>> {
    println!("\n== {name} ({suite})");
    let folder = build::target_directory()?.join("matrix");
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let root = Root { path: folder.join(suite), log: folder.join(format!("{suite}.log")) };
    root.delete()?;
    let row = |features, libclang, cells, note| Row {
        distribution: name,
        rdma_core: root.version("libibverbs-dev").unwrap_or_default(),
        libclang,
        features,
        cells,
        note,
    };
    if let Err(reason) = root.make(suite, archive, keyring) {
        root.delete()?;
        let cells = [Cell::NotRun, Cell::NotRun, Cell::NotRun];
        return Ok(vec![row("default", String::new(), cells, reason)]);
    }
    let mut rows = vec![{
        let (cells, note) = root.check(None)?;
        row("default", root.newest_libclang(), cells, note)
    }];
    match root.add_rdma_sys() {
        Ok(Some(version)) => {
            let (cells, note) = root.check(Some(version))?;
            rows.push(row("rdma-sys", version.to_string(), cells, note));
        }
        Ok(None) => println!("{name} has no libclang 15 or 14, which rdma-sys needs"),
        Err(reason) => {
            let cells = [Cell::NotRun, Cell::NotRun, Cell::NotRun];
            rows.push(row("rdma-sys", String::new(), cells, reason));
        }
    }
    root.delete()?;
    Ok(rows)
}

/// A root folder, and the file that takes what is printed by work in it.
struct Root {
    path: PathBuf,
    log: PathBuf,
}

impl Root {
    fn make(&self, suite: &str, archive: Archive, keyring: Option<&Path>) -> Result {
        let mirror = mirrors::of(archive)?;
        let mut mmdebstrap = Command::new("mmdebstrap");
        mmdebstrap.args(["--variant=apt", "--include", PACKAGES]);
        mmdebstrap.arg(format!("--components={}", archive.components()));
        // A mirror may be a snapshot whose suites are old.
        mmdebstrap.args(["--aptopt=Acquire::Check-Valid-Until \"false\""]);
        if let Some(keyring) = keyring {
            mmdebstrap.arg("--keyring").arg(keyring);
        }
        mmdebstrap.arg(suite).arg(&self.path).arg(&mirror);
        let made = self.logged(&mut mmdebstrap)?;
        if made { Ok(()) } else { Err(format!("no root from {mirror}: {}", self.last_error())) }
    }

    /// Installs what rdma-sys needs. Returns the version of libclang, or `None` if the distribution
    /// has none that is old enough.
    fn add_rdma_sys(&self) -> Result<Option<u32>> {
        if !self.logged(&mut self.enter(&["apt-get", "-q", "update"]))? {
            return Err(format!("apt-get update failed: {}", self.last_error()));
        }
        for version in [15, 14] {
            let package = format!("libclang-{version}-dev");
            if !self.logged(&mut self.enter(&["apt-cache", "show", &package]))? {
                continue;
            }
            let mut install = self.enter(&["apt-get", "-q", "-y", "--no-install-recommends"]);
            install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", &package]);
            return if self.logged(install.args(PACKAGES_OF_RDMA_SYS))? {
                Ok(Some(version))
            } else {
                Err(format!("apt-get install {package} failed: {}", self.last_error()))
            };
        }
        Ok(None)
    }

    /// Builds the library, runs the demo and the unit tests, with the feature `rdma-sys` if a
    /// libclang is named. The second value says what failed.
    fn check(&self, libclang: Option<u32>) -> Result<([Cell; 3], String)> {
        let features: &[&str] = if libclang.is_some() { &["--features", "rdma-sys"] } else { &[] };
        let cargo = |arguments: &[&str]| {
            let mut command = self.enter(&["cargo"]);
            if let Some(version) = libclang {
                command.env("LIBCLANG_PATH", format!("/usr/lib/llvm-{version}/lib"));
            }
            command.args(arguments).args(features);
            command
        };
        if !self.logged(&mut cargo(&["build", "--package", "mlx5", "--lib"]))? {
            let cells = [Cell::Failed, Cell::NotRun, Cell::NotRun];
            return Ok((cells, self.last_error()));
        }
        let example = ["build", "--package", "mlx5", "--example", "rc_pingpong"];
        let demo = if self.logged(&mut cargo(&example))? {
            demo::converse(|| self.enter(&["/build/debug/examples/rc_pingpong"]), &[])
        } else {
            Err(self.last_error())
        };
        let tests = ["test", "--package", "mlx5", "--package", "mlx5-sys", "--lib"];
        let tests = self.logged(&mut cargo(&tests))?;
        let cell = |passed| if passed { Cell::Passed } else { Cell::Failed };
        let cells = [Cell::Passed, cell(demo.is_ok()), cell(tests)];
        let note = match demo {
            Err(sentence) => sentence,
            Ok(()) if !tests => self.last_error(),
            Ok(()) => String::new(),
        };
        Ok((cells, note))
    }

    /// A command in the root folder; arguments may be added.
    fn enter(&self, program: &[&str]) -> Command {
        let home = |variable: &str, folder: &str| {
            std::env::var_os(variable).map_or_else(
                || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(folder),
                PathBuf::from,
            )
        };
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-e", "-c", ENTER, "enter"]);
        command
            .arg(&self.path)
            .arg(build::root())
            .arg(toolchain())
            .arg(home("CARGO_HOME", ".cargo"));
        // cargo and the loader of this machine are not those of the root folder.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("CARGO") || variable == "LD_LIBRARY_PATH" {
                command.env_remove(variable);
            }
        }
        command
            .args(["env", "--chdir=/src", "PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
            .args(["HOME=/root", "TMPDIR=/tmp", "CARGO_HOME=/opt/cargo", "CARGO_NET_OFFLINE=true"])
            // Nothing is built twice there.
            .args(["CARGO_TARGET_DIR=/build", "CARGO_INCREMENTAL=0", "CARGO_PROFILE_DEV_DEBUG=0"])
            .args(program)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command whose messages go to the file. Returns whether it succeeded.
    fn logged(&self, command: &mut Command) -> Result<bool> {
        let in_file = |error| format!("cannot write {}: {error}", self.log.display());
        let log = File::options().create(true).append(true).open(&self.log).map_err(in_file)?;
        let status = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(in_file)?)
            .stderr(log)
            .status()
            .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
        Ok(status.success())
    }

    /// The last line of the file that names an error.
    fn last_error(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let named = |line: &&str| line.contains("error") || line.starts_with("E: ");
        let line = text.lines().rev().find(named).unwrap_or("see the messages");
        format!("{line} ({})", self.log.display())
    }

    /// The version of an installed package, without Debian's own part.
    fn version(&self, package: &str) -> Option<String> {
        let text = self.dpkg(&["-W", "-f", "${Version}", package])?;
        let version = text.rsplit_once(':').map_or(text.as_str(), |(_, version)| version);
        Some(version.split(['-', '+', '~']).next()?.to_owned())
    }

    /// The newest libclang that is installed.
    fn newest_libclang(&self) -> String {
        let listed = self.dpkg(&["-W", "-f", "${Package}\n", "libclang1-*"]).unwrap_or_default();
        let versions = listed.lines().filter_map(|line| {
            line.strip_prefix("libclang1-")?.trim_end_matches("t64").parse::<u32>().ok()
        });
        versions.max().map_or_else(String::new, |version| version.to_string())
    }

    fn dpkg(&self, arguments: &[&str]) -> Option<String> {
        let admin = self.path.join("var/lib/dpkg");
        let output = Command::new("dpkg-query")
            .arg(format!("--admindir={}", admin.display()))
            .args(arguments)
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok().filter(|text| !text.is_empty())
    }

    fn delete(&self) -> Result {
        let mut rm = Command::new("rm");
        build::run("rm", rm.args(["-rf", "--one-file-system", "--"]).arg(&self.path))
    }
}

/// The folder of the toolchain that runs xtask.
fn toolchain() -> String {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn print(rows: &[Row]) {
    println!("\n| distribution | rdma-core | libclang | features | build | demo | tests |");
    println!("|---|---|---|---|---|---|---|");
    for Row { distribution, rdma_core, libclang, features, cells: [build, demo, tests], note } in
        rows
    {
        println!(
            "| {distribution} | {rdma_core} | {libclang} | {features} | {build} | {demo} | {tests} |"
        );
        if !note.is_empty() {
            eprintln!("{distribution}, {features}: {note}");
        }
    }
}
