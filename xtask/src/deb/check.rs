//! `cargo xtask deb --check`: lintian, and the packages in a root folder that has nothing else of this
//! project.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::stage::output;
use super::{DEV, Made, TOOLS};
use crate::Result;
use crate::build;
use crate::executables;
use crate::needs;
use crate::roots::{self, Distribution, Wanted};

/// Packages of the programs that docs/tools.md runs, without the package's own dependencies.
const OF_THE_PAGE: &str = "ibverbs-utils,jq,perftest,python3-pyverbs,util-linux,bash,grep,gawk";

/// What programs of C and C++ are built with.
const OF_PROGRAMS: &str = "gcc,g++,libc6-dev,pkg-config";

/// Checks the packages on this machine's distribution, or those named.
///
/// # Errors
/// lintian finds an error, a package does not install, the command is not complete, or a program does
/// not build or fails.
pub(super) fn run(made: &Made, wanted: &Wanted) -> Result {
    if wanted.distributions.is_empty() {
        return here(made, wanted);
    }
    for distribution in &wanted.distributions {
        println!("{} ({})", distribution.name, distribution.suite);
        within(made, wanted, distribution, |root| complete(root).and_then(|()| programs(root)))?;
    }
    Ok(())
}

/// Everything, lintian and the page included.
fn here(made: &Made, wanted: &Wanted) -> Result {
    if !needs::program_exists("lintian") {
        return Err("lintian is not installed: apt-get install lintian".to_owned());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error", "--allow-root", "--tag-display-limit", "0"]);
    build::run("lintian", lintian.args([&made.tools, &made.dev]))?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let own = roots::named(suite.unwrap_or("without VERSION_CODENAME in /etc/os-release"))?;
    within(made, wanted, own, |root| {
        complete(root).and_then(|()| programs(root)).and_then(|()| page(root))
    })
}

/// Installs the packages in a root folder, which is deleted after the check.
fn within(
    made: &Made,
    wanted: &Wanted,
    distribution: &Distribution,
    check: impl FnOnce(&Path) -> Result,
) -> Result {
    let root = made.tools.with_file_name(format!("fresh-{}", distribution.suite));
    let checked = make(&root, made, wanted, distribution).and_then(|()| check(&root));
    roots::delete(&root)?;
    checked
}

/// Makes the root folder and installs the packages. dpkg fails if they name too few others.
fn make(root: &Path, made: &Made, wanted: &Wanted, distribution: &Distribution) -> Result {
    let mut names = BTreeSet::new();
    for package in [&made.tools, &made.dev] {
        let depends = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
        let each = depends.split(',').filter_map(|one| one.split_whitespace().next());
        names.extend(each.map(str::to_owned));
    }
    let names = names.into_iter().collect::<Vec<_>>().join(",");
    println!("a root folder with {names}, {OF_THE_PAGE}, {OF_PROGRAMS}");
    let packages = format!("{names},{OF_THE_PAGE},{OF_PROGRAMS}");
    build::run("mmdebstrap", wanted.mmdebstrap(distribution, &packages, root)?.arg("--quiet"))?;
    // Every machine has this file; programs of the page connect to localhost.
    let hosts = root.join("etc/hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n")
        .map_err(|error| format!("{}: {error}", hosts.display()))?;
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display())).arg("--install");
    dpkg.args([&made.tools, &made.dev]);
    build::run("dpkg --install", &mut dpkg)
}

/// A command in the root folder, with the checkout at its path and an empty environment.
fn enter(root: &Path, words: &[&str]) -> Command {
    let checkout = build::root();
    let mut command = roots::enter(root, &[(&checkout, &checkout)]);
    command.args(["/usr/bin/env", "-i"]).args(words);
    command
}

/// Checks that the command, its pages and the library are there and work.
fn complete(root: &Path) -> Result {
    let shown = output(&mut enter(root, &["/usr/bin/mlx5", "run", "--", "ibv_devinfo"]))?;
    let preloaded = output(&mut enter(
        root,
        &["LD_PRELOAD=/usr/lib/mlx5/libmlx5_model.so", "MLX5_MODEL=always", "/usr/bin/ibv_devinfo"],
    ))?;
    for text in [shown, preloaded] {
        if !text.contains("MLX5-MODEL") {
            return Err(format!("ibv_devinfo shows no model:\n{text}"));
        }
    }
    let listed = output(&mut enter(root, &["/usr/bin/dpkg", "-L", TOOLS.name]))?;
    for file in ["/usr/share/man/man1/mlx5-perf-lat.1.gz", "/usr/share/doc/mlx5-tools/copyright"] {
        if !listed.lines().any(|line| line == file) {
            return Err(format!("the package does not contain {file}"));
        }
    }
    Ok(())
}

/// Builds programs of C and C++ with the installed interface, and runs them on the model.
fn programs(root: &Path) -> Result {
    for folder in ["tests/direct", "tests/ring", "examples"] {
        let mut cp = Command::new("cp");
        cp.arg("-r").arg(build::root().join("c").join(folder)).arg(root);
        build::run("cp", &mut cp)?;
    }
    let what = format!("programs with {} in the root folder", DEV.name);
    build::run(&what, &mut enter(root, &["PATH=/usr/bin:/bin", "sh", "-e", "-c", PROGRAMS]))
}

/// As a new user does it.
const PROGRAMS: &str = r#"
cd /
flags=$(pkg-config --cflags --libs mlx5direct)
cc -D_GNU_SOURCE direct/direct.c $flags -lmlx5 -libverbs -o direct/program
mlx5 run -- direct/program rc
cc -D_GNU_SOURCE ring/ring.c -lmlx5 -libverbs -o ring/program
mlx5 run -- ring/program inline
c++ -std=c++17 examples/rc_pingpong.cc $flags -libverbs -o examples/rc_pingpong
mlx5 run -- examples/rc_pingpong 100 64 0 >server.txt &
until grep -q port server.txt; do
	kill -0 $!
	sleep 0.1
done
mlx5 run -- examples/rc_pingpong 127.0.0.1 100 64 "$(sed 's/.* //;q' server.txt)"
wait $!
export MLX5_MODEL_LINK=roce
c++ -std=c++17 examples/feed.cc $flags -libverbs -o examples/feed
mlx5 run -- examples/feed 239.9.8.7 9000 300 >feed.txt &
until grep -q listening feed.txt; do
	kill -0 $!
	sleep 0.1
done
mlx5 run -- examples/feed -p 239.9.8.7 9000 300
wait $!
grep '^300 messages, 0 missing' feed.txt
"#;

/// Runs docs/tools.md with the installed command.
fn page(root: &Path) -> Result {
    let mut cargo = build::cargo("test");
    cargo.args(["--workspace", "--test", "worked"]);
    for test in executables::build(cargo)? {
        fs::copy(&test.path, root.join("worked"))
            .map_err(|error| format!("cannot copy {}: {error}", test.path.display()))?;
        let installed = "MLX5_WORKED_COMMAND=/usr/bin/mlx5";
        let page = "the_page_shows_what_the_commands_print";
        let mut command = enter(root, &[installed, "/worked", page]);
        build::run("the page docs/tools.md in the root folder", &mut command)?;
    }
    Ok(())
}
