//! Properties of every command: help, exit statuses, generated files.

mod rig;

use std::fs;

use rig::folder::Folder;
use rig::{Printed, finish, mlx5, run};

#[test]
fn help_lists_the_commands_and_how_they_end() {
    let help = run(&["--help"], 0).out;
    for word in ["info", "completions", "man", "Exit status:", "--json", "--model"] {
        assert!(help.contains(word), "{word} in {help}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    assert!(run(&["inform"], 2).err.contains("inform"));
}

#[test]
fn a_device_that_is_not_there_ends_with_3_and_names_those_that_are() {
    let Printed { err, out, .. } = run(&["info", "--json", "--device", "mlx5_77"], 3);
    assert!(err.contains("mlx5_77") && err.contains("mlx5_0"), "{err}");
    let failed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(failed["error"].as_str().unwrap().contains("mlx5_77"), "{out}");
}

#[test]
fn a_wrong_command_line_is_told_in_json_too() {
    let wrong = run(&["info", "--json", "--nosuch"], 2);
    assert!(wrong.err.contains("--nosuch"), "{}", wrong.err);
    assert!(wrong.json()["error"].as_str().unwrap().contains("unexpected argument '--nosuch'"));
    assert!(run(&["info", "--nosuch"], 2).out.is_empty());
}

#[test]
fn a_program_to_run_needs_no_dashes_before_it() {
    for before in [&["run"][..], &["trace", "--model"]] {
        let program = ["sh", "-c", "exit 7"];
        run(&[before, &program].concat(), 7);
        run(&[before, &["--"], &program].concat(), 7);
        // Options before the program are those of the command.
        run(&[before, &["-c"], &program].concat(), 2);
    }
}

#[test]
fn the_model_is_said_to_be_one() {
    for arguments in [&["info"][..], &["dump"], &["doctor", "--no-traffic"]] {
        let printed = run(arguments, 0);
        let first = printed.out.lines().next().unwrap_or_default();
        assert!(first.starts_with("the model, a software ConnectX"), "{arguments:?}: {first}");
        assert_eq!(printed.out.lines().nth(1), Some("profile complete, assumed"), "{arguments:?}");
        let json = run(&[arguments, &["--json"]].concat(), 0).json();
        assert_eq!(json["runs_on"], "model");
        assert_eq!(json["profile"], "profile complete, assumed");
    }
    let perf = run(&["perf", "lat", "--loopback", "-n", "10", "--json"], 0);
    assert!(perf.err.contains("the model"), "{}", perf.err);
    assert_eq!(perf.report()["environment"]["profile"], "profile complete, assumed");
    // Of another profile, another is said.
    let other = finish(mlx5(&["info"]).env("MLX5_MODEL_PROFILE", "cx5"), 0);
    assert_eq!(other.out.lines().nth(1), Some("profile cx5, sourced in part"));
    // Also where only the option asks for it.
    let asked = finish(mlx5(&["info", "--model", "--json"]).env("MLX5_MODEL", "never"), 0);
    assert_eq!(asked.json()["runs_on"], "model");
}

#[test]
fn a_file_of_answers_that_cannot_be_written_is_told_before_a_question_is_asked() {
    let folder = Folder::new("answers");
    let file = folder.file("missing/device.toml");
    // A question that asks about RoCE alone would say so on this link.
    let arguments = ["conform", "--only", "counter.adaptive", "--evidence"];
    let Printed { err, .. } = run(&[&arguments[..], &[file.to_str().unwrap()]].concat(), 3);
    assert!(err.contains("cannot write") && err.contains("missing/device.toml"), "{err}");
    assert!(!err.contains("counter.adaptive"), "{err}");
}

/// What makes the kernel offer RDMA devices, if anything does.
fn has_device() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn without_a_device_the_model_is_used_on_request_alone() {
    for (arguments, status) in
        [(&["info"][..], 3), (&["info", "-d", "mlx5_0"], 3), (&["dump"], 3), (&["doctor"], 1)]
    {
        if has_device() {
            continue;
        }
        let without = |arguments: &[&str]| {
            let mut command = mlx5(arguments);
            finish(command.env_remove("MLX5_MODEL"), status)
        };
        let printed = without(arguments);
        let said = format!("{}{}", printed.out, printed.err);
        assert!(said.contains("--model"), "{arguments:?} names the cure: {said}");
        assert!(!said.contains("MLX5-MODEL") && !said.contains("20.35"), "{arguments:?}: {said}");
        let json = without(&[arguments, &["--json"]].concat()).json();
        assert!(json["runs_on"].is_null(), "{arguments:?}: {json}");
    }
}

#[test]
fn a_command_about_texts_runs_on_nothing() {
    let json = run(&["decode", "--table", "--json"], 0).json();
    assert!(json["runs_on"].is_null() && json["profile"].is_null(), "{json:#}");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut command = mlx5(&["info"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(ended.status, Some(0), "{}", ended.err);
}

/// Full names of all commands, such as `mlx5 perf lat`, as the help of each lists them.
fn commands(name: &str) -> Vec<String> {
    let mut words: Vec<&str> = name.split(' ').skip(1).collect();
    words.push("--help");
    let help = run(&words, 0).out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let below = listed.take_while(|line| !line.trim().is_empty()).filter_map(|line| {
        // Names stand two columns in; their texts go on further to the right.
        let name = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        name.split(' ').next().filter(|name| *name != "help")
    });
    let mut all = vec![name.to_owned()];
    all.extend(below.flat_map(|below| commands(&format!("{name} {below}"))));
    all
}

#[test]
fn each_command_has_a_manual_page_and_completions() {
    let commands = commands("mlx5");
    assert!(commands.iter().any(|name| name == "mlx5 perf lat"), "{commands:?}");
    let folder = Folder::new("man");
    run(&["man", folder.path().to_str().unwrap()], 0);
    let scripts = ["bash", "zsh", "fish"].map(|shell| run(&["completions", shell], 0).out);
    for name in &commands {
        let file = folder.file(&format!("{}.1", name.replace(' ', "-")));
        let page = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
        let word = name.rsplit(' ').next().unwrap();
        assert!(scripts.iter().all(|script| script.contains(word)), "{word}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), commands.len());
    let of_all = fs::read_to_string(folder.file("mlx5.1")).unwrap();
    assert!(of_all.contains("Exit status"), "{of_all}");
    // A folder that does not exist is made, and a file is none.
    let made = folder.file("made/man1");
    run(&["man", made.to_str().unwrap()], 0);
    assert_eq!(fs::read_dir(&made).unwrap().count(), commands.len());
    let refused = run(&["man", folder.file("mlx5.1").to_str().unwrap()], 3);
    assert!(refused.err.contains("cannot make the folder"), "{}", refused.err);
}
