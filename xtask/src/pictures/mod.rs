//! `cargo xtask pictures`: makes the pictures of docs/tools.md from runs of the command on the model.
//!
//! Screens of text are drawn by [`screen`]. Chromium takes the picture of a report of `mlx5 perf`. The
//! command is built without optimisation, unless another is given: no figure in a picture says
//! anything of a device.

mod screen;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::setup::{self, For};

/// No picture is larger, so that the pages load fast.
const LARGEST: u64 = 60 << 10;

/// A screen of text.
struct Screen {
    file: &'static str,
    title: &'static str,
    /// The command line in the picture.
    shown: &'static str,
    /// The session of bash that prints what the picture shows.
    session: &'static str,
    columns: usize,
    /// Lines that the picture has at most.
    lines: usize,
}

const SCREENS: [Screen; 2] = [
    Screen {
        file: "doctor.svg",
        title: "mlx5 doctor on a machine whose cable is unplugged",
        shown: "MLX5_MODEL_PORT=polling mlx5 doctor --model",
        session: "MLX5_MODEL_PORT=polling mlx5 doctor --model",
        columns: 92,
        lines: 38,
    },
    Screen {
        file: "trace.svg",
        title: "mlx5 trace of a client of ibv_rc_pingpong: from its memory region to the end of its QP",
        shown: "mlx5 trace --model ibv_rc_pingpong -n 2 localhost",
        session: "port=$((20000 + $$ % 10000))
            mlx5 run ibv_rc_pingpong -n 2 -p $port > /dev/null &
            # Again, until the server listens.
            until mlx5 trace --model -o trace.txt ibv_rc_pingpong -n 2 -p $port localhost \
                > /dev/null 2>&1; do :; done
            wait
            sed -n '/CREATE_MKEY/,/DESTROY_QP/p' trace.txt | grep -v QUERY | fold -s -w $COLUMNS",
        columns: 116,
        lines: 34,
    },
];

/// `cargo xtask pictures [MLX5]`: with that executable, or with one that is built.
pub fn command(arguments: &[String]) -> Result {
    let target = build::target_directory()?;
    let built = target.join("debug/mlx5");
    let mlx5 = match arguments {
        [] => {
            setup::ready(For::Testing)?;
            build::programs(&["--bin", "mlx5"])?;
            built
        }
        [given] => {
            fs::canonicalize(given).map_err(|error| cannot("find", Path::new(given), &error))?
        }
        _ => return Err("usage: cargo xtask pictures [MLX5]".to_owned()),
    };
    let bin = mlx5.parent().unwrap_or(&target);
    let work = target.join("pictures");
    fs::create_dir_all(&work).map_err(|error| cannot("make", &work, &error))?;
    let pictures = build::root().join("docs/pictures");
    for screen in &SCREENS {
        let output = terminal(screen, bin, &work)?;
        let mut lines = screen::read(&output)?;
        if lines.is_empty() {
            return Err(format!("{} printed nothing", screen.shown));
        }
        lines.truncate(screen.lines);
        let svg = screen::draw(screen.shown, screen.title, &lines, screen.columns);
        let file = pictures.join(screen.file);
        fs::write(&file, svg).map_err(|error| cannot("write", &file, &error))?;
        small_enough(&file)?;
    }
    page(bin, &work, &pictures.join("perf.png"))
}

/// Runs a session on a terminal, and returns what it prints.
fn terminal(screen: &Screen, bin: &Path, work: &Path) -> Result<String> {
    let mut script = Command::new("script");
    script.args(["-qec", "stty cols $COLUMNS; bash -e session", "/dev/null"]).current_dir(work);
    let session = work.join("session");
    fs::write(&session, screen.session).map_err(|error| cannot("write", &session, &error))?;
    script.env("COLUMNS", screen.columns.to_string()).env_remove("NO_COLOR");
    script.env("PATH", path_with(bin)).env("SHELL", "/bin/sh").stdin(Stdio::null());
    let output = script.output().map_err(|error| format!("cannot run script: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn path_with(bin: &Path) -> String {
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

/// Measures, and takes a picture of the report's upper part.
fn page(bin: &Path, work: &Path, picture: &Path) -> Result {
    let report = work.join("perf-report.html");
    let mut perf = Command::new(bin.join("mlx5"));
    perf.args(["perf", "lat", "--model", "--loopback", "-o", "write", "-s", "8,512,8K"]);
    perf.args(["-n", "8000", "--report"]).arg(&report).stdout(Stdio::null());
    build::run("mlx5 perf", &mut perf)?;
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    browser.arg("--force-device-scale-factor=0.8");
    browser.args(["--disable-lcd-text", "--window-size=660,820", "--virtual-time-budget=1000"]);
    browser.arg(format!("--user-data-dir={}", work.join("browser").display()));
    browser.arg(format!("--screenshot={}", picture.display()));
    browser.arg(format!("file://{}", report.display())).stdin(Stdio::null());
    let failed = |why: &str| format!("chromium (Debian's package chromium): {why}");
    let output = browser.output().map_err(|error| failed(&error.to_string()))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    small_enough(picture)
}

fn small_enough(file: &Path) -> Result {
    let size = fs::metadata(file).map_err(|error| cannot("read", file, &error))?.len();
    println!("{}: {size} bytes", file.display());
    match size {
        0..=LARGEST => Ok(()),
        _ => Err(format!("{} has more than {LARGEST} bytes", file.display())),
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
