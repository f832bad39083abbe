//! Posting: bytes of the ring, doorbell record, register.

use mlx5_diag::text;
use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::*;
use crate::cqe::Completion;
use crate::ring::random::{Random, rounds};
use crate::ring::{Excess, PostError};
use crate::wqe::{
    CompareSwap, ConfigureKey, FetchAdd, Inline, InlineBytes, InlineGather, LocalInvalidate, Nop,
    RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage, Sge, Word,
};

/// A request, and how the oracle lays it out.
#[derive(Clone, Debug)]
struct Request {
    opcode: u8,
    list: Vec<Sge>,
    inline: Option<Vec<u8>>,
    remote: Remote,
    imm: u32,
    operands: [u64; 2],
    signaled: bool,
    solicited: bool,
    fenced: bool,
}

impl Request {
    fn random(random: &mut Random) -> Self {
        let opcode = [0x00, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12][random.below(8) as usize];
        let inline = matches!(opcode, 0x08..=0x0b) && random.below(2) == 0;
        let sge = |random: &mut Random| {
            let length = if random.below(5) == 0 { 0 } else { random.below(1 << 20) };
            Sge::new(random.next(), length, random.next() as u32)
        };
        let entries = match opcode {
            0x11 | 0x12 => 1,
            _ => random.below(LIMITS.max_sge + 1),
        };
        Self {
            opcode,
            list: (0..entries).map(|_| sge(random)).collect(),
            inline: inline.then(|| {
                let length = random.below(LIMITS.max_inline + 1);
                (0..length).map(|_| random.next() as u8).collect()
            }),
            remote: Remote::new(random.next(), random.next() as u32),
            imm: random.next() as u32,
            operands: [random.next(), random.next()],
            signaled: random.below(2) == 0,
            solicited: random.below(2) == 0,
            fenced: random.below(4) == 0,
        }
    }

    /// Appends the request as this crate's type of its operation.
    fn append(&self, batch: &mut crate::ring::Batch<'_>, id: u64) -> Result<(), PostError> {
        macro_rules! go {
            ($op:expr) => {{
                let op = $op.signaled_if(self.signaled);
                if self.fenced { batch.append(id, op.fenced()) } else { batch.append(id, op) }
            }};
            (solicited $op:expr) => {
                if self.solicited { go!($op.solicited()) } else { go!($op) }
            };
        }
        macro_rules! payload {
            (|$payload:ident| $op:expr) => {
                match &self.inline {
                    Some(bytes) if self.imm % 2 == 0 => {
                        let $payload = Inline(bytes);
                        $op
                    }
                    Some(bytes) => {
                        let (first, second) = bytes.split_at(bytes.len() / 3);
                        let pieces = [first, second];
                        let $payload = InlineGather(&pieces);
                        $op
                    }
                    None => match *self.list.as_slice() {
                        [one] => {
                            let $payload = one;
                            $op
                        }
                        [one, two] => {
                            let $payload = [one, two];
                            $op
                        }
                        ref list => {
                            let $payload = list;
                            $op
                        }
                    },
                }
            };
        }
        let word = || Word::new(self.list[0].addr, self.list[0].lkey);
        let [first, second] = self.operands;
        match self.opcode {
            0x00 => go!(Nop::new()),
            0x08 => payload!(|payload| go!(RdmaWrite::new(payload, self.remote))),
            0x09 => {
                payload!(|payload| go!(solicited RdmaWriteImm::new(payload, self.remote, self.imm)))
            }
            0x0a => payload!(|payload| go!(solicited SendMessage::new(payload))),
            0x0b => payload!(|payload| go!(solicited SendImm::new(payload, self.imm))),
            0x10 => go!(RdmaRead::new(self.list.as_slice(), self.remote)),
            0x11 => go!(CompareSwap::new(word(), self.remote, first, second)),
            0x12 => go!(FetchAdd::new(word(), self.remote, first)),
            _ => unreachable!(),
        }
    }

    /// The WQE, and for each byte whether it matters: padding does not.
    fn expect(&self, index: u16) -> (Vec<u8>, Vec<bool>) {
        let mut wqe = vec![0; 16];
        let be = |wqe: &mut Vec<u8>, bytes: &[u8]| wqe.extend_from_slice(bytes);
        if !matches!(self.opcode, 0x00 | 0x0a | 0x0b) {
            be(&mut wqe, &self.remote.addr.to_be_bytes());
            be(&mut wqe, &self.remote.rkey.to_be_bytes());
            be(&mut wqe, &[0; 4]);
        }
        let [first, second] = self.operands;
        match self.opcode {
            0x11 => {
                be(&mut wqe, &second.to_be_bytes());
                be(&mut wqe, &first.to_be_bytes());
            }
            0x12 => {
                be(&mut wqe, &first.to_be_bytes());
                be(&mut wqe, &[0; 8]);
            }
            _ => {}
        }
        let mut matters = None;
        if let Some(bytes) = self.inline.as_ref().filter(|bytes| !bytes.is_empty()) {
            be(&mut wqe, &(0x8000_0000 | bytes.len() as u32).to_be_bytes());
            be(&mut wqe, bytes);
            matters = Some(wqe.len());
            wqe.resize(wqe.len().div_ceil(16) * 16, 0);
        } else if self.inline.is_none() && self.opcode != 0 {
            for sge in &self.list {
                let length = if matches!(self.opcode, 0x11 | 0x12) { 8 } else { sge.length };
                if length != 0 {
                    be(&mut wqe, &length.to_be_bytes());
                    be(&mut wqe, &sge.lkey.to_be_bytes());
                    be(&mut wqe, &sge.addr.to_be_bytes());
                }
            }
        }
        let ds = (wqe.len() / 16) as u32;
        wqe[..4].copy_from_slice(&(u32::from(index) << 8 | u32::from(self.opcode)).to_be_bytes());
        wqe[4..8].copy_from_slice(&(QPN << 8 | ds).to_be_bytes());
        let solicits = matches!(self.opcode, 0x09..=0x0b) && self.solicited;
        wqe[11] =
            u8::from(self.signaled) << 3 | u8::from(solicits) << 1 | u8::from(self.fenced) << 7;
        if matches!(self.opcode, 0x09 | 0x0b) {
            wqe[12..16].copy_from_slice(&self.imm.to_be_bytes());
        }
        let matters = matters.unwrap_or(wqe.len());
        let mask = (0..wqe.len()).map(|at| at < matters).collect();
        (wqe, mask)
    }
}

#[test]
fn wqes_records_and_registers_are_as_the_oracle_lays_them_out() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(120) {
        let blocks = 8 << random.below(if cfg!(miri) { 1 } else { 4 });
        let start = match random.below(3) {
            0 => 0,
            1 => 0x1_0000 - 1 - random.below(20),
            _ => random.below(0x1_0000),
        };
        let half = if random.below(4) == 0 { 0 } else { HALF };
        let mut cq = Cq::new(1 << 10, 64, 0);
        let mut sq = Sq::new(&mut cq, blocks, start, half);
        let mut oracle = vec![0xee; blocks as usize * 64];
        let mut known = vec![true; oracle.len()];
        let mut page = vec![0; 4096];
        let mut head = start;
        let mut offset = 0;
        loop {
            let count = 1 + random.below(3);
            let requests: Vec<_> = (0..count).map(|_| Request::random(&mut random)).collect();
            let mut batch = sq.queue.batch();
            let mut posted = Vec::new();
            let mut full = false;
            for (id, request) in requests.iter().enumerate() {
                match request.append(&mut batch, id as u64) {
                    Ok(()) => posted.push(request),
                    Err(error) => {
                        assert!(
                            matches!(
                                error,
                                PostError::QueueFull { .. } | PostError::NothingSignaled { .. }
                            ),
                            "{error}"
                        );
                        full = true;
                        break;
                    }
                }
            }
            assert_eq!(batch.len() as usize, posted.len());
            // SAFETY: no HCA is there.
            unsafe { batch.ring() };
            let mut last = None;
            for request in &posted {
                let (wqe, mask) = request.expect(head as u16);
                for (at, (byte, matters)) in wqe.iter().zip(mask).enumerate() {
                    let place = (head as usize * 64 + at) % oracle.len();
                    (oracle[place], known[place]) = (*byte, matters);
                }
                last = Some((head, wqe.len()));
                head += wqe.len().div_ceil(64) as u32;
            }
            let ring = sq.buffer.read();
            for at in 0..ring.len() {
                assert!(
                    !known[at] || ring[at] == oracle[at],
                    "byte {at:#x} after {}",
                    text::SendWqe::new(
                        &posted.last().unwrap().expect(head as u16).0,
                        text::Addressing::Connected
                    )
                );
            }
            if let Some((first, length)) = last {
                let at = |byte: usize| ring[(first as usize * 64 + byte) % ring.len()];
                let blue_flame = posted.len() == 1 && length > 16 && length <= half;
                let bytes = if blue_flame { length.div_ceil(64) * 64 } else { 8 };
                for byte in 0..bytes {
                    page[0x800 + offset + byte] = at(byte);
                }
                offset ^= half;
            }
            assert_eq!(sq.page.read(), page);
            assert_eq!(sq.record.be32(4), head & 0xffff);
            assert_eq!(sq.record.be32(0), 0, "the receive word is not the send queue's");
            let used = head - start;
            assert_eq!(sq.queue.free_blocks(), blocks - used);
            if full {
                break;
            }
        }
    }
}

#[test]
fn a_batch_that_is_not_rung_posts_nothing() {
    let mut cq = Cq::new(16, 64, 0);
    let mut sq = Sq::new(&mut cq, 16, 0xfff8, HALF);
    let mut batch = sq.queue.batch();
    for id in 0..5 {
        batch.append(id, SendMessage::new(Inline(b"payload")).signaled()).unwrap();
    }
    drop(batch);
    let _leaked = std::mem::ManuallyDrop::new(sq.queue.batch());
    assert_eq!(sq.record.be32(4), 0xfff8);
    assert!(sq.page.read().iter().all(|&byte| byte == 0));
    assert_eq!(sq.queue.free_blocks(), 16);
    // SAFETY: no HCA is there.
    unsafe { sq.queue.batch().ring() };
    assert!(sq.page.read().iter().all(|&byte| byte == 0), "an empty batch rings nothing");
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(9, Nop::new()).unwrap() };
    assert_eq!(sq.record.be32(4), 0xfff9);
}

#[test]
fn each_refusal_has_its_error_and_changes_nothing() {
    let mut cq = Cq::new(4, 64, 0);
    let mut sq = Sq::new(&mut cq, 8, 0, HALF);
    let sge = Sge::new(0x1000, 8, 1);
    let remote = Remote::new(0, 0);
    let too_many = [sge; 9];
    let too_long = Sge::new(0, (1 << 31) + 1, 1);
    let before = sq.buffer.read();
    macro_rules! refused {
        ($error:expr, $op:expr) => {
            // SAFETY: no HCA is there.
            assert_eq!(unsafe { sq.queue.post(1, $op) }, Err(PostError::from($error)));
            assert_eq!(sq.record.be32(4) as u32, 8 - sq.queue.free_blocks());
        };
    }
    let most = sq.queue.limits().max_sge;
    let excess = Excess::new(too_many.len(), most);
    refused!(PostError::TooManySges(excess), SendMessage::new(&too_many[..]));
    refused!(PostError::TooManySges(excess), RdmaRead::new(too_many, remote));
    refused!(PostError::SgeTooLong { bytes: (1 << 31) + 1 }, RdmaWrite::new(too_long, remote));
    let long = PostError::InlineTooLong(Excess::new(201, 200));
    refused!(long, RdmaWrite::new(Inline(&[0; 201]), remote));
    assert_eq!(sq.buffer.read(), before);
    for id in 0..4 {
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(id, SendMessage::new(sge).signaled()).unwrap() };
    }
    let (before, page) = (sq.buffer.read(), sq.page.read());
    refused!(PostError::CqFull { slots: 4 }, Nop::new().signaled());
    refused!(PostError::CqFull { slots: 4 }, Nop::new());
    assert!(sq.buffer.read() == before && sq.page.read() == page);

    let mut larger = Cq::new(8, 64, 0);
    sq = Sq::new(&mut larger, 8, 0, HALF);
    for id in 0..7 {
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(id, Nop::new().signaled_if(id == 0)).unwrap() };
    }
    let (before, page) = (sq.buffer.read(), sq.page.read());
    refused!(PostError::QueueFull { free: 1 }, RdmaWrite::new(Inline(&[0; 200]), remote));
    assert!(sq.buffer.read() == before && sq.page.read() == page);
}

/// A queue pair that fails completes each WQE by a CQE, signaled or not. So no way
/// of posting has more WQEs outstanding than CQ slots, whatever the number of their blocks.
#[test]
fn no_way_of_posting_exceeds_the_cq_slots() {
    let (sge, remote) = (Sge::new(0x1000, 8, 1), Remote::new(0x2000, 2));
    let long = [5; 100];
    for half in [0, HALF] {
        for kind in 0..6 {
            for slots in [1, 2, 4, 8] {
                let mut cq = Cq::new(slots, 64, 0);
                let mut sq = Sq::new(&mut cq, 64, 0xfff0, half);
                let (mut id, mut posted) = (0, 0);
                let refused = loop {
                    let signaled = id == 0;
                    // SAFETY: no HCA is there.
                    let result = unsafe {
                        let queue = &mut sq.queue;
                        match kind {
                            0 => queue.post(id, Nop::new().signaled_if(signaled)),
                            1 => queue.post(id, RdmaWrite::new(sge, remote).signaled_if(signaled)),
                            2 => {
                                let write = RdmaWrite::new(Inline(&long), remote);
                                queue.post(id, write.signaled_if(signaled))
                            }
                            3 => {
                                let mut batch = queue.batch();
                                let send = SendMessage::new(InlineBytes([1; 4]));
                                let result = batch.append(id, send.signaled_if(signaled));
                                batch.ring();
                                result
                            }
                            4 => {
                                let mut batch = queue.batch();
                                let send = SendMessage::new(Inline(&long));
                                let result = batch.append(id, send.signaled_if(signaled));
                                batch.ring();
                                result
                            }
                            _ => queue.post(id, LocalInvalidate::new(7).signaled_if(signaled)),
                        }
                    };
                    match result {
                        Ok(()) => (id, posted) = (id + 1, posted + 1),
                        Err(error) => break error,
                    }
                };
                assert_eq!(posted, slots, "kind {kind}");
                assert_eq!(refused, PostError::CqFull { slots }, "kind {kind}");
                assert_eq!(sq.queue.request_limit(), slots);
            }
        }
    }
}

#[test]
fn two_gib_is_said_with_zero() {
    let mut cq = Cq::new(4, 64, 0);
    let mut sq = Sq::new(&mut cq, 8, 0, 0);
    let sge = Sge::new(0x1234, 1 << 31, 5);
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(0, SendMessage::new(sge)).unwrap() };
    assert_eq!(sq.buffer.be32(16), 0);
    assert_eq!(sq.buffer.be32(20), 5);
}

#[test]
fn receives_end_with_a_terminator_unless_full() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(100) {
        let (entries, max_sge) = (4 << random.below(3), 1 << random.below(3));
        let start = [0, 0xfffe, random.below(0x1_0000)][random.below(3) as usize];
        let mut cq = Cq::new(64, 64, 0);
        let mut rq = Rq::new(&mut cq, entries, max_sge * 16, start);
        assert_eq!(rq.queue.max_sge(), max_sge);
        let mut oracle = vec![0xee; (entries * max_sge) as usize * 16];
        for posted in 0..entries {
            let list: Vec<_> = (0..random.below(max_sge + 1))
                .map(|_| Sge::new(random.next(), random.below(3), random.next() as u32))
                .collect();
            // SAFETY: no HCA is there.
            unsafe { rq.queue.post(u64::from(posted), list.as_slice()).unwrap() };
            let mut wqe = Vec::new();
            for sge in list.iter().filter(|sge| sge.length != 0) {
                wqe.extend(sge.length.to_be_bytes());
                wqe.extend(sge.lkey.to_be_bytes());
                wqe.extend(sge.addr.to_be_bytes());
            }
            if wqe.len() < max_sge as usize * 16 {
                wqe.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            let at = ((start + posted) % entries * max_sge) as usize * 16;
            oracle[at..at + wqe.len()].copy_from_slice(&wqe);
            assert_eq!(rq.buffer.read(), oracle);
            assert_eq!(rq.record.be32(0), (start + posted + 1) & 0xffff);
        }
        let sge = Sge::new(0, 1, 0);
        let too_many = vec![sge; max_sge as usize + 1];
        // SAFETY: no HCA is there.
        unsafe {
            let full = PostError::QueueFull { free: 0 };
            assert_eq!(rq.queue.post(0, sge), Err(full));
            assert_eq!(
                rq.queue.post(0, &too_many[..]),
                Err(PostError::TooManySges(Excess::new(too_many.len(), max_sge)))
            );
        }
        assert_eq!(rq.record.be32(4), 0, "the send word is not the receive queue's");
    }
}

#[test]
fn limits_are_what_fits_the_ring() {
    let mut cq = Cq::new(16, 64, 0);
    let sq = Sq::new(&mut cq, 1, 0, 0);
    // One block is four segments: ctrl, remote address, two of payload.
    assert_eq!(sq.queue.limits(), Limits { max_sge: 2, max_inline: 28, max_packets: 0 });
}

#[test]
fn a_request_longer_than_the_ring_never_fits() {
    let mut cq = Cq::new(16, 64, 0);
    let mut sq = Sq::new(&mut cq, 4, 0, 0);
    let pieces = [Sge::new(0x1000, 8, 1); 52];
    let error = |blocks| Err(PostError::LongerThanRing(Excess::new(blocks, 4)));
    for (pieces, posted) in
        [(&pieces[..3], Ok(())), (&pieces[..9], error(5)), (&pieces[..], error(15))]
    {
        let request = ConfigureKey::new(0x100).layout(pieces).signaled();
        // SAFETY: no HCA is there.
        unsafe {
            assert_eq!(sq.queue.batch().append(1, request), posted);
            if posted.is_err() {
                assert_eq!(sq.queue.post(1, request), posted);
            }
        }
    }
}

/// By each way of posting: singly, by address, of several blocks, and in batches.
#[test]
fn unsignaled_requests_leave_a_block_for_a_signaled_one() {
    let (sge, remote) = (Sge::new(0x1000, 8, 1), Remote::new(0x2000, 2));
    for half in [0, HALF] {
        for kind in 0..4 {
            let mut cq = Cq::new(16, 64, 0);
            let mut sq = Sq::new(&mut cq, 16, 3, half);
            let mut refused = Vec::new();
            for lap in 0..5 {
                let mut posted = 0;
                // Every second lap begins with a signaled request, which is retired halfway.
                let signaled = lap % 2 == 1;
                let error = loop {
                    let signal = signaled && posted == 0;
                    // SAFETY: no HCA is there.
                    let result = unsafe {
                        let queue = &mut sq.queue;
                        match kind {
                            0 => queue.post(1, Nop::new().signaled_if(signal)),
                            1 => queue.post(1, RdmaWrite::new(sge, remote).signaled_if(signal)),
                            2 => {
                                let long = Inline(&[5; 100]);
                                queue.post(1, RdmaWrite::new(long, remote).signaled_if(signal))
                            }
                            _ => {
                                let mut batch = queue.batch();
                                let nop = Nop::new().signaled_if(signal);
                                batch.append(1, nop).map(|()| batch.ring())
                            }
                        }
                    };
                    match result {
                        Ok(()) => posted += 1,
                        Err(error) => break error,
                    }
                    if signaled && posted == 4 {
                        let tail = sq.queue.ring.state.tail();
                        cq.produce(cqe(cqe_opcode::REQ, 0, tail.value()), &[]);
                        let done = cq.reader.poll(&mut sq.queue).unwrap();
                        assert!(matches!(done, Some(Completion::Send(_))), "{done:?}");
                    }
                };
                let outstanding = 16 - sq.queue.free_blocks();
                assert_eq!(error, PostError::NothingSignaled { outstanding }, "kind {kind}");
                assert!(outstanding >= 14, "kind {kind}: {outstanding} blocks");
                refused.push(error.to_string());
                // There is a block for the NOP, which retires them all.
                assert!(sq.queue.is_silent());
                let at = sq.queue.ring.head().value();
                assert_eq!(sq.queue.reclaim(7), Ok(true));
                cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, at), &[]);
                let done = cq.reader.poll(&mut sq.queue).unwrap();
                assert!(matches!(done, Some(Completion::Send(it)) if it.id == 7), "{done:?}");
                assert!(sq.queue.is_idle());
            }
            let text = &refused[0];
            assert!(text.contains("reclaim") && text.contains("none of those"), "{text}");
        }
    }
}
