//! What a responder executes of a message that it refuses, and what the requester knows of it.

use mlx5::cqe::{Completion, Status};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::attr::{Mtu, QpState};
use mlx5::verbs::{QueuePair, Rts};
use mlx5::wqe::{RdmaRead, RdmaWrite, Sge};
use mlx5_evidence::{Comparison, Table};

use super::roce;
use rig::{Rig, wait};

fn rig() -> Rig {
    roce();
    Rig::new(mlx5_model::Mode::Trapped)
}

#[test]
fn whole_packets_within_the_region_land() {
    let rig = rig();
    let columns = [
        "offset",
        "length",
        "region",
        "MTU",
        "landed",
        "model",
        "sq_psn",
        "model",
        "vendor syndrome",
        "model",
    ];
    let mut comparison = Comparison::new("partial-write", &columns);
    for row in Table::read("partial-write").rows() {
        let number = |column| row.number::<usize>(column).expect("a number");
        let (offset, length, mtu) = (number("offset"), number("length"), number("pmtu"));
        let Connection { requester, responder, mut completions, mut sends } = Connection::new(&rig);
        let before = requester.query().expect("a query");
        assert_eq!(before.path_mtu.map(Mtu::bytes), Some(mtu));
        let mut source = rig.memory(length);
        source.write(0, &vec![0xa5; length]);
        let target = rig.pd.allocate(number("mr"), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let target = target.expect("memory");
        let sge = source.sge(0, length).unwrap();
        let remote = target.remote(offset).unwrap();
        let request = RdmaWrite::new(sge, remote).signaled();
        // SAFETY: no code holds a reference to the memory.
        unsafe { sends.post(1, request) }.expect("a post");
        let Completion::Failed(failed) = wait(&mut completions, &mut sends) else {
            panic!("it leads out of the region");
        };
        let bytes = target.to_vec(0, number("mr"));
        let landed = bytes.iter().filter(|&&byte| byte == 0xa5).count();
        assert_eq!(landed, number("landed"), "{offset} {length}");
        assert!(bytes[offset..offset + landed].iter().all(|&byte| byte == 0xa5));
        // Both sides know what was executed.
        let executed = responder.query().expect("a query");
        assert_eq!(executed.state, QpState::Error);
        let executed = executed.rq_psn.wrapping_sub(before.sq_psn) & 0xff_ffff;
        assert_eq!(executed as usize, number("sq_psn_delta"), "{offset} {length}");
        let shown = requester.query().expect("a query");
        let delta = shown.sq_psn.wrapping_sub(before.sq_psn) & 0xff_ffff;
        assert_eq!(delta as usize, number("sq_psn_delta"), "{offset} {length}");
        let vendor = row.hex("vendor_hex").expect("a code");
        assert_eq!(u32::from(failed.vendor_error), vendor);
        let here = format!("{:x}", failed.vendor_error);
        let cells: [&dyn ToString; 10] = [
            &offset,
            &length,
            &number("mr"),
            &mtu,
            &number("landed"),
            &landed,
            &number("sq_psn_delta"),
            &delta,
            &row.text("vendor_hex"),
            &here,
        ];
        comparison.row(&cells);
    }
    comparison.write();
}

/// A connected pair on a CQ, with the first one's send queue.
struct Connection {
    requester: QueuePair<Rc, Rts>,
    responder: QueuePair<Rc, Rts>,
    completions: CqReader,
    sends: SendQueue,
}

impl Connection {
    fn new(rig: &Rig) -> Self {
        let cq = rig.cq(64);
        let ends = [(); 2].map(|()| rig.init(QueuePair::<Rc, _>::builder(&rig.pd, &cq)));
        let [requester, responder] = ends;
        let (requester, responder) = rig.connect(requester, responder);
        let mut completions = CqReader::new(&cq).expect("a reader");
        let sends = SendQueue::new(&requester, &mut completions, SendConfig::default());
        Self { requester, responder, completions, sends: sends.expect("a queue") }
    }

    /// PSNs that the requester has used.
    fn sent(&self, before: u32) -> u32 {
        let shown = self.requester.query().expect("a query");
        shown.sq_psn.wrapping_sub(before) & 0xff_ffff
    }
}

/// The path MTU of the model's port on RoCE.
const MTU: usize = 1024;

#[test]
fn whole_packets_before_the_end_of_local_memory_are_sent() {
    let rig = rig();
    let mut pair = Connection::new(&rig);
    let mut source = rig.memory(4 * MTU);
    source.write(0, &[0x5a; 4 * MTU]);
    let target = rig.memory(8 * MTU);
    // The fifth packet would begin behind the region.
    let beyond = Sge { length: 5 * MTU as u32, ..source.sge(0, 4 * MTU).unwrap() };
    let remote = target.remote(0).unwrap();
    // SAFETY: no code holds a reference to the memory.
    unsafe { pair.sends.post(1, RdmaWrite::new(beyond, remote).signaled()) }.expect("a post");
    let done = wait(&mut pair.completions, &mut pair.sends);
    assert!(
        matches!(&done, Completion::Failed(failed) if failed.status == Status::LocalProtection),
        "{done:?}"
    );
    let bytes = target.to_vec(0, 8 * MTU);
    assert!(bytes[..4 * MTU].iter().all(|&byte| byte == 0x5a));
    assert!(bytes[4 * MTU..].iter().all(|&byte| byte == 0));
    // The peer waits for the end of the message.
    assert_eq!(pair.responder.query().expect("a query").state, QpState::Rts);
}

#[test]
fn a_read_takes_as_many_psns_as_its_answer_has_packets() {
    let rig = rig();
    let mut pair = Connection::new(&rig);
    let memory = rig.memory(8 * MTU);
    let remote = memory.remote(0).unwrap();
    for (id, (bytes, psns)) in
        [(1, 1), (MTU, 1), (MTU + 1, 2), (2 * MTU + 500, 3), (8 * MTU, 8)].into_iter().enumerate()
    {
        let before = pair.requester.query().expect("a query").sq_psn;
        let to = memory.sge(0, bytes).unwrap();
        // SAFETY: no code holds a reference to the memory.
        unsafe { pair.sends.post(id as u64, RdmaRead::new(to, remote).signaled()) }
            .expect("a post");
        let done = wait(&mut pair.completions, &mut pair.sends);
        assert!(matches!(done, Completion::Send(_)), "{done:?}");
        assert_eq!(pair.sent(before), psns, "{bytes} bytes");
    }
}
