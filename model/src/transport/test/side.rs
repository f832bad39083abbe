//! One device with a queue pair. Its rings are filled and polled as a program would.

use mlx5_sys::ifc::{
    ads, alloc_pd_out, cqc, create_cq_in, create_cq_out, create_eq_in, create_mkey_in,
    create_qp_in, create_qp_out, create_rmp_in, create_rmp_out, create_xrc_srq_in,
    create_xrc_srq_out, create_xrq_in, create_xrq_out, mkc, opcode, qpc, query_qp_in, query_qp_out,
    rmpc, rst2init_qp_in, wq, xrc_srqc, xrqc,
};

use super::Setup;
use crate::card::Link;
use crate::command::test::{Command, Rig, ring};
use crate::memory::Memory;
use crate::object::{Service, Special, State};
use crate::wire::mac;

/// Bytes of the region that all data lies in.
pub const REGION: usize = 512 << 10;
/// Its virtual address: not its bus address.
pub const ADDRESS: u64 = 0x7f00_0000_0000;
const PAGE: usize = 4096;
/// Entries of each CQ.
const CQES: u32 = 64;
/// Entries of the EQ that asynchronous events go to.
const EQES: u64 = 16;
/// Events of queue pairs and shared receive queues, by type.
const EVENTS: u64 = 1 << 0x02
    | 1 << 0x05
    | 1 << 0x10
    | 1 << 0x11
    | 1 << 0x12
    | 1 << 0x13
    | 1 << 0x14
    | 1 << 0x1c
    | 1 << 0x1d;
/// Receives posted at most.
pub const RECEIVES: u16 = 32;
/// Blocks of the send queue.
pub const BLOCKS: u16 = 64;

/// A completion as the CQE says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cqe {
    pub opcode: u8,
    pub syndrome: u8,
    pub wqe: u16,
    pub length: u32,
    pub immediate: [u8; 4],
    pub solicited: bool,
    pub inline: Option<Vec<u8>>,
    /// For a queue with tag matching: the event, the entry's index, and the first bytes.
    pub tagged: Option<(u8, u16, [u8; 16])>,
    /// The peer's LID; GRH, service level and queue pair in one word.
    pub source: (u16, u32),
    /// The control information of the packet's VLAN tag.
    pub tag: Option<u16>,
}

/// A send request.
#[derive(Clone, Debug)]
pub struct Post {
    pub opcode: u8,
    pub modifier: u8,
    pub signaled: bool,
    /// `fm_ce_se` bits 7:5.
    pub fence: u8,
    pub solicited: bool,
    pub immediate: u32,
    pub remote: (u64, u32),
    pub operands: (u64, u64),
    /// Pieces of memory: offset in the region, bytes, key.
    pub data: Vec<(u64, u32, u32)>,
    pub inline: Option<Vec<u8>>,
    /// The bytes right behind the control segment: the address vector of a datagram, or all
    /// segments of a UMR.
    /// that a UMR has.
    pub address: Vec<u8>,
    /// Stream of an initiator of dynamic connections.
    pub stream: u16,
}

impl Post {
    pub fn new(opcode: u8) -> Self {
        Self {
            opcode,
            modifier: 0,
            signaled: true,
            fence: 0,
            solicited: false,
            immediate: 0,
            remote: (0, 0),
            operands: (0, 0),
            data: Vec::new(),
            inline: None,
            address: Vec::new(),
            stream: 0,
        }
    }
}

pub struct Side {
    pub rig: Rig,
    pub qp: u32,
    pub key: u32,
    pages: Vec<u64>,
    rq_ring: u64,
    sq_ring: u64,
    record: u64,
    /// Number, ring and record of the shared receive queue, if receives come from one.
    pub srq: Option<(u32, u64, u64)>,
    events: (u64, u64),
    cqs: [(u64, u64, u32); 2],
    pub sent: u16,
    pub received: u16,
}

impl Side {
    pub fn new(setup: Setup, index: usize) -> Self {
        let mut rig = Rig::on(setup.link);
        let identity = &mut rig.card.identity;
        identity.qpn_prefixes = vec![0x12 + index as u16];
        identity.lid = if setup.link == Link::Roce { 0 } else { 7 + index as u16 };
        identity.gids[0].gid[15] = 1 + index as u8;
        identity.mac = mac(&identity.gids[0].gid);
        Self::with(rig, setup)
    }

    /// On a card that has a name already.
    pub fn with(mut rig: Rig, setup: Setup) -> Self {
        rig.card.identity.timeouts = setup.timeouts;
        // The port has every path MTU of a connection.
        if setup.service != Service::Ud {
            rig.card.identity.log_mtu = Some(12);
        }
        let events = rig.create_eq().set(create_eq_in::EVENT_BITMASK, EVENTS);
        let events = {
            for entry in 0..EQES {
                rig.write(ring(&events) + entry * 64 + 63, &[1]);
            }
            rig.run(&events).expect("accepted");
            (ring(&events), 0)
        };
        let cqs = [0, 1].map(|_| {
            let create = rig
                .create_cq()
                .set(cqc::LOG_CQ_SIZE.within(create_cq_in::CQ_CONTEXT), CQES.ilog2());
            let record = cqc::DBR_ADDR.within(create_cq_in::CQ_CONTEXT).get(&create.0);
            for entry in 0..u64::from(CQES) {
                rig.write(ring(&create) + entry * 64 + 63, &[0xf0]);
            }
            (rig.number(&create, create_cq_out::CQN), ring(&create), record)
        });
        let mut srq = setup.shared_receive.then(|| match setup.tags {
            true => tag_queue(&mut rig, cqs[1].0),
            false => shared_queue(&mut rig),
        });
        let field = |field: mlx5_sys::ifc::Field| field.within(create_qp_in::QPC);
        let mut create = rig
            .create_qp(cqs[0].0, cqs[1].0)
            .set(field(qpc::LOG_RQ_SIZE), RECEIVES.ilog2())
            .set(field(qpc::LOG_SQ_SIZE), BLOCKS.ilog2())
            .set(field(qpc::ST), st(setup))
            .set(field(qpc::CS_RES), u64::from(setup.scatter_to_cqe))
            .set(field(qpc::CS_REQ), if setup.scatter_to_cqe { 0x11u64 } else { 0 })
            .set(field(qpc::LOG_NUM_DCI_STREAM_CHANNELS), setup.streams[0])
            .set(field(qpc::LOG_NUM_DCI_ERRORED_STREAMS), setup.streams[1]);
        if let Some((number, ..)) = srq {
            create = create.set(field(qpc::RQ_TYPE), 1u64).set(field(qpc::SRQN_RMPN_XRQN), number);
        }
        if setup.special == Some(Special::Umr) {
            create = create.set(field(qpc::PD), 0u64);
        }
        if setup.xrc_target {
            let domain = rig.xrc_domain();
            let field = |field: mlx5_sys::ifc::Field| {
                field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY)
            };
            let queue = rig
                .create_xrc_srq(domain, cqs[1].0)
                .set(field(xrc_srqc::LOG_XRC_SRQ_SIZE), RECEIVES.ilog2());
            let record = field(xrc_srqc::DB_RECORD_ADDR_L).get(&queue.0) << 2;
            let ring = ring(&queue);
            circle(&rig, ring);
            srq = Some((rig.number(&queue, create_xrc_srq_out::XRC_SRQN), ring, record));
            create = rig.create_target(domain);
            let first = rig.page();
            create.0.extend_from_slice(&first.to_be_bytes());
        } else if setup.service == Service::Xrc {
            create = create.set(field(qpc::RQ_TYPE), 3u64);
        }
        // The receive ring fills a quarter of the first page, the send ring the page after.
        let second = rig.page();
        create.0.extend_from_slice(&second.to_be_bytes());
        let first = ring(&create);
        assert_eq!(second, first + PAGE as u64);
        let record = field(qpc::DBR_ADDR);
        let record = record.get(&create.0);
        let qp = rig.number(&create, create_qp_out::QPN);
        let rq_ring = first;
        let alone = srq.is_some() || setup.service == Service::Xrc;
        let sq_ring = first + if alone { 0 } else { u64::from(RECEIVES) * 32 };

        let pages: Vec<u64> = (0..REGION / PAGE).map(|_| rig.page()).collect();
        // Neighbours in the region are none on the bus.
        let pages: Vec<u64> = pages.iter().rev().copied().collect();
        let key = mkey(&mut rig, &pages, |command| command);
        Self {
            rig,
            qp,
            key,
            pages,
            rq_ring,
            sq_ring,
            record,
            srq,
            events,
            cqs: [(cqs[0].1, cqs[0].2, 0), (cqs[1].1, cqs[1].2, 0)],
            sent: 0,
            received: 0,
        }
    }

    /// Another key over the region, with its context changed.
    pub fn another_key(&mut self, change: impl Fn(Command) -> Command) -> u32 {
        let pages = self.pages.clone();
        mkey(&mut self.rig, &pages, change)
    }

    /// A key over pages at which no memory answers.
    pub fn key_over_nothing(&mut self) -> u32 {
        let pages = vec![1 << 40; self.pages.len()];
        mkey(&mut self.rig, &pages, |command| command)
    }

    /// Posts a WRITE of the region's first bytes to the peer's at `offset`.
    pub fn write_to(&mut self, offset: u64, length: u32, key: u32) -> u16 {
        let mut post = Post::new(0x08);
        post.data = vec![(0, length, self.key)];
        post.remote = (Self::address(offset), key);
        self.post(&post)
    }

    pub fn send(&mut self, length: u32) -> u16 {
        let mut post = Post::new(0x0a);
        post.data = vec![(0, length, self.key)];
        self.post(&post)
    }

    pub fn another_pd(&mut self) -> u32 {
        self.rig.number(&Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD)
    }

    fn transition(
        &self,
        setup: Setup,
        opcode: u16,
        (qp, lid, gid): (u32, u16, [u8; 16]),
        psn: [u32; 2],
    ) -> Command {
        let field = |field: mlx5_sys::ifc::Field| field.within(rst2init_qp_in::QPC);
        let path = |f: mlx5_sys::ifc::Field| field(f.within(qpc::PRIMARY_ADDRESS_PATH));
        let mut command = self
            .rig
            .transition(opcode, self.qp)
            .set(field(qpc::ST), st(setup))
            .set(field(qpc::Q_KEY), setup.q_key)
            .set(path(ads::RLID), lid)
            .set(path(ads::GRH), setup.grh)
            .set(path(ads::HOP_LIMIT), 64u64)
            .set(path(ads::ETH_PRIO), setup.priority)
            .set(path(ads::ACK_TIMEOUT), setup.timeout)
            .set(field(qpc::RRE), setup.access[0])
            .set(field(qpc::RWE), setup.access[1])
            .set(field(qpc::RAE), setup.access[2])
            .set(field(qpc::ATOMIC_MODE), setup.atomic_mode)
            .set(field(qpc::LOG_ACK_REQ_FREQ), setup.log_ack_frequency)
            .set(field(qpc::LOG_MSG_MAX), setup.log_message)
            .set(field(qpc::MTU), setup.mtu.ilog2() - 7)
            .set(field(qpc::REMOTE_QPN), qp)
            .set(field(qpc::LOG_RRA_MAX), setup.depth.ilog2())
            .set(field(qpc::LOG_SRA_MAX), setup.depth.ilog2())
            .set(field(qpc::MIN_RNR_NAK), setup.rnr_timer)
            .set(field(qpc::NEXT_SEND_PSN), psn[0])
            .set(field(qpc::NEXT_RCV_PSN), psn[1])
            .set(field(qpc::RETRY_COUNT), setup.retries)
            .set(field(qpc::RNR_RETRY), setup.rnr_retries);
        let at = path(ads::RGID_RIP).bit_offset() / 8;
        command.0[at..at + 16].copy_from_slice(&gid);
        // The same bytes hold no address on InfiniBand.
        let at = path(ads::RMAC_47_32).bit_offset() / 8;
        if self.rig.card.identity.link == Link::Roce {
            command.0[at..at + 6].copy_from_slice(&mac(&gid));
        }
        command
    }

    /// Moves the queue pair to RTS; `psn` is its own first and the peer's.
    pub fn connect(&mut self, setup: Setup, peer: (u32, u16, [u8; 16]), psn: [u32; 2]) {
        for opcode in [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP] {
            let command = self.transition(setup, opcode, peer, psn);
            self.rig.run(&command).expect("accepted");
        }
    }

    /// Back to Reset, as if it was never used.
    pub fn reset(&mut self) {
        let command = Command::new(opcode::QP_2RST, 0x10).set(rst2init_qp_in::QPN, self.qp);
        self.rig.run(&command).expect("accepted");
        self.rig.write(self.record, &[0; 8]);
        (self.sent, self.received) = (0, 0);
    }

    pub fn break_off(&mut self) {
        let command = Command::new(opcode::QP_2ERR, 0x10).set(rst2init_qp_in::QPN, self.qp);
        self.rig.run(&command).expect("accepted");
    }

    /// The bus addresses of the doorbell record and of the send queue.
    pub fn places(&self) -> (u64, std::ops::Range<u64>) {
        (self.record, self.sq_ring..self.sq_ring + u64::from(BLOCKS) * 64)
    }

    /// Returns a field of the context that QUERY_QP shows.
    pub fn shown(&mut self, field: mlx5_sys::ifc::Field) -> u32 {
        let query = Command::new(opcode::QUERY_QP, 0x10).set(query_qp_in::QPN, self.qp);
        let reply = self.rig.run(&query).expect("accepted");
        field.within(query_qp_out::QPC).get(&reply) as u32
    }

    pub fn state(&self) -> State {
        self.rig.card.objects.qps[&self.qp].state
    }

    pub fn address(offset: u64) -> u64 {
        ADDRESS + offset
    }

    fn by_page(
        &self,
        offset: u64,
        length: usize,
        mut work: impl FnMut(u64, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < length {
            let at = offset as usize + done;
            let step = (PAGE - at % PAGE).min(length - done);
            work(self.pages[at / PAGE] + (at % PAGE) as u64, done..done + step);
            done += step;
        }
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.by_page(offset, bytes.len(), |bus, range| self.rig.write(bus, &bytes[range]));
    }

    pub fn get(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.by_page(offset, length, |bus, range| {
            self.rig.memory.read(bus, &mut bytes[range]).unwrap();
        });
        bytes
    }

    /// Posts a receive without telling the card.
    pub fn receive(&mut self, data: &[(u64, u32, u32)]) -> u16 {
        let index = self.received;
        let mut wqe = Vec::new();
        for (offset, length, key) in data {
            wqe.extend_from_slice(&pointer(*offset, *length, *key));
        }
        if wqe.len() < if self.srq.is_some() { 48 } else { 32 } {
            wqe.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        self.received = index.wrapping_add(1);
        if let Some((_, ring, record)) = self.srq {
            // Given back in the order in which they were taken, they stay in a circle.
            let slot = u64::from(index % RECEIVES) * 64;
            self.rig.write(ring + slot + 16, &wqe[..wqe.len().min(48)]);
            self.rig.write(record, &u32::from(self.received).to_be_bytes());
            return index % RECEIVES;
        }
        let slot = u64::from(index % RECEIVES) * 32;
        self.rig.write(self.rq_ring + slot, &wqe[..wqe.len().min(32)]);
        self.rig.write(self.record, &u32::from(self.received).to_be_bytes());
        index
    }

    /// Writes a WQE; [`Side::ring`] starts it.
    pub fn write(&mut self, post: &Post) -> u16 {
        let index = self.sent;
        let mut wqe = vec![0; 16];
        wqe.extend_from_slice(&post.address);
        if matches!(post.opcode, 0x08 | 0x09 | 0x10 | 0x11 | 0x12) {
            wqe.extend_from_slice(&post.remote.0.to_be_bytes());
            wqe.extend_from_slice(&post.remote.1.to_be_bytes());
            wqe.extend_from_slice(&[0; 4]);
        }
        if matches!(post.opcode, 0x11 | 0x12) {
            wqe.extend_from_slice(&post.operands.0.to_be_bytes());
            wqe.extend_from_slice(&post.operands.1.to_be_bytes());
        }
        if let Some(inline) = &post.inline {
            wqe.extend_from_slice(&(0x8000_0000 | inline.len() as u32).to_be_bytes());
            wqe.extend_from_slice(inline);
            wqe.resize(wqe.len().next_multiple_of(16), 0);
        }
        for (offset, length, key) in &post.data {
            wqe.extend_from_slice(&pointer(*offset, *length, *key));
        }
        let ds = (wqe.len() / 16) as u32;
        let first = u32::from(post.modifier) << 24 | u32::from(index) << 8 | u32::from(post.opcode);
        wqe[..4].copy_from_slice(&first.to_be_bytes());
        wqe[4..8].copy_from_slice(&(self.qp << 8 | ds).to_be_bytes());
        wqe[9..11].copy_from_slice(&post.stream.to_be_bytes());
        wqe[11] = post.fence << 5 | u8::from(post.signaled) << 3 | u8::from(post.solicited) << 1;
        wqe[12..16].copy_from_slice(&post.immediate.to_be_bytes());
        let size = u64::from(BLOCKS) * 64;
        for (at, chunk) in wqe.chunks(16).enumerate() {
            let offset = (u64::from(index) * 64 + at as u64 * 16) % size;
            self.rig.write(self.sq_ring + offset, chunk);
        }
        self.sent = index.wrapping_add(ds.div_ceil(4) as u16);
        self.rig.write(self.record + 4, &u32::from(self.sent).to_be_bytes());
        index
    }

    /// The bytes that ringing the doorbell for the WQE at an index stores.
    pub fn doorbell(&self, index: u16) -> [u8; 8] {
        self.rig.read(self.sq_ring + u64::from(index % BLOCKS) * 64)
    }

    /// Rings the doorbell for the WQE at an index.
    pub fn ring(&mut self, index: u16) {
        let control = self.doorbell(index);
        self.rig.card.store(self.rig.uar, 0x800, &control);
    }

    pub fn post(&mut self, post: &Post) -> u16 {
        let index = self.write(post);
        self.ring(index);
        index
    }

    /// Takes the next completion of the send (0) or receive (1) CQ.
    pub fn poll(&mut self, queue: usize) -> Option<Cqe> {
        let (ring, record, consumer) = self.cqs[queue];
        let bytes: [u8; 64] = self.rig.read(ring + u64::from(consumer % CQES) * 64);
        let owner = bytes[63] & 1 != 0;
        if bytes[63] >> 4 == 0xf || owner != (consumer & CQES != 0) {
            return None;
        }
        self.cqs[queue].2 = consumer + 1;
        self.rig.write(record, &(consumer + 1).to_be_bytes());
        let failed = matches!(bytes[63] >> 4, 13 | 14);
        let length = u32::from_be_bytes(bytes[44..48].try_into().unwrap());
        let inline = bytes[63] >> 2 & 3 == 1;
        Some(Cqe {
            opcode: bytes[63] >> 4,
            syndrome: if failed { bytes[55] } else { 0 },
            wqe: u16::from_be_bytes([bytes[60], bytes[61]]),
            length: if failed { 0 } else { length },
            immediate: bytes[36..40].try_into().unwrap(),
            solicited: bytes[63] & 2 != 0,
            tagged: (bytes[40] == 1).then(|| {
                let index = u16::from_be_bytes([bytes[42], bytes[43]]);
                (bytes[41], index, *bytes.first_chunk().unwrap())
            }),
            inline: inline.then(|| bytes[..length as usize].to_vec()),
            source: (
                u16::from_be_bytes([bytes[22], bytes[23]]),
                u32::from_be_bytes(bytes[24..28].try_into().unwrap()),
            ),
            tag: (bytes[29] & 1 == 1).then(|| u16::from_be_bytes([bytes[30], bytes[31]])),
        })
    }

    /// Takes the types of the asynchronous events so far.
    pub fn take_events(&mut self) -> Vec<u8> {
        let mut types = Vec::new();
        loop {
            let (ring, consumer) = self.events;
            let entry: [u8; 64] = self.rig.read(ring + consumer % EQES * 64);
            if u64::from(entry[63] & 1) != consumer / EQES % 2 {
                return types;
            }
            types.push(entry[1]);
            self.events.1 += 1;
        }
    }

    pub fn drain(&mut self, queue: usize) -> Vec<Cqe> {
        std::iter::from_fn(|| self.poll(queue)).collect()
    }

    /// The syndromes of everything in a CQ, with the WQEs they name.
    pub fn outcomes(&mut self, queue: usize) -> Vec<(u16, u8)> {
        self.drain(queue).into_iter().map(|cqe| (cqe.wqe, cqe.syndrome)).collect()
    }
}

/// A shared receive queue of [`RECEIVES`] WQEs in a circle: number, ring, record.
fn shared_queue(rig: &mut Rig) -> (u32, u64, u64) {
    let field = |field: mlx5_sys::ifc::Field| field.within(rmpc::WQ).within(create_rmp_in::CTX);
    let create = rig.create_rmp().set(field(wq::LOG_WQ_SZ), RECEIVES.ilog2());
    let (ring, record) = (ring(&create), field(wq::DBR_ADDR).get(&create.0));
    circle(rig, ring);
    (rig.number(&create, create_rmp_out::RMPN), ring, record)
}

/// The same of one that matches tags.
fn tag_queue(rig: &mut Rig, cq: u32) -> (u32, u64, u64) {
    let field =
        |field: mlx5_sys::ifc::Field| field.within(xrqc::WQ).within(create_xrq_in::XRQ_CONTEXT);
    let create = rig.create_xrq(cq).set(field(wq::LOG_WQ_SZ), RECEIVES.ilog2());
    let ring = u64::from_be_bytes(*create.0.last_chunk().unwrap());
    circle(rig, ring);
    (rig.number(&create, create_xrq_out::XRQN), ring, field(wq::DBR_ADDR).get(&create.0))
}

/// Links WQEs of 64 bytes in a circle.
fn circle(rig: &Rig, ring: u64) {
    for index in 0..RECEIVES {
        let next = (index + 1) % RECEIVES;
        rig.write(ring + u64::from(index) * 64 + 2, &next.to_be_bytes());
    }
}

/// QPC's code of a service, or of a special queue pair.
fn st(setup: Setup) -> u64 {
    match setup.special {
        Some(Special::Smi) => return 7,
        Some(Special::Gsi) => return 8,
        Some(Special::Umr) => return 0xc,
        None => {}
    }
    match setup.service {
        Service::Rc => 0,
        Service::Uc => 1,
        Service::Ud => 2,
        Service::Xrc => 3,
        Service::Dc => 5,
        Service::Ethernet => panic!("no queue pair has it"),
    }
}

fn pointer(offset: u64, length: u32, key: u32) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&length.to_be_bytes());
    segment[4..8].copy_from_slice(&key.to_be_bytes());
    segment[8..].copy_from_slice(&Side::address(offset).to_be_bytes());
    segment
}

fn mkey(rig: &mut Rig, pages: &[u64], change: impl Fn(Command) -> Command) -> u32 {
    let field = |field: mlx5_sys::ifc::Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    let octwords = pages.len() as u64 / 2;
    let mut create = change(
        rig.create_mkey()
            .set(field(mkc::START_ADDR), ADDRESS)
            .set(field(mkc::LEN), REGION as u64)
            .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), octwords)
            .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, octwords),
    );
    // In place of the two pages it came with.
    create.0.truncate(create.0.len() - 16);
    for page in pages {
        create.0.extend_from_slice(&page.to_be_bytes());
    }
    rig.mkey(&create)
}
