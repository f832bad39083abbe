//! Raw packet queue pairs: a send queue, a receive queue and a TIR, each an object of the device;
//! or a TIR alone, in front of receive queues that were created separately.

use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_rq_in, create_rq_out, create_sq_in, create_sq_out, create_tir_in,
    create_tir_out, create_tis_in, create_tis_out, destroy_rq_in, destroy_rq_out, destroy_sq_in,
    destroy_sq_out, destroy_tir_in, destroy_tir_out, destroy_tis_in, destroy_tis_out, modify_rq_in,
    modify_rq_out, modify_sq_in, modify_sq_out, opcode, query_sq_in, query_sq_out, rqc,
    rx_hash_field_select, sqc, tirc, tisc, wq,
};

use super::super::driver::command::Command;
use super::super::driver::rates::Asked as Rate;
use super::super::driver::umem::Umem;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{CreateQpDriver, CreateQpDriverReply, CreateRssDriver};
use super::file::CommandFile;
use super::{cq, device};

/// States of send and receive queues (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
pub(super) const RST: u32 = 0;
pub(super) const RDY: u32 = 1;
pub(super) const ERR: u32 = 3;

/// The device's objects of a raw packet queue pair.
pub(crate) struct Raw {
    uid: u16,
    /// Send queue: its number, the number of its TIS, and its state.
    send: Option<(u32, u32, u32)>,
    /// The rate that the send queue is limited to.
    rate: Option<Rate>,
    /// Receive queue: its number and state.
    receive: Option<(u32, u32)>,
    /// The TIR that flows lead to.
    pub tir: Option<u32>,
    _buffers: Vec<Umem>,
    _record: Option<Arc<Umem>>,
}

impl Raw {
    /// Returns its objects: the command that creates each part, and the part's number.
    pub fn parts(&self) -> Vec<(u16, u32)> {
        let send = self
            .send
            .map(|(number, tis, _)| [(opcode::CREATE_SQ, number), (opcode::CREATE_TIS, tis)]);
        let receive = self.receive.map(|(number, _)| (opcode::CREATE_RQ, number));
        let tir = self.tir.map(|number| (opcode::CREATE_TIR, number));
        send.into_iter().flatten().chain(receive).chain(tir).collect()
    }
}

/// The input for creating a queue pair.
pub(super) struct Parts<'a> {
    pub given: &'a CreateQpDriver,
    /// User context (uid) that owns the objects.
    pub uid: u16,
    /// The context's transport domain.
    pub domain: u32,
    pub pdn: u32,
    pub uar: Option<u32>,
    pub send_cq: Option<&'a cq::Cq>,
    pub recv_cq: Option<&'a cq::Cq>,
    /// Receive WQEs: their number, and log2 of their bytes.
    pub receives: (u32, u32),
    /// Whether VLAN tags are stripped.
    pub strips: bool,
}

/// Creates the send queue, the receive queue and the TIR.
pub(super) fn make(
    file: &CommandFile,
    parts: &Parts<'_>,
) -> Result<(Raw, u32, CreateQpDriverReply)> {
    let given = parts.given;
    let record = Umem::pin_record(&file.running.pinned, given.db_addr)?;
    let record_address = record.bus(given.db_addr);
    let mut raw = Raw {
        uid: parts.uid,
        send: None,
        rate: None,
        receive: None,
        tir: None,
        _buffers: Vec::new(),
        _record: Some(record),
    };
    let made = fill(file, parts, record_address, &mut raw);
    if let Err(error) = made {
        let _ = destroy(file, &raw);
        return Err(error);
    }
    let number = raw.send.map(|(sqn, ..)| sqn).or(raw.receive.map(|(rqn, _)| rqn));
    let mut reply = CreateQpDriverReply::default();
    if parts.uid != 0 {
        /// `MLX5_IB_CREATE_QP_RESP_MASK_*`
        const TIRN: u32 = 1;
        const TISN: u32 = 2;
        const RQN: u32 = 4;
        const SQN: u32 = 8;
        if let Some((sqn, tisn, _)) = raw.send {
            (reply.sqn, reply.tisn) = (sqn, tisn);
            reply.comp_mask |= SQN | TISN;
        }
        if let (Some((rqn, _)), Some(tirn)) = (raw.receive, raw.tir) {
            (reply.rqn, reply.tirn) = (rqn, tirn);
            reply.comp_mask |= RQN | TIRN;
        }
    }
    Ok((raw, number.ok_or(Errno::EINVAL)?, reply))
}

fn fill(file: &CommandFile, parts: &Parts<'_>, record: u64, raw: &mut Raw) -> Result<()> {
    let function = file.function();
    let given = parts.given;
    if given.sq_wqe_count != 0 {
        let cq = parts.send_cq.ok_or(Errno::EINVAL)?;
        let uar = parts.uar.ok_or(Errno::EINVAL)?;
        let length = u64::from(given.sq_wqe_count) * 64;
        let buffer = Umem::pin(&file.running.pinned, given.sq_buf_addr, length, false)?;
        let mut command =
            Command::new(opcode::CREATE_TIS, create_tis_in::SIZE, create_tis_out::SIZE);
        command.set(create_tis_in::UID, parts.uid);
        command.set(tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX), parts.domain);
        let tisn = create_tis_out::TISN.get(&function.run(command)?) as u32;
        let mut command = Command::new(opcode::CREATE_SQ, create_sq_in::SIZE, create_sq_out::SIZE);
        command.set(create_sq_in::UID, parts.uid);
        let mut context = |field: Field, value: u64| {
            command.set(field.within(create_sq_in::CTX), value);
        };
        context(sqc::FLUSH_IN_ERROR_EN, 1);
        // The kernel allows it where the device can.
        context(sqc::ALLOW_MULTI_PKT_SEND_WQE, device::sends_several(file)?.into());
        context(sqc::STATE, RST.into());
        context(sqc::USER_INDEX, given.uidx.into());
        context(sqc::CQN, cq.number.into());
        context(sqc::TIS_LST_SZ, 1);
        context(sqc::TIS_NUM_0, tisn.into());
        let mut ring = |field: Field, value: u64| context(field.within(sqc::WQ), value);
        ring(wq::WQ_TYPE, CYCLIC);
        ring(wq::PD, parts.pdn.into());
        ring(wq::UAR_PAGE, uar.into());
        ring(wq::DBR_ADDR, record);
        ring(wq::LOG_WQ_STRIDE, 6);
        ring(wq::LOG_WQ_SZ, given.sq_wqe_count.ilog2().into());
        ring(wq::PAGE_OFFSET, offset(&buffer)?);
        command.pages(buffer.pages());
        match function.run(command) {
            Ok(reply) => raw.send = Some((create_sq_out::SQN.get(&reply) as u32, tisn, RST)),
            Err(error) => {
                destroy_tis(file, parts.uid, tisn)?;
                return Err(error);
            }
        }
        raw._buffers.push(buffer);
    }
    let (wqes, shift) = parts.receives;
    if wqes != 0 {
        let cq = parts.recv_cq.ok_or(Errno::EINVAL)?;
        let buffer =
            Umem::pin(&file.running.pinned, given.buf_addr, u64::from(wqes) << shift, false)?;
        let ring = Ring {
            uid: parts.uid,
            user_index: given.uidx,
            cqn: cq.number,
            pdn: parts.pdn,
            record,
            wqes,
            shift,
            strips: parts.strips,
            strides: None,
        };
        let rqn = create_rq(file, &ring, &buffer)?;
        raw.receive = Some((rqn, RST));
        raw._buffers.push(buffer);
        let mut command =
            Command::new(opcode::CREATE_TIR, create_tir_in::SIZE, create_tir_out::SIZE);
        command.set(create_tir_in::UID, parts.uid);
        let mut context = |field: Field, value: u32| {
            command.set(field.within(create_tir_in::CTX), value);
        };
        // MLX5_TIRC_DISP_TYPE_DIRECT
        context(tirc::DISP_TYPE, 0);
        context(tirc::INLINE_RQN, rqn);
        context(tirc::TRANSPORT_DOMAIN, parts.domain);
        raw.tir = Some(create_tir_out::TIRN.get(&function.run(command)?) as u32);
    }
    Ok(())
}

/// `MLX5_WQ_TYPE_CYCLIC`, `MLX5_WQ_TYPE_CYCLIC_STRIDING_RQ`
const CYCLIC: u64 = 1;
const CYCLIC_STRIDING: u64 = 3;

/// A receive queue to create.
pub(super) struct Ring {
    pub uid: u16,
    pub user_index: u32,
    pub cqn: u32,
    pub pdn: u32,
    pub record: u64,
    pub wqes: u32,
    /// log2 of a WQE's bytes.
    pub shift: u32,
    /// Whether VLAN tags are stripped.
    pub strips: bool,
    /// log2 of a stride's bytes, log2 of a WQE's strides, and whether packets start at offset two.
    pub strides: Option<(u32, u32, bool)>,
}

fn offset(buffer: &Umem) -> Result<u64> {
    let offset = buffer.offset()?;
    if offset >= 1 << wq::PAGE_OFFSET.width() { Err(Errno::EINVAL) } else { Ok(offset) }
}

/// Creates a receive queue, and returns its number.
pub(super) fn create_rq(file: &CommandFile, asked: &Ring, buffer: &Umem) -> Result<u32> {
    let mut command = Command::new(opcode::CREATE_RQ, create_rq_in::SIZE, create_rq_out::SIZE);
    command.set(create_rq_in::UID, asked.uid);
    let mut context = |field: Field, value: u64| {
        command.set(field.within(create_rq_in::CTX), value);
    };
    context(rqc::VSD, u64::from(!asked.strips));
    context(rqc::STATE, RST.into());
    context(rqc::FLUSH_IN_ERROR_EN, 1);
    context(rqc::USER_INDEX, asked.user_index.into());
    context(rqc::CQN, asked.cqn.into());
    let mut ring = |field: Field, value: u64| context(field.within(rqc::WQ), value);
    ring(wq::WQ_TYPE, if asked.strides.is_some() { CYCLIC_STRIDING } else { CYCLIC });
    ring(wq::PD, asked.pdn.into());
    ring(wq::DBR_ADDR, asked.record);
    ring(wq::LOG_WQ_STRIDE, asked.shift.into());
    ring(wq::LOG_WQ_SZ, asked.wqes.ilog2().into());
    ring(wq::PAGE_OFFSET, offset(buffer)?);
    if let Some((bytes, count, shifted)) = asked.strides {
        /// Values that an encoded zero stands for: 64 bytes, and 512 strides. A smaller number of
        /// strides wraps around in the four-bit field.
        const BYTES: u32 = 6;
        const STRIDES: u32 = 9;
        ring(wq::LOG_WQE_STRIDE_SIZE, (bytes - BYTES).into());
        ring(wq::LOG_WQE_NUM_OF_STRIDES, (count.wrapping_sub(STRIDES) & 0xf).into());
        ring(wq::TWO_BYTE_SHIFT_EN, shifted.into());
    }
    command.pages(buffer.pages());
    Ok(create_rq_out::RQN.get(&file.function().run(command)?) as u32)
}

/// Moves a receive queue from one state to another. One that becomes ready names the counter set of
/// the port, as with the kernel (`qp.c`: `modify_raw_packet_qp_rq`, `mlx5_ib_modify_wq`).
pub(super) fn modify_rq(file: &CommandFile, uid: u16, rqn: u32, states: (u32, u32)) -> Result<()> {
    /// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_RQ_COUNTER_SET_ID`
    const COUNTER_SET: u64 = 1 << 3;
    let function = file.function();
    let mut command = Command::new(opcode::MODIFY_RQ, modify_rq_in::SIZE, modify_rq_out::SIZE);
    command.set(modify_rq_in::UID, uid);
    command.set(modify_rq_in::RQN, rqn);
    command.set(modify_rq_in::RQ_STATE, states.0);
    command.set(rqc::STATE.within(modify_rq_in::CTX), states.1);
    if states == (RST, RDY) && function.caps.get(cmd_hca_cap::MODIFY_RQ_COUNTER_SET_ID) != 0 {
        command.set(modify_rq_in::MODIFY_BITMASK, COUNTER_SET);
        command.set(rqc::COUNTER_SET_ID.within(modify_rq_in::CTX), function.counters);
    }
    function.run(command).map(|_| ())
}

/// Destroys a receive queue.
pub(super) fn destroy_rq(file: &CommandFile, uid: u16, rqn: u32) -> Result<()> {
    let mut command = Command::new(opcode::DESTROY_RQ, destroy_rq_in::SIZE, destroy_rq_out::SIZE);
    command.set(destroy_rq_in::UID, uid);
    command.set(destroy_rq_in::RQN, rqn);
    file.function().run(command).map(|_| ())
}

fn destroy_tis(file: &CommandFile, uid: u16, tisn: u32) -> Result<()> {
    let mut command =
        Command::new(opcode::DESTROY_TIS, destroy_tis_in::SIZE, destroy_tis_out::SIZE);
    command.set(destroy_tis_in::UID, uid);
    command.set(destroy_tis_in::TISN, tisn);
    file.function().run(command).map(|_| ())
}

/// Creates a TIR that spreads packets over the receive queues of a table.
pub(super) fn make_rss(
    file: &CommandFile,
    uid: u16,
    domain: u32,
    rqtn: u32,
    driver: &[u8],
) -> Result<(Raw, CreateQpDriverReply)> {
    /// `enum mlx5_rx_hash_function_flags`, `enum mlx5_rx_hash_fields`
    const TOEPLITZ: u8 = 1;
    const V4: [u64; 2] = [1 << 0, 1 << 1];
    const V6: [u64; 2] = [1 << 2, 1 << 3];
    const TCP: [u64; 2] = [1 << 4, 1 << 5];
    const UDP: [u64; 2] = [1 << 6, 1 << 7];
    let given: CreateRssDriver = user::lenient(driver);
    let fields = given.rx_hash_fields_mask;
    let any = |pair: [u64; 2]| fields & (pair[0] | pair[1]) != 0;
    if given.comp_mask != 0 || given.flags != 0 || given.reserved != [0; 6] {
        return Err(Errno::EOPNOTSUPP);
    }
    if given.rx_hash_function != TOEPLITZ
        || fields & !0xff != 0
        || (any(V4) && any(V6))
        || (any(TCP) && any(UDP))
        || ((any(TCP) || any(UDP)) && !any(V4) && !any(V6))
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let key = tirc::RX_HASH_TOEPLITZ_KEY.within(create_tir_in::CTX).bit_offset() / 8;
    if usize::from(given.rx_key_len) != KEY {
        return Err(Errno::EINVAL);
    }
    let mut command = Command::new(opcode::CREATE_TIR, create_tir_in::SIZE, create_tir_out::SIZE);
    command.set(create_tir_in::UID, uid);
    let mut context = |field: Field, value: u32| {
        command.set(field.within(create_tir_in::CTX), value);
    };
    // MLX5_TIRC_DISP_TYPE_INDIRECT, MLX5_RX_HASH_FN_TOEPLITZ
    context(tirc::DISP_TYPE, 1);
    context(tirc::INDIRECT_TABLE, rqtn);
    context(tirc::TRANSPORT_DOMAIN, domain);
    context(tirc::RX_HASH_FN, 2);
    context(tirc::RX_HASH_SYMMETRIC, 1);
    let mut select = |field: Field, value: u32| {
        context(field.within(tirc::RX_HASH_FIELD_SELECTOR_OUTER), value);
    };
    select(rx_hash_field_select::L3_PROT_TYPE, any(V6).into());
    select(rx_hash_field_select::L4_PROT_TYPE, any(UDP).into());
    let bit = |index: usize, pairs: [[u64; 2]; 2]| {
        u32::from(pairs.iter().any(|pair| fields & pair[index] != 0))
    };
    let selected = bit(0, [V4, V6])
        | bit(1, [V4, V6]) << 1
        | bit(0, [TCP, UDP]) << 2
        | bit(1, [TCP, UDP]) << 3;
    select(rx_hash_field_select::SELECTED_FIELDS, selected);
    command.bytes()[key..key + KEY].copy_from_slice(&given.rx_hash_key[..KEY]);
    let tirn = create_tir_out::TIRN.get(&file.function().run(command)?) as u32;
    let raw = Raw {
        uid,
        send: None,
        rate: None,
        receive: None,
        tir: Some(tirn),
        _buffers: Vec::new(),
        _record: None,
    };
    let mut reply = CreateQpDriverReply::default();
    if uid != 0 {
        (reply.tirn, reply.comp_mask) = (tirn, 1);
    }
    Ok((raw, reply))
}

/// Bytes of an RSS hash key.
const KEY: usize = 40;

impl Raw {
    /// Moves both queues through a transition of the queue pair; the states have its names. A send
    /// queue that becomes or stays ready may get a rate; one of no kbit/s removes the limit.
    pub fn modify(
        &mut self,
        file: &CommandFile,
        (from, to): (u8, u8),
        rate: Option<Rate>,
    ) -> Result<()> {
        use super::qp_modify::{ERR as FAILED, INIT, RESET, RTR, RTS};
        let (receives, sends) = match (from, to) {
            (_, RESET) => (Some(RST), Some(RST)),
            (_, FAILED) => (Some(ERR), Some(ERR)),
            (RESET, INIT) => (Some(RDY), None),
            (RTR | RTS, RTS) => (None, Some(RDY)),
            _ => (None, None),
        };
        if let (Some((rqn, state)), Some(to)) = (&mut self.receive, receives) {
            modify_rq(file, self.uid, *rqn, (*state, to))?;
            *state = to;
        }
        if let (Some((sqn, ..)), Some(to)) = (self.send, sends) {
            self.modify_sq(file, sqn, to, rate)?;
        }
        Ok(())
    }

    fn modify_sq(
        &mut self,
        file: &CommandFile,
        sqn: u32,
        to: u32,
        rate: Option<Rate>,
    ) -> Result<()> {
        let function = file.function();
        // The send queue may have failed by itself, without a report.
        let state = queried(file, sqn)?;
        // A queue that is reset or fails loses its rate.
        let wanted = if to == RDY {
            rate.map_or(self.rate, |rate| (rate.kbps != 0).then_some(rate))
        } else {
            None
        };
        let mut command = Command::new(opcode::MODIFY_SQ, modify_sq_in::SIZE, modify_sq_out::SIZE);
        command.set(modify_sq_in::UID, self.uid);
        command.set(modify_sq_in::SQN, sqn);
        command.set(modify_sq_in::SQ_STATE, state);
        command.set(sqc::STATE.within(modify_sq_in::CTX), to);
        if wanted != self.rate {
            let index = wanted.map_or(Ok(0), |rate| function.add_rate(rate))?;
            // `packet_pacing_rate_limit_index`
            command.set(modify_sq_in::MODIFY_BITMASK, 1u64);
            let field = sqc::PACKET_PACING_RATE_LIMIT_INDEX.within(modify_sq_in::CTX);
            command.set(field, index);
        }
        let done = function.run(command);
        // The entry that is used no longer: the one before, or the one for nothing.
        let (kept, left) = if done.is_ok() { (wanted, self.rate) } else { (self.rate, wanted) };
        if let Some(rate) = left.filter(|_| kept != left) {
            function.remove_rate(rate)?;
        }
        done?;
        self.rate = wanted;
        if let Some((_, _, state)) = &mut self.send {
            *state = to;
        }
        Ok(())
    }

    /// Returns whether the send queue has failed by itself.
    pub fn sends_failed(&self, file: &CommandFile) -> Result<bool> {
        match self.send {
            Some((sqn, _, state)) => Ok(state != ERR && queried(file, sqn)? == ERR),
            None => Ok(false),
        }
    }
}

/// Returns the state of a send queue, queried from the device.
fn queried(file: &CommandFile, sqn: u32) -> Result<u32> {
    let mut command = Command::new(opcode::QUERY_SQ, query_sq_in::SIZE, query_sq_out::SIZE);
    command.set(query_sq_in::SQN, sqn);
    let reply = file.function().run(command)?;
    Ok(sqc::STATE.within(query_sq_out::SQ_CONTEXT).get(&reply) as u32)
}

/// Destroys all objects of a queue pair, users before the objects they use.
pub(super) fn destroy(file: &CommandFile, raw: &Raw) -> Result<()> {
    let function = file.function();
    if let Some(tirn) = raw.tir {
        let mut command =
            Command::new(opcode::DESTROY_TIR, destroy_tir_in::SIZE, destroy_tir_out::SIZE);
        command.set(destroy_tir_in::UID, raw.uid);
        command.set(destroy_tir_in::TIRN, tirn);
        function.run(command)?;
    }
    if let Some((rqn, _)) = raw.receive {
        destroy_rq(file, raw.uid, rqn)?;
    }
    if let Some((sqn, tisn, _)) = raw.send {
        let mut command =
            Command::new(opcode::DESTROY_SQ, destroy_sq_in::SIZE, destroy_sq_out::SIZE);
        command.set(destroy_sq_in::UID, raw.uid);
        command.set(destroy_sq_in::SQN, sqn);
        function.run(command)?;
        destroy_tis(file, raw.uid, tisn)?;
    }
    if let Some(rate) = raw.rate {
        function.remove_rate(rate)?;
    }
    Ok(())
}
