//! The objects of the card, made by commands.

use std::collections::VecDeque;

use mlx5_model::object::Service;
use mlx5_model::wire::Link;
use mlx5_sys::ifc::{
    Field, ads, alloc_pd_out, alloc_uar_out, cqc, create_cq_in, create_cq_out, create_dct_in,
    create_dct_out, create_eq_in, create_eq_out, create_mkey_in, create_mkey_out, create_qp_in,
    create_qp_out, create_rmp_in, create_rmp_out, dctc, eqc, mkc, opcode, qpc, rmpc,
    rst2init_qp_in, wq,
};

use super::{BLOCKS, CQES, Machine, PAGE, Queue, RECEIVES, START, command, pointer, set};

/// Offset of the page list in a creating command.
const PAS: usize = 0x110;

impl Machine {
    pub(super) fn make(&mut self) {
        let none = Field::new(8, 31, 32);
        self.uar = self.must(command(opcode::ALLOC_UAR, 0x10), alloc_uar_out::UAR);
        self.pd = self.must(command(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD);

        let mut eq = command(opcode::CREATE_EQ, PAS);
        let within = |field: Field| field.within(create_eq_in::EQ_CONTEXT_ENTRY);
        set(&mut eq, &[(within(eqc::LOG_EQ_SIZE), 4), (within(eqc::UAR_PAGE), self.uar)]);
        eq.extend(self.page().to_be_bytes());
        let eq = self.must(eq, create_eq_out::EQ_NUMBER);

        (self.cq_record, self.cq_ring) = (self.page(), self.page());
        let mut cq = command(opcode::CREATE_CQ, PAS);
        let within = |field: Field| field.within(create_cq_in::CQ_CONTEXT);
        set(
            &mut cq,
            &[
                (within(cqc::LOG_CQ_SIZE), CQES.ilog2().into()),
                (within(cqc::UAR_PAGE), self.uar),
                (within(cqc::C_EQN_OR_APU_ELEMENT), eq),
                (within(cqc::DBR_ADDR), self.cq_record),
            ],
        );
        cq.extend(self.cq_ring.to_be_bytes());
        self.cq = self.must(cq, create_cq_out::CQN);
        for slot in 0..u64::from(CQES) {
            self.write(self.cq_ring + slot * 64 + 63, &[0xf0]);
        }

        self.make_keys();
        let rmp = self.make_pool();
        for (st, service) in [
            (0, Service::Rc),
            (0, Service::Rc),
            (1, Service::Uc),
            (2, Service::Ud),
            (5, Service::Dc),
        ] {
            let queue = self.make_queue(st, service);
            self.queues.push(queue);
        }
        for at in 0..self.queues.len() {
            self.connect(at, [rst2init(0), rst2init(1), rst2init(2)].as_slice());
        }

        let mut target = command(opcode::CREATE_DCT, create_dct_in::SIZE);
        let within = |field: Field| field.within(create_dct_in::DCT_CONTEXT_ENTRY);
        set(
            &mut target,
            &[
                (within(dctc::PD), self.pd),
                (within(dctc::CQN), self.cq),
                (within(dctc::SRQN_XRQN), rmp),
                (within(dctc::DC_ACCESS_KEY), 7),
                (within(dctc::MTU), 3),
                (within(dctc::RRE), 1),
                (within(dctc::RWE), 1),
                (within(dctc::RAE), 1),
                (within(dctc::ATOMIC_MODE), 5),
                (within(dctc::PORT), 1),
            ],
        );
        self.target = self.must(target, create_dct_out::DCTN) as u32;
        self.must(command(opcode::QUERY_ISSI, 0x10), none);
    }

    /// A key over 16 pages, and one over pieces of that one, some of them a pattern.
    fn make_keys(&mut self) {
        let within = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let fields = |mode: u64, length: u64, octwords: u64, pd: u64| {
            let mut fields = vec![
                (within(mkc::ACCESS_MODE_1_0), mode),
                (within(mkc::UMR_EN), u64::from(mode == 2)),
                (within(mkc::QPN), 0xff_ffff),
                (within(mkc::MKEY_7_0), 0x5a),
                (within(mkc::PD), pd),
                (within(mkc::START_ADDR), START),
                (within(mkc::LEN), length),
                (within(mkc::LOG_PAGE_SIZE), 12),
                (within(mkc::TRANSLATIONS_OCTWORD_SIZE), octwords),
                (create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, octwords),
            ];
            fields.extend(
                [mkc::LR, mkc::LW, mkc::RR, mkc::RW, mkc::A].map(|right| (within(right), 1)),
            );
            fields
        };
        let mut region = command(opcode::CREATE_MKEY, PAS);
        set(&mut region, &fields(1, 16 * PAGE, 8, self.pd));
        for _ in 0..16 {
            region.extend(self.page().to_be_bytes());
        }
        let index = self.must(region, create_mkey_out::MKEY_INDEX) as u32;
        self.keys.push(index << 8 | 0x5a);

        let mut list = command(opcode::CREATE_MKEY, PAS);
        set(&mut list, &fields(2, 1 << 30, 8, self.pd));
        let klm = |length: u32, key: u32, address: u64| {
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend(key.to_be_bytes());
            bytes.extend(address.to_be_bytes());
            bytes
        };
        let below = self.keys[0];
        list.extend(klm(100, below, START));
        list.extend(klm(0, 0x400, 1 << 44 | 2));
        list.extend(klm(16 << 16 | 3, below, START + 0x100));
        list.extend(klm(8 << 16 | 5, below, START + 0x800));
        for _ in 0..4 {
            list.extend(klm(0, 0, 0));
        }
        let index = self.must(list, create_mkey_out::MKEY_INDEX) as u32;
        self.keys.push(index << 8 | 0x5a);
    }

    fn make_pool(&mut self) -> u64 {
        let (record, ring) = (self.page(), self.page());
        let within = |field: Field| field.within(rmpc::WQ).within(create_rmp_in::CTX);
        let mut rmp = command(opcode::CREATE_RMP, PAS);
        set(
            &mut rmp,
            &[
                (rmpc::STATE.within(create_rmp_in::CTX), 1),
                (within(wq::PD), self.pd),
                (within(wq::DBR_ADDR), record),
                (within(wq::LOG_WQ_STRIDE), 6),
                (within(wq::LOG_WQ_SZ), 3),
            ],
        );
        rmp.extend(ring.to_be_bytes());
        for slot in 0..8u16 {
            let at = ring + u64::from(slot) * 64;
            self.write(at + 2, &((slot + 1) % 8).to_be_bytes());
            self.write(at + 16, &pointer(256, self.keys[0], START + 0x4000));
        }
        self.write(record, &4u32.to_be_bytes());
        self.must(rmp, create_rmp_out::RMPN)
    }

    fn make_queue(&mut self, st: u64, service: Service) -> Queue {
        let (record, ring) = (self.page(), self.page());
        let alone = service == Service::Dc;
        let mut qp = command(opcode::CREATE_QP, PAS);
        let within = |field: Field| field.within(create_qp_in::QPC);
        set(
            &mut qp,
            &[
                (within(qpc::ST), st),
                (within(qpc::PM_STATE), 3),
                (within(qpc::PD), self.pd),
                (within(qpc::UAR_PAGE), self.uar),
                (within(qpc::CQN_SND), self.cq),
                (within(qpc::CQN_RCV), self.cq),
                (within(qpc::RQ_TYPE), if alone { 3 } else { 0 }),
                (within(qpc::LOG_RQ_SIZE), if alone { 0 } else { RECEIVES.ilog2().into() }),
                (within(qpc::LOG_RQ_STRIDE), if alone { 0 } else { 1 }),
                (within(qpc::LOG_SQ_SIZE), BLOCKS.ilog2().into()),
                (within(qpc::DBR_ADDR), record),
            ],
        );
        qp.extend(ring.to_be_bytes());
        let number = self.must(qp, create_qp_out::QPN) as u32;
        Queue {
            number,
            service,
            ring: ring + if alone { 0 } else { u64::from(RECEIVES) * 32 },
            receives: ring,
            record,
            produced: 0,
            received: 0,
            outstanding: VecDeque::new(),
        }
    }

    /// Moves a queue pair through states; RC queue pairs are each other's peers.
    pub(super) fn connect(&mut self, at: usize, opcodes: &[u16]) {
        let (number, service) = (self.queues[at].number, self.queues[at].service);
        let remote = match (service, at) {
            (Service::Rc, 0) => self.queues[1].number,
            (Service::Rc, _) => self.queues[0].number,
            _ => number,
        };
        let st = match service {
            Service::Rc => 0,
            Service::Uc => 1,
            Service::Ud => 2,
            _ => 5,
        };
        let within = |field: Field| field.within(rst2init_qp_in::QPC);
        let path = |field: Field| within(field.within(qpc::PRIMARY_ADDRESS_PATH));
        let gid = self.card.identity.entry(0).gid;
        for opcode in opcodes {
            let mut input = command(*opcode, PAS);
            set(
                &mut input,
                &[
                    (rst2init_qp_in::QPN, number.into()),
                    (within(qpc::ST), st),
                    (within(qpc::PM_STATE), 3),
                    (within(qpc::RRE), 1),
                    (within(qpc::RWE), 1),
                    (within(qpc::RAE), 1),
                    (within(qpc::ATOMIC_MODE), 5),
                    (path(ads::VHCA_PORT_NUM), 1),
                    (path(ads::RLID), self.card.identity.lid.into()),
                    (path(ads::ACK_TIMEOUT), 14),
                    (path(ads::HOP_LIMIT), 64),
                    (within(qpc::MTU), 1),
                    (within(qpc::LOG_MSG_MAX), 30),
                    (within(qpc::LOG_ACK_REQ_FREQ), 3),
                    (within(qpc::REMOTE_QPN), remote.into()),
                    (within(qpc::LOG_RRA_MAX), 2),
                    (within(qpc::LOG_SRA_MAX), 2),
                    (within(qpc::MIN_RNR_NAK), 1),
                    (within(qpc::RETRY_COUNT), 7),
                    (within(qpc::RNR_RETRY), 6),
                ],
            );
            let address = path(ads::RGID_RIP).bit_offset() / 8;
            input[address..address + 16].copy_from_slice(&gid);
            if self.link == Link::Roce {
                let address = path(ads::RMAC_47_32).bit_offset() / 8;
                input[address..address + 6].copy_from_slice(&self.card.identity.mac);
            }
            let mut output = vec![0; 0x110];
            self.card.execute(&input, &mut output);
            if self.templates.len() < 64 {
                self.templates.push(input);
            }
        }
    }
}

/// The commands that lead from Reset to RTS.
pub fn rst2init(step: usize) -> u16 {
    [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP][step]
}
