//! Prepared requests on transports other than RC: whole payloads and fields of them arrive, also of
//! WQEs that wrap around the ring's end.

use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::ib::Transport;
use mlx5::ring::{CqReader, PostError, Prepared};
use mlx5::wqe::{Field, InlineBytes, RdmaWrite, RdmaWriteImm, SendImm, SendMessage, Sge};
use mlx5_model::Mode;

use super::dynamic::{Initiator, Target};
use rig::{QKEY, Side};
use rig::{Rig, wait};

const PRICE: Field<8, 8> = Field;
const SEQUENCE: Field<97, 4> = Field;

/// A payload as it is prepared.
fn template<const N: usize>() -> [u8; N] {
    core::array::from_fn(|at| at as u8)
}

/// The same, with price and sequence number.
fn changed<const N: usize>(id: u64) -> [u8; N] {
    let mut payload = template();
    payload[8..16].copy_from_slice(&id.to_le_bytes());
    payload[97..101].copy_from_slice(&(id as u32).to_be_bytes());
    payload
}

/// What is fired to change the one to the other.
fn change(id: u64) -> (mlx5::wqe::FieldBytes<8, 8>, mlx5::wqe::FieldBytes<97, 4>) {
    (PRICE.with(id.to_le_bytes()), SEQUENCE.with((id as u32).to_be_bytes()))
}

fn sent<O, T: Transport>(completions: &mut CqReader, prepared: &mut Prepared<O, T>) -> u64 {
    match wait(completions, prepared) {
        Completion::Send(done) => done.id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn on_an_unreliable_connection() {
    let rig = Rig::new(Mode::Trapped);
    let [a, mut b] = rig.pair::<mlx5::ib::Uc>().sides();
    let Side { send, mut completions, receive: _receive, .. } = a;
    let blocks = u64::from(send.blocks());
    let mut prepared = Prepared::new(send);
    // Three blocks each, so some wrap around the ring's end.
    for id in 0..blocks {
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { b.receive.post(id, b.sge(0, 0)) }.unwrap();
        let write = RdmaWriteImm::new(InlineBytes(template::<140>()), b.remote(500), id as u32);
        prepared.prepare(id, write.signaled()).unwrap();
        b.is_quiet();
        prepared.fire(change(id)).unwrap();
        assert_eq!(b.received().kind, ReceiveKind::WriteImm(id as u32));
        assert_eq!(b.memory.to_vec(500, 140), changed::<140>(id));
        assert_eq!(sent(&mut completions, &mut prepared), id);
    }
}

#[test]
fn as_datagrams_and_after_a_failure_once_the_queue_has_recovered() {
    let rig = Rig::new(Mode::Trapped);
    let (a, mut b) = (rig.datagrams(), rig.datagrams());
    let to = rig.address(&b.qp, QKEY);
    let Side { mut send, mut completions, receive: _receive, .. } = a;
    for round in 0..2 {
        let mut prepared = Prepared::new(send);
        for id in 0..40 {
            // SAFETY: memory lives to the end, and is accessed only after the requests complete.
            unsafe { b.receive.post(id, b.sge(0, 240)) }.unwrap();
            let message = SendImm::new(InlineBytes(template::<188>()), 7).signaled().to(to);
            prepared.prepare(id, message).unwrap();
            prepared.fire(change(id)).unwrap();
            let done = b.received();
            assert_eq!((done.kind, done.byte_len), (ReceiveKind::SendImm(7), 40 + 188));
            assert_eq!(b.memory.to_vec(40, 188), changed::<188>(id), "round {round}");
            assert_eq!(sent(&mut completions, &mut prepared), id);
        }
        send = prepared.into_queue();
        // SAFETY: the memory is not registered, so nothing reads it.
        unsafe { send.post(50, SendMessage::new(Sge::new(0, 8, 0xdead)).to(to)) }.unwrap();
        let mut prepared = Prepared::new(send);
        let message = SendMessage::new(InlineBytes([0; 8])).to(to);
        prepared.prepare(51, message).unwrap();
        prepared.prepare(52, message).unwrap();
        prepared.fire([1; 8]).unwrap();
        for (id, status) in [(50, Status::LocalProtection), (51, Status::Flushed)] {
            match wait(&mut completions, &mut prepared) {
                Completion::Failed(failure) => {
                    assert_eq!((failure.id, failure.status), (id, status))
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(prepared.fire([2; 8]), Err(PostError::WrongState));
        }
        send = prepared.into_queue();
        send.recover().unwrap();
    }
    b.is_quiet();
}

#[test]
fn on_dynamic_connections() {
    let rig = Rig::new(Mode::Trapped);
    let (a, mut b) = (Initiator::new(&rig), Target::new(&rig));
    let to = b.address(&rig);
    let Initiator { send, mut completions, .. } = a;
    let blocks = u64::from(send.blocks());
    let mut prepared = Prepared::new(send);
    for id in 0..blocks.min(200) {
        let write = RdmaWrite::new(InlineBytes(template::<110>()), b.remote(500)).signaled();
        prepared.prepare(id, write.to(to)).unwrap();
        prepared.fire(change(id)).unwrap();
        match wait(&mut completions, &mut prepared) {
            Completion::Send(done) => {
                assert_eq!((done.id, done.operation), (id, SendOperation::Write));
            }
            other => panic!("{other:?}"),
        }
        let mut met = [0; 110];
        b.memory.read(500, &mut met);
        assert_eq!(met, changed::<110>(id));
    }
    let mut prepared = Prepared::new(prepared.into_queue());
    b.receive(1000, 64);
    prepared.prepare(1, SendMessage::new(InlineBytes([0; 12])).signaled().to(&to)).unwrap();
    prepared.fire(*b"twelve bytes").unwrap();
    assert_eq!((b.received().byte_len, sent(&mut completions, &mut prepared)), (12, 1));
}
