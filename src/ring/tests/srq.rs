//! Receives of shared receive queues, posted in every way and completed in any order, against an
//! oracle that links WQEs by itself.

use std::collections::{HashMap, VecDeque};

use mlx5_sys::cqe::opcode;

use super::{Cq, Memory, QPN, Sq, cqe};
use crate::cqe::{Completion, QueueKind};
use crate::error::QueueError;
use crate::ib::Rc;
use crate::ring::completion::members::Name;
use crate::ring::completion::slots::Demand;
use crate::ring::random::{Random, rounds};
use crate::ring::source::UserIndex;
use crate::ring::source::{CqObject, LEAST_INDEX, Member, ObjectId, ReceiveIndex, SharedView};
use crate::ring::{CqReader, PostError, QueueTable, Queues, Srq};
use crate::wqe::{Nop, Sge};

/// A shared receive queue over plain memory.
struct Plain {
    buffer: Memory,
    record: Memory,
    queue: Srq,
    id: ObjectId,
}

/// WQEs of the memory that are not in the list, as libmlx5 has some.
const SPARE: usize = 2;

impl Plain {
    fn new(cq: &mut Cq, wqes: usize, stride: usize, start: u16, index: Option<UserIndex>) -> Self {
        let buffer = Memory::new(SPARE * wqes * stride, 0xee);
        let record = Memory::new(8, 0);
        record.write(0, &u32::from(start).to_be_bytes());
        let id = ObjectId::at(&raw const buffer);
        // SAFETY: the memory lives as long as the queue, in the same structure.
        let queue = unsafe {
            let view = SharedView {
                buffer: buffer.at(0),
                wqes: (SPARE * wqes) as u32,
                stride: stride as u32,
                // Any order, and any WQEs.
                order: (0..wqes).map(|at| (wqes * SPARE - 1 - at) as u16).collect(),
                record: record.at(0).cast(),
                index,
                origin: ReceiveIndex::Library,
                cyclic: false,
                cq: None,
                id,
                number: 0,
            };
            let cq_slots = cq.reader.reserve_shared(Demand::up_to(wqes as u32 - 1)).unwrap();
            Srq::from_view(view, &cq.reader, cq_slots)
        };
        let mut queue = queue.unwrap();
        if index.is_none() {
            queue.enter(QPN, cq.reader.id(), None, None);
        }
        Self { buffer, record, queue, id }
    }
}

/// Returns the bytes that a WQE has after its link.
fn image(list: &[Sge], max_sge: usize) -> Vec<u8> {
    let mut wqe = Vec::new();
    for sge in list.iter().filter(|sge| sge.length != 0) {
        wqe.extend(sge.length.to_be_bytes());
        wqe.extend(sge.lkey.to_be_bytes());
        wqe.extend(sge.addr.to_be_bytes());
    }
    if wqe.len() < max_sge * 16 {
        wqe.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    wqe
}

fn case(random: &mut Random) {
    let (wqes, stride) = (2usize << random.below(5), 32usize << random.below(3));
    let max_sge = stride / 16 - 1;
    let start = [0, 0xfff0, random.next() as u16][random.below(3) as usize];
    // Sometimes there are fewer CQEs than WQEs.
    let cqes = (wqes as u32).max(8) / (1 + random.below(2));
    let mut cq = Cq::new(cqes, [64, 128][random.below(2) as usize], random.next() as u32);
    let index = [None, Some(UserIndex::Known(0x123)), Some(UserIndex::Alone)];
    let index = index[random.below(3) as usize];
    let mut srq = Plain::new(&mut cq, wqes, stride, start, index);
    let most = (wqes - 1).min(cqes as usize);

    let mut free: VecDeque<u16> = (0..wqes).map(|at| (wqes * SPARE - 1 - at) as u16).collect();
    let mut posted: HashMap<u16, (u64, u16, Vec<u8>)> = HashMap::new();
    let mut count = start;
    for id in 0..u64::from(rounds(400)) {
        if random.below(2) == 0 {
            let expected = match () {
                () if posted.len() < most => Ok(()),
                () if most == wqes - 1 => Err(PostError::QueueFull { free: 0 }),
                () => Err(PostError::CqFull { slots: most as u32 }),
            };
            let list: Vec<_> = (0..random.below(max_sge as u32 + 1))
                .map(|_| Sge::new(random.next(), random.below(3), random.next() as u32))
                .collect();
            // SAFETY: no HCA is there.
            let (result, list) = unsafe {
                match random.below(3) {
                    0 => {
                        let sge = Sge::new(random.next(), 1 + random.below(9), 7);
                        (srq.queue.post(id, sge), vec![sge])
                    }
                    1 => (srq.queue.post(id, &list[..]), list),
                    _ => {
                        let mut batch = srq.queue.batch();
                        let result = batch.append(id, &list[..]);
                        assert_eq!(batch.len(), u32::from(result.is_ok()));
                        // Or dropped, which posts nothing.
                        if random.below(4) == 0 {
                            drop(batch);
                            continue;
                        }
                        batch.ring();
                        (result, list)
                    }
                }
            };
            assert_eq!(result, expected, "{}", random.seed());
            if result.is_ok() {
                let slot = free.pop_front().unwrap();
                posted.insert(slot, (id, free[0], image(&list, max_sge)));
                count = count.wrapping_add(1);
            }
        } else if !posted.is_empty() {
            let slots: Vec<_> = posted.keys().copied().collect();
            let slot = slots[random.below(slots.len() as u32) as usize];
            let mut entry = cqe(opcode::RESP_SEND, 0, slot.into());
            entry.srqn_uidx = 0x123.into();
            cq.produce(entry, &[]);
            let id = posted.remove(&slot).unwrap().0;
            match cq.reader.poll(&mut srq.queue) {
                Ok(Some(Completion::Receive(done))) => assert_eq!(done.id, id),
                other => panic!("{other:?}, {}", random.seed()),
            }
            free.push_back(slot);
            // The same is not outstanding now, nor is what another queue says.
            for (slot, qpn, index) in
                [(slot, QPN, 0x123), (0xffff, QPN, 0x123), (slots[0], QPN + 1, 0x124)]
            {
                let found = match srq.queue.index {
                    None => qpn == QPN,
                    Some(UserIndex::Known(_)) => index == 0x123,
                    Some(UserIndex::Alone | UserIndex::Tagged(_)) => true,
                };
                if found && posted.contains_key(&slot) {
                    continue;
                }
                let mut entry = cqe(opcode::RESP_SEND, 0, slot.into());
                (entry.sop_drop_qpn, entry.srqn_uidx) = (qpn.into(), index.into());
                cq.produce(entry, &[]);
                let lie = cq.reader.poll(&mut srq.queue);
                assert!(matches!(lie, Ok(Some(Completion::UnexpectedCqe(_)))), "{lie:?}");
            }
        }
        assert_eq!(srq.queue.outstanding() as usize, posted.len());
        assert_eq!(srq.queue.free() as usize, most - posted.len());
        assert_eq!(srq.record.be32(0), u32::from(count));
        let bytes = srq.buffer.read();
        for (slot, (_, next, image)) in &posted {
            let wqe = &bytes[usize::from(*slot) * stride..][..stride];
            assert_eq!((&wqe[2..4], &wqe[..2]), (&next.to_be_bytes()[..], &[0xee; 2][..]));
            assert_eq!(wqe[16..16 + image.len()], image[..], "{}", random.seed());
        }
    }
}

#[test]
fn wqes_are_linked_as_they_become_free() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(60) {
        case(&mut random);
    }
}

/// A ring of 8 WQEs, one position before the HCA's count wraps.
fn ring(cq: &mut Cq, buffer: &Memory, record: &Memory) -> Srq {
    const START: u16 = 0xfffc;
    record.write(0, &u32::from(START).to_be_bytes());
    // SAFETY: the memory lives as long as the queue, in the test.
    let queue = unsafe {
        let view = SharedView {
            buffer: buffer.at(0),
            wqes: 8,
            stride: 32,
            order: (0..8).map(|at| START.wrapping_add(at) & 7).collect(),
            record: record.at(0).cast(),
            index: None,
            origin: ReceiveIndex::Library,
            cyclic: true,
            cq: None,
            id: ObjectId::at(&raw const *buffer),
            number: 0,
        };
        let cq_slots = cq.reader.reserve_shared(Demand::up_to(7)).unwrap();
        Srq::from_view(view, &cq.reader, cq_slots)
    };
    let mut queue = queue.unwrap();
    queue.enter(QPN, cq.reader.id(), None, None);
    queue
}

#[test]
fn receives_of_a_ring_are_named_by_position_and_free_from_the_oldest_on() {
    let (buffer, record) = (Memory::new(8 * 32, 0xee), Memory::new(8, 0));
    let mut cq = Cq::new(16, 64, 0);
    let mut queue = ring(&mut cq, &buffer, &record);
    let mut posted = 0u64;
    let mut post = |queue: &mut Srq| {
        // SAFETY: no HCA is there.
        let result = unsafe { queue.post(posted, Sge::new(posted, 9, 7)) };
        posted += u64::from(result.is_ok());
        result
    };
    for _ in 0..7 {
        post(&mut queue).unwrap();
    }
    assert_eq!(post(&mut queue), Err(PostError::QueueFull { free: 0 }));
    // The first lies at position 0xfffc, the fifth at 0.
    let bytes = buffer.read();
    assert_eq!(bytes[4 * 32 + 24..][..8], 0u64.to_be_bytes());
    assert_eq!(bytes[24..][..8], 4u64.to_be_bytes());
    let mut done = |queue: &mut Srq, counter: u16, qpn: u32| {
        let mut entry = cqe(opcode::RESP_SEND, 0, counter.into());
        entry.sop_drop_qpn = qpn.into();
        cq.produce(entry, &[]);
        match cq.reader.poll(queue) {
            Ok(Some(Completion::Receive(done))) => Some(done.id),
            Ok(Some(Completion::UnexpectedCqe(_))) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(done(&mut queue, 0xfffd, QPN), Some(1));
    assert_eq!(done(&mut queue, 0, QPN), Some(4));
    // Twice, a lap too late, in place of position, and of another queue pair.
    for (counter, qpn) in [(0, QPN), (8, QPN), (4, QPN), (0xfffc, QPN + 1)] {
        assert_eq!(done(&mut queue, counter, qpn), None, "{counter:#x}");
    }
    assert_eq!((queue.free(), queue.outstanding()), (0, 7));
    assert_eq!(done(&mut queue, 0xfffc, QPN), Some(0));
    assert_eq!((queue.free(), queue.outstanding()), (2, 5));
    post(&mut queue).unwrap();
    post(&mut queue).unwrap();
    assert_eq!(post(&mut queue), Err(PostError::QueueFull { free: 0 }));
    for (counter, id) in [(4, 8), (0xfffe, 2), (1, 5), (0xffff, 3), (2, 6), (3, 7)] {
        assert_eq!(done(&mut queue, counter, QPN), Some(id));
    }
    assert_eq!((queue.free(), queue.outstanding()), (7, 0));
    assert_eq!(record.be32(0), 5);
}

#[test]
fn a_queue_whose_index_is_unknown_is_alone_on_its_cq() {
    let mut cq = Cq::new(16, 64, 0);
    assert!(cq.reader.meets_xrc(UserIndex::Known(1)) && cq.reader.meets_xrc(UserIndex::Known(2)));
    assert!(!cq.reader.meets_xrc(UserIndex::Alone));
    let mut cq = Cq::new(16, 64, 0);
    assert!(cq.reader.meets_xrc(UserIndex::Alone));
    assert!(!cq.reader.meets_xrc(UserIndex::Alone) && !cq.reader.meets_xrc(UserIndex::Known(1)));
}

#[test]
fn a_table_finds_one_queue_whose_index_is_unknown() {
    let mut cqs = [(); 3].map(|()| Cq::new(16, 64, 0));
    let indices = [UserIndex::Alone, UserIndex::Known(5), UserIndex::Alone];
    let mut srqs = vec![];
    for (cq, index) in cqs.iter_mut().zip(indices) {
        srqs.push(Plain::new(cq, 4, 32, 0, Some(index)));
    }
    // The memory of their lists and records lives to the end.
    let (mut memory, mut queues) = (vec![], vec![]);
    for Plain { buffer, record, queue, .. } in srqs {
        memory.push((buffer, record));
        queues.push(queue);
    }
    let mut table = QueueTable::<Rc>::new();
    let second = table.insert_shared(queues.pop().unwrap()).unwrap();
    table.insert_shared(queues.pop().unwrap()).unwrap();
    assert!(table.insert_shared(queues.pop().unwrap()).is_err(), "there is one already");
    assert_eq!(table.shared(second).unwrap().user_index(), None);
    for index in [5, 6] {
        assert!(table.indexed_side(index).is_some());
    }
    assert!(table.remove_shared(second).is_some());
    assert!(table.indexed_side(6).is_none() && table.indexed_side(5).is_some());
    assert!(table.shared(second).is_none());
}

/// A poll that is given one queue would take the receives of another: whichever of them comes first,
/// the second one is refused, as long as the first one lives.
#[test]
fn queues_that_polls_confuse_by_user_index_are_refused() {
    use ReceiveIndex::{Given, Library};
    use UserIndex::{Alone, Known, Tagged};
    let pair = Name::Queue(5, QueueKind::Receive);
    for (xrc, origin, index, refused) in [
        (Known(7), Given(7), Given(7), true),
        (Known(7), Given(7), Given(8), false),
        // libmlx5 may have chosen 7 for the queue pair, but nothing that is by command's default.
        (Known(7), Given(7), Library, true),
        (Known(LEAST_INDEX), Given(LEAST_INDEX), Library, false),
        (Known(7), Library, Library, false),
        (Known(7), Library, Given(7), true),
        (Known(7), Library, Given(8), false),
        // Polls give it the CQEs of every index.
        (Alone, Library, Library, true),
        (Alone, Library, Given(8), true),
        (Tagged(1), Library, Library, false),
    ] {
        let result = if refused { Err(QueueError::IndexTaken) } else { Ok(()) };
        let sides = [(pair, index), (Name::Index(xrc), origin)];
        for [first, second] in [sides, [sides[1], sides[0]]] {
            let mut cq = Cq::new(16, 64, 0);
            let member = cq.reader.admit(first.0, Some(first.1));
            let sends = cq.reader.admit(Name::Queue(6, QueueKind::Send), None);
            assert_eq!(cq.reader.check_index(second.0, second.1), result, "{first:?} {second:?}");
            drop(member);
            assert_eq!(cq.reader.check_index(second.0, second.1), Ok(()));
            drop(sends);
        }
    }
    // Two of XRC domains.
    let mut cq = Cq::new(16, 64, 0);
    let _one = cq.reader.admit(Name::Index(Known(7)), Some(Library));
    let check = |index| cq.reader.check_index(Name::Index(Known(index)), Given(index));
    assert_eq!((check(7), check(8)), (Err(QueueError::IndexTaken), Ok(())));
}

/// A CQ may lie at the address of a destroyed one. Slots reserved on the old CQ are not reserved on
/// the new one.
#[test]
fn a_cq_at_the_address_of_an_earlier_one_is_another_one() {
    let address = CqObject::of(core::ptr::without_provenance_mut(0x1000));
    let mut first = Cq::at(address, 16, 64);
    let mut srq = Plain::new(&mut first, 8, 64, 0, None);
    let id = srq.id;
    let join = |srq: &mut Plain, reader: &mut CqReader, number| {
        let member = Member { number, cq: address, index: ReceiveIndex::Library, srq: Some(id) };
        srq.queue.join(member, reader, None).unwrap()
    };
    assert_eq!(join(&mut srq, &mut first.reader, 1), 1);
    assert_eq!(first.reader.slots.reserved(), 7);
    let mut second = Cq::at(address, 16, 64);
    assert_eq!(join(&mut srq, &mut second.reader, 2), 2);
    assert_eq!(second.reader.slots.reserved(), 7, "reserved on the new one, too");
    // What the first one's queues complete is not looked for on the second.
    let mut sq = Sq::new(&mut first, 16, 0, 0);
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(1, Nop::new().signaled()).unwrap() };
    second.produce(cqe(opcode::REQ, 0, 0), &[]);
    let polled = second.reader.poll(&mut sq.queue).unwrap();
    assert!(matches!(polled, Some(Completion::UnexpectedCqe(_))), "{polled:?}");
    assert_eq!(sq.queue.ring.state.used(), 1);
}
