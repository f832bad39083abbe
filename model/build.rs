//! Records in the library the source that it was built from. A recording, and a process that
//! preloads the library, can then tell it from an older copy.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = Vec::new();
    // What the model shares with mlx5-sys are constants that its own source names.
    collect(&root.join("src"), &mut files);
    files.sort();
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in &files {
        take(file.strip_prefix(&root).unwrap_or(file).as_os_str().as_encoded_bytes());
        take(&fs::read(file).unwrap_or_default());
    }
    println!("cargo::rustc-env=MLX5_MODEL_BUILD={hash:016x}");
    println!("cargo::rerun-if-changed=src");
}

/// Every file below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
