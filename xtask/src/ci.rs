//! `cargo xtask ci`: the order of modules, the tests, then checks that keep the tree tidy.

use crate::Result;
use crate::api;
use crate::bench::{self, Choice};
use crate::build;
use crate::layers;
use crate::miri;
use crate::msrv;
use crate::setup::{self, For};
use crate::steps::Steps;
use crate::test;
use crate::torture::{self, Lint};

/// `cargo xtask ci`.
pub fn command() -> Result {
    let mut steps = Steps::default();
    let mut decision = None;
    steps.step("set-up", || {
        decision = Some(setup::ready(For::Testing)?);
        Ok(())
    });
    let Some(decision) = decision else { return steps.finish("cargo xtask ci") };

    steps.step("cargo xtask layers", layers::check);
    test::add_steps(&mut steps, &decision, &[]);
    steps.step("cargo fmt --check", || {
        build::run("cargo fmt", build::cargo("fmt").args(["--all", "--check"]))
    });
    steps.step("cargo clippy", || {
        let mut command = build::cargo_with("clippy", &decision);
        command.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
        build::run("cargo clippy", &mut command)
    });
    steps.step("cargo doc", || {
        let mut command = build::cargo_with("doc", &decision);
        command.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        build::run("cargo doc", &mut command)
    });
    steps.step("the feature `lint`", || test::check_lint(&decision));
    steps.step("the feature `timing`", || bench::check_timing(&decision));
    steps.step("the feature `phases`", || bench::check_phases(&decision));
    steps.step("the feature `flight-recorder`", || bench::check_flight(&decision));
    steps.step("the feature `unproven`", || test::check_unproven(&decision));
    steps.step("mlx5 perf --compare", || bench::check_compare(&decision));
    steps.step("cargo xtask bench --quick", || bench::run(&decision, Choice::Quick));
    steps.step("cargo xtask torture", || torture::check(&decision, Lint::Off));
    steps.step("cargo xtask torture --lint", || torture::check(&decision, Lint::On));
    steps.step("cargo xtask miri", || miri::check(&decision));
    steps.step("cargo xtask msrv", || msrv::check(&decision));
    steps.step("cargo xtask api", api::check);
    steps.finish("cargo xtask ci")
}
