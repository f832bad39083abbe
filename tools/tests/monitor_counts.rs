//! Instructions that `mlx5 monitor` adds to a post and to a poll, counted by callgrind: all that its library
//! executes, on the model. The page says these numbers too.

mod rig;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use rig::folder::Folder;
use rig::{finish, mlx5};

/// Requests of a run. Those that begin to build something count as well, so not a few.
const TIMES: u64 = 64;

/// Instructions of a run.
#[derive(Debug)]
struct Counts {
    post: u64,
    poll: u64,
    /// Polls that found nothing.
    empty: u64,
}

/// Runs the program in a way, and counts.
fn count(way: &str) -> Counts {
    let folder = Folder::new("monitor-counts");
    let (program, profile) = (folder.file("counted"), folder.file("profile"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/counted.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    finish(compiler.arg(&program).args([source, "-libverbs"]), 0);
    // Threads that wait for each other need their turns.
    let valgrind = ["monitor", "--", "valgrind", "-q", "--fair-sched=yes", "--tool=callgrind"];
    let mut command = mlx5(&valgrind);
    command.arg(format!("--callgrind-out-file={}", profile.display()));
    command.arg(&program).args([way, &TIMES.to_string()]);
    let printed = finish(command.env("MLX5_MODEL_MODE", "polled"), 0);
    let empty = printed.out.trim().strip_prefix("empty ").expect("a count").parse().unwrap();
    let of = costs(&fs::read_to_string(profile).expect("a profile"));
    let sum = |modules: &[&str]| -> u64 {
        let is_of = |name: &str| modules.iter().any(|module| name.contains(module));
        of.iter().filter(|(name, _)| is_of(name)).map(|(_, cost)| cost).sum()
    };
    Counts {
        post: sum(&["::post::", "::extended::wr_"]),
        poll: sum(&["::poll::", "::settle::", "_poll"]),
        empty,
    }
}

/// The instructions of the library's functions, those of functions that they call left out.
fn costs(profile: &str) -> BTreeMap<String, u64> {
    let (mut objects, mut functions) = (BTreeMap::new(), BTreeMap::new());
    let (mut object, mut function, mut is_call) = (String::new(), String::new(), false);
    let mut costs = BTreeMap::new();
    for line in profile.lines() {
        // Those of the file's head and end, such as its sums, belong to no function.
        if line.contains(':') && !line.contains('=') {
            continue;
        }
        match line.split_once('=') {
            Some(("ob", name)) => object = named(&mut objects, name),
            Some(("cob", name)) => drop(named(&mut objects, name)),
            Some(("fn", name)) => function = named(&mut functions, name),
            Some(("cfn", name)) => drop(named(&mut functions, name)),
            Some(("calls", _)) => is_call = true,
            Some(_) => {}
            // The cost of a call is that of what is called.
            None if std::mem::take(&mut is_call) => {}
            None if object.contains("libmlx5_monitor") => {
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
                *costs.entry(function.clone()).or_default() += cost.unwrap_or(0);
            }
            None => {}
        }
    }
    costs
}

/// A name of a profile: `(number) name` the first time, `(number)` afterwards.
fn named(names: &mut BTreeMap<String, String>, text: &str) -> String {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(text).cloned().unwrap_or_default(),
    }
}

/// Holds instructions per post, per poll that finds a completion, and per poll that finds nothing.
fn holds(way: &str, empty_way: &str, receives: bool, [post, poll, nothing]: [u64; 3]) {
    let empty = count(empty_way);
    assert_eq!(empty.empty, TIMES, "{empty:?}");
    let each = empty.poll / TIMES;
    let counts = count(way);
    // A receive is posted and polled as well.
    let times = if receives { 2 * TIMES } else { TIMES };
    let polled = (counts.poll - counts.empty * each) as f64 / times as f64;
    let posted = counts.post as f64 / times as f64;
    println!(
        "{way}: {posted:.1} a post, {polled:.1} a completion, {each} a poll that finds nothing"
    );
    assert!(posted <= post as f64, "{way}: {posted} a post");
    assert!(polled <= poll as f64, "{way}: {polled} a completion");
    assert!(each <= nothing, "{way}: {each} a poll that finds nothing");
}

#[test]
fn a_post_and_a_poll_take_few_instructions() {
    holds("signaled", "empty", false, [60, 40, 10]);
}

#[test]
fn an_unsignaled_request_takes_no_more() {
    holds("unsignaled", "empty", false, [60, 40, 10]);
}

#[test]
fn a_receive_takes_no_more() {
    holds("send", "empty", true, [60, 40, 10]);
}

#[test]
fn extended_queues_take_little_more() {
    holds("extended", "extended-empty", false, [60, 72, 20]);
}

#[test]
fn sums_of_a_profile_belong_to_no_function() {
    let profile = "version: 1\nsummary: 900\n\nob=(1) /lib/libmlx5_monitor.so\nfn=(1) a\n1 7\n\
                   cob=(2) /lib/libmlx5.so\ncfn=(2) b\ncalls=1 0\n1 800\n+1 5\n\
                   ob=(2)\nfn=(2)\n1 800\nob=(1)\nfn=(3) c\n* 2\n\ntotals: 900\n";
    let expected = [("a".to_owned(), 12), ("c".to_owned(), 2)];
    assert_eq!(costs(profile), BTreeMap::from(expected));
}
