//! Commands on Ethernet queues: the queues themselves (`queue`), the interface that a send queue
//! sends through (`tis`), the TIRs that direct packets to receive queues (`tir`), and the tables of
//! receive queues over which TIRs spread packets (`rqt`).

mod queue;
mod rqt;
#[cfg(test)]
mod test;
mod tir;
mod tis;

pub use queue::{
    create_rq, create_sq, destroy_rq, destroy_sq, modify_rq, modify_sq, query_rq, query_sq,
};
pub use rqt::{create_rqt, destroy_rqt, modify_rqt, query_rqt};
pub use tir::{create_tir, destroy_tir, modify_tir, query_tir};
pub use tis::{create_tis, destroy_tis, modify_tis, query_tis};

use mlx5_sys::ifc::Field;

use super::Refusal;

/// Copies fields of the command's context at `given` to `context`, if the command's `bitmask` has
/// their bit. Each of `changes` is a bit and a field that belongs to it.
fn modify(
    input: &[u8],
    bitmask: Field,
    given: Field,
    changes: &[(Field, Field)],
    context: &mut [u8],
) -> Result<(), Refusal> {
    let mask = bitmask.get(input).to_be_bytes();
    let mut left = mask;
    for (bit, field) in changes.iter().filter(|(bit, _)| bit.get(&mask) == 1) {
        bit.set(&mut left, 0);
        field.set(context, field.within(given).get(input));
    }
    if left == [0; 8] { Ok(()) } else { Err(Refusal::EthernetModify) }
}
