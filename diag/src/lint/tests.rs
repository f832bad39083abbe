//! Each defect, seeded in a ring that is right otherwise, is found by its name, and nothing else
//! is.

use std::collections::BTreeSet;

use mlx5_sys::wqe::opcode;
use proptest::prelude::*;

use super::*;

const QPN: u32 = 0x1234;
/// Blocks of the rings here.
const RING: u32 = 16;

/// A ring that WQEs are written to one after the other.
#[derive(Clone)]
struct Ring {
    bytes: Vec<u8>,
    head: u16,
}

impl Ring {
    fn from(start: u16) -> Ring {
        Ring { bytes: vec![0; RING as usize * 64], head: start }
    }

    /// Writes a WQE of these segments, and the ctrl segment, which it returns the place of.
    fn put(&mut self, opcode: u8, flags: u8, body: &[&[u8]]) -> usize {
        let body = body.concat();
        assert_eq!(body.len() % 16, 0);
        let ds = 1 + body.len() / 16;
        let mut wqe = vec![0];
        wqe.extend(self.head.to_be_bytes());
        wqe.push(opcode);
        wqe.extend((QPN << 8 | ds as u32).to_be_bytes());
        wqe.extend([0, 0, 0, flags, 0, 0, 0, 0]);
        wqe.extend(body);
        let at = usize::from(self.head) * 64 % self.bytes.len();
        for (offset, byte) in wqe.into_iter().enumerate() {
            let size = self.bytes.len();
            self.bytes[(at + offset) % size] = byte;
        }
        self.head = self.head.wrapping_add(ds.div_ceil(4) as u16);
        at
    }
}

fn facts(transport: Transport) -> Facts {
    Facts {
        qpn: Some(QPN),
        max_sge: Some(4),
        max_inline: Some(60),
        cqes: Some(16),
        ..Facts::new(transport)
    }
}

fn data(length: u32, lkey: u32, addr: u64) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&length.to_be_bytes());
    segment[4..8].copy_from_slice(&lkey.to_be_bytes());
    segment[8..].copy_from_slice(&addr.to_be_bytes());
    segment
}

fn remote(addr: u64) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..8].copy_from_slice(&addr.to_be_bytes());
    segment[8..12].copy_from_slice(&0x99u32.to_be_bytes());
    segment
}

fn inline(length: u32) -> Vec<u8> {
    let mut segment = (1 << 31 | length).to_be_bytes().to_vec();
    segment.resize((4 + length as usize).next_multiple_of(16), 0xee);
    segment
}

fn sge() -> [u8; 16] {
    data(64, 0x77, 0x7000_0000)
}

/// An address vector of 48 bytes.
fn address() -> [u8; 48] {
    let mut segment = [0; 48];
    segment[8..12].copy_from_slice(&0x8000_0055u32.to_be_bytes());
    segment
}

fn ethernet(header: u16) -> Vec<u8> {
    let mut segment = vec![0; 16 + usize::from(header.saturating_sub(2)).next_multiple_of(16)];
    segment[12..14].copy_from_slice(&header.to_be_bytes());
    segment
}

fn xrc() -> [u8; 16] {
    let mut segment = [0; 16];
    segment[3] = 9;
    segment
}

/// A UMR with a list of so many entries, in the WQE.
fn umr(entries: u8) -> Vec<u8> {
    let mut segments = vec![0; 48 + 64 + usize::from(entries) * 16];
    (segments[0], segments[5]) = (0x80, entries);
    segments
}

fn findings(facts: Facts, ring: &Ring, start: u16, record: u16) -> Vec<Finding> {
    let mut found = Vec::new();
    Lint::at(facts, start).ring(&ring.bytes, Some(record), &mut |finding| found.push(finding));
    found
}

/// A ring with something before and behind what `write` adds; its findings.
fn around(facts: Facts, write: impl FnOnce(&mut Ring) -> usize) -> Vec<Finding> {
    // Close to where 16 bits wrap.
    let start = 0xfffa;
    let mut ring = Ring::from(start);
    let nop = |ring: &mut Ring| ring.put(opcode::NOP, 8, &[]);
    nop(&mut ring);
    write(&mut ring);
    nop(&mut ring);
    let record = ring.head;
    findings(facts, &ring, start, record)
}

/// Returns the seeded defects: the name of each, and the findings that the lint reports.
fn seeds() -> Vec<(&'static str, Vec<Finding>)> {
    use Transport::{Dci, RawPacket, Rc, Ud, Xrc};
    let rc = facts(Rc);
    let signaled = 8;
    // A WRITE, of which `spoil` changes bytes.
    let write = |facts: Facts, spoil: &dyn Fn(&mut [u8])| {
        around(facts, |ring| {
            let at = ring.put(opcode::RDMA_WRITE, signaled, &[&remote(0x1000), &sge()]);
            spoil(&mut ring.bytes[at..at + 64]);
            at
        })
    };
    let one = |facts: Facts, opcode: u8, body: &[&[u8]]| {
        around(facts, |ring| ring.put(opcode, signaled, body))
    };
    let spoiled = |facts: Facts, opcode: u8, body: &[&[u8]], place: usize, byte: u8| {
        around(facts, |ring| {
            let at = ring.put(opcode, signaled, body);
            let size = ring.bytes.len();
            ring.bytes[(at + place) % size] = byte;
            at
        })
    };
    let strict = Facts { strict: true, ..rc };
    let mut seeds = vec![
        ("unknown-opcode", write(rc, &|wqe| wqe[3] = 0x7e)),
        ("not-on-transport", one(facts(Ud), opcode::RDMA_READ, &[&remote(8), &sge()])),
        (
            "not-capable",
            one(
                Facts { capabilities: Capabilities::all().difference(Capabilities::ATOMIC), ..rc },
                opcode::ATOMIC_FA,
                &[&remote(8), &[0; 16], &data(8, 7, 8)],
            ),
        ),
        ("unknown-modifier", write(rc, &|wqe| wqe[0] = 1)),
        ("wrong-queue-pair", write(rc, &|wqe| wqe[6] ^= 1)),
        ("wrong-index", write(rc, &|wqe| wqe[2] ^= 1)),
        ("size-zero", write(rc, &|wqe| wqe[7] = 0)),
        ("too-long", one(Facts { max_ds: 4, ..rc }, opcode::SEND, &[&inline(60)])),
        ("overlap", write(rc, &|wqe| wqe[7] = 8)),
        (
            "gap",
            around(rc, |ring| {
                let at = ring.put(opcode::SEND, signaled, &[&sge(), &sge(), &sge(), &sge()]);
                ring.bytes[at + 7] = 3;
                at
            }),
        ),
        ("reserved-ctrl", write(rc, &|wqe| wqe[11] |= 1)),
        ("reserved-ctrl", write(rc, &|wqe| wqe[7] |= 0x40)),
        ("reserved-fence", write(rc, &|wqe| wqe[11] |= 0xe0)),
        ("stream-unused", write(rc, &|wqe| wqe[10] = 1)),
        ("immediate-unused", write(strict, &|wqe| wqe[15] = 1)),
        ("solicited-unused", write(rc, &|wqe| wqe[11] |= 2)),
        ("not-signaled", write(Facts { signal_all: true, ..rc }, &|wqe| wqe[11] = 0)),
        (
            "key-change-unfenced",
            around(rc, |ring| {
                ring.put(opcode::UMR, signaled, &[&umr(0)]);
                ring.put(opcode::SEND, signaled, &[&sge()])
            }),
        ),
        ("segment-missing", write(rc, &|wqe| wqe[7] = 1)),
        ("segment-missing", one(facts(Ud), opcode::SEND, &[&address()[..32]])),
        ("segment-missing", one(facts(Xrc), opcode::SEND, &[])),
        ("segment-missing", one(facts(RawPacket), opcode::SEND, &[&ethernet(40)[..16]])),
        ("segment-missing", one(facts(Dci), opcode::RDMA_WRITE, &[&address()])),
        ("segment-missing", one(rc, opcode::UMR, &[&umr(0)[..64]])),
        ("leftover", one(rc, opcode::TAG_MATCHING, &[&[0; 48]])),
        ("reserved-field", write(rc, &|wqe| wqe[31] = 1)),
        ("reserved-field", spoiled(facts(Ud), opcode::SEND, &[&address(), &sge()], 32, 1)),
        ("stale-bytes", {
            let facts = Facts { strict: true, ..facts(Xrc) };
            spoiled(facts, opcode::SEND, &[&xrc(), &sge()], 31, 1)
        }),
        ("inline-forbidden", one(rc, opcode::RDMA_READ, &[&remote(8), &inline(8)])),
        ("inline-beyond", spoiled(rc, opcode::SEND, &[&inline(8)], 19, 13)),
        ("inline-too-long", one(rc, opcode::SEND, &[&inline(61)])),
        ("inline-reserved", spoiled(rc, opcode::SEND, &[&inline(8)], 17, 1)),
        ("inline-empty", one(rc, opcode::SEND, &[&inline(0)])),
        ("too-many-sges", one(rc, opcode::SEND, &[&sge(); 5].map(|sge| sge.as_slice()))),
        ("hole", one(rc, opcode::SEND, &[&sge(), &[0; 16]])),
        ("invalid-lkey", one(rc, opcode::SEND, &[&data(8, 0, 8)])),
        ("invalid-lkey", one(rc, opcode::SEND, &[&data(8, 0x100, 8)])),
        ("two-gib", one(rc, opcode::SEND, &[&data(0, 7, 8)])),
        ("address-wraps", one(rc, opcode::SEND, &[&data(8, 7, u64::MAX - 6)])),
        (
            "message-too-long",
            one(rc, opcode::SEND, &[&data(1 << 30, 7, 8), &data(1 << 30, 7, 8), &sge()]),
        ),
        ("invalid-rkey", write(rc, &|wqe| wqe[24..28].fill(0))),
        ("unaligned", one(rc, opcode::ATOMIC_CS, &[&remote(12), &[0; 16], &data(8, 7, 8)])),
        ("atomic-length", one(rc, opcode::ATOMIC_CS, &[&remote(8), &[0; 16], &sge()])),
        ("no-destination", spoiled(facts(Xrc), opcode::SEND, &[&xrc(), &sge()], 19, 0)),
        ("no-destination", spoiled(facts(Dci), opcode::SEND, &[&address(), &sge()], 27, 0)),
        (
            "header-short",
            one(
                Facts { min_header: 18, ..facts(RawPacket) },
                opcode::SEND,
                &[&ethernet(0), &sge()],
            ),
        ),
        ("no-mss", one(facts(RawPacket), opcode::TSO, &[&ethernet(54), &sge()])),
        ("mss-unused", spoiled(facts(RawPacket), opcode::SEND, &[&ethernet(18), &sge()], 23, 1)),
        ("no-packets", one(facts(RawPacket), opcode::ENHANCED_MPSW, &[&ethernet(0)])),
        (
            "header-shared",
            one(facts(RawPacket), opcode::ENHANCED_MPSW, &[&ethernet(2), &inline(60)]),
        ),
        (
            "packet-short",
            one(facts(RawPacket), opcode::ENHANCED_MPSW, &[&ethernet(0), &inline(13), &sge()]),
        ),
        (
            "packet-short",
            one(facts(RawPacket), opcode::ENHANCED_MPSW, &[&ethernet(0), &data(13, 7, 8)]),
        ),
        (
            "inline-beyond",
            spoiled(facts(RawPacket), opcode::ENHANCED_MPSW, &[&ethernet(0), &inline(60)], 35, 61),
        ),
        (
            "inline-too-long",
            one(facts(RawPacket), opcode::ENHANCED_MPSW, &[&ethernet(0), &inline(61)]),
        ),
        (
            "not-capable",
            one(
                Facts { capabilities: Capabilities::empty(), ..facts(RawPacket) },
                opcode::ENHANCED_MPSW,
                &[&ethernet(0), &sge()],
            ),
        ),
        (
            "header-short",
            one(
                Facts { min_header: 18, ..facts(RawPacket) },
                opcode::ENHANCED_MPSW,
                &[&ethernet(0), &inline(60), &sge()],
            ),
        ),
        ("wait-condition", {
            let wait: [&[u8]; 2] = [&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0xee; 16]];
            let mut ring = Ring::from(0);
            let at = ring.put(opcode::WAIT, signaled, &wait);
            ring.bytes[at] = opcode::OPMOD_WAIT_TIME;
            let raw = facts(RawPacket);
            let found = findings(raw, &ring, 0, 1);
            ring.bytes[at + 19] = 5;
            assert_eq!(findings(raw, &ring, 0, 1), []);
            ring.bytes[at + 24] = 1;
            assert_eq!(findings(raw, &ring, 0, 1)[0].offset, 24);
            found
        }),
        ("umr-flags", spoiled(rc, opcode::UMR, &[&umr(4)], 16, 0x81)),
        ("translation-size", spoiled(rc, opcode::UMR, &[&umr(4)], 21, 5)),
        ("tag-operation", spoiled(rc, opcode::TAG_MATCHING, &[&[0; 32]], 16, 0x50)),
        ("copy-lengths", {
            let copy: [&[u8]; 3] = [&data(0, 7, 64), &sge(), &data(65, 7, 64)];
            spoiled(rc, opcode::MMO, &copy, 0, 1)
        }),
        ("signature", {
            let signed = Facts { signatures: true, ..rc };
            let mut ring = Ring::from(0);
            let at = ring.put(opcode::SEND, signaled, &[&sge()]);
            ring.bytes[at + 8] = !ring.bytes[at..at + 32].iter().fold(0, |sum, byte| sum ^ byte);
            assert_eq!(findings(signed, &ring, 0, 1), []);
            ring.bytes[at + 20] ^= 4;
            findings(signed, &ring, 0, 1)
        }),
    ];
    seeds.extend(of_queues(rc));
    seeds
}

/// Seeds that are not in one WQE.
fn of_queues(rc: Facts) -> Vec<(&'static str, Vec<Finding>)> {
    let mut unsignaled = Ring::from(100);
    (0..RING).for_each(|_| {
        unsignaled.put(opcode::SEND, 0, &[&sge()]);
    });
    let mut signaled = Ring::from(100);
    (0..RING).for_each(|_| {
        signaled.put(opcode::SEND, 8, &[&sge()]);
    });
    let small = Facts { cqes: Some(RING - 1), ..rc };
    let mut few = Ring::from(100);
    (0..RING).for_each(|_| {
        few.put(opcode::SEND, 8, &[&sge()]);
    });
    // A lap later: three more of one block, then one of two.
    (0..3).for_each(|_| {
        few.put(opcode::SEND, 8, &[&sge()]);
    });
    few.put(opcode::SEND, 8, &[&sge(), &sge(), &sge(), &sge()]);
    let start = 100 + RING as u16;
    let ring = |record| findings(rc, &few, start, record);
    assert_eq!(ring(start + 5), []);
    let mut register = Vec::new();
    let mut lint = Lint::at(rc, start);
    lint.ring(&few.bytes, Some(start + 5), &mut |finding| register.push(finding));
    let at = usize::from(start + 3) * 64 % few.bytes.len();
    let first: [u8; 8] = few.bytes[at..at + 8].try_into().unwrap();
    lint.doorbell(u64::from_be_bytes(first), &mut |finding| register.push(finding));
    assert_eq!(register, []);
    lint.doorbell(u64::from_le_bytes(first), &mut |finding| register.push(finding));
    vec![
        ("no-completion", findings(rc, &unsignaled, 100, 100 + RING as u16)),
        ("cq-too-small", findings(small, &signaled, 100, 100 + RING as u16)),
        ("record-behind", ring(start + 3)),
        ("record-ahead", ring(start + 6)),
        ("record-inside", ring(start + 4)),
        ("wrong-doorbell", register),
        (
            "key-byte-order",
            vec![reversed_key(&reversed(), Side::Local, |key| key == 0x1234).unwrap()],
        ),
        ("no-local-write", misused(opcode::RDMA_READ, &[&remote(8), &sge()], READ_ONLY)),
        ("outside-region", misused(opcode::SEND, &[&sge()], Region { length: 63, ..READ_ONLY })),
    ]
}

#[test]
fn a_stale_data_segment_behind_the_record_is_not_taken_for_a_wqe() {
    let mut ring = Ring::from(99);
    // Its last data segment begins the second block. It reads as the ctrl segment of a SEND with
    // index 116, but for its first byte.
    let stale = data(0x54 << 24 | 116 << 8 | u32::from(opcode::SEND), QPN << 8 | 5, 0x7000_0000);
    ring.put(opcode::SEND, 8, &[&sge(), &sge(), &sge(), &stale]);
    // A lap later the record ends before that block.
    ring.head = 115;
    ring.put(opcode::SEND, 8, &[&sge()]);
    assert_eq!(findings(facts(Transport::Rc), &ring, 115, 116), []);
}

/// The region of [`sge`].
const READ_ONLY: Region = Region { start: 0x7000_0000, length: 64, local_write: false };

/// Findings about the memory of a WQE whose keys are all of one region.
fn misused(opcode: u8, segments: &[&[u8]], region: Region) -> Vec<Finding> {
    let mut ring = Ring::from(0);
    ring.put(opcode, 8, segments);
    let mut found = Vec::new();
    let report = &mut |finding| found.push(finding);
    misused_regions(&facts(Transport::Rc), &ring.bytes, |_| Some(region), report);
    found
}

#[test]
fn memory_of_a_wqe_lies_in_its_region_and_what_is_written_may_be() {
    let read: [&[u8]; 3] = [&remote(8), &sge(), &sge()];
    let writable = Region { local_write: true, ..READ_ONLY };
    assert_eq!(misused(opcode::RDMA_READ, &read, writable), []);
    let found = misused(opcode::RDMA_READ, &read, READ_ONLY);
    let at: Vec<_> = found.iter().map(|finding| (finding.segment, finding.offset)).collect();
    assert_eq!(at, [(Segment::Data, 36), (Segment::Data, 52)]);
    let atomic: [&[u8]; 3] = [&remote(8), &[0; 16], &data(8, 0x77, 0x7000_0000)];
    assert_eq!(misused(opcode::ATOMIC_FA, &atomic, writable), []);
    assert_eq!(misused(opcode::ATOMIC_FA, &atomic, READ_ONLY).len(), 1);
    // What is only read needs no right, and inline bytes have no region.
    let inlined = inline(16);
    let write: [&[u8]; 3] = [&remote(8), &sge(), &inlined];
    assert_eq!(misused(opcode::RDMA_WRITE, &write, READ_ONLY), []);
    for region in [
        Region { start: 0x7000_0001, ..READ_ONLY },
        Region { start: 0, length: 0x7000_003f, local_write: true },
        Region { start: u64::MAX, length: u64::MAX, local_write: true },
    ] {
        let found = misused(opcode::RDMA_WRITE, &write, region);
        assert_eq!(found.len(), 1, "{region:?}");
        let defect = Defect::OutsideRegion { lkey: 0x77, addr: 0x7000_0000, length: 64 };
        assert_eq!((found[0].offset, found[0].defect), (40, defect));
    }
    // The source of a copy is only read.
    let copy: [&[u8]; 3] = [&[0; 16], &sge(), &sge()];
    let mut ring = Ring::from(0);
    ring.put(opcode::MMO, 8, &copy);
    ring.bytes[0] = opcode::OPMOD_MMO_DMA;
    let mut offsets = Vec::new();
    let report = &mut |finding: Finding| offsets.push(finding.offset);
    misused_regions(&facts(Transport::Rc), &ring.bytes, |_| Some(READ_ONLY), report);
    assert_eq!(offsets, [52]);
    // Of a WQE that is cut off nothing is known.
    let mut none = |finding| panic!("{finding:?}");
    for length in 0..64 {
        let facts = facts(Transport::Rc);
        misused_regions(&facts, &ring.bytes[..length], |_| Some(READ_ONLY), &mut none);
    }
}

#[test]
fn the_key_that_a_umr_changes_is_in_its_ctrl_segment() {
    let mut ring = Ring::from(0);
    ring.put(opcode::UMR, 8, &[&umr(0)]);
    ring.bytes[12..16].copy_from_slice(&0x1234_5678_u32.to_be_bytes());
    assert_eq!(changed_key(&ring.bytes), Some(0x12_3456));
    ring.bytes[3] = opcode::SEND;
    assert_eq!(changed_key(&ring.bytes), None);
    assert_eq!(changed_key(&[0; 15]), None);
}

/// A WRITE whose keys 0x1234 and 0x5678 are in the host's order, behind inline bytes that look like a key.
fn reversed() -> Vec<u8> {
    let mut ring = Ring::from(0);
    let remote: [u8; 16] = {
        let mut remote = remote(0x1000);
        remote[8..12].copy_from_slice(&0x5678_u32.to_le_bytes());
        remote
    };
    let inline = data(1 << 31 | 4, 0x1234_u32.swap_bytes(), 0);
    ring.put(opcode::RDMA_WRITE, 8, &[&remote, &inline, &data(8, 0x1234_u32.swap_bytes(), 0x1000)]);
    ring.bytes
}

#[test]
fn a_key_is_in_the_wrong_order_if_in_reverse_it_is_one_and_as_it_is_none() {
    let wqe = reversed();
    let found = reversed_key(&wqe, Side::Local, |key| key == 0x1234).unwrap();
    assert_eq!((found.segment, found.offset), (Segment::Data, 52));
    assert_eq!(found.defect, Defect::KeyByteOrder { found: 0x3412_0000, made: 0x1234 });
    let found = reversed_key(&wqe, Side::Remote, |key| key == 0x5678).unwrap();
    assert_eq!((found.segment, found.offset), (Segment::Remote, 24));
    // Neither order is a key, or both are.
    assert_eq!(reversed_key(&wqe, Side::Local, |_| false), None);
    assert_eq!(reversed_key(&wqe, Side::Local, |_| true), None);
    assert_eq!(reversed_key(&wqe[..20], Side::Remote, |key| key == 0x5678), None);
}

#[test]
fn packets_in_one_wqe_are_not_entries_of_one() {
    // More than the four entries and 60 inline bytes of a request for one packet.
    let packets: [&[u8]; 8] =
        [&ethernet(0), &inline(60), &sge(), &sge(), &sge(), &sge(), &sge(), &inline(60)];
    let found =
        around(facts(Transport::RawPacket), |ring| ring.put(opcode::ENHANCED_MPSW, 8, &packets));
    assert_eq!(found, []);
}

#[test]
fn each_seeded_defect_is_found_by_its_name_and_nothing_else_is() {
    let mut names = BTreeSet::new();
    for (name, findings) in seeds() {
        let found: Vec<_> = findings.iter().map(|finding| finding.defect.name()).collect();
        assert_eq!(found, [name], "{findings:?}");
        let text = findings[0].to_string();
        assert!(text.contains(name) && text.contains(findings[0].defect.cure()), "{text}");
        names.insert(name);
    }
    // No entry of the table goes without.
    let all: BTreeSet<_> = Defect::NAMES.iter().copied().collect();
    assert_eq!(names, all);
    assert_eq!(Defect::NAMES.len(), all.len(), "two entries have one name");
}

#[test]
fn a_finding_names_wqe_segment_and_byte_and_what_was_expected() {
    let found = around(facts(Transport::Rc), |ring| {
        ring.put(opcode::ATOMIC_FA, 8, &[&remote(0x1004), &[0; 16], &data(8, 7, 8)])
    });
    assert_eq!(
        found[0].to_string(),
        "defect unaligned: WQE 0xfffb (ATOMIC_FA), remote address segment at byte 16: an atomic on \
         8 bytes at 0x1004, expected a multiple of 8; align the variable at the peer: the responder \
         refuses it otherwise (remote invalid request)"
    );
}

#[test]
fn wqes_may_go_on_at_the_rings_start() {
    let start = 0xffff;
    for opcode in [opcode::SEND, opcode::SEND_IMM] {
        let mut ring = Ring::from(start);
        ring.put(opcode, 8, &[&inline(60), &sge(), &sge(), &sge()]);
        ring.put(opcode::NOP, 8, &[]);
        let record = ring.head;
        assert_eq!(findings(facts(Transport::Rc), &ring, start, record), []);
        // Its third unit behind the wrap is garbage.
        ring.bytes[32..48].fill(0);
        let found = findings(facts(Transport::Rc), &ring, start, record);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].defect, found[0].offset), (Defect::Hole {}, 96));
    }
}

#[test]
fn without_a_record_what_is_written_ends_where_indices_do() {
    let mut ring = Ring::from(5);
    (0..3).for_each(|_| {
        ring.put(opcode::SEND, 8, &[&sge()]);
    });
    let mut lint = Lint::at(facts(Transport::Rc), 5);
    assert_eq!(lint.ring(&ring.bytes, None, &mut |finding| panic!("{finding}")), 3);
    assert_eq!(lint.next(), Some(8));
    // Nothing was written at all.
    let mut lint = Lint::new(facts(Transport::Rc));
    assert_eq!(lint.ring(&[0; 1024], None, &mut |finding| panic!("{finding}")), 0);
}

/// A SEND or WRITE of inline data, of which each block but the first begins as a WQE of this queue
/// does.
fn disguised(ring: &mut Ring, opcode: u8, length: u32, ds: u8) {
    let mut body: Vec<u8> = Vec::new();
    if opcode == opcode::RDMA_WRITE {
        body.extend(remote(0x1000));
    }
    body.extend((1 << 31 | length).to_be_bytes());
    let end = body.len() + length as usize;
    for block in 1.. {
        let at = block * 64 - 16;
        if at + 8 > end {
            break;
        }
        body.resize(at, 0x11);
        body.push(0);
        body.extend(ring.head.wrapping_add(block as u16).to_be_bytes());
        body.push(opcode::NOP);
        body.extend((QPN << 8 | u32::from(ds)).to_be_bytes());
    }
    body.resize(end.next_multiple_of(16), 2);
    ring.put(opcode, 8, &[&body]);
}

#[test]
fn inline_payload_is_never_taken_for_wqes() {
    let facts = Facts { max_inline: None, cqes: None, ..facts(Transport::Rc) };
    for record_is_known in [true, false] {
        let mut ring = Ring { bytes: vec![0; 512 * 64], head: 0xff00 };
        let mut lint = Lint::at(facts, ring.head);
        let mut seen = 0;
        for post in 0..2000u32 {
            let opcode = if post % 3 == 0 { opcode::SEND } else { opcode::RDMA_WRITE };
            disguised(&mut ring, opcode, post * 7 % 800 + 1, (post % 5) as u8);
            let record = record_is_known.then_some(ring.head);
            let report = &mut |finding| panic!("post {post}: {finding}");
            seen += lint.ring(&ring.bytes, record, report);
            assert_eq!(lint.next(), Some(ring.head), "post {post}");
        }
        assert_eq!(seen, 2000);
    }
}

#[test]
fn a_size_that_takes_the_next_wqe_in_is_an_overlap_also_where_its_segments_could_be_data() {
    let rc = facts(Transport::Rc);
    let found = around(rc, |ring| {
        let at = ring.put(opcode::RDMA_WRITE, 8, &[&remote(0x1000), &sge(), &sge()]);
        ring.put(opcode::SEND, 8, &[&sge(), &sge(), &sge()]);
        ring.bytes[at + 7] = 8;
        at
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].defect, Defect::Overlap { ds: 8, block: 1 });
}

#[test]
fn completions_make_room_again() {
    let facts = Facts { blocks: Some(4), cqes: Some(2), ..facts(Transport::Rc) };
    let mut ring = Ring::from(0);
    let at = ring.put(opcode::NOP, 8, &[]);
    let mut wqe = ring.bytes[at..at + 64].to_vec();
    let mut lint = Lint::at(facts, 0);
    for index in 0..20u16 {
        wqe[1..3].copy_from_slice(&index.to_be_bytes());
        lint.wqe(&wqe, &mut |finding| panic!("{finding}"));
        if index > 0 {
            lint.completed(false);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// With the 50 rings of each case, 100,000.
    #[test]
    fn any_ring_is_taken(
        seed in any::<u64>(),
        blocks in 0usize..9,
        cut in 0usize..64,
        known in any::<bool>(),
        transport in 0usize..6,
    ) {
        let mut state = seed;
        let mut next = move || {
            // Xorshift: fast, and good enough for garbage.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..50 {
            let mut ring = vec![0u8; (1 << blocks) / 2 * 64 + cut];
            for bytes in ring.chunks_mut(8) {
                let word = next().to_ne_bytes();
                bytes.copy_from_slice(&word[..bytes.len()]);
            }
            let start = next() as u16;
            if known {
                // Indices, numbers and opcodes that are: segments are looked at.
                let count = (ring.len() / 64) as u16;
                for at in 0..count {
                    let counter = start.wrapping_add(at);
                    let slot = usize::from(counter & count.next_power_of_two().saturating_sub(1)) * 64;
                    let Some(wqe) = ring.get_mut(slot..slot + 64) else { continue };
                    wqe[1..3].copy_from_slice(&counter.to_be_bytes());
                    wqe[3] %= 0x30;
                    wqe[4..7].copy_from_slice(&[0, 0x12, 0x34]);
                }
            }
            let facts = Facts { strict: next() & 1 == 0, ..facts(Transport::ALL[transport]) };
            let facts = Facts { qpn: facts.qpn.filter(|_| next() & 1 == 0), ..facts };
            let mut seen = 0;
            let record = (next() & 1 == 0).then_some(next() as u16);
            let mut lint = Lint::at(facts, start);
            let wqes = lint.ring(&ring, record, &mut |finding| {
                seen += finding.to_string().len();
            });
            prop_assert!(wqes as usize <= ring.len() / 64);
            lint.wqe(&ring, &mut |finding| seen += finding.to_string().len());
            let report = &mut |finding: Finding| seen += finding.to_string().len();
            misused_regions(&facts, &ring, |_| Some(READ_ONLY), report);
            lint.doorbell(next(), &mut |finding| seen += finding.to_string().len());
            prop_assert!(seen != 0 || ring.len() < 64 || blocks < 2);
        }
    }
}
