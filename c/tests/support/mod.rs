//! Compiles C and C++ programs against the header and the library, and runs them on the model.

#![allow(dead_code, reason = "each test file uses its own part of this module")]

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds that a program may take. Far more than it needs, so that only a hang reaches it.
const LIMIT: &str = "300";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}

impl Language {
    /// The compiler, with every warning an error.
    pub fn compiler(self) -> Command {
        let (compiler, language, standard) = match self {
            Self::C => ("cc", "c", "-std=c11"),
            Self::Cpp => ("c++", "c++", "-std=c++17"),
        };
        let mut command = Command::new(compiler);
        command.args(["-x", language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args(["-D_GNU_SOURCE", "-I"]).arg(package("include"));
        command
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Shared,
    Static,
    /// Only headers, and what they need of rdma-core.
    None,
}

/// A path in this package.
pub fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file that cargo builds for every integration test and leaves beside the test's own executable.
pub fn built(file: &str) -> PathBuf {
    let test = env::current_exe().expect("the test knows its executable");
    let file = test.with_file_name(file);
    assert!(file.is_file(), "{} does not exist: run the tests by `cargo test`", file.display());
    file
}

/// A folder of this process for what tests build. The shared library is there under the names by which the
/// linker and the loader look for it.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let name = format!("c-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["libmlx5direct.so", "libmlx5direct.so.0"] {
            symlink(built("libmlx5direct.so"), folder.join(name)).expect("a link");
        }
        folder
    })
}

/// A path in the folder that nothing else has.
fn unused(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    folder().join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Runs a compiler.
#[track_caller]
pub fn compile(command: &mut Command) {
    let output = command.output().expect("a compiler: run `cargo xtask setup`");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A compiled program.
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// The program `direct.c`. Each test compiles its own.
    pub fn direct(language: Language, library: Library) -> Self {
        Self::new("direct", &package("tests/direct/direct.c"), language, library)
    }

    pub fn new(name: &str, source: &Path, language: Language, library: Library) -> Self {
        Self::build(name, source, language.compiler(), library)
    }

    /// A program in C with these words for the compiler.
    pub fn defining(name: &str, source: &Path, words: &[&str], library: Library) -> Self {
        let mut compiler = Language::C.compiler();
        compiler.args(words);
        Self::build(name, source, compiler, library)
    }

    fn build(name: &str, source: &Path, mut compiler: Command, library: Library) -> Self {
        let path = unused(name);
        compiler.arg(source).arg("-o").arg(&path).args(["-x", "none"]);
        match library {
            Library::Shared => {
                compiler.arg("-L").arg(folder()).arg("-lmlx5direct");
                compiler.arg(format!("-Wl,-rpath,{}", folder().display()));
            }
            Library::Static => {
                compiler.arg(built("libmlx5direct.a")).args(["-lpthread", "-ldl", "-lm"]);
            }
            Library::None => {}
        }
        compile(compiler.args(["-lmlx5", "-libverbs"]));
        Self { path }
    }

    /// Runs it on the model, and returns what it printed.
    pub fn run(&self, argument: &str, link: &str) -> String {
        let mut command = self.on_model(link);
        if !argument.is_empty() {
            command.arg(argument);
        }
        let output = command.output().expect("timeout, of coreutils");
        let (shown, errors) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{argument}: {}\n{shown}\n{errors}", output.status);
        shown
    }

    /// The command that runs it on the model.
    pub fn on_model(&self, link: &str) -> Command {
        let mut command = Command::new("timeout");
        let preload = format!("LD_PRELOAD={}", built("libmlx5_model.so").display());
        let link = format!("MLX5_MODEL_LINK={link}");
        command.args([
            LIMIT,
            "env",
            "-u",
            "MLX5_MODEL_DEVICES",
            &preload,
            "MLX5_MODEL=always",
            &link,
        ]);
        command.arg(&self.path);
        command
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// C code that a test has compiled and loaded.
pub struct Loaded(*mut c_void);

impl Loaded {
    /// Compiles a file below `tests` as C with optimization, and loads it.
    pub fn new(source: &str) -> Self {
        // Tests of one process compile the same code at the same time.
        let library = unused(&source.replace('/', "-"));
        let mut compiler = Language::C.compiler();
        compiler.args(["-O2", "-shared", "-fPIC"]).arg(package("tests").join(source));
        compile(compiler.arg("-o").arg(&library).args(["-lmlx5", "-libverbs"]));
        let path = CString::new(library.to_str().expect("a path of UTF-8")).expect("a path");
        // SAFETY: the path ends in NUL. The code has no constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Self(library)
    }

    /// Returns a function.
    ///
    /// # Safety
    /// The code defines it with the type `F`, which is one of functions.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: the library is open for ever, and the name ends in NUL.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: of the same size, and a function of that type by this function's contract.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

/// The first program of docs/c.md, as a file.
pub fn program_of_the_page() -> PathBuf {
    let page = fs::read_to_string(package("../docs/c.md")).expect("the page");
    let (_, rest) = page.split_once("```c\n").expect("a program");
    let (program, _) = rest.split_once("```").expect("its end");
    let path = folder().join("page.c");
    fs::write(&path, program).expect("written");
    path
}
