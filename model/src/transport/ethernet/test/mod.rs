//! Tests of the whole path, from a doorbell to the CQEs of a frame's receivers.

mod filter;
mod headers;
mod jumbo;
mod receive;
mod several;
mod until;

use mlx5_sys::ifc::{
    Field, create_cq_out, create_flow_group_in, create_flow_group_out, create_flow_table_in,
    create_flow_table_out, create_mkey_in, create_rq_in, create_rq_out, create_rqt_out,
    create_sq_in, create_sq_out, create_tir_in, create_tir_out, create_tis_in, create_tis_out,
    delete_fte_in, dest_format_struct, flow_context, flow_table_context, fte_match_param,
    fte_match_set_lyr_2_4, mkc, modify_rq_in, modify_sq_in, opcode, query_rq_in, query_rq_out,
    query_sq_in, query_sq_out, rqc, rx_hash_field_select, set_flow_table_root_in, set_fte_in, sqc,
    tirc, tisc, wq,
};

use crate::card::{Complaints, Link};
use crate::command::Refusal;
use crate::command::test::{Command, Rig, UNWRITTEN, ring};
use crate::object::State;
use crate::wire::ethernet::Headers;

/// Start address of the test's key.
const START: u64 = 0x7000_0100;

/// A device with an Ethernet port, and the objects of a test.
struct Side {
    rig: Rig,
    domain: u32,
    sq: u32,
    /// Ring and record of the send queue, and ring of its CQ.
    send: (u64, u64, u64),
    rq: u32,
    receive: (u64, u64, u64),
    tir: u32,
    table: u32,
    key: u32,
    /// Address of the key's first page; the second page is elsewhere.
    page: u64,
    posted: u16,
}

/// Changes the command that creates a receive queue.
type Change = fn(Command) -> Command;

fn as_is(command: Command) -> Command {
    command
}

/// WQEs of 8 strides of 64 bytes.
fn striding(command: Command) -> Command {
    let field = |field: Field| field.within(rqc::WQ).within(create_rq_in::CTX);
    command
        .set(field(wq::WQ_TYPE), 3u64)
        .set(field(wq::LOG_WQE_NUM_OF_STRIDES), 10u64)
        .set(field(wq::LOG_WQE_STRIDE_SIZE), 0u64)
}

/// The lower bytes of a destination address, in criteria or values to match.
fn dmac(container: Field) -> Field {
    fte_match_set_lyr_2_4::DMAC_15_0.within(fte_match_param::OUTER_HEADERS).within(container)
}

impl Side {
    fn new() -> Self {
        Self::with(as_is, as_is)
    }

    fn with(receives: Change, sends: Change) -> Self {
        let mut rig = Rig::on(Link::Roce);
        let tis = rig.create_tis();
        let domain = tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX).get(&tis.0) as u32;
        let tis = rig.number(&tis, create_tis_out::TISN);
        let (number, cq_ring) = cq(&mut rig);
        let create = rig.create_sq(number, tis);
        let create = sends(create);
        let sq = rig.number(&create, create_sq_out::SQN);
        let record = wq::DBR_ADDR.within(sqc::WQ).within(create_sq_in::CTX).get(&create.0);
        let send = (ring(&create), record, cq_ring);
        let (number, cq_ring) = cq(&mut rig);
        let create = rig.create_rq(number);
        let create = receives(create);
        let rq = rig.number(&create, create_rq_out::RQN);
        let record = wq::DBR_ADDR.within(rqc::WQ).within(create_rq_in::CTX).get(&create.0);
        let receive = (ring(&create), record, cq_ring);
        let create = rig.create_tir(rq, domain);
        let tir = rig.number(&create, create_tir_out::TIRN);
        let create = Command::new(opcode::CREATE_FLOW_TABLE, create_flow_table_in::SIZE).set(
            flow_table_context::LOG_SIZE.within(create_flow_table_in::FLOW_TABLE_CONTEXT),
            4u64,
        );
        let table = rig.number(&create, create_flow_table_out::TABLE_ID);
        let root = Command::new(opcode::SET_FLOW_TABLE_ROOT, set_flow_table_root_in::SIZE)
            .set(set_flow_table_root_in::TABLE_ID, table);
        rig.run(&root).unwrap();
        let field = |f: Field| f.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let create = rig.create_mkey().set(field(mkc::LEN), 0xf00u64);
        let page = ring(&create) + 0x100;
        let key = rig.mkey(&create);
        let mut side =
            Self { rig, domain, sq, send, rq, receive, tir, table, key, page, posted: 0 };
        side.modify_sq(0, 1).unwrap();
        side.modify_rq(0, 1).unwrap();
        side
    }

    fn modify_sq(&mut self, from: u32, to: u32) -> Result<Vec<u8>, Refusal> {
        let modify = Command::new(opcode::MODIFY_SQ, modify_sq_in::SIZE)
            .set(modify_sq_in::SQN, self.sq)
            .set(modify_sq_in::SQ_STATE, from)
            .set(sqc::STATE.within(modify_sq_in::CTX), to);
        self.rig.run(&modify)
    }

    fn modify_rq(&mut self, from: u32, to: u32) -> Result<Vec<u8>, Refusal> {
        let modify = Command::new(opcode::MODIFY_RQ, modify_rq_in::SIZE)
            .set(modify_rq_in::RQN, self.rq)
            .set(modify_rq_in::RQ_STATE, from)
            .set(rqc::STATE.within(modify_rq_in::CTX), to);
        self.rig.run(&modify)
    }

    /// The command for an entry that leads frames with a destination address to TIRs.
    fn entry(&self, index: u32, address: u16, tirs: &[u32], group: u32) -> Command {
        let field = |field: Field| field.within(set_fte_in::FLOW_CONTEXT);
        let mut entry = Command::new(opcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE)
            .set(set_fte_in::TABLE_ID, self.table)
            .set(set_fte_in::FLOW_INDEX, index)
            .set(field(flow_context::GROUP_ID), group)
            .set(field(flow_context::FLOW_TAG), 0x77u64)
            .set(field(flow_context::ACTION), 4u64)
            .set(field(flow_context::DESTINATION_LIST_SIZE), tirs.len() as u64)
            .set(dmac(field(flow_context::MATCH_VALUE)), address);
        for tir in tirs {
            let mut destination = [0; dest_format_struct::SIZE];
            dest_format_struct::DESTINATION_TYPE.set(&mut destination, 2);
            dest_format_struct::DESTINATION_ID.set(&mut destination, (*tir).into());
            entry.0.extend_from_slice(&destination);
        }
        entry
    }

    /// Leads frames with a destination address to a TIR, by an entry of a group of its own.
    fn lead(&mut self, index: u32, address: u16, tirs: &[u32]) {
        let group = Command::new(opcode::CREATE_FLOW_GROUP, create_flow_group_in::SIZE)
            .set(create_flow_group_in::TABLE_ID, self.table)
            .set(create_flow_group_in::START_FLOW_INDEX, index)
            .set(create_flow_group_in::END_FLOW_INDEX, index)
            .set(create_flow_group_in::MATCH_CRITERIA_ENABLE, 1u64)
            .set(dmac(create_flow_group_in::MATCH_CRITERIA), 0xffffu64);
        let group = self.rig.number(&group, create_flow_group_out::GROUP_ID);
        let entry = self.entry(index, address, tirs, group);
        self.rig.run(&entry).unwrap();
    }

    /// Posts a receive of `length` bytes at `offset` of the key's memory.
    fn receive(&mut self, number: u16, offset: u64, length: u32) {
        let slot = self.receive.0 + u64::from(number % 8) * 32;
        let pointer = pointer(length, self.key, START + offset);
        let end = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        self.rig.write(slot, &[pointer, end].concat());
        self.rig.write(self.receive.1, &u32::from(number + 1).to_be_bytes());
    }

    /// The same for a queue of strides: the list follows an unused segment.
    fn receive_strides(&mut self, number: u16, offset: u64, length: u32) {
        let slot = self.receive.0 + u64::from(number % 8) * 32;
        let wqe = [[0; 16], pointer(length, self.key, START + offset)];
        self.rig.write(slot, &wqe.concat());
        self.rig.write(self.receive.1, &u32::from(number + 1).to_be_bytes());
    }

    /// Posts a signaled WQE and lets it happen.
    fn post(&mut self, opcode: u8, segments: &[u8]) {
        self.post_modified(0, opcode, segments);
    }

    /// [`post`](Self::post) with an opcode modifier.
    fn post_modified(&mut self, modifier: u8, opcode: u8, segments: &[u8]) {
        let index = self.posted;
        let ds = 1 + segments.len() / 16;
        let mut wqe = vec![modifier, (index >> 8) as u8, index as u8, opcode];
        wqe.extend_from_slice(&(self.sq << 8 | ds as u32).to_be_bytes());
        wqe.extend_from_slice(&[0, 0, 0, 0x08, 0, 0, 0, 0]);
        wqe.extend_from_slice(segments);
        for (at, chunk) in wqe.chunks(64).enumerate() {
            let block = (usize::from(index) + at) % 16;
            self.rig.write(self.send.0 + block as u64 * 64, chunk);
        }
        self.posted += ds.div_ceil(4) as u16;
        self.rig.write(self.send.1 + 4, &u32::from(self.posted).to_be_bytes());
        let uar = self.rig.uar;
        self.rig.card.store(uar, 0x800, &wqe[..8]);
        self.run();
    }

    fn run(&mut self) {
        loop {
            let sent = self.rig.card.pump();
            let frames: Vec<_> = self.rig.card.outbox.drain(..).collect();
            for frame in &frames {
                assert!(!frame.is_transport(Link::Roce));
                self.rig.card.receive(frame);
            }
            let settled = self.rig.card.settle();
            if !sent && frames.is_empty() && !settled {
                break;
            }
        }
    }

    /// Sends a frame whose bytes are at the start of the key's memory, the first 18 in the WQE.
    fn send(&mut self, flags: u8, frame: &[u8]) {
        self.rig.write(self.page, frame);
        let pointer = pointer(frame.len() as u32 - 18, self.key, START + 18);
        self.post(0x0a, &[&segment(flags, 0, &frame[..18])[..], &pointer].concat());
    }

    fn sent(&self, slot: u64) -> [u8; 64] {
        self.rig.read(self.send.2 + slot * 64)
    }

    fn received(&self, slot: u64) -> [u8; 64] {
        self.rig.read(self.receive.2 + slot * 64)
    }
}

/// A CQ, and where its ring is.
fn cq(rig: &mut Rig) -> (u32, u64) {
    let create = rig.create_cq();
    (rig.number(&create, create_cq_out::CQN), ring(&create))
}

fn pointer(length: u32, key: u32, address: u64) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&length.to_be_bytes());
    segment[4..8].copy_from_slice(&key.to_be_bytes());
    segment[8..].copy_from_slice(&address.to_be_bytes());
    segment
}

/// An Ethernet segment with the first bytes of a frame.
fn segment(flags: u8, mss: u16, header: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; 14];
    segment[4] = flags;
    segment[6..8].copy_from_slice(&mss.to_be_bytes());
    segment[12..14].copy_from_slice(&(header.len() as u16).to_be_bytes());
    segment.extend_from_slice(header);
    segment.resize(segment.len().max(16).next_multiple_of(16), 0);
    segment
}

/// Whether the card fills in IPv4's checksum and the one above it.
const CHECKSUMS: u8 = 0xc0;

/// A TCP packet over IPv4 without right checksums, to the destination 02:00:00:00:<address>.
fn tcp(address: u16, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0];
    frame.extend_from_slice(&address.to_be_bytes());
    frame.extend_from_slice(&[2, 0, 0, 0, 9, 9, 8, 0]);
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&(40 + payload as u16).to_be_bytes());
    frame.extend_from_slice(&[0x30, 0xff, 0, 0, 64, 6, 0xaa, 0xaa, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend_from_slice(&[0x12, 0x34, 0x56, 0x78, 0, 0, 1, 0, 0, 0, 0, 1, 0x50, 0x99]);
    frame.extend_from_slice(&[1, 0, 0xbb, 0xbb, 0, 0]);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

#[test]
fn a_frame_goes_where_its_flow_leads() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive(0, 0x400, 256);
    let frame = tcp(0x0101, 30);
    side.send(CHECKSUMS, &frame);
    let sent = side.sent(0);
    assert_eq!((sent[56], sent[63] >> 4), (0x0a, 0), "{sent:02x?}");
    assert_eq!(sent[32..36], [0, 0x12, 0x34, 0x56]);
    let cqe = side.received(0);
    assert_eq!(cqe[63] >> 4, 2, "{cqe:02x?}");
    assert_eq!(cqe[32..36], [0, 0x65, 0x43, 0x21]);
    assert_eq!(cqe[44..48], (frame.len() as u32).to_be_bytes());
    // L2, L3 and L4 are right. The frame is TCP over IPv4, with data and an acknowledgment. The
    // last assertion checks the flow's tag.
    assert_eq!((cqe[28], cqe[29]), (7, 4 << 4 | 2 << 2));
    assert_eq!(cqe[56..60], [0, 0, 0, 0x77]);
    let mut met = side.rig.read::<84>(side.page + 0x400).to_vec();
    let headers = Headers::of(&met).unwrap();
    assert!(headers.network_is_right(&met) && headers.transport_is_right(&met));
    for place in [24..26, 50..52] {
        met[place.clone()].copy_from_slice(&frame[place]);
    }
    assert_eq!(met, frame);
    // Not as asked, not filled in; and not as it should be, told.
    side.receive(1, 0x400, 256);
    side.send(0, &frame);
    assert_eq!(side.received(1)[28], 1);
    assert_eq!(side.rig.read::<84>(side.page + 0x400)[..], frame[..]);
    // Nobody is led to, or has posted a receive.
    side.send(0, &tcp(0x0102, 30));
    side.send(0, &frame);
    assert_eq!(side.sent(3)[63] >> 4, 0);
    assert_eq!(side.received(2)[63], UNWRITTEN);
    assert_eq!(side.rig.card.complaints, Complaints::default());
}

/// Fact F077.
#[test]
fn a_frame_that_is_in_its_wqe_from_end_to_end_is_sent() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive(0, 0x400, 256);
    let frame = tcp(0x0101, 6);
    let segments = segment(0, 0, &frame);
    assert_eq!((frame.len(), 1 + segments.len() / 16), (60, 6), "bytes, and units of 16 bytes");
    side.post(0x0a, &segments);
    assert_eq!(side.sent(0)[63] >> 4, 0);
    assert_eq!(side.received(0)[44..48], 60u32.to_be_bytes());
    assert_eq!(side.rig.read::<60>(side.page + 0x400)[..], frame[..]);
}

/// Fact F076. A WQE of 64 bytes takes one block: what lies in the next one is the next WQE.
#[test]
fn a_block_that_is_left_out_stops_the_queue_unless_it_has_a_nop() {
    for nop in [false, true] {
        let mut side = Side::new();
        let tir = side.tir;
        side.lead(0, 0x0101, &[tir]);
        (0..2).for_each(|number| side.receive(number, 0x400, 256));
        side.send(0, &tcp(0x0101, 30));
        assert_eq!(side.posted, 1, "it takes one block");
        match nop {
            true => side.post(0, &[]),
            // The ring has zeros there.
            false => side.posted += 1,
        }
        side.send(0, &tcp(0x0101, 30));
        let last = side.sent(if nop { 2 } else { 1 });
        assert_eq!(last[63] >> 4, if nop { 0 } else { 0xd }, "{last:02x?}");
        assert_eq!(side.received(1)[63] >> 4, if nop { 2 } else { 15 }, "the second frame");
        assert_eq!(side.rig.card.objects.qps[&side.sq].state == State::Error, !nop);
    }
}

/// Fact F081.
#[test]
fn a_receive_queue_tells_what_was_posted_and_what_was_taken() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    (0..3).for_each(|number| side.receive(number, 0x400, 256));
    (0..2).for_each(|_| side.send(0, &tcp(0x0101, 30)));
    let query = Command::new(opcode::QUERY_RQ, query_rq_in::SIZE).set(query_rq_in::RQN, side.rq);
    let reply = side.rig.run(&query).unwrap();
    let counters = [wq::HW_COUNTER, wq::SW_COUNTER]
        .map(|field| field.within(rqc::WQ).within(query_rq_out::RQ_CONTEXT).get(&reply));
    assert_eq!(counters, [2, 3]);
}

#[test]
fn a_port_listens_to_all_while_a_flow_is_there() {
    let mut side = Side::new();
    assert!(!side.rig.card.listens_to_all());
    let tir = side.tir;
    side.lead(1, 0x0101, &[tir]);
    assert!(side.rig.card.listens_to_all());
    let delete = Command::new(opcode::DELETE_FLOW_TABLE_ENTRY, delete_fte_in::SIZE)
        .set(delete_fte_in::TABLE_ID, side.table)
        .set(delete_fte_in::FLOW_INDEX, 1u64);
    side.rig.run(&delete).unwrap();
    assert!(!side.rig.card.listens_to_all());
}

#[test]
fn of_two_entries_the_first_counts_and_may_lead_to_several() {
    let mut side = Side::new();
    let (number, cq_ring) = cq(&mut side.rig);
    let create = side.rig.create_rq(number);
    let other = side.rig.number(&create, create_rq_out::RQN);
    let to_other = side.rig.create_tir(other, side.domain);
    let tir = side.rig.number(&to_other, create_tir_out::TIRN);
    let own = side.tir;
    side.lead(3, 0x0101, &[tir]);
    side.lead(2, 0x0101, &[own]);
    side.lead(4, 0x0102, &[own, tir]);
    let first = side.rq;
    side.rq = other;
    side.modify_rq(0, 1).unwrap();
    side.rq = first;
    let frame = tcp(0x0101, 0);
    side.receive(0, 0x400, 256);
    side.send(0, &frame);
    assert_eq!(side.received(0)[47], 54);
    // The other's receive, by its own ring and record.
    let record = wq::DBR_ADDR.within(rqc::WQ).within(create_rq_in::CTX).get(&create.0);
    let wqe = [pointer(256, side.key, START + 0x800), pointer(0, 0x100, 0)];
    side.rig.write(ring(&create), &wqe.concat());
    side.rig.write(record, &1u32.to_be_bytes());
    side.receive(1, 0x400, 256);
    side.send(0, &tcp(0x0102, 0));
    assert_eq!(side.received(1)[47], 54);
    assert_eq!(side.rig.read::<64>(cq_ring)[47], 54);
    assert_eq!(side.rig.read::<6>(side.page + 0x800), [2, 0, 0, 0, 1, 2]);
}

#[test]
fn a_large_send_is_cut() {
    let mut side = Side::with(striding, as_is);
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive_strides(0, 0x800, 512);
    let frame = tcp(0x0101, 70);
    side.rig.write(side.page, &frame[54..]);
    let pointer = pointer(70, side.key, START);
    let eth = segment(CHECKSUMS, 30, &frame[..54]);
    side.post(0x0e, &[&eth[..], &pointer].concat());
    assert_eq!(side.sent(0)[63] >> 4, 0, "{:02x?}", side.sent(0));
    let strides = [(0, 84u8, 2), (2, 84, 2), (4, 64, 1)];
    for (slot, (index, length, taken)) in strides.into_iter().enumerate() {
        let cqe = side.received(slot as u64);
        assert_eq!(cqe[28], 7, "{cqe:02x?}");
        assert_eq!(cqe[2..4], [0, 0]);
        assert_eq!(cqe[44..48], [0, taken, 0, length]);
        assert_eq!(cqe[60..62], [0, index]);
        let met = side.rig.read::<84>(side.page + 0x800 + u64::from(index) * 64);
        assert_eq!(met[16..18], [0, length - 14]);
        // Identification, sequence number, and flags: CWR goes first, FIN and PSH go last.
        let id = 0x30ff_u16 + slot as u16;
        assert_eq!(met[18..20], id.to_be_bytes());
        assert_eq!(met[38..42], [0, 0, 1, slot as u8 * 30]);
        assert_eq!(met[47], [0x90, 0x10, 0x19][slot]);
        assert_eq!(met[54], slot as u8 * 30);
    }
    assert_eq!(side.received(3)[63], UNWRITTEN);
}

#[test]
fn a_queue_without_an_interface_executes_nops_and_sends_nothing() {
    let without = |create: Command| create.set(sqc::TIS_LST_SZ.within(create_sq_in::CTX), 0u64);
    let mut side = Side::with(as_is, without);
    side.lead(0, 0x0101, &[side.tir]);
    side.receive(0, 0, 64);
    side.post(0, &[]);
    assert_eq!(side.sent(0)[63] >> 4, 0, "a success");
    side.send(0, &tcp(0x0101, 30));
    assert_eq!((side.sent(1)[63] >> 4, side.sent(1)[55]), (0xd, 0x02));
    assert_eq!(side.received(0)[63], UNWRITTEN, "nothing has arrived");
}

#[test]
fn what_cannot_be_sent_fails_the_queue_and_flushes_it() {
    let frame = tcp(0x0101, 30);
    let plain = |flags| segment(flags, 0, &[]);
    let long = |side: &Side, length: u32| pointer(length, side.key, START);
    type Case = (&'static str, u8, fn(&Side, &[u8]) -> Vec<u8>, u8);
    let cases: [Case; 8] = [
        ("no such operation on this transport", 0x08, |_, _| vec![0; 16], 0x02),
        (
            "a header longer than the WQE",
            0x0a,
            |_, frame| segment(0, 0, frame)[..32].to_vec(),
            0x02,
        ),
        (
            "longer than the port lets through",
            0x0a,
            |side, _| [segment(0, 0, &[]), pointer(1515, side.key, START).to_vec()].concat(),
            0x01,
        ),
        (
            "no header at all",
            0x0a,
            |side, _| [segment(0, 0, &[]), pointer(13, side.key, START).to_vec()].concat(),
            0x01,
        ),
        (
            "no such key",
            0x0a,
            |side, _| [segment(0, 0, &[]), pointer(60, side.key ^ 1, START).to_vec()].concat(),
            0x04,
        ),
        (
            "segments of no bytes",
            0x0e,
            |side, frame| {
                [segment(0, 0, &frame[..54]), pointer(60, side.key, START).to_vec()].concat()
            },
            0x02,
        ),
        (
            "segments longer than the port lets through",
            0x0e,
            |side, frame| {
                [segment(0, 1461, &frame[..54]), pointer(1461, side.key, START).to_vec()].concat()
            },
            0x01,
        ),
        (
            "headers that are not whole",
            0x0e,
            |side, frame| {
                [segment(0, 30, &frame[..50]), pointer(60, side.key, START).to_vec()].concat()
            },
            0x02,
        ),
    ];
    for ((name, opcode, segments, syndrome), said) in cases.into_iter().zip([1, 3].repeat(9)) {
        let mut side = Side::new();
        side.post(opcode, &segments(&side, &frame));
        let cqe = side.sent(0);
        assert_eq!((cqe[55], cqe[63] >> 4), (syndrome, 13), "{name}: {cqe:02x?}");
        assert_eq!(side.rig.card.objects.qps[&side.sq].state, State::Error, "{name}");
        let query =
            Command::new(opcode::QUERY_SQ, query_sq_in::SIZE).set(query_sq_in::SQN, side.sq);
        let state = sqc::STATE.within(query_sq_out::SQ_CONTEXT);
        assert_eq!(side.rig.number(&query, state), 3, "{name}");
        let after = [plain(0), long(&side, 60).to_vec()].concat();
        side.post(0x0a, &after);
        assert_eq!((side.sent(1)[55], side.sent(1)[63] >> 4), (0x05, 13), "{name}");
        // The receive queue goes on; the send queue can be made to.
        assert_eq!(side.rig.card.objects.qps[&side.rq].state, State::Rtr, "{name}");
        for (from, to) in [(1, 1), (1, 3), (0, 1), (0, 0), (3, 1)] {
            assert_eq!(side.modify_sq(from, to).err(), Some(Refusal::WorkQueueState), "{name}");
        }
        // A reset may name the state before the error, as Linux's does.
        side.modify_sq(said, 0).unwrap();
        side.modify_sq(0, 1).unwrap();
        side.posted = 0;
        side.post(0x0a, &after);
        assert_eq!(side.sent(2)[63] >> 4, 0, "{name}");
    }
}

#[test]
fn headers_have_to_be_in_the_wqe_as_far_as_the_queue_says() {
    // Ethernet's; IP's; TCP's.
    let modes: [(Change, usize); 3] = [
        (|sq| sq.set(sqc::MIN_WQE_INLINE_MODE.within(create_sq_in::CTX), 1u64), 14),
        (|sq| sq.set(sqc::MIN_WQE_INLINE_MODE.within(create_sq_in::CTX), 2u64), 34),
        (|sq| sq.set(sqc::MIN_WQE_INLINE_MODE.within(create_sq_in::CTX), 3u64), 54),
    ];
    for (sends, least) in modes {
        for (inline, good) in [(least, true), (least - 1, false)] {
            let mut side = Side::with(as_is, sends);
            let frame = tcp(0x0101, 30);
            side.rig.write(side.page, &frame);
            let rest = pointer((frame.len() - inline) as u32, side.key, START + inline as u64);
            side.post(0x0a, &[&segment(0, 0, &frame[..inline])[..], &rest].concat());
            let cqe = side.sent(0);
            if good {
                assert_eq!(cqe[63] >> 4, 0, "{inline}");
            } else {
                // As a ConnectX-4 Lx writes (dump `mlx5e_inline`).
                assert_eq!((cqe[63] & !1, &cqe[52..56]), (0xd2, &[0x60, 0x10, 0x68, 0x01][..]));
            }
        }
    }
}

#[test]
fn a_wqe_that_describes_too_much_is_refused_before_memory_is_set_aside() {
    const LENGTH: u8 = 0x01;
    const PROTECTION: u8 = 0x04;
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    let header = &tcp(0x0101, 0)[..54];
    // A frame, a DUMP and a large send of 1,000 MiB behind a key of 4 KiB, and one of each that
    // is short enough and lies outside the key.
    for (opcode, length, syndrome) in [
        (0x0a, 1000 << 20, LENGTH),
        (0x23, 1000 << 20, LENGTH),
        (0x0e, 1000 << 20, LENGTH),
        (0x0a, 1000, PROTECTION),
        (0x23, 1000, PROTECTION),
        (0x0e, 200 << 10, PROTECTION),
    ] {
        let mut side = Side::new();
        let before = peak();
        let data = pointer(length, side.key, START + 0xe00);
        let segments = match opcode {
            0x23 => data.to_vec(),
            _ => [&segment(0, 1000, header)[..], &data].concat(),
        };
        side.post(opcode, &segments);
        let cqe = side.sent(0);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, syndrome), "opcode {opcode:#x}, {length} bytes");
        let grown = peak() - before;
        assert!(grown < 500, "{grown} MiB were set aside for opcode {opcode:#x}");
    }
}

#[test]
fn a_flush_takes_no_more_than_the_ring_holds() {
    let mut side = Side::new();
    // The record claims far more than the 16 blocks there are.
    side.rig.write(side.send.1 + 4, &0xff00u32.to_be_bytes());
    let sq = side.sq;
    side.rig.card.fail(sq);
    let fetched = side.rig.card.objects.qps[&sq].sq.fetched;
    assert!(fetched <= 16, "{fetched} WQEs were flushed");
}
