//! `cargo xtask deb`: the command `mlx5` as a Debian package.
//!
//! The files are put in place here and packed by `dpkg-deb`. cargo-deb does the same from a table in
//! `Cargo.toml`, but is a program of some two hundred crates that has to be installed first.

mod check;

use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::release;
use crate::setup::{self, For};

const NAME: &str = "mlx5-tools";
const USAGE: &str = "usage: cargo xtask deb [--check]";

/// The file of completions in the package, by the name of the shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/mlx5"),
    ("zsh", "usr/share/zsh/vendor-completions/_mlx5"),
    ("fish", "usr/share/fish/vendor_completions.d/mlx5.fish"),
];

/// The maintainer, as Debian's tools take it from the environment. The default address
/// has the domain that is reserved for examples.
fn maintainer() -> String {
    let variable = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let name = variable("DEBFULLNAME", "the mlx5 authors");
    format!("{name} <{}>", variable("DEBEMAIL", "mlx5@example.com"))
}

/// The long description. A line with a point is empty.
const DESCRIPTION: [&str; 8] = [
    "The command mlx5 brings up, measures and explains NVIDIA ConnectX devices: it",
    "describes devices, checks what prevents the first message, measures latency",
    "and bandwidth, decodes errors in logs, traces programs, checks their requests",
    "and shows the device's state of their queues.",
    ".",
    "It contains the model, a software ConnectX, on which unmodified verbs programs",
    "run without a device. Programs can preload the model by themselves, too, from",
    "/usr/lib/mlx5/libmlx5_model.so.",
];

/// `cargo xtask deb [--check]`.
pub fn command(arguments: &[String]) -> Result {
    match arguments {
        [] => make().map(|_| ()),
        [flag] if flag == "--check" => check::run(&make()?),
        _ => Err(USAGE.to_owned()),
    }
}

/// Builds the package. Returns its path.
fn make() -> Result<PathBuf> {
    setup::ready(For::Building)?;
    let mut cargo = build::cargo("build");
    cargo.args(["--release", "--locked", "--package", NAME]);
    build::run("cargo build", &mut cargo)?;
    let target = build::target_directory()?;
    let (release, folder) = (target.join("release"), target.join("debian"));
    let _ = fs::remove_dir_all(&folder);
    let stage = Stage { root: folder.join("root") };
    stage.strip(&release.join("mlx5"), "usr/bin/mlx5", 0o755)?;
    stage.strip(&release.join("deps/libmlx5_model.so"), "usr/lib/mlx5/libmlx5_model.so", 0o644)?;
    stage.generate()?;
    stage.documents()?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let (architecture, version) = (architecture.trim(), format!("{}-1", release::version()?));
    let depends = stage.depends(&folder)?;
    let size = stage.size()?;
    let control = format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: {}\nInstalled-Size: {size}\n\
         Depends: {depends}, {OPENED}\nSection: net\nPriority: optional\n\
         Description: bring-up, measurement and diagnosis of ConnectX devices\n {}\n",
        maintainer(),
        DESCRIPTION.join("\n ")
    );
    stage.sums()?;
    stage.write("DEBIAN/control", control.as_bytes())?;
    let package = folder.join(format!("{NAME}_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "--build"]).arg(&stage.root).arg(&package);
    build::run("dpkg-deb", &mut dpkg)?;
    Ok(package)
}

/// The packages of the libraries that the command opens at run time, which no tool finds in its files.
const OPENED: &str = "ibverbs-providers (>= 39), libibverbs1 (>= 39)";

/// The folder whose content becomes the package.
struct Stage {
    root: PathBuf,
}

impl Stage {
    fn write(&self, file: &str, bytes: &[u8]) -> Result {
        let path = self.place(file)?;
        fs::write(&path, bytes)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// The path of a file, in a folder that exists.
    fn place(&self, file: &str) -> Result<PathBuf> {
        let path = self.root.join(file);
        let mut folder = self.root.clone();
        for part in Path::new(file).parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            fs::create_dir_all(&folder)
                .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)))
                .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        }
        Ok(path)
    }

    /// Copies an executable or a library without its symbols.
    fn strip(&self, from: &Path, file: &str, mode: u32) -> Result {
        let to = self.place(file)?;
        let mut strip = Command::new("strip");
        strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]).arg(&to).arg(from);
        build::run("strip", &mut strip)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))
            .map_err(|error| format!("{}: {error}", to.display()))
    }

    /// Manual pages and completions, which the command writes.
    fn generate(&self) -> Result {
        let command = self.root.join("usr/bin/mlx5");
        let pages = self.root.with_file_name("man");
        fs::create_dir_all(&pages).map_err(|error| format!("{}: {error}", pages.display()))?;
        build::run("mlx5 man", Command::new(&command).arg("man").arg(&pages))?;
        for page in files(&pages)? {
            let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.compressed(&format!("usr/share/man/man1/{name}.gz"), &read(&page)?)?;
        }
        for (shell, file) in COMPLETIONS {
            let script = output(Command::new(&command).args(["completions", shell]))?;
            self.write(file, script.as_bytes())?;
        }
        Ok(())
    }

    /// The license and the changelog.
    fn documents(&self) -> Result {
        let folder = format!("usr/share/doc/{NAME}");
        let mit = String::from_utf8_lossy(&read(&build::root().join("LICENSE-MIT"))?).into_owned();
        self.write(&format!("{folder}/copyright"), copyright(&mit).as_bytes())?;
        let changes = read(&build::root().join("CHANGELOG.md"))?;
        self.compressed(&format!("{folder}/changelog.gz"), &changes)?;
        let version = release::version()?;
        let entry = format!(
            "{NAME} ({version}-1) unstable; urgency=medium\n\n  * Package of the release {version}.\n\n \
             -- {}  Thu, 01 Jan 1970 00:00:00 +0000\n",
            maintainer()
        );
        self.compressed(&format!("{folder}/changelog.Debian.gz"), entry.as_bytes())
    }

    /// The packages whose libraries the executables are linked with.
    fn depends(&self, folder: &Path) -> Result<String> {
        // dpkg-shlibdeps reads the name of the package from here.
        let source = folder.join("source/debian");
        let control = source.join("control");
        fs::create_dir_all(&source)
            .and_then(|()| {
                fs::write(
                    &control,
                    format!("Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n"),
                )
            })
            .map_err(|error| format!("{}: {error}", control.display()))?;
        let mut shlibdeps = Command::new("dpkg-shlibdeps");
        shlibdeps.current_dir(folder.join("source")).arg("-O");
        for file in ["usr/bin/mlx5", "usr/lib/mlx5/libmlx5_model.so"] {
            shlibdeps.arg("-e").arg(self.root.join(file));
        }
        let text = output(&mut shlibdeps)?;
        let depends = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
        depends.map(str::to_owned).ok_or_else(|| format!("dpkg-shlibdeps printed `{text}`"))
    }

    /// The size of the installed files, in KiB.
    fn size(&self) -> Result<u64> {
        let mut bytes = 0;
        for file in self.installed()? {
            bytes += read(&file)?.len() as u64;
        }
        Ok(bytes.div_ceil(1024))
    }

    fn sums(&self) -> Result {
        let mut md5sum = Command::new("md5sum");
        md5sum.current_dir(&self.root);
        for file in self.installed()? {
            md5sum.arg(file.strip_prefix(&self.root).unwrap_or(&file));
        }
        let sums = output(&mut md5sum)?;
        self.write("DEBIAN/md5sums", sums.as_bytes())
    }

    /// All files outside of `DEBIAN`.
    fn installed(&self) -> Result<Vec<PathBuf>> {
        files(&self.root.join("usr"))
    }

    fn compressed(&self, file: &str, bytes: &[u8]) -> Result {
        let failed = |error| format!("gzip: {error}");
        let mut gzip = Command::new("gzip")
            .args(["-9n"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut input = gzip.stdin.take().expect("it is a pipe");
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&bytes));
        let output = gzip.wait_with_output().map_err(failed)?;
        writer.join().expect("writing does not panic").map_err(failed)?;
        if !output.status.success() {
            return Err(format!("gzip failed ({})", output.status));
        }
        self.write(file, &output.stdout)
    }
}

/// The file `copyright` of the package, with the text of the MIT license.
fn copyright(mit: &str) -> String {
    let body = mit.lines().skip_while(|line| !line.starts_with("Permission"));
    let lines = body.map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    let owner = mit.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: mlx5\n\nFiles: *\nCopyright: {}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{}\n\nLicense: Apache-2.0\n On Debian systems, the text of the Apache \
         License 2.0 is in\n /usr/share/common-licenses/Apache-2.0.\n",
        owner.unwrap_or("the mlx5 authors"),
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// The files below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(files(&path)?) } else { all.push(path) }
    }
    all.sort();
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The standard output of a command that succeeds.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| {
        format!("cannot run {name}: {error}; Debian's dpkg-dev and binutils have it")
    })?;
    if !output.status.success() {
        return Err(format!("{name} failed ({}); its messages are above", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copyright_has_the_license_without_empty_lines() {
        let text = copyright("MIT License\n\nCopyright (c) 2025 x\n\nPermission is\n\nTHE END\n");
        assert!(text.contains("Copyright: 2025 x\n"), "{text}");
        assert!(text.contains("License: Expat\n Permission is\n .\n THE END\n\n"), "{text}");
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert_eq!(command(&["--install".to_owned()]).unwrap_err(), USAGE);
    }
}
