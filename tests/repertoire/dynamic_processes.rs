//! Dynamic connections between two processes.

use mlx5::connect::{Connection, ConnectionData, RemoteRegion};
use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::verbs::AddressHandle;
use mlx5::wqe::{DcAddress, FetchAdd, Inline, RdmaRead, RdmaWrite, Remote, SendImm, SendMessage};

use super::dynamic::{Initiator, KEY, Target};
use super::processes::with_peer;
use rig::Rig;

const TARGETS: usize = 3;
const MESSAGES: usize = 60;

/// The other process's targets: address and memory of each.
struct Theirs {
    addresses: Vec<DcAddress>,
    wrong_key: DcAddress,
    memory: Vec<Remote>,
}

/// Tells the other process of the targets here, and hears of those there.
fn exchange(rig: &Rig, connection: &mut Connection, targets: &[Target]) -> Theirs {
    let (mut addresses, mut memory, mut wrong_key) = (vec![], vec![], None);
    for target in targets {
        let mine = ConnectionData {
            region: Some(RemoteRegion::from(&target.memory)),
            ..rig.local.connection_data_of(target.qp.number())
        };
        let theirs = connection.exchange(&mine).unwrap();
        let handle = AddressHandle::new(&rig.pd, &rig.local.address(&theirs)).unwrap();
        addresses.push(DcAddress::new(&handle, theirs.qpn, KEY));
        wrong_key = Some(DcAddress::new(&handle, theirs.qpn, !KEY));
        let region = theirs.region.unwrap();
        memory.push(Remote::new(region.address, region.rkey));
    }
    Theirs { addresses, wrong_key: wrong_key.unwrap(), memory }
}

/// Runs in both processes at the same time: an initiator that sends to all targets of the other
/// process, and targets for the other's initiator.
fn both(rig: &Rig, connection: &mut Connection) {
    let mut targets: Vec<Target> = (0..TARGETS).map(|_| Target::new(rig)).collect();
    for target in &mut targets {
        for message in 0..MESSAGES / TARGETS {
            target.receive(1024 + message * 64, 64);
        }
    }
    let theirs = exchange(rig, connection, &targets);
    let mut own = Initiator::new(rig);
    let sge = |at: usize, length| own.memory.sge(at, length).unwrap();
    let word = own.memory.word(16).unwrap();
    let (from, into) = (sge(0, 8), sge(8, 8));
    own.memory.write(0, &0x5eed_u64.to_ne_bytes());
    connection.barrier(1).unwrap();
    for message in 0..MESSAGES {
        let at = message % TARGETS;
        let (to, memory) = (&theirs.addresses[at], theirs.memory[at]);
        let text = format!("message {message}");
        let send = SendImm::new(Inline(text.as_bytes()), message as u32).signaled();
        // SAFETY: memory lives to the end, and is read after the requests complete.
        unsafe {
            own.send.post(1, send.to(to)).unwrap();
            own.send.post(2, FetchAdd::new(word, memory, 1).signaled().to(to)).unwrap();
            own.send.post(3, RdmaWrite::new(from, memory.offset(8)).signaled().to(to)).unwrap();
            own.send.post(4, RdmaRead::new(into, memory.offset(8)).signaled().to(to)).unwrap();
        }
        assert_eq!(own.sent(), (1, SendOperation::SendImm));
        assert_eq!(own.sent(), (2, SendOperation::FetchAdd));
        assert_eq!(own.sent(), (3, SendOperation::Write));
        assert_eq!(own.sent(), (4, SendOperation::Read));
        let mut words = [0; 16];
        own.memory.read(8, &mut words);
        assert_eq!(words[..8], 0x5eed_u64.to_ne_bytes());
        assert_eq!(words[8..], ((message / TARGETS) as u64).to_ne_bytes());
    }
    for (at, target) in targets.iter_mut().enumerate() {
        for turn in 0..MESSAGES / TARGETS {
            let (done, message) = (target.received(), turn * TARGETS + at);
            let text = format!("message {message}").into_bytes();
            assert_eq!(done.kind, ReceiveKind::SendImm(message as u32));
            let bytes = target.memory.to_vec(done.id as usize, text.len());
            assert_eq!((bytes, done.byte_len as usize), (text.clone(), text.len()));
        }
    }
    // The peer refuses this initiator; other connections continue.
    let mut refused = Initiator::new(rig);
    // SAFETY: the payload is copied into the WQE.
    unsafe {
        refused
            .send
            .post(9, SendMessage::new(Inline(b"?")).signaled().to(theirs.wrong_key))
            .unwrap();
    }
    match refused.wait() {
        Completion::Failed(failure) => {
            assert_eq!((failure.id, failure.status), (9, Status::RemoteInvalidRequest));
        }
        other => panic!("{other:?}"),
    }
    // SAFETY: memory lives to the end, and is read after the request completes.
    unsafe {
        let write = RdmaWrite::new(from, theirs.memory[0]).signaled();
        own.send.post(10, write.to(&theirs.addresses[0])).unwrap();
    }
    assert_eq!(own.sent(), (10, SendOperation::Write));
    connection.barrier(2).unwrap();
}

#[test]
fn two_processes_send_to_each_others_targets() {
    with_peer(two_processes_send_to_each_others_targets, peer_of_targets, |rig, mut control| {
        both(&rig, &mut control)
    });
}

fn peer_of_targets(rig: Rig, mut control: Connection) {
    both(&rig, &mut control);
}
