//! `cargo xtask matrix`: what a user of each supported distribution gets, in root folders of them.
//!
//! A root folder has the packages that README names, and nothing else: first a C linker alone, for the
//! build, then the libraries that a program opens, then what the features `bindgen` and `rdma-sys` need.
//! The toolchain, the downloaded crates and the sources are those of this machine. cargo works offline
//! in it.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::demo;
use crate::nightly;
use crate::roots::{self, Distribution, Wanted};

/// The packages that README names for a build.
const PACKAGES: &str = "gcc,libc6-dev";

/// The package that README names for running programs.
const PACKAGE_TO_RUN: &str = "ibverbs-providers";

/// The package whose library a program opens first, which it names where that is missing.
const FIRST_MISSING: &str = "libibverbs1";

/// The further packages of the feature `bindgen`.
const PACKAGES_OF_BINDGEN: [&str; 4] =
    ["libclang-dev", "libibverbs-dev", "librdmacm-dev", "pkg-config"];

/// The oldest rdma-core whose headers the driver can be built with.
const OLDEST_HEADERS: u32 = 43;

/// The example that is built and run, in the root folder.
const EXAMPLE: &str = "/build/debug/examples/rc_pingpong";

/// An example that forbids unsafe code, with arguments.
const SAFE_EXAMPLE: [&str; 4] =
    ["/build/debug/examples/feed_publisher", "239.1.1.1", "239.1.1.2", "9000"];

/// How a part of a row ended.
enum Cell {
    Passed,
    Failed,
    /// Something before it failed, or the distribution has not what it needs.
    NotRun,
}

impl Cell {
    fn of(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
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
    cells: Cells,
    note: String,
}

/// Build, missing library named, demo, tests.
type Cells = [Cell; 4];

/// The cells of a row, and what failed.
type Outcome = (Cells, String);

const NOT_RUN: Cells = [Cell::NotRun, Cell::NotRun, Cell::NotRun, Cell::NotRun];

/// `cargo xtask matrix [--keyring FILE] [SUITE ...]`.
pub fn command(arguments: &[String]) -> Result {
    let wanted = Wanted::read(arguments)?;
    build::run(
        "cargo fetch",
        build::cargo("fetch").args(["--locked", "--target", nightly::TARGET]),
    )?;
    let mut rows = Vec::new();
    for distribution in wanted.or_all() {
        rows.extend(rows_of(distribution, &wanted)?);
    }
    print(&rows);
    let bad = rows.iter().filter(|row| !row.note.is_empty()).count();
    if bad == 0 { Ok(()) } else { Err(format!("{bad} of {} rows did not pass", rows.len())) }
}

/// The rows of one distribution. Its root folder is deleted at the end.
fn rows_of(distribution: &'static Distribution, wanted: &Wanted) -> Result<Vec<Row>> {
    let Distribution { name, suite, .. } = *distribution;
    println!("\n== {name} ({suite})");
    let folder = build::target_directory()?.join("matrix");
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let root = Root { path: folder.join(suite), log: folder.join(format!("{suite}.log")) };
    roots::delete(&root.path)?;
    let row = |features, libclang, (cells, note): Outcome| Row {
        distribution: name,
        rdma_core: root.version("libibverbs1").unwrap_or_default(),
        libclang,
        features,
        cells,
        note,
    };
    if let Err(reason) = root.make(distribution, wanted) {
        roots::delete(&root.path)?;
        return Ok(vec![row("default", "–".to_owned(), (NOT_RUN, reason))]);
    }
    let mut rows = Vec::new();
    let default = root.check_default();
    rows.push(row("default", "–".to_owned(), default));
    let bindgen = root.check_bindgen()?;
    rows.push(row("bindgen", root.newest_libclang(), bindgen));
    match root.add_rdma_sys() {
        Ok(Some(_)) if root.rdma_core_is_below(OLDEST_HEADERS) => {
            println!(
                "{name} has headers older than rdma-core {OLDEST_HEADERS}, which rdma-sys needs"
            );
        }
        Ok(Some(version)) => {
            let outcome = root.check_rdma_sys(version)?;
            rows.push(row("rdma-sys", version.to_string(), outcome));
        }
        Ok(None) => println!("{name} has no libclang 15 or 14, which rdma-sys needs"),
        Err(reason) => rows.push(row("rdma-sys", String::new(), (NOT_RUN, reason))),
    }
    roots::delete(&root.path)?;
    Ok(rows)
}

/// A root folder, and the file that takes what is printed by work in it.
struct Root {
    path: PathBuf,
    log: PathBuf,
}

impl Root {
    fn make(&self, distribution: &Distribution, wanted: &Wanted) -> Result {
        let made = self.logged(&mut wanted.mmdebstrap(distribution, PACKAGES, &self.path)?)?;
        if made { Ok(()) } else { Err(format!("no root folder: {}", self.last_error())) }
    }

    /// Installs packages.
    fn add(&self, packages: &[&str]) -> Result {
        if !self.logged(&mut self.enter(&["apt-get", "-q", "update"]))? {
            return Err(format!("apt-get update failed: {}", self.last_error()));
        }
        let mut install = self.enter(&["apt-get", "-q", "-y", "--no-install-recommends"]);
        install.env("DEBIAN_FRONTEND", "noninteractive").arg("install").args(packages);
        if self.logged(&mut install)? {
            return Ok(());
        }
        Err(format!("apt-get install {} failed: {}", packages.join(" "), self.last_error()))
    }

    /// Installs a libclang for rdma-sys. Returns its version, or `None` if the distribution has none
    /// that is old enough.
    fn add_rdma_sys(&self) -> Result<Option<u32>> {
        for version in [15, 14] {
            let package = format!("libclang-{version}-dev");
            if self.logged(&mut self.enter(&["apt-cache", "show", &package]))? {
                return self.add(&[&package]).map(|()| Some(version));
            }
        }
        Ok(None)
    }

    /// Builds with a linker alone, runs the example without libraries and with them, and runs the unit
    /// tests.
    fn check_default(&self) -> Outcome {
        let mut cells = NOT_RUN;
        let note = self.fill_default(&mut cells).err().unwrap_or_default();
        (cells, note)
    }

    fn fill_default(&self, [build, named, demo, tests]: &mut Cells) -> Result {
        let logged = |cell: &mut Cell, command: &mut Command| {
            *cell = Cell::of(self.logged(command)?);
            if matches!(cell, Cell::Passed) { Ok(()) } else { Err(self.last_error()) }
        };
        let example = ["cargo", "build", "--package", "mlx5", "--lib", "--example", "rc_pingpong"];
        logged(build, self.enter(&example).args(["--example", "feed_publisher"]))?;
        for mut command in [self.enter(&[EXAMPLE, "--listen", "127.0.0.1:0"]), self.safe_example()]
        {
            let said = without_libraries(&mut command)?;
            *named = Cell::of(said.contains(FIRST_MISSING));
            if matches!(named, Cell::Failed) {
                return Err(format!("the example does not name {FIRST_MISSING}: {said}"));
            }
        }
        self.add(&[PACKAGE_TO_RUN])?;
        logged(demo, &mut self.safe_example())?;
        let conversed = demo::converse(|| self.enter(&[EXAMPLE]), &[]);
        *demo = Cell::of(conversed.is_ok());
        logged(tests, &mut self.unit_tests())?;
        conversed
    }

    /// The example without unsafe code, on a port of Ethernet.
    fn safe_example(&self) -> Command {
        let mut command = self.enter(&SAFE_EXAMPLE);
        command.env("MLX5_MODEL_LINK", "roce");
        command
    }

    /// Compares the bindings with the headers of the distribution.
    fn check_bindgen(&self) -> Result<Outcome> {
        if let Err(reason) = self.add(&PACKAGES_OF_BINDGEN) {
            return Ok((NOT_RUN, reason));
        }
        let features = ["--package", "mlx5-sys", "--features", "bindgen,cm"];
        let mut build = self.enter(&["cargo", "build", "--lib"]);
        if !self.logged(build.args(features))? {
            let cells = [Cell::Failed, Cell::NotRun, Cell::NotRun, Cell::NotRun];
            return Ok((cells, self.last_error()));
        }
        let mut test = self.enter(&["cargo", "test", "--lib", "--test", "bindings"]);
        let passed = self.logged(test.args(features))?;
        let note = if passed { String::new() } else { self.last_error() };
        Ok(([Cell::Passed, Cell::NotRun, Cell::NotRun, Cell::of(passed)], note))
    }

    /// Builds the library, runs the demo and the unit tests, with the feature `rdma-sys`.
    fn check_rdma_sys(&self, libclang: u32) -> Result<Outcome> {
        let feature = |mut command: Command| {
            command.env("LIBCLANG_PATH", format!("/usr/lib/llvm-{libclang}/lib"));
            command.args(["--features", "rdma-sys"]);
            command
        };
        let example = ["cargo", "build", "--package", "mlx5", "--lib", "--example", "rc_pingpong"];
        if !self.logged(&mut feature(self.enter(&example)))? {
            let cells = [Cell::Failed, Cell::NotRun, Cell::NotRun, Cell::NotRun];
            return Ok((cells, self.last_error()));
        }
        let demo = demo::converse(|| self.enter(&[EXAMPLE]), &[]);
        let tests = self.logged(&mut feature(self.unit_tests()))?;
        let cells = [Cell::Passed, Cell::NotRun, Cell::of(demo.is_ok()), Cell::of(tests)];
        let note = match demo {
            Err(sentence) => sentence,
            Ok(()) if !tests => self.last_error(),
            Ok(()) => String::new(),
        };
        Ok((cells, note))
    }

    /// The unit tests of the driver and of the bindings.
    fn unit_tests(&self) -> Command {
        self.enter(&["cargo", "test", "--package", "mlx5", "--package", "mlx5-sys", "--lib"])
    }

    /// A command in the root folder; arguments may be added.
    fn enter(&self, program: &[&str]) -> Command {
        let home = |variable: &str, folder: &str| {
            std::env::var_os(variable).map_or_else(
                || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(folder),
                PathBuf::from,
            )
        };
        let registry = home("CARGO_HOME", ".cargo").join("registry");
        let mut command = roots::enter(
            &self.path,
            &[
                (&build::root(), Path::new("/src")),
                (Path::new(&toolchain()), Path::new("/opt/rust")),
                (&registry, Path::new("/opt/cargo/registry")),
            ],
        );
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
            .args(program);
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

    /// Whether the installed rdma-core is older than a version.
    fn rdma_core_is_below(&self, version: u32) -> bool {
        let installed = self.version("libibverbs-dev").unwrap_or_default();
        let major = installed.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_none_or(|major| major < version)
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
}

/// What an example says where no library is installed.
fn without_libraries(example: &mut Command) -> Result<String> {
    let output = example.output().map_err(|error| format!("cannot run unshare: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The folder of the toolchain that runs xtask.
fn toolchain() -> String {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn print(rows: &[Row]) {
    println!(
        "\n| distribution | rdma-core | libclang | features | build | names package | demo | tests |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for Row { distribution, rdma_core, libclang, features, cells, note } in rows {
        let cells: Vec<String> = cells.iter().map(Cell::to_string).collect();
        println!(
            "| {distribution} | {rdma_core} | {libclang} | {features} | {} |",
            cells.join(" | ")
        );
        if !note.is_empty() {
            eprintln!("{distribution}, {features}: {note}");
        }
    }
}
