//! rdma-core's own Python tests, unmodified, on the model.

mod support;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::process::{Output, Process};
use support::{Model, namespace};

/// The folder of the tests in Debian's python3-pyverbs, the larger ones gzipped.
const INSTALLED: &str = "/usr/share/doc/rdma-core/tests";

/// Their bindings are built for the distribution's interpreter alone.
const PYTHON: &str = "/usr/bin/python3";

const MODULES: &[&str] = &[
    "tests.test_device",
    "tests.test_pd",
    "tests.test_mr",
    "tests.test_cq",
    "tests.test_cq_events",
    "tests.test_qp",
    "tests.test_atomic",
    "tests.test_qpex",
    "tests.test_cqex",
    "tests.test_addr",
    "tests.test_relaxed_ordering",
    "tests.test_fork",
    "tests.test_parent_domain",
    "tests.test_shared_pd",
    "tests.test_mlx5_mkey",
    "tests.test_odp",
    "tests.test_mlx5_uar",
    "tests.test_mlx5_dma_memcpy",
    "tests.test_mlx5_raw_wqe",
    "tests.test_tag_matching",
    "tests.test_mlx5_dc",
    "tests.test_mlx5_cq",
    "tests.test_mlx5_timestamp",
    "tests.test_mlx5_devx",
    "tests.test_mlx5_huge_page",
    "tests.test_mlx5_dm_ops",
    "tests.test_mlx5_query_port",
    "tests.test_mlx5_udp_sport",
    "tests.test_mlx5_pp",
    "tests.test_mlx5_var",
];

/// Modules that rdma-core has got since version 44. They run on both links, if they are there.
const NEWER: &[&str] = &[
    "tests.test_buf",
    "tests.test_dmah",
    "tests.test_mlx5_devx_async_events",
    "tests.test_mlx5_dmabuf",
    "tests.test_mlx5_ooo_qp",
    "tests.test_mlx5_rdma_ctrl",
    "tests.test_phc_timestamp",
    "tests.test_srq",
];

/// They take seconds; a hang takes for ever.
const LIMIT: Duration = Duration::from_secs(300);

/// The tests that may be skipped, with reasons: one `test: reason` a line.
const SKIPS: &str = include_str!("pyverbs_skips.txt");

/// Tests that fail, and the error of each.
const FAILURES: &[(&str, &str)] = &[
    // Devices without flow tables of RDMA packets fail it, too: it does not ask for the capability.
    (
        "tests.test_mlx5_flow.Mlx5MatcherTest.test_flow_table_drop",
        "Failed to create DevX object. Errno: 121, Remote I/O error",
    ),
];

/// A copy of the tests that goes away with the value.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new() -> Self {
        assert!(
            Path::new(INSTALLED).join("run_tests.py").is_file(),
            "rdma-core's Python tests are not in {INSTALLED}: run `cargo xtask setup`, or \
             `apt-get install python3-pyverbs python3-scapy` (with dpkg's \
             --path-include=/usr/share/doc/rdma-core/* where documentation is left out)"
        );
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mlx5-model-pyverbs-{}-{number}", process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a new temporary folder");
        let unpacked = Self(folder);
        for entry in fs::read_dir(INSTALLED).expect("the folder of the tests") {
            let path = entry.expect("an entry of the folder").path();
            let name = path.file_name().expect("an entry has a name");
            fs::copy(&path, unpacked.0.join(name)).expect("copying a test");
            if path.extension().is_some_and(|extension| extension == "gz") {
                let unzipped = Command::new("gzip").arg("-d").arg(unpacked.0.join(name)).status();
                assert!(unzipped.expect("gzip is there").success());
            }
        }
        fs::write(unpacked.0.join(STARTER), FORKING).expect("a new file");
        unpacked
    }

    /// Whether a module is among the tests.
    fn has(&self, module: &str) -> bool {
        let name = module.strip_prefix("tests.").expect("a module of the tests");
        self.0.join(name).with_extension("py").is_file()
    }

    /// Python's arguments for modules of tests.
    fn arguments<'a>(&self, runner: &'a str, modules: &[&'a str]) -> Vec<&'a str> {
        [&[STARTER, runner, "--dev", "mlx5_0", "-v"], modules].concat()
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        // A copy left behind in the temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Test modules that run again on an Ethernet link: they use features that InfiniBand lacks.
const ON_ETHERNET: &[&str] = &[
    "tests.test_qp",
    "tests.test_addr",
    "tests.test_flow",
    "tests.test_rss_traffic",
    "tests.test_mlx5_flow",
    "tests.test_mlx5_timestamp",
    "tests.test_mlx5_devx",
    "tests.test_mlx5_udp_sport",
];

/// Runs the tests of connections. These take the IP address to connect by from the device's network
/// interface. That of the model is a view, which `ip` does not know, so this names the address of `lo`.
const RUN_ON_LOOPBACK: &str = "\
import os, unittest
from importlib.machinery import SourceFileLoader
from args_parser import parser
folder = os.path.dirname(os.path.abspath(__file__))
tests = SourceFileLoader('tests', os.path.join(folder, '__init__.py')).load_module()
from tests.base import RDMATestCase
def address(self, dev, port, index):
    self.args.append([dev, port, index, '127.0.0.1', '00:00:00:00:00:00'])
RDMATestCase._get_ip_mac = address
parser.parse_args()
unittest.main(module=tests)
";

/// Starts processes by fork, as Python did before 3.14, and runs a script. Some tests start one with
/// themselves as argument, and what Python does since cannot pass them.
const FORKING: &str = "\
import multiprocessing, os, runpy, sys
multiprocessing.set_start_method('fork')
sys.argv = sys.argv[1:]
runpy.run_path(os.path.abspath(sys.argv[0]), run_name='__main__')
";

/// The file of it.
const STARTER: &str = "run_forking.py";

/// Makes an interface that a port can be on, and runs its arguments.
const ON_AN_INTERFACE: &str = "\
ip link add d0 type veth peer name d1 && ip address add 192.0.2.1/24 dev d0 && \
ip link set lo up && ip link set d0 up && ip link set d1 up && exec \"$@\"";

/// The skips that are known, and why.
const CONNECTION_SKIPS: &[&str] = &[];

#[test]
fn rdma_cores_python_tests_of_connections() {
    /// Passes on both links together.
    const LEAST: usize = 20;
    let unpacked = Unpacked::new();
    let runner = "run_on_loopback.py";
    fs::write(unpacked.0.join(runner), RUN_ON_LOOPBACK).expect("a new file");
    let links = [false, true].map(|roce| Model { roce, mode: None });
    let reports = links.map(|model| run(&unpacked, model, runner, &["tests.test_rdmacm"]));
    let reports = reports.each_ref().map(|report| &report.stderr);
    assert_eq!(
        skips_of_all(&reports),
        CONNECTION_SKIPS.iter().map(|skip| (*skip).into()).collect()
    );
    let passed: usize = reports.iter().map(|report| passes(report).len()).sum();
    assert!(passed >= LEAST, "only {passed} tests passed");
}

/// On a port with a real interface, as a user gets it in a namespace of their own: as they are.
#[test]
fn rdma_cores_python_tests_of_connections_by_an_interface() {
    /// The skips, in part of later versions alone.
    const SKIPS: &[&str] = &[
        "tests.test_mlx5_rdmacm.ReservedQPTest.test_reservered_qpn: Alloc reserved QP number is not supported",
        "tests.test_mlx5_rdmacm.Mlx5CMTestCase.test_rdmacm_async_traffic_dc_external_qp: SkipTest occurred on passive side",
        "tests.test_mlx5_rdmacm.Mlx5CMTestCase.test_rdmacm_async_traffic_dc_external_qp: SkipTest occurred on active side",
    ];
    /// Passes at the least.
    const LEAST: usize = 10;
    let unpacked = Unpacked::new();
    let modules = ["tests.test_rdmacm", "tests.test_mlx5_rdmacm"];
    let mut command = Model { roce: true, mode: None }.command("sh");
    command.current_dir(&unpacked.0).env("MLX5_MODEL_NETWORK", "machine:d0");
    command.args(["-c", ON_AN_INTERFACE, "sh", PYTHON]);
    command.args(unpacked.arguments("run_tests.py", &modules));
    namespace::isolate(&mut command);
    let report = finish(command).stderr;
    let skips = skips_of_all(&[&report]);
    assert!(skips.iter().all(|skip| SKIPS.contains(&skip.as_str())), "{skips:#?}");
    let passed = passes(&report).len();
    assert!(passed >= LEAST, "only {passed} tests passed: {report}");
}

#[test]
fn rdma_cores_python_tests() {
    let unpacked = Unpacked::new();
    let runner = "run_tests.py";
    let newer = NEWER.iter().copied().filter(|module| unpacked.has(module));
    let modules: [Vec<&str>; 2] = [MODULES, ON_ETHERNET]
        .map(|modules| modules.iter().copied().chain(newer.clone()).collect());
    let first = run(&unpacked, Model::default(), runner, &modules[0]);
    let second = run(&unpacked, Model { roce: true, mode: None }, runner, &modules[1]);
    let reports = [&first.stderr, &second.stderr];
    let skips = skips_of_all(&reports);

    let allowed: BTreeSet<&str> = SKIPS.lines().filter(|line| !line.starts_with('#')).collect();
    let new: Vec<&String> = skips.iter().filter(|skip| !allowed.contains(skip.as_str())).collect();
    assert!(
        new.is_empty(),
        "tests are skipped that model/tests/pyverbs_skips.txt does not list:\n{new:#?}"
    );
    let ran: usize = reports.map(|report| ran(report)).iter().sum();
    assert!(ran > 3 * skips.len(), "only {ran} tests ran, {} were skipped", skips.len());
    println!("{ran} tests, {} skipped", skips.len());
}

/// Runs modules of tests to their end, which must be a good one.
fn run(unpacked: &Unpacked, model: Model, runner: &str, modules: &[&str]) -> Output {
    let mut command = model.command(PYTHON);
    command.current_dir(&unpacked.0).args(unpacked.arguments(runner, modules));
    finish(command)
}

/// Runs tests to their end, which must be a good one but for the failures that are listed.
fn finish(command: Command) -> Output {
    let output = Process::start("rdma-core's tests", command).finish(LIMIT);
    let [failures, errors, skipped] = counts(&output.stderr);
    let listed = failed(&output.stderr).len();
    assert_eq!(errors + failures, listed, "failures that are not listed: {output}");
    assert_eq!(output.status.success(), listed == 0, "{output}");
    let skips = skips(&output.stderr);
    assert_eq!(skips.len(), skipped, "the skips found are those unittest counted: {output}");
    output
}

/// How many tests failed, ended by an error, and were skipped: "OK (skipped=40)" or
/// "FAILED (failures=1, skipped=53)".
fn counts(report: &str) -> [usize; 3] {
    let last =
        report.lines().rev().find(|line| line.starts_with("OK") || line.starts_with("FAILED"));
    let last = last.unwrap_or_else(|| panic!("no result: {report}"));
    ["failures", "errors", "skipped"].map(|name| {
        let count = last.split_once(&format!("{name}=")).map(|(_, rest)| {
            let end = rest.find([',', ')']).expect("a list in parentheses");
            rest[..end].parse().expect("a number")
        });
        count.unwrap_or(0)
    })
}

/// The tests that failed as [`FAILURES`] has them: "ERROR: test_a (tests.test_mr.MRTest.test_a)", and the
/// error before the next one.
fn failed(report: &str) -> BTreeSet<&'static str> {
    let parts =
        report.split("======================================================================");
    let failed = parts.skip(1).filter_map(|part| {
        let title = part.trim_start().lines().next()?;
        let name = test_name(title.strip_prefix("ERROR: ").or(title.strip_prefix("FAIL: "))?)?;
        let listed = FAILURES.iter().find(|(test, error)| *test == name && part.contains(error))?;
        Some(listed.0)
    });
    failed.collect()
}

/// How many tests unittest reports on stderr: "Ran 120 tests in 1.2s", then "OK (skipped=40)" or
/// "OK".
fn ran(report: &str) -> usize {
    report
        .lines()
        .find_map(|line| line.strip_prefix("Ran ")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("no count of tests: {report}"))
}

/// Returns the skipped tests that passed in no report. A test that one link cannot have has been
/// run if it passed on the other link.
fn skips_of_all(reports: &[&String]) -> BTreeSet<String> {
    let passed: BTreeSet<String> = reports.iter().flat_map(|report| passes(report)).collect();
    let skipped = reports.iter().flat_map(|report| skips(report));
    let test = |skip: &String| skip.split_once(": ").map(|(test, _)| test.to_owned());
    skipped.filter(|skip| !test(skip).is_some_and(|test| passed.contains(&test))).collect()
}

/// The tests that passed, by name.
fn passes(report: &str) -> BTreeSet<String> {
    let mut passes = BTreeSet::new();
    let mut test = String::new();
    for line in report.lines() {
        if let Some(name) = test_name(line) {
            test = name;
        }
        // Programs that a test runs write between the two: `ip` does not know a view.
        if line == "ok" || line.ends_with("... ok") {
            passes.insert(test.clone());
        }
    }
    passes
}

/// The skips in unittest's verbose report, as `test: reason`, each once.
fn skips(report: &str) -> BTreeSet<String> {
    let mut skips = BTreeSet::new();
    let mut test = String::new();
    for line in report.lines() {
        if let Some(name) = test_name(line) {
            test = name;
        }
        let Some((_, reason)) = line.rsplit_once("skipped ") else { continue };
        // A Python string literal, in whichever quotes it does not contain.
        let quoted = |quote| reason.strip_prefix(quote)?.strip_suffix(quote);
        if let Some(reason) = quoted('\'').or_else(|| quoted('"')) {
            skips.insert(format!("{test}: {reason}"));
        }
    }
    skips
}

/// The full name in "test_open (tests.test_device.DeviceTest.test_open) ... ok"; before Python
/// 3.11 the parentheses do not repeat the method.
fn test_name(line: &str) -> Option<String> {
    let (method, rest) = line.split_once(" (")?;
    let (name, _) = rest.split_once(')')?;
    if !name.starts_with("tests.") || method.contains(' ') {
        return None;
    }
    let repeated = name.ends_with(&format!(".{method}"));
    Some(if repeated { name.to_owned() } else { format!("{name}.{method}") })
}

#[test]
fn skips_are_found_in_unittests_report() {
    let report = "test_a (tests.test_mr.MRTest.test_a)\n\
                  What it does. ... skipped 'no such capability'\n\
                  test_b (tests.test_mr.MRTest.test_b) ... ok\n\
                  test_c (tests.test_mr.MRTest) ... skipped \"isn't there\"\n";
    let expected = [
        "tests.test_mr.MRTest.test_a: no such capability",
        "tests.test_mr.MRTest.test_c: isn't there",
    ];
    assert_eq!(skips(report), expected.map(str::to_owned).into());
}

#[test]
fn failures_are_counted_and_found_by_test_and_error() {
    let (test, error) = FAILURES[0];
    let method = test.rsplit_once('.').unwrap().1;
    let line = "======================================================================";
    let report = format!("{line}\nERROR: {method} ({test})\n----\nPyverbsRDMAError: {error}\n");
    assert_eq!(failed(&report), [test].into());
    assert_eq!(failed(&report.replace("Errno: 121", "Errno: 5")), [].into());
    assert_eq!(failed(&report.replace("test_mlx5_flow", "test_mr")), [].into());
    assert_eq!(counts("ok\nFAILED (failures=1, errors=2, skipped=53)\n"), [1, 2, 53]);
    assert_eq!(counts("OK (skipped=4)\n"), [0, 0, 4]);
    assert_eq!(counts("OK\n"), [0; 3]);
}

#[test]
fn a_test_that_passed_on_one_link_is_not_skipped() {
    let one = "test_a (tests.test_qp.QPTest.test_a) ... skipped 'no Ethernet'\n\
               test_b (tests.test_qp.QPTest.test_b) ... skipped 'no such thing'\n"
        .to_owned();
    let other = "test_a (tests.test_qp.QPTest.test_a)\nWhat it does. ... No such device\nok\n\
                 test_b (tests.test_qp.QPTest.test_b) ... skipped 'no such thing'\n"
        .to_owned();
    let left = ["tests.test_qp.QPTest.test_b: no such thing".to_owned()];
    assert_eq!(skips_of_all(&[&one, &other]), left.into());
}
