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
    assert!(run(&["info"], 0).err.contains("the model"));
    assert_eq!(run(&["info", "--json"], 0).json()["runs_on"], "model");
    // Also where only the option asks for it.
    let asked = finish(mlx5(&["info", "--model", "--json"]).env("MLX5_MODEL", "never"), 0);
    assert_eq!(asked.json()["runs_on"], "model");
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
