//! The bytes of single WQEs, for operations that libmlx5 does not post.

use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5_sys::dv;
use mlx5_sys::verbs::ibv_qp_type;

use super::Rig;
use super::extended::{ExtendedQp, Shape};
use super::verbs::QpMemory;

/// The WQE of one request, posted to a fresh RC queue.
pub fn written(rig: &Rig, post: impl FnOnce(&mut SendQueue<Rc>)) -> Vec<u8> {
    let cq = rig.cq(64);
    let shape = Shape {
        direct_operations: dv::MLX5DV_QP_EX_WITH_RAW_WQE.into(),
        ..Shape::new(ibv_qp_type::IBV_QPT_RC, 32, 0)
    };
    let qp = ExtendedQp::looped(rig, &cq, &shape);
    let mut completions = CqReader::new(&cq).unwrap();
    // SAFETY: the QP lives to the end of the function, in RTS. No other code posts to it, and
    // doorbells are rung for one post at a time.
    let mut queue =
        unsafe { SendQueue::from_raw(qp.qp(), &mut completions, SendConfig::default()).unwrap() };
    post(&mut queue);
    drop(queue);
    // SAFETY: the QP is alive.
    let ring = unsafe { QpMemory::new(qp.qp()) }.send_ring();
    // SAFETY: the QP is alive.
    let number = unsafe { qp.qp().as_ref() }.qp_num.to_be_bytes();
    assert_eq!(ring[4..7], number[1..]);
    ring[..usize::from(ring[7]) * 16].to_vec()
}

/// Bytes from hexadecimal digits, with anything between them.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}
