//! Properties of every command: help, exit statuses, generated files.

mod rig;

use std::fs;

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
fn the_model_is_said_to_be_one() {
    for arguments in [&["info"][..], &["dump"], &["doctor", "--no-traffic"]] {
        let printed = run(arguments, 0);
        let first = printed.out.lines().next().unwrap_or_default();
        assert!(first.starts_with("the model, a software ConnectX"), "{arguments:?}: {first}");
        assert_eq!(run(&[arguments, &["--json"]].concat(), 0).json()["runs_on"], "model");
    }
    assert!(run(&["perf", "lat", "--loopback", "-n", "10"], 0).err.contains("the model"));
    // Also where only the option asks for it.
    let asked = finish(mlx5(&["info", "--model", "--json"]).env("MLX5_MODEL", "never"), 0);
    assert_eq!(asked.json()["runs_on"], "model");
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
    assert!(run(&["decode", "--table", "--json"], 0).json()["runs_on"].is_null());
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

#[test]
fn completions_and_manual_pages_know_the_commands() {
    assert!(run(&["completions", "bash"], 0).out.contains("info"));
    let folder = std::env::temp_dir().join(format!("mlx5-man-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    run(&["man", folder.to_str().unwrap()], 0);
    let page = fs::read_to_string(folder.join("mlx5.1")).unwrap();
    assert!(page.contains("Exit status") && page.contains("info"), "{page}");
    assert!(
        fs::read_to_string(folder.join("mlx5-info.1"))
            .unwrap()
            .replace('\\', "")
            .contains("--device")
    );
    fs::remove_dir_all(&folder).unwrap();
    let missing = run(&["man", folder.to_str().unwrap()], 3);
    assert!(missing.err.contains("no folder"), "{}", missing.err);
}
