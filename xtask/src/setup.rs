//! Installs missing packages, or prints how to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::Result;
use crate::libclang;
use crate::needs::{self, Need};

/// How much has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Building,
    Testing,
    /// Building for arm64 and running under QEMU.
    Arm64,
}

/// `cargo xtask setup`.
pub fn command() -> Result {
    ready(For::Testing)?;
    println!("Everything that building and testing need is here.");
    Ok(())
}

/// Makes the machine ready.
///
/// Installs nothing and leaves the network alone where nothing is missing.
pub fn ready(purpose: For) -> Result {
    if !missing(purpose).is_empty() || lacks_libclang(purpose) {
        install(purpose)?;
    }
    if !lacks_libclang(purpose) {
        return Ok(());
    }
    Err("no libclang was found: install libclang-dev, or let LIBCLANG_PATH name the folder or file \
         of one"
        .to_owned())
}

/// Whether the tests lack libclang, with which they compare bindings with the headers.
fn lacks_libclang(purpose: For) -> bool {
    purpose == For::Testing && !libclang::is_installed()
}

fn missing(purpose: For) -> Vec<&'static Need> {
    let tests = match purpose {
        For::Building => &[][..],
        For::Testing => needs::TEST,
        For::Arm64 => needs::ARM64,
    };
    needs::BUILD.iter().chain(tests).filter(|need| !need.is_met()).collect()
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    // The owner of /proc/self is the process's effective user.
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// The user that may run apt-get.
enum Authority {
    Root,
    Sudo,
    Nobody,
}

impl Authority {
    fn find() -> Self {
        if is_root() {
            return Self::Root;
        }
        let passwordless = Command::new("sudo")
            .args(["-n", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if passwordless { Self::Sudo } else { Self::Nobody }
    }

    fn apt_get(&self) -> Command {
        let mut command = match self {
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.args(["-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
                command
            }
            Self::Root | Self::Nobody => {
                let mut command = Command::new("apt-get");
                command.env("DEBIAN_FRONTEND", "noninteractive");
                command
            }
        };
        command.stdin(Stdio::null()).args(["-o", "DPkg::Lock::Timeout=300"]);
        command
    }
}

fn install(purpose: For) -> Result {
    let mut packages: Vec<&str> = missing(purpose).iter().map(|need| need.package).collect();
    let libclang_missing = lacks_libclang(purpose);
    if !needs::program_exists("apt-get") {
        if libclang_missing {
            packages.push(libclang::PACKAGE_OF_ANY_VERSION);
        }
        return Err(format!(
            "this machine lacks what Debian packages as {}, and has no apt-get to install it with: \
             install what your distribution calls these, and run the command again",
            packages.join(", ")
        ));
    }
    let authority = Authority::find();
    if matches!(authority, Authority::Nobody) {
        if libclang_missing {
            packages.push(libclang_package());
        }
        return Err(format!(
            "packages are missing, and installing them needs root. Run this, then the command \
             again:\n\n  sudo apt-get update && sudo apt-get install -y {}\n",
            for_a_shell(&install_arguments(&packages))
        ));
    }

    if !run(authority.apt_get().args(["-q", "update"]))? {
        // One unreachable source does not matter if the others have the packages.
        eprintln!("xtask: apt-get update failed; trying with the package lists at hand");
    }
    if libclang_missing {
        packages.push(libclang_package());
    }
    for package in &mut packages {
        if *package == needs::KERNEL_HEADERS && !apt_knows(package) {
            *package = needs::KERNEL_HEADERS_OF_UBUNTU;
        }
    }
    eprintln!("xtask: installing {}", packages.join(" "));
    let mut command = authority.apt_get();
    command.args(["-q", "-y", "--no-install-recommends", "install"]);
    let installed = run(command.args(install_arguments(&packages)))?;
    let still_missing: Vec<&str> = missing(purpose).iter().map(|need| need.package).collect();
    if !installed || !still_missing.is_empty() {
        let names = if still_missing.is_empty() { packages } else { still_missing };
        return Err(format!(
            "apt-get could not install {}: see its messages above; a machine without network needs \
             them from elsewhere",
            names.join(", ")
        ));
    }
    Ok(())
}

/// Returns the arguments of `apt-get install` for these packages.
fn install_arguments<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = Vec::new();
    if packages.contains(&"python3-pyverbs") && documentation_is_left_out() {
        arguments.extend(["-o", "Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/*"]);
    }
    if packages.iter().any(|package| dpkg_says_installed(package)) {
        // The package is there, but not the part of it that was looked for.
        arguments.push("--reinstall");
    }
    arguments.extend(packages);
    arguments
}

fn for_a_shell(arguments: &[&str]) -> String {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|word| if word.contains('*') { format!("'{word}'") } else { (*word).to_owned() })
        .collect();
    quoted.join(" ")
}

/// Container images tell dpkg to leave documentation out, and rdma-core's tests come as such.
fn documentation_is_left_out() -> bool {
    let fragments = fs::read_dir("/etc/dpkg/dpkg.cfg.d").into_iter().flatten().flatten();
    fragments
        .map(|entry| entry.path())
        .chain(["/etc/dpkg/dpkg.cfg".into()])
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("path-exclude")))
}

/// The libclang package to install here: one that also the feature `rdma-sys` can use, where the
/// distribution has it.
fn libclang_package() -> &'static str {
    libclang::PACKAGES_FOR_RDMA_SYS
        .iter()
        .find(|package| apt_knows(package))
        .unwrap_or(&libclang::PACKAGE_OF_ANY_VERSION)
}

fn apt_knows(package: &str) -> bool {
    Command::new("apt-cache")
        .args(["show", "--no-all-versions", package])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn dpkg_says_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

fn run(command: &mut Command) -> Result<bool> {
    let status = command
        .status()
        .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    Ok(status.success())
}
