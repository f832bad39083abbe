//! rdma-core's own Python tests, unmodified, on the model.

mod support;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::Model;
use support::process::{Output, Process};

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

/// They take seconds; a hang takes for ever.
const LIMIT: Duration = Duration::from_secs(300);

/// The tests that may be skipped, with reasons: one `test: reason` a line.
const SKIPS: &str = include_str!("pyverbs_skips.txt");

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
        unpacked
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

#[test]
fn rdma_cores_python_tests() {
    let unpacked = Unpacked::new();
    let runner = "run_tests.py";
    let first = run(&unpacked, Model::default(), runner, MODULES);
    let second = run(&unpacked, Model { roce: true, mode: None }, runner, ON_ETHERNET);
    let reports = [&first.stderr, &second.stderr];
    let skips = skips_of_all(&reports);

    let allowed: BTreeSet<&str> = SKIPS.lines().filter(|line| !line.starts_with('#')).collect();
    let new: Vec<&String> = skips.iter().filter(|skip| !allowed.contains(skip.as_str())).collect();
    assert!(
        new.is_empty(),
        "tests are skipped that model/tests/pyverbs_skips.txt does not list:\n{new:#?}"
    );
    let ran: usize = reports.map(|report| ran(report)).iter().sum();
    assert!(ran > allowed.len(), "only {ran} tests ran");
    println!("{ran} tests, {} skipped", skips.len());
}

/// Runs modules of tests to their end, which must be a good one.
fn run(unpacked: &Unpacked, model: Model, runner: &str, modules: &[&str]) -> Output {
    let mut command = model.command(PYTHON);
    command.current_dir(&unpacked.0).args([runner, "--dev", "mlx5_0", "-v"]).args(modules);
    let output = Process::start("rdma-core's tests", command).finish(LIMIT);
    output.assert_success();
    let counted: usize = output
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("OK (skipped=")?.strip_suffix(')')?.parse().ok())
        .unwrap_or(0);
    let skips = skips(&output.stderr);
    assert_eq!(skips.len(), counted, "the skips found are those unittest counted: {output}");
    output
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
