//! A device whose firmware accepts no commands from programs, and one that gives them no sets of
//! counters.

use mlx5::Error;
use mlx5::devx::ifc::{cmd_hca_cap, opcode, status};
use mlx5::devx::{AsyncCommands, Command, Group, QueueCounters};
use mlx5::verbs::{CompletionQueue, Context, Devx};
use mlx5_model as _;

use crate::commands::create;
use rig::process::where_it_says;

/// The only test that runs where sets of counters are refused: other tests of a process allow them.
const NO_SETS: &str = "refused::firmware_that_gives_programs_no_counters_names_the_ports";

/// Fact E063.
#[test]
fn firmware_that_gives_programs_no_counters_names_the_ports() {
    if let Some(text) = where_it_says("MLX5_MODEL_COUNTER_SETS", "refused", &["--exact", NO_SETS]) {
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let context = Context::open_first().unwrap();
    let error = QueueCounters::new(&context).unwrap_err();
    let text = error.to_string();
    let Error::Refused(refused) = error else { panic!("{text}") };
    assert_eq!((refused.status(), refused.syndrome()), (status::BAD_PARAM_ERR, 0x89_75f1));
    assert!(refused.cause().is_some_and(|cause| text.contains(cause)), "{text}");
    for part in ["ALLOC_Q_COUNTER", "kernel's driver alone", "hw_counters"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    // Other commands are accepted.
    create(&Command::new(opcode::ALLOC_PD, 16), &context).unwrap();
}

/// The only test that runs where commands are refused.
const NAME: &str = "refused::a_context_without_devx_has_verbs_and_capabilities_but_no_commands";

#[test]
fn a_context_without_devx_has_verbs_and_capabilities_but_no_commands() {
    if let Some(text) = where_it_says("MLX5_MODEL_DEVX", "refused", &["--exact", NAME]) {
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let context = Context::open_first().unwrap();
    assert!(matches!(context.devx(), Devx::Refused(_)), "{:?}", context.devx());
    CompletionQueue::new(&context, 16).unwrap();
    let command = Command::new(opcode::QUERY_ADAPTER, 16).reply(0x110);
    let errors = [
        command.query(&context).unwrap_err(),
        create(&Command::new(opcode::ALLOC_PD, 16), &context).unwrap_err(),
        AsyncCommands::new(&context).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::NoDevx { .. }), "{text}");
        assert!(text.contains(&context.name()) && text.contains("CAP_NET_RAW"), "{text}");
    }
    context.capabilities().require(Group::General, cmd_hca_cap::RC, "a connection").unwrap();
}
