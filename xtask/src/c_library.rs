//! `cargo xtask c-library`: `libmlx5direct` with its header, and the files by which pkg-config and CMake find it.

mod sanitizers;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::build;
use crate::preload;
use crate::release;
use crate::setup::{self, For};

const USAGE: &str = "usage: cargo xtask c-library --prefix DIR | --check";

/// The number of the binary interface, as in c/build.rs.
pub const INTERFACE: u32 = 0;

/// The headers for programs.
const HEADERS: [&str; 5] = ["mlx5.h", "mlx5.hpp", "mlx5_engine.h", "mlx5_ring.h", "mlx5_wqe.h"];

/// The largest shared library, in bytes.
const MOST_BYTES: u64 = 2 << 20;

/// Libraries that a program needs beside the static one.
const PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// `cargo xtask c-library --prefix DIR | --check`.
pub fn command(arguments: &[String]) -> Result {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--prefix", prefix] => {
            setup::ready(For::Building)?;
            install(Path::new(prefix))
        }
        ["--check"] => {
            setup::ready(For::Testing)?;
            check()
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// Builds the library, and puts it and all that belongs to it below `prefix`. Files name each other by relative
/// paths, so the folder may be moved.
///
/// # Errors
/// The build or the copying fails, or the shared library is too large.
pub fn install(prefix: &Path) -> Result {
    let mut cargo = build::cargo("build");
    cargo.args(["--profile", "c-library", "--locked", "--package", "mlx5-c", "--lib"]);
    build::run("building mlx5-c", &mut cargo)?;
    let built = build::target_directory()?.join("c-library");
    let (version, library) = (release::version()?, prefix.join("lib"));
    for header in HEADERS {
        let header = Path::new("include").join(header);
        copy(&build::root().join("c").join(&header), &prefix.join(&header))?;
    }
    copy(&built.join("libmlx5direct.a"), &library.join("libmlx5direct.a"))?;
    let shared = shared_file()?;
    copy(&built.join("libmlx5direct.so"), &library.join(&shared))?;
    link(&shared, &library.join(format!("libmlx5direct.so.{INTERFACE}")))?;
    link(&shared, &library.join("libmlx5direct.so"))?;
    write(&library.join("pkgconfig/mlx5direct.pc"), &pkg_config(&version))?;
    let cmake = library.join("cmake/mlx5direct");
    write(&cmake.join("mlx5direct-config.cmake"), &cmake_config(&shared))?;
    write(&cmake.join("mlx5direct-config-version.cmake"), &cmake_version(&version))?;
    let bytes = size(&library.join(shared))?;
    println!("{}: the shared library has {bytes} bytes", prefix.display());
    if bytes > MOST_BYTES {
        return Err(format!("the shared library has {bytes} bytes, and {MOST_BYTES} are allowed"));
    }
    Ok(())
}

/// The name of the shared library's file.
///
/// # Errors
/// The workspace names no version.
pub fn shared_file() -> Result<String> {
    Ok(format!("libmlx5direct.so.{}", release::version()?))
}

/// The file for pkg-config.
fn pkg_config(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\n\
         Name: mlx5direct\n\
         Description: data path for NVIDIA ConnectX without libibverbs\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lmlx5direct\n\
         Libs.private: {PRIVATE}\n"
    )
}

/// The targets for CMake: `mlx5direct::mlx5direct` and `mlx5direct::static`.
fn cmake_config(shared: &str) -> String {
    let mut text = String::from(
        "get_filename_component(_mlx5direct \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)\n",
    );
    let private = PRIVATE.split(' ').map(|word| &word[2..]).collect::<Vec<_>>().join(";");
    for (target, kind, file, more) in [
        ("mlx5direct", "SHARED", shared, format!("IMPORTED_SONAME libmlx5direct.so.{INTERFACE}")),
        ("static", "STATIC", "libmlx5direct.a", format!("INTERFACE_LINK_LIBRARIES \"{private}\"")),
    ] {
        text += &format!(
            "if(NOT TARGET mlx5direct::{target})\n  \
               add_library(mlx5direct::{target} {kind} IMPORTED)\n  \
               set_target_properties(mlx5direct::{target} PROPERTIES\n    \
                 IMPORTED_LOCATION \"${{_mlx5direct}}/lib/{file}\"\n    \
                 INTERFACE_INCLUDE_DIRECTORIES \"${{_mlx5direct}}/include\"\n    \
                 {more})\n\
             endif()\n"
        );
    }
    text + "unset(_mlx5direct)\n"
}

/// The version that CMake compares with the one that a program asks for: before 1.0, minor versions
/// differ.
fn cmake_version(version: &str) -> String {
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    format!(
        "set(PACKAGE_VERSION \"{version}\")\n\
         if(\"${{PACKAGE_FIND_VERSION_MAJOR}}.${{PACKAGE_FIND_VERSION_MINOR}}\" VERSION_EQUAL \"{minor}\"\n   \
            AND NOT \"${{PACKAGE_FIND_VERSION}}\" VERSION_GREATER \"{version}\")\n  \
           set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
         endif()\n\
         if(\"${{PACKAGE_FIND_VERSION}}\" VERSION_EQUAL \"{version}\")\n  \
           set(PACKAGE_VERSION_EXACT TRUE)\n\
         endif()\n"
    )
}

/// The check of the deep tier: the library is small, programs find it as users do, and sanitizers find nothing in them.
///
/// # Errors
/// It is too large, or a program does not compile, or fails on the model.
pub fn check() -> Result {
    let folder = build::target_directory()?.join("c-library/check");
    let _ = fs::remove_dir_all(&folder);
    let root = folder.join("root");
    install(&root)?;
    for (compiler, language, standard) in [
        ("cc", "c", "c11"),
        ("c++", "c++", "c++17"),
        ("clang", "c", "c11"),
        ("clang++", "c++", "c++17"),
    ] {
        let source = Source { compiler, language, standard };
        for linking in ["shared", "static"] {
            let program = folder.join(format!("{compiler}-{linking}"));
            source.compile(&root, &program, linking)?;
            run(&program, "rc", &root)?;
        }
        let program = folder.join(format!("{compiler}-header"));
        source.compile_without(&root, &program)?;
        run(&program, "inline", &root)?;
    }
    run(&by_cmake(&folder, &root)?, "rc", &root)?;
    sanitizers::check(&folder, &root)?;
    by_gpu_compilers(&folder, &root)
}

/// Compiles `mlx5_engine.h` for GPUs by clang, which needs no toolkit for that, and looks at the order of the stores
/// of a doorbell.
fn by_gpu_compilers(folder: &Path, root: &Path) -> Result {
    for (language, none, architecture) in [
        ("cuda", ["-nocudainc", "-nocudalib"], "--cuda-gpu-arch=sm_70"),
        ("hip", ["-nogpuinc", "-nogpulib"], "--offload-arch=gfx90a"),
    ] {
        let assembly = folder.join(format!("kernel-{language}.s"));
        let mut clang = Command::new("clang");
        clang.args(["-x", language, "--cuda-device-only", architecture, "-O2", "-S"]).args(none);
        clang.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
        clang.arg(build::root().join("c/tests/engine/kernel.cu")).arg("-o").arg(&assembly);
        build::run(&format!("clang, {language}"), &mut clang)?;
        if language == "cuda" {
            let text = fs::read_to_string(&assembly).map_err(about(&assembly))?;
            doorbell_order(&text).map_err(|order| format!("{}: {order}", assembly.display()))?;
        }
    }
    Ok(())
}

/// Looks for the steps of a doorbell in PTX: the last WQE, a fence, the record, a fence, the register, a fence.
fn doorbell_order(ptx: &str) -> Result {
    let step = |line: &str| match line {
        _ if line.contains("st.volatile.u64") => Some('W'),
        _ if line.contains("st.volatile.u32") => Some('R'),
        // An operand of a call, on a line of its own.
        _ if line.contains("__threadfence_system") && line.ends_with(',') => Some('f'),
        _ => None,
    };
    let steps: String = ptx.lines().map(str::trim).filter_map(step).collect();
    if steps.contains("WfRfWf") { Ok(()) } else { Err(format!("the order of stores is {steps}")) }
}

/// How a compiler takes the program.
struct Source {
    compiler: &'static str,
    language: &'static str,
    standard: &'static str,
}

impl Source {
    /// Compiles `direct.c` with what pkg-config says, every warning an error.
    fn compile(&self, root: &Path, program: &Path, linking: &str) -> Result {
        let mut pkg_config = Command::new("pkg-config");
        pkg_config.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
        pkg_config.args(["--cflags", "--libs", "mlx5direct"]);
        if linking == "static" {
            pkg_config.arg("--static");
        }
        let words = output(&mut pkg_config)?;
        let mut command = self.command(&direct(), program);
        // The static library is chosen by its name.
        for word in words.split_whitespace() {
            match word {
                "-lmlx5direct" if linking == "static" => command.arg("-l:libmlx5direct.a"),
                other => command.arg(other),
            };
        }
        build::run(self.compiler, command.args(["-lmlx5", "-libverbs"]))
    }

    /// Compiles `ring.c`, which needs headers alone.
    fn compile_without(&self, root: &Path, program: &Path) -> Result {
        let mut command = self.command(&ring(), program);
        command.arg("-I").arg(root.join("include"));
        build::run(self.compiler, command.args(["-lmlx5", "-libverbs"]))
    }

    /// The compiler, every warning an error. Libraries follow.
    fn command(&self, source: &Path, program: &Path) -> Command {
        let mut command = Command::new(self.compiler);
        command.args(["-x", self.language, &format!("-std={}", self.standard), "-D_GNU_SOURCE"]);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]).arg(source);
        command.args(["-x", "none", "-o"]).arg(program);
        command
    }
}

fn direct() -> PathBuf {
    build::root().join("c/tests/direct/direct.c")
}

fn ring() -> PathBuf {
    build::root().join("c/tests/ring/ring.c")
}

/// Builds the program by CMake, which finds the library by its version.
fn by_cmake(folder: &Path, root: &Path) -> Result<PathBuf> {
    let (source, made) = (folder.join("cmake"), folder.join("cmake/made"));
    write(
        &source.join("CMakeLists.txt"),
        &format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(direct C)\n\
             find_package(mlx5direct {} REQUIRED)\n\
             add_executable(direct {})\n\
             target_link_libraries(direct mlx5direct::mlx5direct mlx5 ibverbs)\n",
            release::version()?,
            direct().display()
        ),
    )?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(&made);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", root.display()));
    build::run("cmake", &mut configure)?;
    build::run("cmake --build", Command::new("cmake").arg("--build").arg(&made))?;
    Ok(made.join("direct"))
}

/// Runs a scenario of a program on the model.
fn run(program: &Path, scenario: &str, root: &Path) -> Result {
    let mut command = preload::on_model(program)?;
    command.arg(scenario).env("LD_LIBRARY_PATH", root.join("lib"));
    build::run(&program.display().to_string(), &mut command)
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The error of a file.
fn about(path: &Path) -> impl FnOnce(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn folder_of(path: &Path) -> Result {
    path.parent().map_or(Ok(()), |folder| fs::create_dir_all(folder).map_err(about(folder)))
}

fn copy(from: &Path, to: &Path) -> Result {
    folder_of(to)?;
    // A program that has the old one mapped keeps it.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(about(from))
}

fn write(path: &Path, text: &str) -> Result {
    folder_of(path)?;
    fs::write(path, text).map_err(about(path))
}

fn link(target: &str, path: &Path) -> Result {
    let _ = fs::remove_file(path);
    symlink(target, path).map_err(about(path))
}

fn size(path: &Path) -> Result<u64> {
    fs::metadata(path).map(|file| file.len()).map_err(about(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_that_of_the_build_script() {
        let script = fs::read_to_string(build::root().join("c/build.rs")).unwrap();
        assert!(script.contains(&format!("const INTERFACE: u32 = {INTERFACE};")));
    }

    #[test]
    fn the_header_has_the_version_of_the_workspace() {
        let header = fs::read_to_string(build::root().join("c/include/mlx5.h")).unwrap();
        for (name, part) in
            ["MAJOR", "MINOR", "PATCH"].iter().zip(release::version().unwrap().split('.'))
        {
            assert!(header.contains(&format!("#define MLX5_VERSION_{name} {part}\n")), "{name}");
        }
    }

    #[test]
    fn files_name_the_library_by_relative_paths() {
        let text = pkg_config("1.2.3");
        assert!(
            text.starts_with("prefix=${pcfiledir}/../..\n") && text.contains("Version: 1.2.3\n")
        );
        let text = cmake_config("libmlx5direct.so.1.2.3");
        assert!(text.contains("\"${_mlx5direct}/lib/libmlx5direct.so.1.2.3\""), "{text}");
        assert!(text.contains("\"gcc_s;util;rt;pthread;m;dl;c\""), "{text}");
        assert!(cmake_version("0.1.7").contains("VERSION_EQUAL \"0.1\""));
    }

    #[test]
    fn doorbells_of_gpus_are_read_from_ptx() {
        let fence = "\t_Z20__threadfence_systemv, \n";
        let (word, record) =
            ("\tst.volatile.u64 \t[%rd1], %rd2;\n", "\tst.volatile.u32 \t[%rd3], %r4;\n");
        let kernel = [word, word, fence, record, fence, word, fence].concat();
        doorbell_order(&kernel).unwrap();
        let early = [word, fence, word, fence, record].concat();
        assert_eq!(doorbell_order(&early).unwrap_err(), "the order of stores is WfWfR");
    }

    #[test]
    fn without_a_prefix_it_says_how_to_call_it() {
        for words in [&[][..], &["--prefix".to_owned()], &["--check".to_owned(), "x".to_owned()]] {
            assert_eq!(command(words).unwrap_err(), USAGE);
        }
    }
}
