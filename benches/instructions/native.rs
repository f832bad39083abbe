//! C programs, by `mlx5_ring.h` and by libmlx5direct: `native.c`, compiled as a user compiles it, and loaded.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use mlx5::wqe::Sge;
use mlx5_sys::verbs::{ibv_cq, ibv_qp};

use crate::side::{Line, Row, Side};

/// How a program reaches its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By the functions that `mlx5_ring.h` defines.
    Header,
    /// By libmlx5direct.
    Library,
}

/// `struct native` of native.c.
type Handle = *mut c_void;

/// A queue pair that a C program posts to.
pub struct Native {
    library: *mut c_void,
    handle: Handle,
    by: By,
    _line: Line,
}

impl Native {
    pub fn new(by: By) -> Self {
        let line = Line::new();
        let library = load(by);
        let (sge, remote) = (line.sge(), line.remote());
        // SAFETY: native.c defines it so.
        let new: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_cq, *const Sge, u64, u32) -> Handle =
            unsafe { std::mem::transmute(function(library, "native_new").expect("it is there")) };
        let (qp, cq) = (line.qp.as_raw().as_ptr(), line.cq.as_raw().as_ptr());
        // SAFETY: queue pair, CQ and memory live longer than the handle, and nothing else uses them.
        let handle = unsafe { new(qp, cq, &sge, remote.addr, remote.rkey) };
        assert!(!handle.is_null(), "the queue pair cannot be taken over");
        Self { library, handle, by, _line: line }
    }

    /// Calls a loop of native.c.
    fn call(&self, name: &str, calls: usize) -> Option<usize> {
        let address = function(self.library, name)?;
        // SAFETY: native.c defines each loop so.
        let run: unsafe extern "C" fn(Handle, usize) -> usize =
            unsafe { std::mem::transmute(address) };
        // SAFETY: the handle is alive, and nothing else uses it.
        Some(unsafe { run(self.handle, calls) })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let free = function(self.library, "native_free").expect("it is there");
        // SAFETY: native.c defines it so.
        let free: unsafe extern "C" fn(Handle) = unsafe { std::mem::transmute(free) };
        // SAFETY: the handle is used no more.
        unsafe { free(self.handle) };
    }
}

impl Side for Native {
    fn prepare(&mut self, _: Row, calls: usize) {
        if self.by == By::Library {
            assert_eq!(self.call("native_prepare", calls), Some(calls), "room for all");
        }
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        let name = match (row, self.by) {
            (Row::Inline, _) => "native_inline",
            (Row::Pointer, _) => "native_pointer",
            (Row::Receive, _) => "native_receive",
            (Row::Poll | Row::Empty, _) => "native_poll",
            (Row::Inline16, By::Header) => "native_inline16",
            (Row::Inline28, By::Header) => "native_inline28",
            (Row::Inline64, By::Header) => "native_inline64",
            (Row::RunTime, By::Header) => "native_run_time",
            (Row::Prepared, _) => "native_fire",
            (Row::List, By::Library) => "native_list",
            _ => return None,
        };
        self.call(name, calls)
    }
}

/// Compiles native.c, with optimization and nothing else, and loads it.
fn load(by: By) -> *mut c_void {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root =
        root.ancestors().find(|folder| folder.join("c/include").is_dir()).expect("the repository");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let output = folder.join(format!("native-{by:?}-{}.so", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I"]);
    compiler.arg(root.join("c/include"));
    compiler.arg(root.join("benches/instructions/native.c")).arg("-o").arg(&output);
    if by == By::Library {
        let built = std::env::current_exe().expect("the benchmark knows its executable");
        let built = built.parent().expect("its folder").to_path_buf();
        compiler.args(["-DLIBRARY", "-L"]).arg(&built).arg("-lmlx5direct");
        // The loader finds it by its soname, which no file in the folder has.
        open(&built.join("libmlx5direct.so"));
    }
    let status = compiler.args(["-lmlx5", "-libverbs"]).status();
    assert!(status.is_ok_and(|status| status.success()), "cc: run `cargo xtask setup`");
    let library = open(&output);
    // It is mapped.
    let _ = std::fs::remove_file(&output);
    library
}

/// Loads a library for ever.
fn open(path: &Path) -> *mut c_void {
    let path = CString::new(path.to_str().expect("a path of UTF-8")).expect("a path");
    // SAFETY: the path ends in NUL. The libraries have no constructors of their own.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the message, if there is one, lives until the next call.
    let why = || unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
    assert!(!library.is_null(), "{:?}", why());
    library
}

/// Returns a function of the library, if it has it.
fn function(library: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).expect("a name");
    // SAFETY: the library is open for ever, and the name ends in NUL.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
