//! A device whose firmware accepts no commands from programs.

use mlx5::Error;
use mlx5::devx::ifc::{cmd_hca_cap, opcode};
use mlx5::devx::{AsyncCommands, Command, Group};
use mlx5::verbs::{CompletionQueue, Context, Devx};
use mlx5_model as _;

use crate::commands::create;
use crate::rig::process::where_it_says;

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
