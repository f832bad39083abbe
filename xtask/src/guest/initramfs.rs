//! The file system of a guest: programs with their libraries, modules, and the scenario.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::packages::{self, Root};
use super::scenario;
use crate::Result;
use crate::build;

/// Programs of the packages.
const PROGRAMS: &[&str] = &[
    "bin/bash",
    "bin/dash",
    "bin/ip",
    "bin/kmod",
    "bin/ping",
    "bin/rdma",
    "bin/ss",
    "sbin/devlink",
    "sbin/ethtool",
    "sbin/ibstat",
    "sbin/tc",
    "bin/ib_atomic_bw",
    "bin/ib_atomic_lat",
    "bin/ib_read_bw",
    "bin/ib_read_lat",
    "bin/ib_send_bw",
    "bin/ib_send_lat",
    "bin/ib_write_bw",
    "bin/ib_write_lat",
    "bin/ibv_asyncwatch",
    "bin/ibv_devices",
    "bin/ibv_devinfo",
    "bin/ibv_rc_pingpong",
    "bin/ibv_srq_pingpong",
    "bin/ibv_uc_pingpong",
    "bin/ibv_ud_pingpong",
    "bin/ibv_xsrq_pingpong",
    "bin/iperf3",
    "bin/mckey",
    "bin/raw_ethernet_bw",
    "bin/rping",
    "bin/strace",
    "bin/ucmatose",
];

/// Libraries that are loaded by name only.
const LIBRARIES: &[&str] = &[
    "lib/x86_64-linux-gnu/libgcc_s.so.1",
    "lib/x86_64-linux-gnu/libmlx5.so.1",
    "lib/x86_64-linux-gnu/librdmacm.so.1",
];

/// libmlx5 as libibverbs loads it; the number in its name is that of rdma-core's interface.
const PROVIDERS: &str = "lib/x86_64-linux-gnu/libibverbs";

/// rdma-core's Python tests in their package.
const PYVERBS: &str = "usr/share/doc/rdma-core/tests";

/// Folders that init mounts something on.
const FOLDERS: [&str; 7] = ["dev", "proc", "root", "run", "sys", "tmp", "var"];

/// Settings that the guests of one run share.
pub struct Content {
    archive: Archive,
    userland: Root,
}

impl Content {
    /// Programs and libraries of the packages, the modules of the kernel, and `init`.
    ///
    /// # Errors
    /// A file is missing, or a program cannot be loaded.
    pub fn new(userland: Root, kernel: &Kernel) -> Result<Self> {
        let mut content = Self { archive: Archive::default(), userland };
        for program in PROGRAMS {
            let file = content.userland.find(program)?;
            content.add_program(program, &file)?;
        }
        for library in LIBRARIES {
            let file = content.userland.find(library)?;
            content.archive.copy(library, &file)?;
        }
        let loader = content.userland.loader()?;
        content.archive.copy("lib64/ld-linux-x86-64.so.2", &loader)?;
        content.add_provider()?;
        content.add_links()?;
        kernel.add_modules(&mut content.archive)?;
        for folder in FOLDERS {
            content.archive.folder(folder);
        }
        for (path, text) in [
            ("etc/hosts", "127.0.0.1 localhost\n"),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/nsswitch.conf", "hosts: files\n"),
        ] {
            content.archive.file(path, text);
        }
        content.archive.file("init", scenario::read("init")?);
        content.archive.file("scenario/lib.sh", scenario::read("lib.sh")?);
        Ok(content)
    }

    /// Adds a program that was built on this machine, without its debug information.
    ///
    /// # Errors
    /// The guest's libraries are too old for it.
    pub fn add_built(&mut self, program: &Path, folder: &Path) -> Result {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stripped = folder.join(&name);
        let mut strip = Command::new("strip");
        build::run("strip", strip.arg("-o").arg(&stripped).arg(program))?;
        self.add_program(&format!("bin/{name}"), &stripped)
    }

    /// Adds rdma-core's Python tests, with all that Python and they load.
    ///
    /// # Errors
    /// A file is missing, or a library cannot be loaded.
    pub fn add_pyverbs(&mut self) -> Result {
        let python = self.userland.find("bin/python3")?;
        let python =
            fs::canonicalize(&python).map_err(|error| format!("{}: {error}", python.display()))?;
        let version = python.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.add_program("bin/python3", &python)?;
        for folder in [format!("lib/{version}"), "lib/python3".to_owned()] {
            let from = self.userland.find(&format!("usr/{folder}"))?;
            self.archive.tree(&format!("usr/{folder}"), &from)?;
            self.add_libraries_below(&from)?;
        }
        for name in ["rdma_core_tests.py", "pyverbs.skips"] {
            self.archive.file(&format!("scenario/{name}"), scenario::read(name)?);
        }
        let tests = self.userland.find(PYVERBS)?;
        self.archive.tree("root/tests", &tests)
    }

    /// Adds the libraries that the libraries below a folder need.
    fn add_libraries_below(&mut self, folder: &Path) -> Result {
        let entries =
            fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries.flatten().map(|entry| entry.path()) {
            if entry.is_dir() {
                self.add_libraries_below(&entry)?;
            } else if entry.extension().is_some_and(|extension| extension == "so") {
                self.add_libraries(&entry)?;
            }
        }
        Ok(())
    }

    /// Writes the initramfs of one guest.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, file: &Path, script: Option<&str>, environment: &str) -> Result {
        if let Some(script) = script {
            self.archive.file("scenario/run.sh", script);
        }
        self.archive.file("scenario/environment", environment);
        self.archive.write(file)
    }

    fn add_program(&mut self, path: &str, file: &Path) -> Result {
        self.archive.copy(path, file)?;
        self.add_libraries(file)
    }

    /// Adds the libraries that a program or library needs, as the guest's loader finds them.
    fn add_libraries(&mut self, file: &Path) -> Result {
        let output = Command::new(self.userland.loader()?)
            .arg("--library-path")
            .arg(self.userland.library_path())
            .arg("--list")
            .arg(file)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run the loader of the guest: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || text.contains("not found") {
            return Err(format!(
                "{} cannot run in the guest, whose libraries are those of {}: {text}{errors}",
                file.display(),
                self.userland.path.display()
            ));
        }
        for library in libraries(&text) {
            let name = library.rsplit('/').next().unwrap_or(library);
            self.archive.copy(&format!("lib/x86_64-linux-gnu/{name}"), Path::new(library))?;
        }
        Ok(())
    }

    fn add_provider(&mut self) -> Result {
        let folder = self.userland.find(PROVIDERS)?;
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let provider: PathBuf = entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains("/libmlx5-rdmav"))
            .ok_or_else(|| format!("{} has no libmlx5", folder.display()))?;
        let name = provider.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.archive.copy(&format!("usr/lib/x86_64-linux-gnu/libibverbs/{name}"), &provider)?;
        self.add_libraries(&provider)?;
        // Programs of the workspace open it by this name.
        self.archive.copy("lib/x86_64-linux-gnu/libmlx5.so.1", &provider)?;
        let driver = self.userland.find("etc/libibverbs.d/mlx5.driver")?;
        self.archive.copy("etc/libibverbs.d/mlx5.driver", &driver)
    }

    /// Adds kmod's names, and busybox, which is static, with its names in a folder that is last in PATH.
    fn add_links(&mut self) -> Result {
        for name in ["depmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod"] {
            self.archive.symlink(&format!("sbin/{name}"), "/bin/kmod");
        }
        self.archive.symlink("bin/sh", "/bin/dash");
        let busybox = self.userland.find("bin/busybox")?;
        self.archive.copy("bin/busybox", &busybox)?;
        let output = Command::new(busybox)
            .arg("--list")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run busybox: {error}"))?;
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            self.archive.symlink(&format!("busybox/{name}"), "/bin/busybox");
        }
        Ok(())
    }
}

/// The files in what the loader lists.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_once("=> ")?.1.split_whitespace().next())
        .filter(|path| path.starts_with('/'))
}

/// Builds the server and these programs of the workspace, and returns their files in that order.
///
/// # Errors
/// cargo or the C compiler fails.
pub fn build_programs(server: Option<&str>, programs: &[String]) -> Result<Vec<PathBuf>> {
    let mut chosen = Vec::new();
    let debug = build::target_directory()?.join("debug");
    let mut files = Vec::new();
    if let Some(server) = server {
        chosen.extend(["--bin", server]);
        files.push(debug.join(server));
    }
    for program in programs {
        if let Some(name) = program.strip_suffix(".c") {
            files.push(compile(name, &debug)?);
        } else if program == COMMAND {
            chosen.extend(["--bin", program]);
            files.push(debug.join(program));
        } else if program == LIBRARY {
            // Every build has it: the tests preload it.
            files.push(debug.join("deps").join(program));
        } else {
            chosen.extend(["--example", program]);
            files.push(debug.join("examples").join(program));
        }
    }
    if !files.is_empty() {
        build::programs(&chosen)?;
    }
    Ok(files)
}

/// Compiles a verbs program of the command's tests.
fn compile(name: &str, folder: &Path) -> Result<PathBuf> {
    let source = build::root().join(format!("tools/tests/programs/{name}.c"));
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-o"]);
    compiler.arg(&program).arg(source).arg("-libverbs");
    build::run("cc", &mut compiler)?;
    Ok(program)
}

/// The command of the package mlx5-tools.
const COMMAND: &str = "mlx5";
/// The model, to be preloaded.
const LIBRARY: &str = "libmlx5_model.so";

/// Makes the folder of a run anew.
///
/// # Errors
/// It cannot be made.
pub fn fresh(folder: &Path) -> Result {
    if folder.exists() {
        let failed = |error| format!("cannot delete {}: {error}", folder.display());
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    packages::create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_the_loader_found() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /r/lib/libc.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 => /r/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let found: Vec<&str> = libraries(text).collect();
        assert_eq!(found, ["/r/lib/libc.so.6", "/r/lib64/ld-linux-x86-64.so.2"]);
    }
}
