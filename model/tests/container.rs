//! What containers leave out: `/proc`, `/sys`, places that can be written to. The model works, or says what
//! is missing.

mod support;

use std::process::Command;

use support::process::{Output, Process};
use support::{LIMIT, Model, namespace};

/// Runs a program in a mount namespace of its own, behind commands of a shell that change what is mounted.
fn behind(mounts: &str, program: &str, change: impl FnOnce(&mut Command)) -> Output {
    let mut command = Model { roce: true, mode: None }.command("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mounts} && exec {program}")]);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR");
    change(&mut command);
    namespace::isolate(&mut command);
    Process::start(program, command).finish(LIMIT)
}

const READ_ONLY: &str = "mount -o remount,bind,ro / && mount -t tmpfs -o ro none /tmp && \
                         mount -t tmpfs -o ro none /dev/shm";

#[track_caller]
fn assert_refused(output: &Output, parts: &[&str]) {
    assert!(!output.status.success(), "{output}");
    for part in ["no device is offered"].iter().chain(parts) {
        assert!(output.stderr.contains(part), "no {part:?} in {output}");
    }
}

#[test]
fn without_proc_the_cure_is_named() {
    let output = behind("mount -t tmpfs none /proc", "ibv_devinfo", |_| {});
    assert_refused(&output, &["/proc", "No such file or directory", "mount -t proc proc /proc"]);
}

#[test]
fn without_sys_the_device_is_there() {
    let output = behind("mount -t tmpfs none /sys", "ibv_devinfo", |_| {});
    assert!(output.assert_success().stdout.contains("PORT_ACTIVE"), "{output}");
}

#[test]
fn where_nothing_can_be_written_each_place_is_named() {
    let output = behind(READ_ONLY, "ibv_devinfo", |_| {});
    let read_only = "Read-only file system";
    let places = ["/tmp", "/dev/shm"].map(|place| format!("{place}: {read_only}"));
    assert_refused(&output, &[&places[0], &places[1], "set XDG_RUNTIME_DIR or TMPDIR"]);
}

#[test]
fn one_place_that_can_be_written_is_enough() {
    let mounts = format!("mount -t tmpfs -o mode=700 none /mnt && {READ_ONLY}");
    for program in ["ibv_devinfo", "rdma link"] {
        let output = behind(&mounts, program, |command| {
            command.env("XDG_RUNTIME_DIR", "/mnt");
        });
        assert!(output.assert_success().stdout.contains("ACTIVE"), "{output}");
    }
}

/// `ls -l` asks for access lists as well.
#[test]
fn the_folders_of_a_device_are_listed_without_a_complaint() {
    let output = Model::default().run("ls", &["-l", "/sys/class/infiniband/mlx5_0/ports/1"]);
    output.assert_success();
    assert_eq!(output.stderr, "");
    assert!(output.stdout.contains("link_layer"), "{output}");
}
