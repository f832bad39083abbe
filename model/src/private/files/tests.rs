//! Unit tests.

use super::*;

#[test]
fn a_tree_is_made_listed_and_removed() {
    let base = std::env::temp_dir().join(format!("mlx5-model-files-{}", std::process::id()));
    make_folders(&base.join("a/b"), 0o700).unwrap();
    make_folders(&base.join("a/b"), 0o700).unwrap();
    // More names than one answer of the kernel holds.
    let mut expected: Vec<OsString> = (0..2000).map(|n| format!("file{n}").into()).collect();
    for name in &expected {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        (&open(base.join("a/b").join(name), flags, 0o600).unwrap()).write_all(b"text").unwrap();
    }
    link("/nowhere", &base.join("a/link")).unwrap();
    let mut found = names(base.join("a/b")).unwrap();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(text(base.join("a/b/file7")).unwrap(), "text");
    assert_eq!(target(base.join("a/link")).unwrap(), Path::new("/nowhere"));
    assert_eq!(absolute(base.join("a/../a")).unwrap(), base.canonicalize().unwrap().join("a"));
    assert_eq!(about(base.join("a/link")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(is(&about_link(base.join("a/link")).unwrap(), libc::S_IFLNK));
    rename(&base.join("a"), &base.join("c")).unwrap();
    remove(&base).unwrap();
    assert!(!base.exists());
}
