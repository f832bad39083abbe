use mlx5_sys::ifc::{alloc_uar_out, dealloc_uar_in, opcode};

use crate::command::test::{Command, Rig};

#[test]
fn a_uar_page_is_freed_before_a_cq_that_a_program_has_left() {
    let mut rig = Rig::new();
    rig.uar = rig.number(&Command::new(opcode::ALLOC_UAR, 0x10), alloc_uar_out::UAR);
    let create = rig.create_cq();
    let destroy = rig.holder(&create);
    let free = Command::new(opcode::DEALLOC_UAR, 0x10).set(dealloc_uar_in::UAR, rig.uar);
    rig.run(&free).unwrap();
    rig.run(&destroy).unwrap();
}
