//! The files of a package in place, and their packing.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Package, copyright, maintainer};
use crate::Result;
use crate::build;
use crate::release;

/// The folder whose content becomes a package.
pub(super) struct Stage {
    folder: PathBuf,
    root: PathBuf,
    package: &'static Package,
}

impl Stage {
    /// A stage below a folder, in which the package will be.
    pub(super) fn new(folder: &Path, package: &'static Package) -> Self {
        let root = folder.join(package.name).join("root");
        Self { folder: folder.to_owned(), root, package }
    }

    /// Where its files are.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Packs what is in place, with what every package has. Returns the package's path.
    pub(super) fn pack(&self) -> Result<PathBuf> {
        let Package { name, section, summary, description, depends, .. } = self.package;
        self.documents()?;
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
        let (architecture, version) = (architecture.trim(), format!("{}-1", release::version()?));
        let (linked, size) = (self.linked()?, self.size()?);
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {}\nInstalled-Size: {size}\n\
             Depends: {linked}, {depends}\nSection: {section}\nPriority: optional\n\
             Description: {summary}\n {}\n",
            maintainer(),
            description.join("\n ")
        );
        self.sums()?;
        self.write("DEBIAN/control", control.as_bytes())?;
        let package = self.folder.join(format!("{name}_{version}_{architecture}.deb"));
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.args(["--root-owner-group", "--build"]).arg(&self.root).arg(&package);
        build::run("dpkg-deb", &mut dpkg)?;
        Ok(package)
    }

    /// Writes a file.
    pub(super) fn write(&self, file: &str, bytes: &[u8]) -> Result {
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
    pub(super) fn strip(&self, from: &Path, file: &str, mode: u32) -> Result {
        let to = self.place(file)?;
        let mut strip = Command::new("strip");
        strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]).arg(&to).arg(from);
        build::run("strip", &mut strip)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))
            .map_err(|error| format!("{}: {error}", to.display()))
    }

    /// Says that a library in place, of this soname, is for programs of other packages, too. Takes its
    /// symbols out.
    pub(super) fn share(&self, file: &str, (name, interface): (&str, u32)) -> Result {
        let path = self.root.join(file);
        self.strip(&path, file, 0o644)?;
        let (package, version) = (self.package.name, release::version()?);
        let needed = format!("{name} {interface} {package} (>= {version})\n");
        self.write("DEBIAN/shlibs", needed.as_bytes())?;
        self.write("DEBIAN/triggers", b"activate-noawait ldconfig\n")
    }

    /// The license and the changelog.
    fn documents(&self) -> Result {
        let name = self.package.name;
        let folder = format!("usr/share/doc/{name}");
        let mit = String::from_utf8_lossy(&read(&build::root().join("LICENSE-MIT"))?).into_owned();
        self.write(&format!("{folder}/copyright"), copyright(&mit).as_bytes())?;
        let changes = read(&build::root().join("CHANGELOG.md"))?;
        self.compressed(&format!("{folder}/changelog.gz"), &changes)?;
        let version = release::version()?;
        let entry = format!(
            "{name} ({version}-1) unstable; urgency=medium\n\n  * Package of the release {version}.\n\n \
             -- {}  Thu, 01 Jan 1970 00:00:00 +0000\n",
            maintainer()
        );
        self.compressed(&format!("{folder}/changelog.Debian.gz"), entry.as_bytes())
    }

    /// The packages whose libraries the executables are linked with.
    fn linked(&self) -> Result<String> {
        // dpkg-shlibdeps reads the name of the package from here.
        let name = self.package.name;
        let source = self.root.with_file_name("source");
        let debian = source.join("debian");
        let control = debian.join("control");
        fs::create_dir_all(&debian)
            .and_then(|()| {
                fs::write(
                    &control,
                    format!("Source: {name}\n\nPackage: {name}\nArchitecture: any\n"),
                )
            })
            .map_err(|error| format!("{}: {error}", control.display()))?;
        let mut shlibdeps = Command::new("dpkg-shlibdeps");
        shlibdeps.current_dir(&source).arg("-O");
        for file in self.package.executables {
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

    /// All files outside of `DEBIAN`, without symbolic links.
    fn installed(&self) -> Result<Vec<PathBuf>> {
        let mut installed = files(&self.root.join("usr"))?;
        installed.retain(|path| !path.is_symlink());
        Ok(installed)
    }

    /// Writes a file through gzip.
    pub(super) fn compressed(&self, file: &str, bytes: &[u8]) -> Result {
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

/// The files below a folder, in order.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(files(&path)?) } else { all.push(path) }
    }
    all.sort();
    Ok(all)
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The standard output of a command that succeeds.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| {
        format!("cannot run {name}: {error}; Debian's dpkg-dev and binutils have it")
    })?;
    if !output.status.success() {
        return Err(format!("{name} failed ({}); its messages are above", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
