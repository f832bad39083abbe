//! A kernel package taken apart: the kernel as QEMU boots it fastest, and its modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::cpio::Archive;
use super::packages::{self, Root};
use crate::Result;
use crate::build;

/// The modules that scenarios load. Those that a kernel has built in are left out of the initramfs.
const MODULES: [&str; 12] = [
    "mlx5_core",
    "mlx5_ib",
    "ib_uverbs",
    "ib_umad",
    "ib_cm",
    "rdma_cm",
    "rdma_ucm",
    "ib_ipoib",
    "virtio_pci",
    "virtio_net",
    "8021q",
    "veth",
];

/// A kernel that is ready to be booted.
pub struct Kernel {
    /// Its version, as `uname -r` has it.
    pub release: String,
    /// The decompressed kernel: it boots in half the time of the compressed one.
    pub vmlinux: PathBuf,
    /// The folder of the guest's modules, with modprobe's index.
    modules: PathBuf,
}

impl Kernel {
    /// Decompresses the kernel of a package and the modules of [`MODULES`] with all that they depend
    /// on, unless that is done for the same list.
    ///
    /// # Errors
    /// The package has no kernel, or one in an unknown format.
    pub fn ready(package: &Root, tools: &Root) -> Result<Self> {
        let packaged = only_entry(&package.find("lib/modules")?)?;
        let release = packaged.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let staged = package.path.join("guest");
        let modules = staged.join("lib/modules").join(&release);
        let kernel = Self { release, vmlinux: package.path.join("vmlinux"), modules };
        if !kernel.vmlinux.is_file() {
            // Since Linux 7, Debian's packages have it beside the modules.
            let image = package
                .find(&format!("lib/modules/{}/vmlinuz", kernel.release))
                .or_else(|_| package.find(&format!("boot/vmlinuz-{}", kernel.release)))?;
            decompress(&image, &kernel.vmlinux, tools)?;
        }
        // A list of other modules needs the folder anew.
        let (chosen, list) = (package.path.join("guest.modules"), MODULES.join("\n"));
        let is_done = fs::read_to_string(&chosen).is_ok_and(|done| done == list);
        if !is_done || !kernel.modules.join(INDEX).is_file() {
            let base = packaged.ancestors().nth(3).unwrap_or(&packaged);
            kernel.depmod(base, tools)?;
            kernel.stage(&packaged, tools)?;
            kernel.depmod(&staged, tools)?;
            fs::write(&chosen, list).map_err(|error| format!("{}: {error}", chosen.display()))?;
        }
        Ok(kernel)
    }

    /// Copies modules out of the package's folder.
    fn stage(&self, packaged: &Path, tools: &Root) -> Result {
        let index = packaged.join(INDEX);
        let text =
            fs::read_to_string(&index).map_err(|error| format!("{}: {error}", index.display()))?;
        for path in with_dependencies(&text, &MODULES) {
            let target = self.modules.join(path.trim_end_matches(".xz"));
            packages::create(target.parent().unwrap_or(&self.modules))?;
            if path.ends_with(".xz") {
                // kmod of the guest may come from a suite that knows no compressed modules.
                let failed = |error| format!("{}: {error}", target.display());
                let mut xz = tools.program("bin/xz")?;
                xz.arg("-dc")
                    .arg(packaged.join(path))
                    .stdout(File::create(&target).map_err(failed)?);
                build::run("xz", &mut xz)?;
            } else {
                copy(&packaged.join(path), &target)?;
            }
        }
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
            copy(&packaged.join(name), &self.modules.join(name))?;
        }
        Ok(())
    }

    /// Adds the modules to an initramfs.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn add_modules(&self, archive: &mut Archive) -> Result {
        archive.tree(&format!("lib/modules/{}", self.release), &self.modules)
    }

    /// Writes the index of the modules below a folder.
    fn depmod(&self, base: &Path, tools: &Root) -> Result {
        let mut depmod = tools.program("sbin/depmod")?;
        build::run("depmod", depmod.arg("-b").arg(base).arg(&self.release))
    }
}

/// The index of dependencies that depmod writes.
const INDEX: &str = "modules.dep";

fn copy(from: &Path, to: &Path) -> Result {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

/// The only entry of a folder.
fn only_entry(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    match (paths.next(), paths.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(format!("{} does not hold one kernel's modules", folder.display())),
    }
}

/// The paths of these modules and all they depend on, from the text of `modules.dep`.
fn with_dependencies<'a>(index: &'a str, names: &[&str]) -> BTreeSet<&'a str> {
    let dependencies: BTreeMap<&str, &str> =
        index.lines().filter_map(|line| line.split_once(':')).collect();
    let is_one = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        names.contains(&file.split(".ko").next().unwrap_or(file))
    };
    let mut todo: Vec<&str> = dependencies.keys().copied().filter(|path| is_one(path)).collect();
    let mut found = BTreeSet::new();
    while let Some(path) = todo.pop() {
        if found.insert(path) {
            todo.extend(
                dependencies.get(path).into_iter().flat_map(|rest| rest.split_whitespace()),
            );
        }
    }
    found
}

/// Decompresses a kernel.
fn decompress(bzimage: &Path, vmlinux: &Path, tools: &Root) -> Result {
    let image = fs::read(bzimage).map_err(|error| format!("{}: {error}", bzimage.display()))?;
    let (program, payload) = payload(&image)
        .ok_or_else(|| format!("{} is no kernel in a known format", bzimage.display()))?;
    let partial = vmlinux.with_extension("partial");
    let failed = |error| format!("cannot write {}: {error}", partial.display());
    let mut child = tools
        .program(program)?
        .args(["-d", "-c", "-q"])
        .stdin(Stdio::piped())
        .stdout(File::create(&partial).map_err(failed)?)
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(payload));
    let status = child.wait().map_err(|error| format!("{program}: {error}"))?;
    if !status.success() || !matches!(written, Some(Ok(()))) {
        return Err(format!("{program} cannot decompress {}", bzimage.display()));
    }
    fs::rename(&partial, vmlinux).map_err(failed)
}

/// The compressed kernel in an image, and the program that decompresses it. The offsets are those of
/// the kernel's boot protocol.
fn payload(image: &[u8]) -> Option<(&'static str, &[u8])> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = match image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = (sectors + 1).checked_mul(512)?.checked_add(word(0x248)?)?;
    let payload = image.get(start..start.checked_add(word(0x24c)?)?)?;
    // The size of the kernel stands behind the compressed data, unless the format has it.
    let compressed = payload.get(..payload.len().checked_sub(4)?)?;
    match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(("bin/zstd", compressed)),
        [0x02, 0x21, 0x4c, 0x18, ..] => Some(("bin/lz4", compressed)),
        [0xfd, b'7', b'z', b'X', ..] => Some(("bin/xz", compressed)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_with_all_that_they_depend_on() {
        let index = "k/mlx5_ib.ko.xz: k/ib_core.ko.xz k/mlx5_core.ko.xz\nk/ib_core.ko.xz:\n\
                     k/mlx5_core.ko.xz: k/tls.ko.xz\nk/tls.ko.xz:\nk/other.ko.xz:\n";
        let found = with_dependencies(index, &["mlx5_ib", "virtio_pci"]);
        let expected = ["k/ib_core.ko.xz", "k/mlx5_core.ko.xz", "k/mlx5_ib.ko.xz", "k/tls.ko.xz"];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_compressed_kernel_is_found_by_the_boot_protocol() {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c] = 12;
        image.extend([0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3, 4, 9, 9, 9, 9]);
        let (program, payload) = super::payload(&image).unwrap();
        assert_eq!((program, &payload[4..]), ("bin/zstd", &[1, 2, 3, 4][..]));
        assert!(super::payload(&image[..1030]).is_none(), "cut");
        image[0x248..0x24c].fill(0xff);
        assert!(super::payload(&image).is_none(), "an offset behind the end");
    }
}
