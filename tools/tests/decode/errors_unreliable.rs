//! Errors of unreliable connections and datagrams.

use ::rig::{QKEY, Rig, Side};
use mlx5::expert::RawWqe;
use mlx5::ib::{Transport, Uc};
use mlx5::wqe::{Inline, SendMessage, Sge};
use mlx5_sys::verbs::ibv_wc_status::*;

use crate::errors::{Polled, Seen, failures, receive, send};

/// Memory by a key that there is not.
pub fn wrong<T: Transport>(side: &Side<T>, length: usize) -> Sge {
    Sge { lkey: side.memory.lkey() ^ 0x5500, ..side.sge(0, length) }
}

pub fn fails<T: Transport>(side: &mut Side<T>, count: usize) -> Polled {
    let queues = &mut (&mut side.send, &mut side.receive);
    failures(side.cq.as_raw(), &mut side.completions, queues, count)
}

/// A WQE of that opcode and these segments, without index and queue pair number.
pub fn bytes(opcode: u8, segments: &[[u8; 16]]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, opcode, 0, 0, 0, 1 + segments.len() as u8];
    bytes.extend([0; 8]);
    bytes.extend(segments.concat());
    bytes
}

pub fn unreliable(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);

    // A send queue that stops alone: SQE.
    let [mut a, _b] = rig.pair::<Uc>().entries(255).sides();
    let (astray, right) = (wrong(&a, 64), a.sge(0, 64));
    let mut batch = a.send.batch();
    batch.append(1, SendMessage::new(astray)).unwrap();
    batch.append(2, SendMessage::new(right)).unwrap();
    // SAFETY: of every post here: the memory lives to the end, or does not exist, which the HCA has
    // to detect.
    unsafe { batch.ring() };
    let expected = [send(IBV_WC_LOC_PROT_ERR, "SEND"), send(IBV_WC_WR_FLUSH_ERR, "SEND")];
    let ends = [fails(&mut a, 2)];
    seen.hold("UC: wrong lkey stops the send queue", "uc", &ends, &[a.qp.as_raw()], &expected);

    let [mut a, mut b] = rig.pair::<Uc>().entries(255).sides();
    // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
    unsafe {
        b.receive.post(1, b.sge(0, 10)).unwrap();
        b.receive.post(2, b.sge(0, 10)).unwrap();
        a.send.post(3, SendMessage::new(a.sge(0, 11))).unwrap();
    }
    let expected = [receive(IBV_WC_LOC_LEN_ERR), receive(IBV_WC_WR_FLUSH_ERR)];
    seen.hold("UC: receive too short", "uc", &[fails(&mut b, 2)], &[], &expected);

    let longest = rig.local.attributes().active_mtu.bytes() as u32;
    let mut b = rig.datagrams();
    for (name, long, status) in [
        ("UD: wrong lkey", false, IBV_WC_LOC_PROT_ERR),
        ("UD: longer than a packet", true, IBV_WC_LOC_LEN_ERR),
    ] {
        let mut a = rig.datagrams();
        let sge = if long { a.sge(0, (longest + 1) as usize) } else { wrong(&a, 8) };
        // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
        unsafe { a.send.post(1, SendMessage::new(sge).to(rig.address(&b.qp, QKEY))) }.unwrap();
        let ends = [fails(&mut a, 1)];
        seen.hold(name, "ud", &ends, &[a.qp.as_raw()], &[send(status, "SEND")]);
    }
    let mut a = rig.datagrams();
    let read = bytes(0x10, &[[0; 16], [0; 16]]);
    // SAFETY: the request names no memory.
    unsafe { a.send.post(1, RawWqe::new(&read).unwrap()) }.unwrap();
    let ends = [fails(&mut a, 1)];
    let expected = [send(IBV_WC_LOC_QP_OP_ERR, "RDMA_READ")];
    seen.hold("UD: a READ", "ud", &ends, &[a.qp.as_raw()], &expected);

    let mut a = rig.datagrams();
    // SAFETY: the memory lives to the end, and the inline payload is copied.
    unsafe {
        b.receive.post(1, b.sge(0, 42)).unwrap();
        b.receive.post(2, b.sge(0, 100)).unwrap();
        a.send.post(3, SendMessage::new(Inline(b"abc")).to(rig.address(&b.qp, QKEY))).unwrap();
    }
    let expected = [receive(IBV_WC_LOC_LEN_ERR), receive(IBV_WC_WR_FLUSH_ERR)];
    seen.hold("UD: no room for the header", "ud", &[fails(&mut b, 2)], &[], &expected);
}
