//! A device for tests, with valid commands that tests then make invalid.

use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, ads, alloc_memic_in, alloc_pd_out, alloc_q_counter_out, alloc_transport_domain_out,
    alloc_uar_out, alloc_xrcd_out, cqc, create_cq_in, create_cq_out, create_eq_in, create_eq_out,
    create_mkey_in, create_mkey_out, create_qp_in, create_qp_out, create_rmp_in, create_rq_in,
    create_rqt_in, create_sq_in, create_srq_in, create_tir_in, create_tis_in, create_tis_out,
    create_uctx_out, create_umem_in, create_umem_out, create_xrc_srq_in, create_xrq_in, eqc, mkc,
    opcode, qpc, rmpc, rq_num, rqc, rqtc, rst2init_qp_in, sqc, srqc, tag_matching_topology_context,
    tirc, tisc, umem, wq, xrc_srqc, xrqc,
};

use super::{OPCODE, Refusal, UID, buffer::PAS};
use crate::card::{Bus, Card, CounterSets, GidEntry, Identity, Link, PortState, Profile, Timeouts};
use crate::clock::Clock;
use crate::memory::Memory;
use crate::memory::test::Flat;
use crate::object::Memic;
use crate::wire::{RoceVersion, mac};

pub const BASE: u64 = 0x10_0000;
pub const SIZE: usize = 0x200_0000;
const PAGE: u64 = 4096;

/// The last byte of a CQE that was not written yet.
pub const UNWRITTEN: u8 = 0xf1;

/// A card with one UAR page, PD, EQ and CQ, and pages to give.
pub struct Rig {
    pub card: Card,
    pub memory: Arc<Flat>,
    pub uar: u32,
    pub pd: u32,
    pub eq: u32,
    pub eq_ring: u64,
    /// User context that gives the commands; 0 is the driver itself.
    pub user: u16,
    /// Another user context, where there are any.
    pub stranger: u16,
    /// UAR page and PD of the driver.
    drivers: (u32, u32),
    next: u64,
}

/// Processor time that this thread has used: what a busy machine does not change.
pub fn thread_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A command under construction.
#[derive(Clone)]
pub struct Command(pub Vec<u8>);

impl Command {
    pub fn new(opcode: u16, length: usize) -> Self {
        Self(vec![0; length]).set(OPCODE, opcode)
    }

    pub fn set(mut self, field: Field, value: impl Into<u64>) -> Self {
        field.set(&mut self.0, value.into());
        self
    }

    pub fn page(mut self, address: u64) -> Self {
        self.0.extend_from_slice(&address.to_be_bytes());
        self
    }

    /// Leaves out the list of pages, or of keys.
    pub fn without_pages(mut self) -> Self {
        let listed = if OPCODE.get(&self.0) == u64::from(opcode::CREATE_XRQ) {
            create_xrq_in::SIZE
        } else {
            PAS
        };
        self.0.truncate(listed);
        self
    }

    /// Lays the queue of a context 192 bytes into a umem, and its doorbell record at the end.
    pub fn into_umem(self, umem: u32, field: impl Fn(Field) -> Field) -> Self {
        self.set(field(wq::WQ_UMEM_VALID), 1u64)
            .set(field(wq::WQ_UMEM_ID), umem)
            .set(field(wq::WQ_UMEM_OFFSET), 64u64)
            .set(field(wq::DBR_UMEM_VALID), 1u64)
            .set(field(wq::DBR_UMEM_ID), umem)
            .set(field(wq::DBR_ADDR), 0x1ff8u64)
            .set(field(wq::PAGE_OFFSET), 1u64)
            .set(field(wq::LOG_WQ_PG_SZ), 1u64)
            .without_pages()
    }

    /// Lists receive queues behind the context of a table.
    pub fn listing(mut self, context: Field, queues: &[u32]) -> Self {
        self = self.set(rqtc::RQT_ACTUAL_SIZE.within(context), queues.len() as u64);
        for queue in queues {
            let mut entry = [0; rq_num::SIZE];
            rq_num::RQ_NUM.set(&mut entry, (*queue).into());
            self.0.extend_from_slice(&entry);
        }
        self
    }

    /// So many bytes of the card's own memory, of the first page of the window.
    pub fn alloc_memic(size: u64) -> Self {
        Self::new(opcode::ALLOC_MEMIC, 0x20)
            .set(alloc_memic_in::RANGE_START_ADDR, Memic::WINDOW)
            .set(alloc_memic_in::RANGE_SIZE, PAGE)
            .set(alloc_memic_in::MEMIC_SIZE, size)
    }
}

pub fn identity(link: Link) -> Identity {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&0x5000_0000_0000_0001u64.to_be_bytes());
    Identity {
        node_guid: 0x5000_0000_0000_0001,
        link,
        lid: 7,
        mac: mac(&gid),
        gids: vec![GidEntry::new(gid, RoceVersion::V2)],
        qpn_prefixes: vec![0x12],
        seed: 1,
        user_contexts: true,
        bus: Bus::Process,
        profile: Profile::default(),
        port: PortState::Active,
        log_mtu: None,
        timeouts: Timeouts::default(),
        counter_sets: CounterSets::Allowed,
        prefetch: None,
        placement: None,
    }
}

impl Rig {
    pub fn new() -> Self {
        Self::on(Link::InfiniBand)
    }

    pub fn on(link: Link) -> Self {
        let memory = Arc::new(Flat::new(BASE, SIZE));
        let card = Card::new(identity(link), memory.clone(), Clock::Manual(0));
        Self::of(card, memory)
    }

    /// Around a card that has nothing yet, and whose memory is this.
    pub fn of(card: Card, memory: Arc<Flat>) -> Self {
        let mut rig = Self {
            card,
            memory,
            uar: 0,
            pd: 0,
            eq: 0,
            eq_ring: 0,
            user: 0,
            stranger: 0,
            drivers: (0, 0),
            next: BASE,
        };
        rig.uar = rig.number(&Command::new(opcode::ALLOC_UAR, 0x10), alloc_uar_out::UAR);
        rig.pd = rig.number(&Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD);
        rig.drivers = (rig.uar, rig.pd);
        let create = rig.create_eq();
        rig.eq_ring = u64::from_be_bytes(create.0[PAS..PAS + 8].try_into().unwrap());
        rig.eq = rig.number(&create, create_eq_out::EQ_NUMBER);
        rig
    }

    /// The next unused page of memory.
    pub fn page(&mut self) -> u64 {
        self.next += PAGE;
        assert!(self.next <= BASE + SIZE as u64);
        self.next - PAGE
    }

    pub fn run(&mut self, command: &Command) -> Result<Vec<u8>, Refusal> {
        self.run_into(command, 0x1010)
    }

    pub fn run_into(&mut self, command: &Command, length: usize) -> Result<Vec<u8>, Refusal> {
        let mut output = vec![0xaa; length];
        let Some((status, syndrome)) = self.run_raw(command, &mut output) else {
            return Ok(output);
        };
        let refusal = Refusal::from_syndrome(syndrome).expect("a syndrome of the table");
        let opcode = command.0.get(..2).map_or(0, |_| OPCODE.get(&command.0) as u16);
        let (expected, number) = refusal.reply(opcode);
        assert_eq!((status, syndrome), (expected as u8, number));
        assert!(output[8..].iter().all(|byte| *byte == 0), "a refusal answers nothing else");
        Err(refusal)
    }

    /// Runs a command. Returns status and syndrome of a refusal, as the reply has them.
    pub fn run_raw(&mut self, command: &Command, output: &mut [u8]) -> Option<(u8, u32)> {
        let mut given = command.0.clone();
        if self.user != 0 && given.len() >= 4 && UID.get(&given) == 0 {
            UID.set(&mut given, self.user.into());
        }
        self.card.execute(&given, output);
        let syndrome = u32::from_be_bytes(output[4..8].try_into().unwrap());
        (output[0] != 0).then_some((output[0], syndrome))
    }

    /// From now on commands are those of a user context, which has a UAR page and a PD of its own.
    pub fn become_user(&mut self) {
        self.user = self.uctx();
        self.uar = self.number(&Command::new(opcode::ALLOC_UAR, 0x10), alloc_uar_out::UAR);
        self.pd = self.number(&Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD);
    }

    /// A new user context.
    pub fn uctx(&mut self) -> u16 {
        let create = Command::new(opcode::CREATE_UCTX, 0x40);
        self.as_driver(|rig| rig.number(&create, create_uctx_out::UID)) as u16
    }

    /// Makes an object as the driver does: for a user, it is an object of another owner.
    pub fn foreign(&mut self, make: impl FnOnce(&mut Self) -> u32) -> u32 {
        let own = (self.uar, self.pd);
        self.as_driver(|rig| {
            (rig.uar, rig.pd) = rig.drivers;
            let number = make(rig);
            (rig.uar, rig.pd) = own;
            number
        })
    }

    /// A set of counters.
    pub fn counters(&mut self) -> u32 {
        let alloc = Command::new(opcode::ALLOC_Q_COUNTER, 0x10);
        self.number(&alloc, alloc_q_counter_out::COUNTER_SET_ID)
    }

    /// A PD of the driver's.
    pub fn foreign_pd(&self) -> u32 {
        self.drivers.1
    }

    /// A UAR page of the driver's.
    pub fn foreign_uar(&self) -> u32 {
        self.drivers.0
    }

    /// A CQ of the driver's.
    pub fn foreign_cq(&mut self) -> u32 {
        self.foreign(Self::cq)
    }

    /// The index of a key of the driver's.
    pub fn foreign_key(&mut self) -> u32 {
        self.foreign(|rig| {
            let create = rig.create_mkey();
            rig.mkey(&create) >> 8
        })
    }

    /// Does something as the other user context.
    pub fn as_stranger<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let user = std::mem::replace(&mut self.user, self.stranger);
        let result = work(self);
        self.user = user;
        result
    }

    /// Does something as the driver.
    pub fn as_driver<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let user = std::mem::replace(&mut self.user, 0);
        let result = work(self);
        self.user = user;
        result
    }

    /// Makes an object that other objects may stand on; gives the command that destroys it.
    pub fn holder(&mut self, create: &Command) -> Command {
        /// Position of the number, both in the reply and in the command.
        const NUMBER: Field = Field::new(8, 23, 24);
        let destroy = match OPCODE.get(&create.0) as u16 {
            opcode::CREATE_CQ => opcode::DESTROY_CQ,
            opcode::CREATE_EQ => opcode::DESTROY_EQ,
            opcode::CREATE_MKEY => opcode::DESTROY_MKEY,
            opcode::CREATE_QP => opcode::DESTROY_QP,
            opcode::CREATE_RMP => opcode::DESTROY_RMP,
            opcode::CREATE_RQT => opcode::DESTROY_RQT,
            opcode::CREATE_SQ => opcode::DESTROY_SQ,
            opcode::CREATE_TIR => opcode::DESTROY_TIR,
            opcode::CREATE_TIS => opcode::DESTROY_TIS,
            opcode::CREATE_XRC_SRQ => opcode::DESTROY_XRC_SRQ,
            opcode::CREATE_XRQ => opcode::DESTROY_XRQ,
            other => panic!("{other:#x} has no command here that undoes it"),
        };
        let number = self.number(create, NUMBER);
        Command::new(destroy, 0x10).set(NUMBER, number)
    }

    /// Runs a command that must succeed and takes a number from its reply.
    pub fn number(&mut self, command: &Command, field: Field) -> u32 {
        field.get(&self.run(command).expect("accepted")) as u32
    }

    pub fn create_eq(&mut self) -> Command {
        let page = self.page();
        let field = |field: Field| field.within(create_eq_in::EQ_CONTEXT_ENTRY);
        Command::new(opcode::CREATE_EQ, PAS)
            .set(field(eqc::LOG_EQ_SIZE), 4u64)
            .set(field(eqc::UAR_PAGE), self.uar)
            .set(field(eqc::INTR), 3u64)
            .page(page)
    }

    /// 16 CQEs of 64 bytes on one page, which say nothing; the doorbell record is on a page of its own.
    pub fn create_cq(&mut self) -> Command {
        let (record, ring) = (self.page(), self.page());
        for slot in 0..64 {
            self.write(ring + slot * 64 + 63, &[UNWRITTEN]);
        }
        let field = |field: Field| field.within(create_cq_in::CQ_CONTEXT);
        Command::new(opcode::CREATE_CQ, PAS)
            .set(field(cqc::LOG_CQ_SIZE), 4u64)
            .set(field(cqc::UAR_PAGE), self.uar)
            .set(field(cqc::C_EQN_OR_APU_ELEMENT), self.eq)
            .set(field(cqc::DBR_ADDR), record)
            .page(ring)
    }

    pub fn cq(&mut self) -> u32 {
        let create = self.create_cq();
        self.number(&create, create_cq_out::CQN)
    }

    /// An RC queue pair with 8 receive WQEs of 32 bytes and 16 send blocks.
    pub fn create_qp(&mut self, send_cq: u32, receive_cq: u32) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(create_qp_in::QPC);
        Command::new(opcode::CREATE_QP, PAS)
            .set(field(qpc::PM_STATE), 3u64)
            .set(field(qpc::PD), self.pd)
            .set(field(qpc::UAR_PAGE), self.uar)
            .set(field(qpc::USER_INDEX), 0xab_cdefu64)
            .set(field(qpc::CQN_SND), send_cq)
            .set(field(qpc::CQN_RCV), receive_cq)
            .set(field(qpc::LOG_RQ_SIZE), 3u64)
            .set(field(qpc::LOG_RQ_STRIDE), 1u64)
            .set(field(qpc::LOG_SQ_SIZE), 4u64)
            .set(field(qpc::DBR_ADDR), record)
            .page(ring)
    }

    /// A receive memory pool of 8 WQEs of 64 bytes. Its ring names no successors yet.
    pub fn create_rmp(&mut self) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(rmpc::WQ).within(create_rmp_in::CTX);
        Command::new(opcode::CREATE_RMP, PAS)
            .set(rmpc::STATE.within(create_rmp_in::CTX), 1u64)
            .set(field(wq::PD), self.pd)
            .set(field(wq::DBR_ADDR), record)
            .set(field(wq::LOG_WQ_STRIDE), 6u64)
            .set(field(wq::LOG_WQ_SZ), 3u64)
            .page(ring)
    }

    /// An XRC SRQ like the pools of [`Rig::create_rmp`].
    pub fn create_xrc_srq(&mut self, domain: u32, cq: u32) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY);
        Command::new(opcode::CREATE_XRC_SRQ, PAS)
            .set(field(xrc_srqc::LOG_XRC_SRQ_SIZE), 3u64)
            .set(field(xrc_srqc::LOG_RQ_STRIDE), 2u64)
            .set(field(xrc_srqc::XRCD), domain)
            .set(field(xrc_srqc::CQN), cq)
            .set(field(xrc_srqc::USER_INDEX), 0x1234u64)
            .set(field(xrc_srqc::PD), self.pd)
            .set(field(xrc_srqc::DB_RECORD_ADDR_H), record >> 32)
            .set(field(xrc_srqc::DB_RECORD_ADDR_L), record >> 2 & 0x3fff_ffff)
            .page(ring)
    }

    /// A shared receive queue of cards of old, like the pools of [`Rig::create_rmp`].
    pub fn create_srq(&mut self) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(create_srq_in::SRQ_CONTEXT_ENTRY);
        Command::new(opcode::CREATE_SRQ, create_srq_in::SIZE)
            .set(field(srqc::LOG_SRQ_SIZE), 3u64)
            .set(field(srqc::LOG_RQ_STRIDE), 2u64)
            .set(field(srqc::PD), self.pd)
            .set(field(srqc::DBR_ADDR), record)
            .page(ring)
    }

    /// Two pages of memory that are not neighbours, of a user.
    pub fn create_umem(&mut self) -> Command {
        let (second, first) = (self.page(), self.page());
        Command::new(opcode::CREATE_UMEM, create_umem_in::SIZE)
            .set(umem::NUM_OF_MTT.within(create_umem_in::UMEM), 2u64)
            .page(first)
            .page(second)
    }

    /// The same by number, and its pages.
    pub fn umem(&mut self) -> (u32, [u64; 2]) {
        let create = self.create_umem();
        let page = |at: usize| Field::new(create_umem_in::SIZE + 8 * at, 31, 64).get(&create.0);
        (self.number(&create, create_umem_out::UMEM_ID), [page(0), page(1)])
    }

    /// A CQ whose ring starts 192 bytes into a umem, and whose doorbell record is its last.
    pub fn create_cq_in_umem(&mut self, umem: u32) -> Command {
        let field = |field: Field| field.within(create_cq_in::CQ_CONTEXT);
        self.create_cq()
            .set(create_cq_in::CQ_UMEM_VALID, 1u64)
            .set(create_cq_in::CQ_UMEM_ID, umem)
            .set(create_cq_in::CQ_UMEM_OFFSET, 64u64)
            .set(field(cqc::DBR_UMEM_VALID), 1u64)
            .set(field(cqc::DBR_UMEM_ID), umem)
            .set(field(cqc::DBR_ADDR), 0x1ff8u64)
            .set(field(cqc::PAGE_OFFSET), 1u64)
            .set(field(cqc::LOG_PAGE_SIZE), 1u64)
            .without_pages()
    }

    /// A pool that lies there.
    pub fn create_rmp_in_umem(&mut self, umem: u32) -> Command {
        self.create_rmp().into_umem(umem, |f| f.within(rmpc::WQ).within(create_rmp_in::CTX))
    }

    /// An XRC SRQ that lies there.
    pub fn create_xrc_srq_in_umem(&mut self, domain: u32, cq: u32, umem: u32) -> Command {
        let field = |field: Field| field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY);
        self.create_xrc_srq(domain, cq)
            .set(create_xrc_srq_in::XRC_SRQ_UMEM_VALID, 1u64)
            .set(create_xrc_srq_in::XRC_SRQ_UMEM_ID, umem)
            .set(create_xrc_srq_in::XRC_SRQ_UMEM_OFFSET, 64u64)
            .set(field(xrc_srqc::DBR_UMEM_VALID), 1u64)
            .set(field(xrc_srqc::DBR_UMEM_ID), umem)
            .set(field(xrc_srqc::DB_RECORD_ADDR_H), 0u64)
            .set(field(xrc_srqc::DB_RECORD_ADDR_L), 0x1ff8u64 >> 2)
            .set(field(xrc_srqc::PAGE_OFFSET), 1u64)
            .set(field(xrc_srqc::LOG_PAGE_SIZE), 1u64)
            .without_pages()
    }

    /// A key whose first page starts where a umem does.
    pub fn create_mkey_in_umem(&mut self, umem: u32) -> Command {
        self.create_mkey()
            .set(mkc::START_ADDR.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), 0x7000_0000u64)
            .set(create_mkey_in::MKEY_UMEM_VALID, 1u64)
            .set(create_mkey_in::MKEY_UMEM_ID, umem)
            .without_pages()
    }

    /// Gives the card memory of its own; where that is on the bus.
    pub fn give_memic(&mut self) -> u64 {
        let bus = self.page();
        self.card.memic = Memic::at(bus);
        bus
    }

    pub fn transport_domain(&mut self) -> u32 {
        let alloc = Command::new(opcode::ALLOC_TRANSPORT_DOMAIN, 0x10);
        self.number(&alloc, alloc_transport_domain_out::TRANSPORT_DOMAIN)
    }

    /// A TIS of a transport domain of its own.
    pub fn create_tis(&mut self) -> Command {
        let domain = self.transport_domain();
        Command::new(opcode::CREATE_TIS, create_tis_in::SIZE)
            .set(tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX), domain)
    }

    pub fn tis(&mut self) -> u32 {
        let create = self.create_tis();
        self.number(&create, create_tis_out::TISN)
    }

    /// A send queue of Ethernet, of 16 blocks.
    pub fn create_sq(&mut self, cq: u32, tis: u32) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(create_sq_in::CTX);
        let queue = |inner: Field| field(inner.within(sqc::WQ));
        Command::new(opcode::CREATE_SQ, create_sq_in::SIZE)
            .set(field(sqc::CQN), cq)
            .set(field(sqc::USER_INDEX), 0x12_3456u64)
            .set(field(sqc::TIS_LST_SZ), 1u64)
            .set(field(sqc::TIS_NUM_0), tis)
            .set(queue(wq::WQ_TYPE), 1u64)
            .set(queue(wq::PD), self.pd)
            .set(queue(wq::UAR_PAGE), self.uar)
            .set(queue(wq::DBR_ADDR), record)
            .set(queue(wq::LOG_WQ_STRIDE), 6u64)
            .set(queue(wq::LOG_WQ_SZ), 4u64)
            .page(ring)
    }

    /// A receive queue of Ethernet, of 8 WQEs of 32 bytes, that leaves VLAN tags where they are.
    pub fn create_rq(&mut self, cq: u32) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(create_rq_in::CTX);
        let queue = |inner: Field| field(inner.within(rqc::WQ));
        Command::new(opcode::CREATE_RQ, create_rq_in::SIZE)
            .set(field(rqc::VSD), 1u64)
            .set(field(rqc::CQN), cq)
            .set(field(rqc::USER_INDEX), 0x65_4321u64)
            .set(queue(wq::WQ_TYPE), 1u64)
            .set(queue(wq::PD), self.pd)
            .set(queue(wq::DBR_ADDR), record)
            .set(queue(wq::LOG_WQ_STRIDE), 5u64)
            .set(queue(wq::LOG_WQ_SZ), 3u64)
            .page(ring)
    }

    /// A TIR that leads to a receive queue.
    pub fn create_tir(&mut self, rq: u32, domain: u32) -> Command {
        let field = |field: Field| field.within(create_tir_in::CTX);
        Command::new(opcode::CREATE_TIR, create_tir_in::SIZE)
            .set(field(tirc::INLINE_RQN), rq)
            .set(field(tirc::TRANSPORT_DOMAIN), domain)
    }

    /// A TIR that spreads packets among the queues of a table.
    pub fn create_spreading_tir(&mut self, table: u32, domain: u32) -> Command {
        let field = |field: Field| field.within(create_tir_in::CTX);
        self.create_tir(0, domain)
            .set(field(tirc::DISP_TYPE), 1u64)
            .set(field(tirc::RX_HASH_FN), 2u64)
            .set(field(tirc::INDIRECT_TABLE), table)
    }

    /// A table of receive queues, with room for so many.
    pub fn create_rqt(&mut self, room: u32, queues: &[u32]) -> Command {
        Command::new(opcode::CREATE_RQT, create_rqt_in::SIZE)
            .set(rqtc::RQT_MAX_SIZE.within(create_rqt_in::RQT_CONTEXT), room)
            .listing(create_rqt_in::RQT_CONTEXT, queues)
    }

    /// An XRC domain.
    pub fn xrc_domain(&mut self) -> u32 {
        self.number(&Command::new(opcode::ALLOC_XRCD, 0x10), alloc_xrcd_out::XRCD)
    }

    /// The receiving side of an extended reliable connection.
    pub fn create_target(&mut self, domain: u32) -> Command {
        let field = |field: Field| field.within(create_qp_in::QPC);
        Command::new(opcode::CREATE_QP, PAS)
            .set(field(qpc::ST), 3u64)
            .set(field(qpc::PM_STATE), 3u64)
            .set(field(qpc::PD), self.pd)
            .set(field(qpc::RQ_TYPE), 1u64)
            .set(field(qpc::NO_SQ), 1u64)
            .set(field(qpc::XRCD), domain)
    }

    /// A queue that matches up to eight tags, of 8 WQEs of 64 bytes. Its ring is the last page named.
    pub fn create_xrq(&mut self, cq: u32) -> Command {
        let (record, ring) = (self.page(), self.page());
        let field = |field: Field| field.within(create_xrq_in::XRQ_CONTEXT);
        let queue = |inner: Field| field(inner.within(xrqc::WQ));
        let tags = tag_matching_topology_context::LOG_MATCHING_LIST_SZ;
        Command::new(opcode::CREATE_XRQ, create_xrq_in::SIZE)
            .set(field(xrqc::TOPOLOGY), 1u64)
            .set(field(xrqc::OFFLOAD), 1u64)
            .set(field(xrqc::CQN), cq)
            .set(field(xrqc::USER_INDEX), 0x4321u64)
            .set(field(tags.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT)), 3u64)
            .set(queue(wq::PD), self.pd)
            .set(queue(wq::DBR_ADDR), record)
            .set(queue(wq::LOG_WQ_STRIDE), 6u64)
            .set(queue(wq::LOG_WQ_SZ), 3u64)
            .page(ring)
    }

    /// A queue pair like those of [`Rig::create_qp`] that takes from a shared receive queue.
    pub fn create_sharing_qp(&mut self, cq: u32, srq: u32) -> Command {
        let field = |field: Field| field.within(create_qp_in::QPC);
        self.create_qp(cq, cq)
            .set(field(qpc::RQ_TYPE), 1u64)
            .set(field(qpc::SRQN_RMPN_XRQN), srq)
            .set(field(qpc::LOG_RQ_SIZE), 0u64)
            .set(field(qpc::LOG_RQ_STRIDE), 0u64)
    }

    pub fn qp(&mut self, send_cq: u32, receive_cq: u32) -> u32 {
        let create = self.create_qp(send_cq, receive_cq);
        self.number(&create, create_qp_out::QPN)
    }

    /// A transition with everything RC asks for in any of them.
    pub fn transition(&self, opcode: u16, qp: u32) -> Command {
        let field = |field: Field| field.within(rst2init_qp_in::QPC);
        let path = |f: Field| field(f.within(qpc::PRIMARY_ADDRESS_PATH));
        Command::new(opcode, 0x110)
            .set(rst2init_qp_in::QPN, qp)
            .set(field(qpc::PM_STATE), 3u64)
            .set(field(qpc::RRE), 1u64)
            .set(field(qpc::RWE), 1u64)
            .set(field(qpc::RAE), 1u64)
            .set(field(qpc::ATOMIC_MODE), 1u64)
            .set(path(ads::VHCA_PORT_NUM), 1u64)
            .set(path(ads::RLID), 7u64)
            .set(path(ads::ACK_TIMEOUT), 14u64)
            .set(field(qpc::MTU), 3u64)
            .set(field(qpc::LOG_MSG_MAX), 30u64)
            .set(field(qpc::REMOTE_QPN), qp)
            .set(field(qpc::LOG_RRA_MAX), 2u64)
            .set(field(qpc::LOG_SRA_MAX), 2u64)
            .set(field(qpc::MIN_RNR_NAK), 12u64)
            .set(field(qpc::NEXT_RCV_PSN), 0x123u64)
            .set(field(qpc::NEXT_SEND_PSN), 0x123u64)
            .set(field(qpc::RETRY_COUNT), 7u64)
            .set(field(qpc::RNR_RETRY), 7u64)
    }

    /// Moves a fresh queue pair to RTS.
    pub fn rts(&mut self, qp: u32) {
        for opcode in [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP] {
            let command = self.transition(opcode, qp);
            self.run(&command).expect("accepted");
        }
    }

    /// A key over 4,096 bytes that start 0x100 into the first of two pages that are not
    /// neighbours; all rights.
    pub fn create_mkey(&mut self) -> Command {
        let (second, first) = (self.page(), self.page());
        let field = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        Command::new(opcode::CREATE_MKEY, PAS)
            .set(field(mkc::ACCESS_MODE_1_0), 1u64)
            .set(field(mkc::LR), 1u64)
            .set(field(mkc::LW), 1u64)
            .set(field(mkc::RR), 1u64)
            .set(field(mkc::RW), 1u64)
            .set(field(mkc::A), 1u64)
            .set(field(mkc::QPN), 0xff_ffffu64)
            .set(field(mkc::MKEY_7_0), 0x5au64)
            .set(field(mkc::PD), self.pd)
            .set(field(mkc::START_ADDR), 0x7000_0100u64)
            .set(field(mkc::LEN), 0x1000u64)
            .set(field(mkc::LOG_PAGE_SIZE), 12u64)
            .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 1u64)
            .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 1u64)
            .page(first)
            .page(second)
    }

    /// Creates a key; returns the key itself, index and variant.
    pub fn mkey(&mut self, create: &Command) -> u32 {
        let variant = mkc::MKEY_7_0.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY).get(&create.0);
        self.number(create, create_mkey_out::MKEY_INDEX) << 8 | variant as u32
    }

    pub fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(address, &mut bytes).unwrap();
        bytes
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes).unwrap();
    }
}

/// Returns the bus address of a queue: the first entry of its page list.
pub fn ring(command: &Command) -> u64 {
    u64::from_be_bytes(command.0[PAS..PAS + 8].try_into().unwrap())
}
