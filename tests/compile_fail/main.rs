//! Misuse that must not compile: each case with the error that stops it, beside code that compiles.
//!
//! rustc compiles each file of `cases/` twice against this build of the driver: as it is, which has
//! to succeed, and with `--cfg misuse`, which has to give the marked errors and no others. A marker
//! stands below the line of its error and has one `^` for each line up to it:
//!
//! ```text
//! let again = qp.rtr(to);
//! //~^ E0382 use of moved value: qp
//! ```
//!
//! It names the code and words of the message, in order. Paths, lifetimes and back quotes of the
//! message are left out, since they differ between compilers.

mod compiler;
mod marker;

use std::fs;
use std::path::{Path, PathBuf};

use compiler::{Compiler, Kind};

/// The files of cases, at least one.
fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail/cases");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn misuse_is_refused_with_the_marked_errors_only() {
    let compiler = Compiler::of_this_build();
    let mut differences = Vec::new();
    for file in cases() {
        let source = fs::read_to_string(&file).unwrap();
        let errors = compiler.errors(&file, Kind::Misuse);
        let markers = marker::markers(&source);
        assert!(!markers.is_empty(), "{} marks no error", file.display());
        let cases = source.matches("cfg(misuse)").count();
        assert!(markers.len() >= cases, "{}: a case has no marker", file.display());
        for difference in marker::differences(&markers, &errors) {
            differences.push(format!("{}:{difference}", file.display()));
        }
    }
    assert!(differences.is_empty(), "\n{}\n", differences.join("\n"));
}

#[test]
fn code_beside_misuse_compiles() {
    let compiler = Compiler::of_this_build();
    for file in cases() {
        let errors = compiler.errors(&file, Kind::Use);
        assert!(errors.is_empty(), "{}: {errors:#?}", file.display());
    }
}
