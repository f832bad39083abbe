//! Programs from outside this project, run on the model by LD_PRELOAD of its shared library, and
//! the tests' own processes with the model linked in.
//!
//! This file knows the place of the library, and the Debian package of each program. Its modules:
//!
//! - [`process`] starts a program and always ends it.
//! - [`port`] holds a TCP port for a client and a server, and tells when the server listens.
//! - [`sockets`] are the model's own.
//! - [`role`] starts the test's own executable as another process.
//! - [`namespace`] makes network namespaces.
//! - [`users`] are other users of the machine.
//! - [`verbs`] are the objects of such a process.
//! - [`target`] is a role that many tests need.
//! - [`request`] uses the command file without the library.
//! - [`random`] gives repeatable random numbers.
//! - [`capture`] reads captures.

#![allow(dead_code, reason = "each test file uses its own part of this module")]

pub mod capture;
pub mod devx;
pub mod namespace;
pub mod port;
pub mod process;
pub mod random;
pub mod request;
pub mod role;
pub mod sockets;
pub mod target;
pub mod users;
pub mod verbs;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use process::{Output, Process};

/// How long any one program may take. Far more than it needs, so that only a hang reaches it.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Which link the model shows, and how it notices doorbells.
#[derive(Debug, Clone, Copy, Default)]
pub struct Model {
    pub roce: bool,
    pub mode: Option<&'static str>,
}

impl Model {
    /// `program`, found in PATH, on the model.
    ///
    /// # Panics
    /// With the name of the package to install where the program is not on the machine: a test
    /// that could not run must not pass.
    pub fn command(self, program: &str) -> Command {
        let mut command = installed(program);
        command.env("LD_PRELOAD", library());
        command.env("MLX5_MODEL", "always");
        command.env_remove("MLX5_MODEL_DEVICES");
        command.env("MLX5_MODEL_LINK", if self.roce { "roce" } else { "infiniband" });
        match self.mode {
            Some(mode) => command.env("MLX5_MODEL_MODE", mode),
            None => command.env_remove("MLX5_MODEL_MODE"),
        };
        command
    }

    /// Runs one program to its end.
    pub fn run(self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(program);
        command.args(arguments);
        Process::start(program, command).finish(LIMIT)
    }

    /// Runs `program` as server and, once it listens, as client with the server's host as last
    /// argument, both with `-p PORT`, and returns the output of both, server first.
    ///
    /// Pairs run one after the other: two programs that poll keep two cores busy.
    pub fn pair(self, program: &str, arguments: &[&str]) -> (Output, Output) {
        self.pair_where(program, arguments, &[])
    }

    /// [`Model::pair`] with variables in the environment of both.
    pub fn pair_where(
        self,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> (Output, Output) {
        let _turn = turn();
        let port = port::free();
        let side = |name: &str, host: Option<&str>| {
            let mut command = self.command(program);
            command.args(["-p", &port]).args(arguments).args(host);
            command.envs(variables.iter().copied());
            Process::start(&format!("{program} ({name})"), command)
        };
        let mut server = side("server", None);
        server.wait_until_it_listens(&port, LIMIT);
        let client = side("client", Some("127.0.0.1")).finish(LIMIT);
        (server.finish(LIMIT), client)
    }
}

/// `program`, found in PATH, without the model.
///
/// # Panics
/// With the name of the package to install where the program is not on the machine: a test that could
/// not run must not pass.
pub fn installed(program: &str) -> Command {
    let found = Path::new(program).is_absolute() && Path::new(program).is_file()
        || env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).is_file());
    assert!(
        found,
        "{program} is not installed: run `cargo xtask setup`, or `apt-get install {}`",
        package_of(program)
    );
    Command::new(program)
}

/// Waits until no other pair of this test binary runs.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // Another test's failure says nothing about this one.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The model's shared library, which cargo builds with the package's library for every
/// integration test and leaves beside the test's own executable.
pub fn library() -> PathBuf {
    let test = env::current_exe().expect("the test knows its executable");
    let library = test.with_file_name("libmlx5_model.so");
    assert!(
        library.is_file(),
        "{} does not exist: run the tests by `cargo test`, which builds mlx5-model as a cdylib",
        library.display()
    );
    library
}

fn package_of(program: &str) -> &'static str {
    match program {
        program if program.starts_with("ibv_") => "ibverbs-utils",
        "/usr/bin/python3" => "python3-pyverbs python3-scapy",
        program if program.starts_with("ucx_") || program == "io_demo" => "ucx-utils",
        "valgrind" => "valgrind",
        "tshark" => "tshark",
        "fi_pingpong" => "libfabric-bin",
        "rdma" => "iproute2",
        "dpdk-testpmd" => "dpdk-dev",
        "rping" | "ucmatose" | "udaddy" | "udpong" | "mckey" | "cmtime" | "rstream"
        | "riostream" | "rdma_server" | "rdma_client" | "rdma_xserver" | "rdma_xclient" => {
            "rdmacm-utils"
        }
        _ => "perftest",
    }
}
