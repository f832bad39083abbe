//! The port's counters (`hw_counters`), as programs read them.

use mlx5::cqe::{Completion, Status};
use mlx5::diag::sysfs::PortCounters;
use mlx5::ib::Rc;
use mlx5::ring::SendConfig;
use mlx5::verbs::attr::{Capacities, CqeSize};
use mlx5::wqe::{RdmaWrite, Remote};

use super::roce;
use rig::made::{By, Cq, Qp, queue_pair};
use rig::process::{Peer, child, role};
use rig::{Rig, connect_made, wait};

/// Counters that a WRITE with a wrong key moves, at one side or the other (table counters-by-fault).
const MOVED: [&str; 3] = ["req_cqe_error", "req_remote_access_errors", "rx_write_requests"];

fn counters(rig: &Rig) -> [u64; 3] {
    let counters = PortCounters::read(&rig.context.sysfs_path(), 1).transport;
    MOVED.map(|name| {
        let counter = counters.iter().find(|(known, _)| known == name);
        counter.unwrap_or_else(|| panic!("no {name} in {counters:?}")).1
    })
}

/// Sends a WRITE with a wrong key on a new connection of queue pairs made so.
fn fail(rig: &Rig, by: By) {
    let shape = Capacities {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let cq = Cq::new(&rig.context, by, 64, CqeSize::B64);
    let [first, second] = [(); 2].map(|()| {
        let qp: Qp<Rc, _> = queue_pair(by, &rig.pd, &cq, shape, false);
        qp.init(&rig.local.init()).map_err(|failed| failed.1).expect("INIT")
    });
    let (requester, _responder) = connect_made(&rig.local, first, second);
    let mut completions = cq.completions();
    let mut sends = requester.send_queue(&mut completions, SendConfig::default()).expect("a queue");
    let memory = rig.memory(64);
    let wrong = Remote::new(memory.remote_address(), memory.rkey() ^ 0xff00);
    let from = memory.sge(0, 64).unwrap();
    // SAFETY: no code holds a reference to the memory.
    unsafe { sends.post(1, RdmaWrite::new(from, wrong).signaled()) }.expect("a post");
    let done = wait(&mut completions, &mut sends);
    assert!(
        matches!(&done, Completion::Failed(failed) if failed.status == Status::RemoteAccess),
        "{done:?}"
    );
}

/// Fact E062. Alone in a process, since all its queue pairs share the port's counters.
#[test]
fn queue_pairs_made_by_command_are_not_in_the_ports_counters() {
    roce();
    if role().is_none() {
        let test = queue_pairs_made_by_command_are_not_in_the_ports_counters;
        return Peer::start(&mut child(test, "alone")).end();
    }
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let before = counters(&rig);
    (0..3).for_each(|_| fail(&rig, By::Command));
    assert_eq!(counters(&rig), before);
    (0..3).for_each(|_| fail(&rig, By::Verbs));
    assert_eq!(counters(&rig), before.map(|count| count + 3));
}
