//! Requests that were posted from a template, beside the same ones posted on a twin queue.

use super::armed::{Twin, bytes, remote, same, sge};
use super::*;
use crate::cqe::Completion;
use crate::ring::random::{Random, rounds};
use crate::ring::variable::{Bytes, Immediate, Offset, Variable};
use crate::ring::{PostError, Template};
use crate::wqe::{
    EncodeError, FetchAdd, Inline, InlineBytes, Nop, Operation, PostOn, RdmaWrite, RdmaWriteImm,
    Remote, SendImm, SendMessage, Word,
};

/// Posts from a template on one twin, and with the same values on the other; now and then, the
/// queue is taken back, something else is posted, and the template made anew. `make` gives an
/// operation and how it is with values and signaled.
fn twins<O, V, M>(name: &str, padding: usize, mut make: impl FnMut(&mut Random) -> (O, M))
where
    O: PostOn<Rc> + Operation + Copy,
    V: Variable<O>,
    M: Fn(&mut Random, bool) -> (V::Values, O),
{
    let mut random = Random::from_clock();
    for round in 0..if cfg!(miri) { 1 } else { 8 } {
        let blocks = 8 << random.below(if cfg!(miri) { 1 } else { 4 });
        let start = match random.below(3) {
            0 => 0,
            1 => 0x1_0000 - 1 - random.below(20),
            _ => random.below(0x1_0000),
        };
        let half = if random.below(4) == 0 { 0 } else { HALF };
        let what = format!("{name}, round {round}, seed {}", random.seed());
        let mut plain = Twin::new(blocks, 128, start, half);
        let mut twin = Twin::new(blocks, 128, start, half);
        let card = (&twin.sq.buffer, &twin.sq.record, &twin.sq.page);
        let mut queue = &mut twin.sq.queue;
        let mut id = 0;
        for _ in 0..if cfg!(miri) { 2 } else { 4 } {
            let (operation, values) = make(&mut random);
            let mut template = Template::<_, O, V>::new(queue, operation).unwrap();
            for _ in 0..random.below(4 * blocks) {
                let signaled = random.below(2) == 0;
                let (values, posted) = values(&mut random, signaled);
                let head = plain.sq.queue.ring.cursor.head();
                // SAFETY: no HCA is there.
                let (expected, found) = unsafe {
                    let expected = plain.sq.queue.post(id, posted);
                    let found = if signaled {
                        template.post_signaled(id, values)
                    } else {
                        template.post(id, values)
                    };
                    (expected, found)
                };
                assert_eq!(found, expected, "{what}");
                id += 1;
                let full = found.is_err();
                if !full {
                    same(card, &plain.sq, padding, &what);
                }
                if full || random.below(6) == 0 {
                    // The last of them completes: if this one was refused, the one before it.
                    let mut named = head;
                    if full {
                        let ds = 1 + posted.body_ds();
                        named = head.plus(ds.div_ceil(4).wrapping_neg());
                    }
                    for cq in [&mut plain.cq, &mut twin.cq] {
                        cq.produce(cqe(0, O::OPCODE, named.low16().into()), &[]);
                    }
                    let expected = plain.cq.reader.poll(&mut plain.sq.queue);
                    assert!(matches!(expected, Ok(Some(Completion::Send(_)))), "{expected:?}");
                    assert_eq!(twin.cq.reader.poll(&mut template), expected, "{what}");
                    assert!(plain.sq.queue.is_idle() && template.queue().is_idle(), "{what}");
                }
            }
            queue = template.into_queue();
            for byte in 0..random.below(3) as u8 {
                // SAFETY: no HCA is there.
                unsafe {
                    let text = [byte; 90];
                    let expected = plain.sq.queue.post(id, SendMessage::new(Inline(&text)));
                    assert_eq!(queue.post(id, SendMessage::new(Inline(&text))), expected);
                }
            }
            // Everything is retired by a NOP, so that there is room.
            let named = plain.sq.queue.ring.cursor.head();
            // SAFETY: no HCA is there.
            unsafe {
                let expected = plain.sq.queue.post(id, Nop::new());
                assert_eq!(queue.post(id, Nop::new()), expected);
                if expected.is_err() {
                    break;
                }
            }
            for cq in [&mut plain.cq, &mut twin.cq] {
                cq.produce(cqe(0, 0, named.low16().into()), &[]);
            }
            assert!(matches!(plain.cq.reader.poll(&mut plain.sq.queue), Ok(Some(_))));
            assert!(matches!(twin.cq.reader.poll(&mut *queue), Ok(Some(_))));
        }
    }
}

#[test]
fn a_post_from_a_template_is_as_any_other() {
    twins::<_, (), _>("WRITE by pointer", 0, |random| {
        let write = RdmaWrite::new(sge(random), remote(random));
        (write, move |_: &mut Random, yes| ((), write.signaled_if(yes)))
    });
    twins::<_, Bytes, _>("WRITE of 8", 4, |random| {
        let remote = remote(random);
        let write = move |bytes: [u8; 8]| RdmaWrite::new(InlineBytes(bytes), remote);
        (write([9; 8]), move |random: &mut Random, yes| {
            let bytes = bytes(random);
            (bytes, write(bytes).signaled_if(yes))
        })
    });
    twins::<_, (Bytes, Offset), _>("WRITE of 25", 3, |random| {
        let remote = remote(random);
        let write = |bytes: [u8; 25], remote| RdmaWrite::new(InlineBytes(bytes), remote);
        (write([9; 25], remote), move |random: &mut Random, yes| {
            let (bytes, offset) = (bytes(random), random.next());
            ((bytes, offset), write(bytes, remote.offset(offset)).signaled_if(yes))
        })
    });
    twins::<_, Immediate, _>("SEND by pointer", 0, |random| {
        let sge = sge(random);
        (SendImm::new(sge, 7).solicited(), move |random: &mut Random, yes| {
            let imm = random.next() as u32;
            (imm, SendImm::new(sge, imm).solicited().signaled_if(yes))
        })
    });
    // Too long for a block, or of no usual size: written as a whole each time.
    twins::<_, (Immediate, Bytes), _>("WRITE of 90 with immediate", 2, |random| {
        let remote = remote(random);
        let write = move |imm, bytes: [u8; 90]| RdmaWriteImm::new(InlineBytes(bytes), remote, imm);
        (write(1, [9; 90]), move |random: &mut Random, yes| {
            let (imm, bytes) = (random.next() as u32, bytes(random));
            ((imm, bytes), write(imm, bytes).signaled_if(yes))
        })
    });
    twins::<_, Offset, _>("fetch and add", 0, |random| {
        let (remote, add) = (remote(random), random.next());
        let old = Word::new(random.next(), random.next() as u32);
        let fetch = move |remote| FetchAdd::new(old, remote, add);
        (fetch(remote), move |random: &mut Random, yes| {
            let offset = random.next();
            (offset, fetch(remote.offset(offset)).signaled_if(yes))
        })
    });
}

#[test]
fn a_template_of_what_the_queue_does_not_take_is_refused() {
    let mut twin = Twin::new(8, 4, 0, HALF);
    let long = RdmaWrite::new(InlineBytes([0; 201]), Remote::new(0, 0));
    let refused = Template::<_, _, Bytes>::new(&mut twin.sq.queue, long);
    assert_eq!(refused.map(|_| ()).unwrap_err(), PostError::Encode(EncodeError::InlineTooLong));
    assert_eq!(twin.sq.record.be32(4), 0);
}

#[test]
fn nothing_is_posted_from_a_template_after_an_error_was_seen() {
    let mut twin = Twin::new(8, 16, 0, HALF);
    let write = RdmaWrite::new(InlineBytes([0; 8]), Remote::new(0, 0)).signaled();
    let mut template = Template::<_, _, Bytes>::new(&mut twin.sq.queue, write).unwrap();
    // SAFETY: no HCA is there.
    unsafe {
        template.post(1, [1; 8]).unwrap();
        template.post(2, [2; 8]).unwrap();
    }
    let mut error = cqe(13, 8, 0);
    error.timestamp = u64::from_be_bytes([0, 0, 0, 0, 0, 0, 0, 0x13]).into();
    twin.cq.produce(error, &[]);
    let found = twin.cq.reader.poll(&mut template);
    assert!(matches!(found, Ok(Some(Completion::Failed(_)))), "{found:?}");
    // SAFETY: no HCA is there.
    assert_eq!(unsafe { template.post(3, [3; 8]) }, Err(PostError::WrongState));
    assert_eq!(twin.sq.record.be32(4), 2);
}

/// Unsignaled requests may count as signaled ones, but must not take the last CQE from those.
#[test]
fn as_many_unsignaled_requests_as_there_are_blocks_wait_for_a_signaled_one() {
    let remote = Remote::new(0x1000, 7);
    let write = RdmaWrite::new(InlineBytes([0; 8]), remote);
    let mut twin = Twin::new(16, 4, 0, HALF);
    let mut template = Template::<_, _, Bytes>::new(&mut twin.sq.queue, write).unwrap();
    for round in 0..rounds(40) {
        // SAFETY: no HCA is there.
        unsafe {
            for id in 0..15 {
                template.post(id, [1; 8]).unwrap();
            }
            template.post_signaled(99, [2; 8]).unwrap();
            assert_eq!(template.post(1, [3; 8]), Err(PostError::QueueFull));
        }
        twin.cq.produce(cqe(0, 8, 16 * round + 15), &[]);
        let found = twin.cq.reader.poll(&mut template);
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == 99), "{found:?}");
    }
}
