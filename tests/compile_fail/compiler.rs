//! rustc, called for one file with the library of this build.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;
use std::{env, fs};

/// Which parts of a file are compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only the correct code.
    Use,
    /// Also what has the attribute `cfg(misuse)`.
    Misuse,
}

/// An error of rustc.
#[derive(Debug, PartialEq, Eq)]
pub struct Error {
    /// Line in the file, from 1 on.
    pub line: usize,
    /// The code, such as `E0382`; empty for errors without one.
    pub code: String,
    /// The message.
    pub message: String,
}

/// rustc with the library that it takes `mlx5` from.
pub struct Compiler {
    library: PathBuf,
    folders: Vec<PathBuf>,
}

impl Compiler {
    /// Finds the library beside this executable.
    ///
    /// Several may be there, of other features and compilers. cargo has just made sure that the one
    /// of this build is newer than all its sources, so the newest is of the same sources, whatever
    /// its features. Libraries of other compilers are passed over.
    pub fn of_this_build() -> Self {
        let executable = env::current_exe().unwrap();
        let folder = executable.parent().unwrap();
        let mut folders = vec![folder.to_owned()];
        // With `--target`, macros are in the folder of the host: target/TRIPLE/debug/deps.
        if let [_deps, profile, _triple, target] =
            folder.ancestors().take(4).collect::<Vec<_>>()[..]
        {
            folders.push(target.join(profile.file_name().unwrap()).join("deps"));
        }
        let mut libraries: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("libmlx5-") && name.ends_with(".rlib")
            })
            .map(|path| (fs::metadata(&path).unwrap().modified().unwrap(), path))
            .collect();
        libraries.sort();
        let mut refused = Vec::new();
        for (_, library) in libraries.into_iter().rev() {
            let compiler = Self { library, folders: folders.clone() };
            let output = compiler.probe();
            if output.status.success() {
                return compiler;
            }
            refused.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        panic!("no usable libmlx5-*.rlib in {}: {}", folder.display(), refused.concat());
    }

    /// The errors of `file`, in the order that rustc prints them.
    pub fn errors(&self, file: &Path, kind: Kind) -> Vec<Error> {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let mut command = self.command();
        match kind {
            Kind::Use => command.args(["--crate-name", &format!("{stem}_use")]),
            Kind::Misuse => {
                command.args(["--cfg", "misuse", "--crate-name", &format!("{stem}_misuse")])
            }
        };
        let output = command.arg(file).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<Error> =
            text.lines().filter_map(|line| parse(line, file.to_str().unwrap())).collect();
        assert_eq!(output.status.success(), errors.is_empty(), "{text}");
        errors
    }

    /// Compiles what does nothing but load the library.
    fn probe(&self) -> Output {
        let mut command = self.command();
        command.args(["--crate-name", &format!("probe_{}", std::process::id()), "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run rustc: {error}"));
        let mut source = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut source, b"pub use mlx5;").unwrap();
        drop(source);
        child.wait_with_output().unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata"])
            .args(["--cap-lints", "allow", "--error-format", "short", "--out-dir"])
            .arg(env!("CARGO_TARGET_TMPDIR"))
            .arg("--extern")
            .arg(format!("mlx5={}", self.library.display()));
        for folder in &self.folders {
            command.arg("-L").arg(format!("dependency={}", folder.display()));
        }
        command
    }
}

/// The error in a line such as `FILE:12:5: error[E0382]: use of moved value`.
fn parse(line: &str, file: &str) -> Option<Error> {
    let (line, rest) = line.strip_prefix(file)?.strip_prefix(':')?.split_once(':')?;
    let (_column, rest) = rest.split_once(": error")?;
    let (code, message) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once("]: ")?,
        None => ("", rest.strip_prefix(": ")?),
    };
    Some(Error { line: line.parse().ok()?, code: code.to_owned(), message: message.to_owned() })
}

#[test]
fn errors_are_read_with_and_without_a_code() {
    let error = |line, code: &str, message: &str| Error {
        line,
        code: code.to_owned(),
        message: message.to_owned(),
    };
    assert_eq!(
        parse("a/b.rs:12:5: error[E0382]: use of moved value: `qp`", "a/b.rs"),
        Some(error(12, "E0382", "use of moved value: `qp`"))
    );
    assert_eq!(
        parse("a/b.rs:1:2: error: expected `;`, found `}`", "a/b.rs"),
        Some(error(1, "", "expected `;`, found `}`"))
    );
    assert_eq!(parse("error: aborting due to 2 previous errors", "a/b.rs"), None);
}
