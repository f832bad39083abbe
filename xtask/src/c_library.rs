//! `cargo xtask c-library`: `libmlx5direct` with its header, and the files by which pkg-config and CMake find it.

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
const INTERFACE: u32 = 0;

/// The largest shared library, in bytes.
const MOST_BYTES: u64 = 2 << 20;

/// What a program that links the static library needs besides.
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
fn install(prefix: &Path) -> Result {
    let mut cargo = build::cargo("build");
    cargo.args(["--profile", "c-library", "--locked", "--package", "mlx5-c", "--lib"]);
    build::run("building mlx5-c", &mut cargo)?;
    let built = build::target_directory()?.join("c-library");
    let (version, library) = (release::version()?, prefix.join("lib"));
    copy(&build::root().join("c/include/mlx5.h"), &prefix.join("include/mlx5.h"))?;
    copy(&built.join("libmlx5direct.a"), &library.join("libmlx5direct.a"))?;
    let shared = format!("libmlx5direct.so.{version}");
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

/// What CMake compares the version with that a program asks for: before 1.0, minor versions differ.
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

/// The check of the deep tier: the library is small, and programs find it as users do.
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
        for linking in ["shared", "static"] {
            let program = folder.join(format!("{compiler}-{linking}"));
            let source = Source { compiler, language, standard };
            source.compile(&root, &program, linking)?;
            run(&program, &root)?;
        }
    }
    run(&by_cmake(&folder, &root)?, &root)
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
        let mut command = Command::new(self.compiler);
        command.args(["-x", self.language, &format!("-std={}", self.standard), "-D_GNU_SOURCE"]);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]).arg(direct());
        command.args(["-x", "none", "-o"]).arg(program);
        // The static library is chosen by its name.
        for word in words.split_whitespace() {
            match word {
                "-lmlx5direct" if linking == "static" => command.arg("-l:libmlx5direct.a"),
                other => command.arg(other),
            };
        }
        build::run(self.compiler, command.arg("-libverbs"))
    }
}

fn direct() -> PathBuf {
    build::root().join("c/tests/direct/direct.c")
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
             target_link_libraries(direct mlx5direct::mlx5direct ibverbs)\n",
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

/// Runs the program's largest scenario on the model.
fn run(program: &Path, root: &Path) -> Result {
    let mut command = preload::on_model(program)?;
    command.arg("rc").env("LD_LIBRARY_PATH", root.join("lib"));
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
    fn without_a_prefix_it_says_how_to_call_it() {
        for words in [&[][..], &["--prefix".to_owned()], &["--check".to_owned(), "x".to_owned()]] {
            assert_eq!(command(words).unwrap_err(), USAGE);
        }
    }
}
