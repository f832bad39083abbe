//! `mlx5 mesh` with 16 ranks, each on a host of its own (a network namespace), started by `mpirun` of Open
//! MPI, by `mpiexec` of MPICH and by `srun` of Slurm. One link is slow, one lossy, one down; one rank is killed, and one stopped.

#[path = "../../model/tests/support/namespace.rs"]
mod namespace;

mod mesh_ranks;
mod mesh_slurm;
mod mesh_world;
mod rig;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use mesh_ranks::{USUAL, outliers, state};
use mesh_slurm::Slurm;
use mesh_world::relay::{Rule, between};
use mesh_world::{Host, hosts};
use rig::folder::Folder;
use serde_json::Value;

const SIZE: u32 = 16;
const SLOW: (u64, u64) = (2, 5);
const LOSSY: (u64, u64) = (3, 7);
const DOWN: (u64, u64) = (4, 9);
const KILLED: u64 = 12;
const STOPPED: u64 = 13;
/// Set where a test runs in its own namespace.
const INSIDE: &str = "MLX5_MESH_INSIDE";

/// Runs a test in a network namespace of its own, into which `this` takes this program.
fn inside(test: &str, this: fn() -> Command, play: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return play();
    }
    let mut command = this();
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(command.status().unwrap().success(), "{test}: its output is above");
}

/// This program in a network namespace, as root of a user namespace.
fn isolated() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    namespace::isolate(&mut command);
    command
}

/// This program in a network namespace, as root of the machine.
fn isolated_root() -> Command {
    // SAFETY: the call always succeeds.
    let user = unsafe { libc::geteuid() };
    assert_eq!(
        user, 0,
        "slurmctld and slurmd drop groups, which root alone can do: run this as root"
    );
    let mut command = Command::new("unshare");
    command.arg("--net").arg(std::env::current_exe().unwrap());
    command
}

/// Writes the program that the launcher starts: it takes a rank to its host. The launcher does not learn
/// that a rank was killed, but for rank 0, since `mpiexec` of MPICH would kill all others.
fn program(folder: &Folder, hosts: &[Host]) -> String {
    let mut script =
        "#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}\n".to_owned();
    script += "case $rank in\n";
    for (rank, host) in hosts.iter().enumerate() {
        let keeper = host.keeper();
        let _ = writeln!(script, "{rank}) keeper={keeper};;");
    }
    script += "esac\n";
    // At its fourth link.
    let _ = writeln!(
        script,
        "export MLX5_MODEL_FAULTS='{USUAL}'\n\
         [ $rank = {KILLED} ] && export MLX5_MODEL_FAULTS='{USUAL}; command create_qp 7 crash'\n\
         export MLX5_MODEL=always MLX5_MODEL_NETWORK=udp:e0 MLX5_MODEL_LINK=roce\n\
         nsenter -t $keeper -n {} \"$@\" &\n\
         echo $! > {}/process.$rank\n\
         wait $!\n\
         status=$?\n\
         [ $rank = 0 ] && exit $status\n\
         exit 0",
        env!("CARGO_BIN_EXE_mlx5"),
        folder.path().display()
    );
    let file = folder.file("rank");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}

/// The ranks' network, with its impairments.
fn world() -> Vec<Host> {
    let hosts = hosts(SIZE);
    let of = |rank: u64| &hosts[rank as usize];
    between(of(SLOW.0), of(SLOW.1), Rule::Delay(Duration::from_millis(400)));
    between(of(LOSSY.0), of(LOSSY.1), Rule::LoseOneIn(150));
    between(of(DOWN.0), of(DOWN.1), Rule::LoseOneIn(1));
    hosts
}

/// Starts the ranks by a launcher, and returns the report. `command` is the launcher with its options.
fn play(hosts: &[Host], mut command: Command) -> Value {
    let folder = Folder::new("mesh-launcher");
    command.arg(program(&folder, hosts));
    // Time-outs of a second: little is repeated that is not lost.
    command.args(["mesh", "--json", "--meet", &hosts[0].address()]);
    command.args(["--lat=-n 6 -w 1 -e -u 19"]);
    command.args(["--bw=-n 30 -w 2 -s 16K -t 4 -Q 2 -e -u 18", "--directions", "one"]);
    command.args(["--apart", "4", "--wait", "120s", "--patience", "20s", "--link-limit", "60s"]);
    command.env("MLX5_MESH_SECRET", mesh_ranks::SECRET);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let out = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let process = |rank: u64| -> i32 {
        let number = std::fs::read_to_string(folder.file(&format!("process.{rank}")));
        number.unwrap().trim().parse().unwrap()
    };
    let mut going = None;
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        eprintln!("{line}");
        if going.is_none() && line.contains("round ") {
            let (first, stopped) = (process(0), process(STOPPED));
            signal(stopped, libc::SIGSTOP);
            // The launcher waits for all.
            going = Some(std::thread::spawn(move || {
                while std::path::Path::new(&format!("/proc/{first}")).exists() {
                    std::thread::sleep(Duration::from_millis(50));
                }
                signal(stopped, libc::SIGCONT);
            }));
        }
    }
    going.expect("rank 0 told of a round").join().unwrap();
    let text = out.join().unwrap();
    child.wait().unwrap();
    let start = text.find('{').unwrap_or_else(|| panic!("no report in {text}"));
    let mut reports = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    reports.next().unwrap().unwrap()["report"].clone()
}

/// Sends a signal to a rank that has not ended.
fn signal(process: i32, signal: i32) {
    // SAFETY: the rank waits for orders or is stopped, so the number is its own.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

fn check(report: &Value) {
    // Cargo shows it if the test fails.
    println!("{report}");
    let (what, why) = state(report, KILLED as usize);
    assert!(what == "lost" && why.contains("killed"), "{what}: {why}");
    let (what, why) = state(report, STOPPED as usize);
    assert!(what == "lost" && (why.contains("no sign of life") || why.contains("hangs")), "{why}");
    for rank in (0..SIZE as usize).filter(|rank| ![KILLED, STOPPED].contains(&(*rank as u64))) {
        assert_eq!(state(report, rank).0, "present", "rank {rank}");
    }
    assert_eq!(outliers(report), [SLOW, LOSSY], "{:#}", report["outliers"]);
    let of = |pair: (u64, u64), what: &str| {
        report["outliers"].as_array().unwrap().iter().any(|outlier| {
            let (from, to) = (outlier["from"].as_u64().unwrap(), outlier["to"].as_u64().unwrap());
            (from.min(to), from.max(to)) == pair && outlier["what"] == what
        })
    };
    assert!(of(SLOW, "slow") && of(LOSSY, "lossy"), "{:#}", report["outliers"]);
    for link in report["links"].as_array().unwrap() {
        let Some(why) = link["error"].as_str() else { continue };
        let (from, to) = (link["from"].as_u64().unwrap(), link["to"].as_u64().unwrap());
        let lost = [KILLED, STOPPED].iter().any(|rank| [from, to].contains(rank));
        assert!(lost || (from.min(to), from.max(to)) == DOWN, "{from}-{to}: {why}");
    }
    let groups: Vec<&Value> = report["groups"].as_array().unwrap().iter().collect();
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert!(groups.iter().all(|group| group["shared"].is_null()), "{groups:?}");
    assert_eq!(report["schedule"]["rounds"], 15);
}

/// Does so, and checks the report.
fn checked(launcher: &str) {
    let mut words = launcher.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    check(&play(&world(), command));
}

#[test]
fn open_mpi() {
    inside("open_mpi", isolated, || {
        checked("mpirun.openmpi --allow-run-as-root --oversubscribe -x MLX5_MESH_SECRET -np 16");
    });
}

#[test]
fn mpich() {
    inside("mpich", isolated, || checked("mpiexec.mpich -n 16"));
}

#[test]
fn slurm() {
    inside("slurm", isolated_root, || {
        let hosts = world();
        let slurm = Slurm::start();
        let mut command = slurm.command("srun");
        command.args(["-K0", "--overcommit", "-n", "16"]);
        check(&play(&hosts, command));
    });
}
