//! Counters of flows, which an Ethernet port has.

use mlx5::devx::Command;
use mlx5::devx::ifc::{
    alloc_flow_counter_in, alloc_flow_counter_out, opcode, query_flow_counter_in,
    query_flow_counter_out, traffic_counter,
};
use mlx5::verbs::Context;
use mlx5_model as _;

use crate::commands::create;
use rig::process::where_it_says;

/// The only test that runs on an Ethernet port.
const NAME: &str = "flow_counters::a_program_makes_a_counter_of_flows_and_asks_for_it";

#[test]
fn a_program_makes_a_counter_of_flows_and_asks_for_it() {
    if let Some(text) = where_it_says("MLX5_MODEL_LINK", "roce", &["--exact", NAME]) {
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let context = Context::open_first().unwrap();
    let alloc = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE);
    let counter = create(&alloc, &context).unwrap();
    let number = counter.reply().get(alloc_flow_counter_out::FLOW_COUNTER_ID);
    let query = |number: u64| {
        Command::new(opcode::QUERY_FLOW_COUNTER, query_flow_counter_in::SIZE)
            .set(query_flow_counter_in::FLOW_COUNTER_ID, number)
            .reply(query_flow_counter_out::SIZE + traffic_counter::SIZE)
    };
    let reply = counter.query(&query(number)).unwrap();
    assert_eq!(reply.as_bytes()[query_flow_counter_out::SIZE..], [0; traffic_counter::SIZE]);
    counter.query(&query(number + 1)).expect_err("the counter of another handle");
    counter.destroy().unwrap();
}
