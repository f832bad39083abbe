//! `cargo xtask`: sets the machine up, then builds, runs and tests.
//!
//! It depends on the standard library only, so it compiles in seconds on a machine where the rest
//! of the project cannot be built yet.

mod api;
mod arm64;
mod asan;
mod bench;
mod bindings;
mod book;
mod build;
mod c_library;
mod checks;
mod ci;
mod conform;
mod deb;
mod deep;
mod demo;
mod disk;
mod evidence;
mod executables;
mod files;
mod guest;
mod install;
mod layers;
mod libclang;
mod libraries;
mod matrix;
mod messages;
mod miri;
mod mirrors;
mod model_speed;
mod msrv;
mod needs;
mod newest;
mod nightly;
mod pair;
mod pictures;
mod preload;
mod quick;
mod rdma_sys;
mod record;
mod release;
mod results;
mod roots;
mod setup;
mod sideway;
mod soak;
mod steps;
mod test;
mod torture;

use std::process::ExitCode;

const HELP: &str = "\
Sets the machine up, then builds, runs and tests the mlx5 crates.

usage: cargo xtask COMMAND [ARGUMENTS]

  setup                  install what building and testing need and the machine lacks
  demo [-- ARGUMENTS]    messages between two processes; ARGUMENTS go to both sides of
                         examples/rc_pingpong (`--mode write --size 4096`, for example)
  run [--roce] [--mode trapped|polled|manual] -- PROGRAM [ARGUMENTS]
                         run any verbs program on the model, the software ConnectX
  test [ARGUMENTS]       the tests of the gate, and those of documentation; with ARGUMENTS,
                         `cargo test` with these
  quick [--list] [COMMIT]
                         clippy and tests for the paths that differ from COMMIT, or else from the
                         upstream branch, or else from HEAD; --list prints the choice, and runs nothing
  soak [--runs N] [--load] [-- ARGUMENTS]
                         the same tests N times (10), with --load beside busy threads; prints each
                         test that failed with how often; ARGUMENTS choose packages and targets as
                         for `cargo test`
  torture [--lint] [--seed S] [--seeds COUNT] [--operations N] [--episode E] [--timeout CODE]
                         random operations of the driver in one process and libibverbs in another,
                         held to an oracle; --lint checks every WQE before it is rung; --timeout is
                         the ACK timeout of queue pairs (16)
  conform [--write]      the conformance suite on the model, both links, compared with
                         docs/conformance and docs/status.md; --write writes these
  evidence [--write | --merge FILE SOURCE]
                         the tests that facts of evidence/ name, and docs/evidence.md compared with
                         them; --write writes the page; --merge takes the answers of a device, as
                         `mlx5 conform --evidence` wrote them, into evidence/seen
  layers [PACKAGE ...]   the order of top-level modules: reports uses of a module that stands above
                         the one that uses it; without PACKAGE, of mlx5, mlx5-diag, mlx5-conformance,
                         mlx5-c, mlx5-model, mlx5-model-pci, mlx5-monitor and mlx5-tools
  messages [--lines] SOURCE ...
                         adds the error and warning messages of Linux's driver to the catalogue that
                         `mlx5 decode` knows them by, from the folder of a kernel's source; --lines
                         prints a line of a log for each instead
  miri                   unit tests of rings and doorbells under Miri
  asan                   unit tests and traffic under the address sanitizer
  arm64 [--check]        unit tests, twins and traffic for arm64 under QEMU, and a client against an
                         x86-64 server; --check only compiles, and compares the fences
  msrv                   libraries and programs checked with the oldest supported Rust
  api [--write]          the public interface of mlx5, compared with docs/api/mlx5.txt; --write
                         writes that list
  bindings [--write]     the bindings in mlx5-sys, compared with the installed headers; --write writes
                         them, on a machine with rdma-core 44 (Debian 12)
  sideway                a program with the crates sideway and mlx5: a queue pair made by one, used by
                         the other
  matrix [--keyring FILE] [SUITE ...]
                         builds, demo and unit tests in a root folder of each supported distribution,
                         made by mmdebstrap; as root
  newest [--keyring FILE] [SUITE ...]
                         third-party programs of Debian 13 and unstable on the model, in a root folder
                         of each, made by mmdebstrap; as root
  release --dry-run      the checklist of docs/releasing.md, cheap rules first, up to the first broken
                         one; uploads nothing
  bench [--quick | --limits | --instructions | --cycles | --stores | --phases | --record]
                         the benchmarks; --quick only shows that they run; --limits counts the
                         instructions of this crate alone, and holds rows to their limits; --instructions counts
                         the instructions of posts and polls, and holds them to limits and to
                         docs/benchmarks; --cycles holds cycles to a third of libmlx5's; --stores
                         shows stores to registers and records, and fences; --phases stamps where
                         the time goes; --record writes docs/benchmarks
  model-speed [--rounds N] OLD.so NEW.so
                         messages between two processes on the model, by perftest: one build of
                         the library against another, in turn; medians and ratios
  guest [--link infiniband|roce] [--kernel 6.1|6.12] [--guests 1|2] [--limit SECONDS]
        [--accel tcg|kvm] [--refresh] SCENARIO | --shell | --list
                         boots Debian's kernel in QEMU with the model as a PCI function, and runs a
                         scenario of xtask/guest, or a shell; --refresh takes the newest packages
  install --check [--release]
                         installs the command mlx5 into target/install/root, as `cargo install` does, and
                         runs every block of docs/tools.md with it
  deb [--check [--keyring FILE] [SUITE ...]]
                         the command mlx5 and the C interface as Debian packages in target/debian; --check
                         looks at them with lintian, and installs them in a new root folder, as root, or in
                         one of each suite
  c-library --prefix DIR | --check
                         libmlx5direct with header, pkg-config and CMake files, below DIR; --check compiles
                         programs with them by gcc, clang and CMake, and runs these on the model
  pictures [MLX5]        the pictures of docs/tools.md, from runs of the command on the model: of the
                         executable MLX5, or of one that is built; needs Debian's packages bsdutils
                         and chromium
  book                   the pages of docs/ as a searchable book, in target/book; installs mdBook
                         into target/tools
  ci [--check NAME]      the gate: the checks that every change has to pass; with NAME only one, of
                         the gate or of the deep tier. CONTRIBUTING.md lists them
  ci --deep [--results FILE] [--list] [NAME ...]
                         the deep tier: all other checks, or those named. A check that passed with the
                         files as they are is not run again: its result is in FILE, or else in
                         target/ci/deep.tsv. --list prints what is left, and runs nothing

`miri`, `asan`, `arm64`, `msrv`, `api`, `release` and `ci` install the toolchain that they need by rustup, where
it is missing.

`demo`, `run`, `test`, `bench` and `ci` first install what they need and the machine lacks. As root,
or where sudo asks for no password, apt-get does so; otherwise the line to run is printed. Where
nothing is missing, nothing is installed and the network is left alone.

LIBCLANG_PATH, CARGO_TARGET_DIR and an existing LD_PRELOAD are respected.
";

/// The result of a command. The error is a sentence with cause and cure, for the person at the
/// terminal.
type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        match std::env::args_os().skip(1).map(|a| a.into_string()).collect() {
            Ok(arguments) => arguments,
            Err(argument) => {
                eprintln!("error: the argument {argument:?} is not UTF-8");
                return ExitCode::from(2);
            }
        };
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    let before_program: Vec<&str> =
        rest.iter().map(String::as_str).take_while(|argument| *argument != "--").collect();
    if before_program.contains(&"--help") || before_program.contains(&"-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let outcome = match command.as_str() {
        "setup" => no_arguments(command, rest).and_then(|()| setup::command()),
        "demo" => demo::command(rest),
        "run" => preload::command(rest),
        "test" => test::command(rest),
        "quick" => quick::command(rest),
        "soak" => soak::command(rest),
        "torture" => torture::command(rest),
        "conform" => conform::command(rest),
        "evidence" => evidence::command(rest),
        "layers" => layers::command(rest),
        "messages" => messages::command(rest),
        "miri" => no_arguments(command, rest).and_then(|()| miri::command()),
        "arm64" => arm64::command(rest),
        "asan" => no_arguments(command, rest).and_then(|()| asan::command()),
        "msrv" => no_arguments(command, rest).and_then(|()| msrv::command()),
        "api" => api::command(rest),
        "bindings" => bindings::command(rest),
        "sideway" => no_arguments(command, rest).and_then(|()| sideway::command()),
        "matrix" => matrix::command(rest),
        "newest" => newest::command(rest),
        "release" => release::command(rest),
        "bench" => bench::command(rest),
        "guest" => guest::command(rest),
        "model-speed" => model_speed::command(rest),
        "install" => install::command(rest),
        "c-library" => c_library::command(rest),
        "deb" => deb::command(rest),
        "book" => no_arguments(command, rest).and_then(|()| book::command()),
        "pictures" => pictures::command(rest),
        "ci" => ci::command(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => Err(format!("there is no command `{unknown}`; see `cargo xtask --help`")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn no_arguments(command: &str, rest: &[String]) -> Result {
    match rest.first() {
        None => Ok(()),
        Some(argument) => Err(format!("`{command}` takes no argument, but got `{argument}`")),
    }
}
