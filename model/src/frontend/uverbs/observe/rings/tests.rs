use std::sync::Mutex;

use super::*;
use crate::memory::test::Flat;

const BASE: u64 = 0x10_0000;
/// Doorbell records are behind the rings.
const RECORD: u64 = BASE + 0x8000;

fn memory() -> Flat {
    Flat::new(BASE, 0x1_0000)
}

fn set(memory: &Flat, address: u64, word: u32) {
    memory.write(address, &word.to_be_bytes()).unwrap();
}

/// Writes a WQE of so many segments: each byte of segment `n` behind the first is `n`.
fn post(memory: &Flat, blocks: u64, counter: u16, segments: u8) {
    let mut wqe = vec![0; 16];
    wqe[2] = counter.to_be_bytes()[0];
    wqe[7] = segments;
    for segment in 1..segments {
        wqe.extend([segment; 16]);
    }
    for (index, chunk) in wqe.chunks(64).enumerate() {
        let block = (u64::from(counter) + index as u64) % blocks;
        memory.write(BASE + block * 64, chunk).unwrap();
    }
}

/// The outcome of a look at a send ring.
type Looked = Result<Option<Mistake>, Fault>;

/// Returns the WQEs that a look passes, each by its index and its number of segments. The doorbell
/// names what the record does.
fn sent(ring: &mut SendRing, memory: &Flat) -> (Vec<(u16, usize)>, Looked) {
    let record = read_be32(memory, RECORD).unwrap();
    rung(ring, memory, record as u16)
}

/// The same with a doorbell of its own.
fn rung(ring: &mut SendRing, memory: &Flat, doorbell: u16) -> (Vec<(u16, usize)>, Looked) {
    let mut wqes = Vec::new();
    let looked = ring.look(memory, doorbell, |index, bytes| {
        let count = bytes.len() / 16;
        for segment in 1..count {
            assert!(bytes[segment * 16..][..16].iter().all(|byte| usize::from(*byte) == segment));
        }
        wqes.push((index, count));
    });
    (wqes, looked)
}

#[test]
fn send_ring_passes_each_wqe_once_also_where_it_wraps() {
    let memory = memory();
    let mut ring = SendRing::new(BASE, 8, RECORD).unwrap();
    assert_eq!(sent(&mut ring, &memory), (vec![], Ok(None)));
    post(&memory, 8, 0, 2);
    post(&memory, 8, 1, 5);
    post(&memory, 8, 3, 1);
    set(&memory, RECORD, 4);
    assert_eq!(sent(&mut ring, &memory).0, [(0, 2), (1, 5), (3, 1)]);
    assert_eq!(sent(&mut ring, &memory).0, []);
    // From block 7 to block 1.
    post(&memory, 8, 4, 12);
    post(&memory, 8, 7, 9);
    set(&memory, RECORD, 10);
    assert_eq!(sent(&mut ring, &memory).0, [(4, 12), (7, 9)]);
    ring.reset();
    set(&memory, RECORD, 1);
    post(&memory, 8, 0, 3);
    assert_eq!(sent(&mut ring, &memory).0, [(0, 3)]);
}

#[test]
fn send_ring_says_that_the_record_tells_of_more_than_it_holds() {
    let memory = memory();
    let mut ring = SendRing::new(BASE, 8, RECORD).unwrap();
    set(&memory, RECORD, 9);
    assert_eq!(sent(&mut ring, &memory), (vec![], Ok(Some(Mistake::OverfullQueue))));
    post(&memory, 8, 9, 2);
    set(&memory, RECORD, 10);
    assert_eq!(sent(&mut ring, &memory).0, [(9, 2)]);
}

#[test]
fn send_ring_passes_what_a_doorbell_names_and_says_that_the_record_is_behind() {
    let memory = memory();
    let mut ring = SendRing::new(BASE, 8, RECORD).unwrap();
    post(&memory, 8, 0, 2);
    post(&memory, 8, 1, 2);
    let late = Ok(Some(Mistake::LateRecord));
    assert_eq!(rung(&mut ring, &memory, 1), (vec![(0, 2)], late));
    set(&memory, RECORD, 1);
    assert_eq!(rung(&mut ring, &memory, 2), (vec![(1, 2)], late));
    // The same doorbell, after the record; then a record that another thread has stored since.
    set(&memory, RECORD, 2);
    assert_eq!(rung(&mut ring, &memory, 2), (vec![], Ok(None)));
    post(&memory, 8, 2, 1);
    set(&memory, RECORD, 3);
    assert_eq!(rung(&mut ring, &memory, 2), (vec![(2, 1)], Ok(None)));
}

#[test]
fn send_ring_limits_a_wqe_to_the_ring_and_to_the_record() {
    let memory = memory();
    let mut ring = SendRing::new(BASE, 2, RECORD).unwrap();
    let mut ctrl = [0; 16];
    ctrl[7] = 0x3f;
    memory.write(BASE, &ctrl).unwrap();
    set(&memory, RECORD, 1);
    let mut lengths = Vec::new();
    ring.look(&memory, 1, |_, bytes| lengths.push(bytes.len())).unwrap();
    assert_eq!((lengths, ring.next), (vec![128], 1));
}

#[test]
fn rings_without_memory_are_faults() {
    let memory = memory();
    let outside = BASE + 0x20_0000;
    set(&memory, RECORD, 1);
    let mut send = SendRing::new(outside, 8, RECORD).unwrap();
    assert!(send.look(&memory, 1, |_, _| panic!("there is no WQE")).is_err());
    let mut receive = ReceiveRing::new(outside, 8, 4, RECORD).unwrap();
    assert!(receive.look(&memory).is_err());
    let mut cq = CqRing::new(outside, 8, 64, RECORD).unwrap();
    assert!(cq.look(&memory, &[], |_| panic!("there is no CQE")).is_err());
    assert!(CqRing::new(BASE, 8, 64, outside).unwrap().look(&memory, &[], |_| {}).is_err());
}

#[test]
fn sizes_that_no_ring_has_are_refused() {
    for (base, blocks, record) in
        [(0, 8, RECORD), (BASE, 0, RECORD), (BASE, 3, RECORD), (BASE, 8, 0)]
    {
        assert!(SendRing::new(base, blocks, record).is_none());
        assert!(ReceiveRing::new(base, blocks, 4, record).is_none());
        assert!(CqRing::new(base, blocks, 64, record).is_none());
    }
    assert!(SendRing::new(BASE, 1 << 16, RECORD).is_none());
    assert!(ReceiveRing::new(BASE, 8, 12, RECORD).is_none());
    assert!(CqRing::new(BASE, 8, 32, RECORD).is_none());
    assert!(SharedRing::new(BASE, u32::MAX, 1).is_none());
    assert!(SharedRing::new(BASE, 1, u32::MAX).is_none());
}

#[test]
fn receive_ring_keeps_a_wqe_over_the_next_lap() {
    let memory = memory();
    let mut ring = ReceiveRing::new(BASE, 4, 4, RECORD).unwrap();
    assert_eq!(ring.wqe(0), None);
    let mut post = |count: u16| {
        let at = BASE + u64::from(count % 4) * 16;
        memory.write(at, &[count as u8; 16]).unwrap();
        set(&memory, RECORD, u32::from(count) + 1);
        ring.look(&memory).unwrap();
        let seen = |index: u16| ring.wqe(index).map(|wqe| wqe[0]);
        assert_eq!(seen(count), Some(count as u8));
        assert_eq!(seen(count.wrapping_add(1)), None);
        (seen(count.wrapping_sub(7)), seen(count.wrapping_sub(8)))
    };
    for count in 0..7 {
        assert_eq!(post(count), (None, None));
    }
    assert_eq!(post(7), (Some(0), None));
    assert_eq!(post(8), (Some(1), None));
}

#[test]
fn receive_ring_counts_on_past_what_it_missed() {
    let memory = memory();
    let mut ring = ReceiveRing::new(BASE, 4, 4, RECORD).unwrap();
    for count in 4..8u8 {
        memory.write(BASE + u64::from(count % 4) * 16, &[count; 16]).unwrap();
    }
    set(&memory, RECORD, 8);
    ring.look(&memory).unwrap();
    assert_eq!(ring.wqe(7).map(|wqe| wqe[0]), Some(7));
    assert_eq!(ring.wqe(4).map(|wqe| wqe[0]), Some(4));
    ring.reset();
    assert_eq!(ring.wqe(7), None);
}

#[test]
fn shared_ring_passes_the_list_behind_the_next_segment() {
    let memory = memory();
    let ring = SharedRing::new(BASE, 3, 1).unwrap();
    assert_eq!(ring.sizes(), (4, 32));
    memory.write(BASE + 2 * 32 + 16, &[7; 16]).unwrap();
    let mut list = Vec::new();
    // The index is reduced to the ring.
    ring.wqe(&memory, 6, |bytes| list = bytes.to_vec()).unwrap();
    assert_eq!(list, [7; 16]);
}

/// A CQ of four CQEs whose device and program are the test.
struct Completions {
    memory: Flat,
    ring: CqRing,
    size: u64,
}

impl Completions {
    fn new(size: u32) -> Self {
        let memory = memory();
        for slot in 0..4 {
            let last = BASE + (slot + 1) * u64::from(size) - 1;
            memory.write(last, &[0xf0]).unwrap();
        }
        let ring = CqRing::new(BASE, 4, size, RECORD).unwrap();
        Self { memory, ring, size: size.into() }
    }

    /// The device writes the CQE with this index.
    fn write(&self, index: u64) {
        let mut cqe = vec![index as u8; self.size as usize];
        *cqe.last_mut().unwrap() = (index / 4 % 2) as u8;
        self.memory.write(BASE + index % 4 * self.size, &cqe).unwrap();
    }

    fn consume(&self, count: u32) {
        set(&self.memory, RECORD, count & INDEX);
    }

    /// Looks: indices of CQEs, and numbers of missed ones as negative.
    fn look(&mut self) -> Vec<i64> {
        let mut all = Vec::new();
        self.ring
            .look(&self.memory, &[], |found| match found {
                Found::Cqe(index, bytes) => {
                    assert_eq!(bytes.len() as u64, self.size);
                    assert_eq!(bytes[0], index as u8);
                    all.push(i64::from(index));
                }
                Found::Expanded(..) => panic!("nothing is compressed"),
                Found::Missed(count) => all.push(-i64::from(count)),
            })
            .unwrap();
        all
    }
}

#[test]
fn cq_passes_each_cqe_once_over_laps() {
    for size in [64, 128] {
        let mut cq = Completions::new(size);
        assert_eq!(cq.look(), []);
        let mut next = 0;
        for step in [1, 3, 2, 4, 4, 1] {
            (next..next + step).for_each(|index| cq.write(index));
            let expected: Vec<_> = (next as i64..(next + step) as i64).collect();
            assert_eq!(cq.look(), expected);
            assert_eq!(cq.look(), []);
            next += step;
            cq.consume(next as u32);
        }
    }
}

#[test]
fn cq_reads_a_consumed_cqe_that_was_not_overwritten() {
    let mut cq = Completions::new(64);
    (0..3).for_each(|index| cq.write(index));
    cq.consume(3);
    assert_eq!(cq.look(), [0, 1, 2]);
}

/// Memory in which something happens right after an address was read for the first time.
struct Meanwhile<F>(Flat, u64, Mutex<Option<F>>);

impl<F: FnOnce(&Flat) + Send> Memory for Meanwhile<F> {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.0.read(address, to)?;
        if address == self.1 {
            if let Some(happens) = self.2.lock().unwrap().take() {
                happens(&self.0);
            }
        }
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        unreachable!("rings are only read")
    }

    fn update(&self, _: u64, _: &mut dyn FnMut([u8; 8]) -> [u8; 8]) -> Result<[u8; 8], Fault> {
        unreachable!("rings are only read")
    }

    fn publish(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        unreachable!("rings are only read")
    }
}

#[test]
fn cq_passes_a_cqe_that_is_written_and_consumed_while_its_slot_is_read() {
    let Completions { memory, mut ring, .. } = Completions::new(64);
    let written_and_consumed = |memory: &Flat| {
        memory.write(BASE, &[0; 64]).unwrap();
        set(memory, RECORD, 1);
    };
    let memory = Meanwhile(memory, BASE + 63, Mutex::new(Some(written_and_consumed)));
    let mut passed = Vec::new();
    for _ in 0..2 {
        ring.look(&memory, &[], |found| {
            passed.push(match found {
                Found::Cqe(index, _) => i64::from(index),
                Found::Expanded(..) => panic!("nothing is compressed"),
                Found::Missed(count) => -i64::from(count),
            });
        })
        .unwrap();
    }
    assert_eq!(passed, [0]);
}

#[test]
fn cq_counts_what_was_overwritten() {
    let mut cq = Completions::new(64);
    (0..6).for_each(|index| cq.write(index));
    cq.consume(4);
    // The first two are overwritten by the last two.
    assert_eq!(cq.look(), [-2, 2, 3]);
    assert_eq!(cq.look(), [4, 5]);
    // A whole lap and more.
    (6..20).for_each(|index| cq.write(index));
    cq.consume(18);
    assert_eq!(cq.look(), [-10, 16, 17]);
    assert_eq!(cq.look(), [18, 19]);
}

#[test]
fn cq_goes_on_over_the_end_of_its_index() {
    let mut cq = Completions::new(64);
    cq.ring.next = INDEX - 1;
    cq.consume(INDEX - 1);
    for index in [u64::from(INDEX) - 1, u64::from(INDEX), u64::from(INDEX) + 1] {
        cq.write(index);
    }
    assert_eq!(cq.look(), [i64::from(INDEX) - 1, i64::from(INDEX), 0]);
    cq.consume(INDEX + 2);
    assert_eq!(cq.look(), []);
}

#[test]
fn cq_goes_on_in_the_ring_of_another_size() {
    let mut cq = Completions::new(64);
    (0..3).for_each(|index| cq.write(index));
    cq.consume(3);
    assert_eq!(cq.look(), [0, 1, 2]);
    let other = BASE + 0x4000;
    let slots = vec![0xf0; 8 * 64];
    cq.memory.write(other, &slots).unwrap();
    cq.ring.resize(other, 8);
    cq.memory.write(other + 3 * 64, &[3; 63]).unwrap();
    cq.memory.write(other + 4 * 64 - 1, &[0]).unwrap();
    assert_eq!(cq.look(), [3]);
}

/// A compressing CQ of 16 CQEs whose device and program are the test.
struct Blocks {
    memory: Flat,
    ring: CqRing,
    size: u64,
}

/// The queue pair of the CQEs.
const QP: u32 = 0x12_3456;

impl Blocks {
    fn new(size: u32, format: MiniFormat) -> Self {
        let memory = memory();
        let ring = CqRing::new(BASE, 16, size, RECORD).unwrap().compressed(format);
        let blocks = Self { memory, ring, size: size.into() };
        (0..16).for_each(|slot| blocks.put(slot, &[0xff; 64]));
        blocks
    }

    fn put(&self, index: u64, cqe: &[u8; 64]) {
        self.memory.write(BASE + (index % 16 + 1) * self.size - 64, cqe).unwrap();
    }

    /// The device writes a CQE, or a title, with this opcode.
    fn write(&self, index: u64, opcode: u8, counter: u16, count: u32) {
        let mut cqe = [0; 64];
        cqe[44..48].copy_from_slice(&count.to_be_bytes());
        cqe[56..60].copy_from_slice(&(0x0800_0000 | QP).to_be_bytes());
        cqe[60..62].copy_from_slice(&counter.to_be_bytes());
        let format = if count > 1 { FORMAT_COMPRESSED << FORMAT_SHIFT } else { 0 };
        cqe[63] = opcode << 4 | format | (index / 16 % 2) as u8;
        self.put(index, &cqe);
    }

    /// The device writes the slots of mini-CQEs of a block. `mini` makes the first four bytes of each.
    fn minis(&self, index: u64, count: u64, mini: impl Fn(u64) -> [u8; 4]) {
        for start in (0..count).step_by(8) {
            let mut slot = [0; 64];
            for (number, bytes) in (start..count).zip(slot.chunks_exact_mut(8)) {
                bytes[..4].copy_from_slice(&mini(number));
                bytes[4..].copy_from_slice(&(100 + number as u32).to_be_bytes());
            }
            self.put(index + start.max(1), &slot);
        }
    }

    /// Looks: index, WQE counter and length of each CQE, and the number of missed ones.
    fn look(&mut self, known: &[u32]) -> (Vec<(u32, u16, u32)>, u32) {
        let (mut all, mut lost) = (Vec::new(), 0);
        let mut put = |index, cqe: &[u8; 64]| {
            let length = u32::from_be_bytes(*cqe[44..].first_chunk().unwrap());
            all.push((index, u16::from_be_bytes([cqe[60], cqe[61]]), length));
            assert_eq!(cqe[63] >> FORMAT_SHIFT & 3, 0);
        };
        let looked = self.ring.look(&self.memory, known, |found| match found {
            Found::Cqe(index, bytes) => put(index, bytes.last_chunk().unwrap()),
            Found::Expanded(index, cqe) => put(index, cqe),
            Found::Missed(count) => lost += count,
        });
        looked.unwrap();
        (all, lost)
    }
}

#[test]
fn blocks_are_expanded_by_the_side_and_format_of_their_cqes() {
    let counters: [fn(u64) -> u16; 3] =
        [|number| 50 - 2 * number as u16, |number| 7 + number as u16, |number| 90 + number as u16];
    for (size, format, opcode, counter) in [
        (64, MiniFormat::Hash, 0, counters[0]),
        (64, MiniFormat::Hash, 2, counters[1]),
        (128, MiniFormat::Checksum, 2, counters[1]),
        (128, MiniFormat::ChecksumStride, 2, counters[2]),
    ] {
        let mut cq = Blocks::new(size, format);
        cq.write(0, opcode, 7, 10);
        cq.minis(0, 10, |number| {
            let [high, low] = counter(number).to_be_bytes();
            if opcode == 0 { [high, low, 8, 0] } else { [1, 2, high, low] }
        });
        // A CQE behind the block.
        cq.write(10, opcode, 1, 1);
        let block = (0..10).map(|number| (number, counter(number.into()), 100 + number));
        let expected: Vec<_> = block.chain([(10, 1, 1)]).collect();
        assert_eq!(cq.look(&[]), (expected, 0), "{format:?} {opcode}");
        assert_eq!(cq.look(&[]), (vec![], 0));
        // Over the end of the ring.
        set(&cq.memory, RECORD, 11);
        cq.write(11, 0, 3, 9);
        cq.minis(11, 9, |number| [0, number as u8, 8, 0]);
        let expected = (0..9).map(|number| (11 + number, number as u16, 100 + number)).collect();
        assert_eq!(cq.look(&[]), (expected, 0));
    }
}

#[test]
fn a_block_whose_title_is_gone_is_missed_and_its_mini_cqes_are_no_cqes() {
    let mut cq = Blocks::new(64, MiniFormat::Hash);
    cq.write(0, 2, 0, 10);
    // Each slot of mini-CQEs looks like a CQE of this lap.
    cq.minis(0, 10, |_| [0; 4]);
    for slot in [1, 8] {
        let last = BASE + (slot + 1) * 64 - 1;
        cq.memory.write(last, &[0x20]).unwrap();
    }
    // The program has taken the block apart, and consumed some of it.
    cq.memory.write(BASE + 63, &[0xff]).unwrap();
    set(&cq.memory, RECORD, 4);
    assert_eq!(cq.look(&[QP]), (vec![], 4));
    assert!(cq.ring.is_lost());
    set(&cq.memory, RECORD, 10);
    cq.write(10, 2, 10, 1);
    assert_eq!(cq.look(&[QP]), (vec![(10, 10, 1)], 6));
    assert!(!cq.ring.is_lost());
}

#[test]
fn a_title_of_an_impossible_length_is_missed() {
    let mut cq = Blocks::new(64, MiniFormat::Hash);
    cq.write(0, 2, 0, 17);
    assert_eq!(cq.look(&[QP]), (vec![], 1));
    cq.write(0, 2, 0, u32::MAX);
    assert_eq!(cq.look(&[QP]), (vec![], 0));
}
