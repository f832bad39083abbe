//! Unit tests.

use mlx5_sys::ifc::{opcode, query_special_contexts_out};

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn memory_is_given_where_it_is_free_and_aligned() {
    let mut rig = Rig::new();
    let alloc = Command::alloc_memic(64);
    assert_eq!(rig.run(&alloc).err(), Some(Refusal::MemicRange), "there is none");
    rig.give_memic();
    for (log_alignment, at) in [(0u64, 0), (0, 64), (2, 256)] {
        let alloc = alloc.clone().set(alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT, log_alignment);
        let reply = rig.run(&alloc).unwrap();
        assert_eq!(alloc_memic_out::MEMIC_START_ADDR.get(&reply), Memic::WINDOW + at);
    }
}

#[test]
fn the_special_keys_are_told() {
    let mut rig = Rig::new();
    let query = Command::new(opcode::QUERY_SPECIAL_CONTEXTS, 0x10);
    let reply = rig.run_into(&query, 0x18).unwrap();
    use query_special_contexts_out as r;
    let keys = [r::DUMP_FILL_MKEY, r::RESD_LKEY, r::NULL_MKEY].map(|key| key.get(&reply) as u32);
    assert_eq!(keys, [DUMP_FILL, RESERVED, NULL]);
}
