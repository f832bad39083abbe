//! Debian packages, unpacked into folders without being installed.
//!
//! apt works on lists and an archive of its own under `target/guest`, so it needs no root and this
//! machine's package database stays as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::options::{Kernel, Packages};
use super::scenario::Tests;
use crate::Result;
use crate::build;
use crate::mirrors::{self, Archive};
use crate::needs;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The file that is written last into a folder. It names the packages in it.
const COMPLETE: &str = "packages";

/// Packages of Debian, and the folder that they are unpacked into.
struct Set<'a> {
    folder: &'a str,
    /// The suites, the preferred one last.
    suites: &'a [&'a str],
    packages: &'a [&'a str],
    dependencies: Dependencies,
}

/// The packages that are unpacked besides the named ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dependencies {
    All,
    /// Those of a kernel: it is one package in older suites, and several in newer ones.
    Kernel,
}

/// QEMU, and the programs that take a kernel package apart. vfio-user-pci came with QEMU 10.1.
const QEMU: Set = Set {
    folder: "qemu",
    suites: &["trixie", "trixie-backports"],
    packages: &[
        "qemu-system-x86",
        "qemu-system-common",
        "qemu-system-data",
        "seabios",
        "kmod",
        "lz4",
        "xz-utils",
        "zstd",
    ],
    dependencies: Dependencies::All,
};

/// The programs and libraries of the guest.
const USERLAND: [&str; 14] = [
    "bash",
    "busybox-static",
    "dash",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    "perftest",
    "rdmacm-utils",
    "strace",
];

/// rdma-core's Python tests, with their bindings, and the library that they make packets with.
const PYVERBS: [&str; 2] = ["python3-pyverbs", "python3-scapy"];

/// A folder of unpacked packages.
pub struct Root {
    pub path: PathBuf,
}

/// QEMU and its tools.
///
/// # Errors
/// apt or the mirror lacks something.
pub fn qemu(packages: Packages) -> Result<Root> {
    unpack(&QEMU, packages)
}

/// The programs of the guest, from the suite whose C library is not older than this machine's.
///
/// # Errors
/// As for [`qemu`].
pub fn userland(tests: Tests, packages: Packages) -> Result<Root> {
    let suite = if glibc()? <= (2, 36) { "bookworm" } else { "trixie" };
    let mut names = USERLAND.to_vec();
    let mut folder = format!("userland-{suite}");
    if tests == Tests::Pyverbs {
        names.extend(PYVERBS);
        folder = format!("userland-pyverbs-{suite}");
    }
    let set = Set {
        folder: &folder,
        suites: &[suite],
        packages: &names,
        dependencies: Dependencies::All,
    };
    unpack(&set, packages)
}

/// A kernel with its modules.
///
/// # Errors
/// As for [`qemu`].
pub fn kernel(kernel: &Kernel, packages: Packages) -> Result<Root> {
    let folder = format!("kernel-{}", kernel.name());
    let set = Set {
        folder: &folder,
        suites: kernel.suites(),
        packages: &[&kernel.package()],
        dependencies: Dependencies::Kernel,
    };
    unpack(&set, packages)
}

/// The folder that all of this is kept in.
pub fn folder() -> Result<PathBuf> {
    Ok(build::target_directory()?.join("guest"))
}

fn unpack(set: &Set, packages: Packages) -> Result<Root> {
    let root = Root { path: folder()?.join(set.folder) };
    let complete = root.path.join(COMPLETE);
    // The list of packages may have grown since they were unpacked.
    let asked = format!("asked for: {}\n", set.packages.join(" "));
    let is_there = fs::read_to_string(&complete).is_ok_and(|text| text.starts_with(&asked));
    if is_there && packages == Packages::Cached {
        return Ok(root);
    }
    let apt = Apt::ready(set)?;
    let files = apt.download(set)?;
    let versions: Vec<String> = files.iter().filter_map(|file| version(file)).collect();
    let listed = format!("{asked}{}\n", versions.join("\n"));
    if fs::read_to_string(&complete).is_ok_and(|text| text == listed) {
        return Ok(root);
    }
    println!("unpacking {} packages into {}", files.len(), root.path.display());
    if root.path.exists() {
        let failed = |error| format!("cannot delete {}: {error}", root.path.display());
        fs::remove_dir_all(&root.path).map_err(failed)?;
    }
    create(&root.path)?;
    for file in &files {
        build::run("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(file).arg(&root.path))?;
    }
    fs::write(&complete, listed).map_err(|error| format!("{}: {error}", complete.display()))?;
    Ok(root)
}

/// Makes a folder, and those above it.
///
/// # Errors
/// It cannot be made.
pub fn create(folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))
}

/// Package and version in the name of a package's file.
fn version(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let mut parts = name.strip_suffix(".deb")?.split('_');
    Some(format!("{} {}", parts.next()?, parts.next()?.replace("%3a", ":")))
}

/// apt with a state of its own.
struct Apt {
    /// Its folder.
    state: PathBuf,
    /// Mirror and suites, for messages.
    source: String,
    /// The suite whose packages are taken where it has them.
    preferred: String,
}

impl Apt {
    /// Reads the mirror's lists.
    fn ready(set: &Set) -> Result<Self> {
        if !needs::program_exists("apt-get") || !needs::program_exists("dpkg-deb") {
            return Err(
                "`guest` takes QEMU and the kernel from Debian's packages, and this machine \
                        has no apt-get and dpkg-deb: run it on Debian or Ubuntu"
                    .to_owned(),
            );
        }
        if !Path::new(KEYRING).is_file() {
            return Err(format!(
                "{KEYRING} is missing, which proves that packages are Debian's: install \
                 debian-archive-keyring"
            ));
        }
        let mirror = mirrors::of(Archive::Debian)?;
        let state = folder()?.join("apt").join(set.folder);
        for part in ["lists/partial", "archives/partial"] {
            create(&state.join(part))?;
        }
        let mut sources = String::new();
        for suite in set.suites {
            sources += &format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        }
        let source = format!("{mirror} {}", set.suites.join(" and "));
        for (file, text) in [("sources.list", sources.as_str()), ("status", "")] {
            let file = state.join(file);
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let preferred = set.suites.last().copied().unwrap_or_default().to_owned();
        let apt = Self { state, source, preferred };
        apt.run("update", &["update"])?;
        Ok(apt)
    }

    /// Downloads the packages of a set and returns their files.
    fn download(&self, set: &Set) -> Result<Vec<PathBuf>> {
        // Only the files of this download are to be found there.
        let archives = self.state.join("archives");
        for file in files(&archives)? {
            fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let mut packages: Vec<String> = set.packages.iter().map(|&name| name.to_owned()).collect();
        let mut arguments = match set.dependencies {
            Dependencies::All => vec!["install", "--download-only", "--no-install-recommends"],
            Dependencies::Kernel => vec!["download"],
        };
        if set.dependencies == Dependencies::Kernel {
            packages = self.parts_of_kernel(packages)?;
        }
        arguments.extend(packages.iter().map(String::as_str));
        self.run("download", &arguments)?;
        let files = files(&archives)?;
        if files.is_empty() {
            return Err(format!("apt-get downloaded nothing from {}", self.source));
        }
        Ok(files)
    }

    /// These packages of a kernel, and all packages of it that they depend on.
    fn parts_of_kernel(&self, mut packages: Vec<String>) -> Result<Vec<String>> {
        let mut done = 0;
        while let Some(package) = packages.get(done) {
            let output = self
                .command("apt-cache")
                .args(["depends", "--important", package])
                .output()
                .map_err(|error| format!("cannot run apt-cache: {error}"))?;
            if !output.status.success() {
                return Err(format!("{} has no package {package}", self.source));
            }
            for part in parts_of_kernel(&String::from_utf8_lossy(&output.stdout)) {
                if !packages.iter().any(|package| package == part) {
                    packages.push(part.to_owned());
                }
            }
            done += 1;
        }
        Ok(packages)
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Result {
        let mut command = self.command("apt-get");
        command.args(["-q", "-q", "-y"]).args(arguments);
        command.current_dir(self.state.join("archives"));
        build::run(&format!("apt-get ({what} from {})", self.source), &mut command).map_err(
            |error| {
                format!(
                    "{error}. The packages come from the Debian mirror that apt is configured \
                     with: it has to have {}, and this machine has to reach it",
                    self.source
                )
            },
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let state = self.state.display();
        for option in [
            format!("Dir::State::lists={state}/lists"),
            format!("Dir::State::status={state}/status"),
            format!("Dir::State::extended_states={state}/extended_states"),
            format!("Dir::Cache={state}"),
            format!("Dir::Cache::archives={state}/archives"),
            format!("Dir::Etc::sourcelist={state}/sources.list"),
            format!("APT::Default-Release={}", self.preferred),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferences=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            "Debug::NoLocking=true".to_owned(),
            "APT::Architecture=amd64".to_owned(),
            "APT::Architectures=amd64".to_owned(),
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Languages=none".to_owned(),
            // A mirror may be a snapshot whose suites are old.
            "Acquire::Check-Valid-Until=false".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command.stdin(Stdio::null());
        command
    }
}

/// The packages of a cloud kernel that `apt-cache depends` prints.
fn parts_of_kernel(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-") && name.ends_with("-cloud-amd64"))
}

/// The packages' files in a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    files.sort();
    Ok(files)
}

/// Major and minor version of this machine's C library.
fn glibc() -> Result<(u32, u32)> {
    let output = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run getconf: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    two_numbers(&text).ok_or_else(|| format!("getconf names no version of glibc: `{text}`"))
}

fn two_numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// Folders of the packages' libraries, most specific last.
const LIBRARIES: [&str; 3] =
    ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/libibverbs"];

impl Root {
    /// A file of the packages, which put it into `/bin` or `/usr/bin`, according to the suite.
    ///
    /// # Errors
    /// No package has it.
    pub fn find(&self, file: &str) -> Result<PathBuf> {
        ["", "usr"]
            .iter()
            .map(|folder| self.path.join(folder).join(file))
            .find(|path| path.exists())
            .ok_or_else(|| {
                format!(
                    "{} has no {file}: delete that folder, and run the command again",
                    self.path.display()
                )
            })
    }

    /// The loader of the packages' programs.
    ///
    /// # Errors
    /// No package has it.
    pub fn loader(&self) -> Result<PathBuf> {
        self.find("lib64/ld-linux-x86-64.so.2")
    }

    /// The folders of libraries, for the loader.
    pub fn library_path(&self) -> String {
        LIBRARIES.map(|folder| self.path.join(folder).display().to_string()).join(":")
    }

    /// A command that starts a program of the packages here, by their own loader and libraries.
    ///
    /// # Errors
    /// No package has the program.
    pub fn words(&self, program: &str) -> Result<Vec<String>> {
        let path = self.find(program)?;
        Ok(vec![
            self.loader()?.display().to_string(),
            "--argv0".to_owned(),
            program.rsplit('/').next().unwrap_or(program).to_owned(),
            "--library-path".to_owned(),
            self.library_path(),
            path.display().to_string(),
        ])
    }

    /// A command of the packages; see [`Self::words`].
    ///
    /// # Errors
    /// No package has the program.
    pub fn program(&self, program: &str) -> Result<Command> {
        let words = self.words(program)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names_of_files() {
        let file = Path::new("/a/qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb");
        assert_eq!(version(file).unwrap(), "qemu-system-x86 1:11.1.3+ds-1~bpo13+1");
        assert_eq!(version(Path::new("/a/partial")), None);
    }

    #[test]
    fn parts_of_a_kernel_are_told_from_programs_that_it_needs() {
        let text = "linux-image-7.3.4+deb13-cloud-amd64\n  PreDepends: linux-base\n \
                    |Depends: <dracut>\n  Depends: linux-base-7.3.4+deb13-cloud-amd64\n  \
                    Depends: linux-binary-7.3.4+deb13-cloud-amd64\n  Depends: kmod\n";
        let expected =
            ["linux-base-7.3.4+deb13-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64"];
        assert_eq!(parts_of_kernel(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_version_of_glibc_is_compared_as_numbers() {
        assert_eq!(two_numbers("glibc 2.36\n"), Some((2, 36)));
        assert!(two_numbers("glibc 2.4").unwrap() < (2, 36));
        assert_eq!(two_numbers("musl"), None);
    }
}
