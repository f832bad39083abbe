//! Receive queues created separately, and tables of them.

use std::sync::Arc;

use mlx5_sys::ifc::{
    cmd_hca_cap, create_rqt_in, create_rqt_out, destroy_rqt_in, destroy_rqt_out, opcode, rqtc,
};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::driver::umem::Umem;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{CreateWqDriver, ExCreateTable, ExCreateTableReply, ExModifyWq};
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::super::request::legacy::Request;
use super::cq;
use super::file::{CommandFile, Object, Turn};
use super::pd::Pd;
use super::raw::{self, ERR, RDY, RST, Ring};

/// A receive queue.
pub(crate) struct Wq {
    /// The card's number.
    pub number: u32,
    uid: u16,
    /// Handle of its protection domain.
    pub pd: u32,
    /// Handle of its completion queue.
    pub cq: u32,
    state: u32,
    _buffer: Umem,
    _record: Arc<Umem>,
}

/// A table of receive queues.
pub(crate) struct IndirectionTable {
    /// The card's number.
    pub number: u32,
    uid: u16,
    /// Handles of the queues.
    pub queues: Vec<u32>,
}

/// Limits of strides that the driver's library may ask for (`mlx5-abi.h` has them from the card):
/// log2 of their bytes, and log2 of their number in a WQE.
pub(super) const STRIDE_BYTES: (u32, u32) = (6, 13);
pub(super) const STRIDES: (u32, u32) = (3, 16);

/// `WQ_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    /// `IB_UVERBS_WQT_RQ`; `IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING`.
    const RECEIVE: u64 = 0;
    const STRIPS: u32 = 1 << 0;
    /// `MLX5_IB_CREATE_WQ_STRIDING_RQ`
    const STRIDING: u32 = 1 << 0;
    let (pd, cq) = (attributes.handle(1)?, attributes.handle(2)?);
    let (max_wr, max_sge) = (attributes.number(6)? as u32, attributes.number(7)? as u32);
    let flags = attributes.number(8)? as u32;
    if attributes.number(4)? != RECEIVE {
        return Err(Errno::EINVAL);
    }
    let given: CreateWqDriver = user::whole(&attributes.input(DRIVER_IN)?)?;
    if flags & !STRIPS != 0 || given.comp_mask & !STRIDING != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let caps = &file.function().caps;
    if !caps.has(cmd_hca_cap::ETH_NET_OFFLOADS) {
        return Err(Errno::EOPNOTSUPP);
    }
    let within = |value: u32, range: (u32, u32)| (range.0..=range.1).contains(&value);
    let strides = (given.comp_mask & STRIDING != 0).then_some((
        given.single_stride_log_num_of_bytes,
        given.single_wqe_log_num_of_strides,
        given.two_byte_shift_en != 0,
    ));
    if strides
        .is_some_and(|(bytes, count, _)| !within(bytes, STRIDE_BYTES) || !within(count, STRIDES))
        || given.flags != 0
        || given.user_index & !0xff_ffff != 0
        || !given.rq_wqe_count.is_power_of_two()
        || given.rq_wqe_count > caps.power(cmd_hca_cap::LOG_MAX_QP_SZ)
        || !(4..=11).contains(&given.rq_wqe_shift)
    {
        return Err(Errno::EINVAL);
    }
    let record = Umem::pin_record(&file.running.pinned, given.db_addr)?;
    let ring = Ring {
        uid,
        user_index: given.user_index,
        cqn: state.get::<cq::Cq>(cq)?.number,
        pdn: state.get::<Pd>(pd)?.number,
        record: record.bus(given.db_addr),
        wqes: given.rq_wqe_count,
        shift: given.rq_wqe_shift,
        strips: flags & STRIPS != 0,
        strides,
    };
    let length = u64::from(given.rq_wqe_count) << given.rq_wqe_shift;
    let buffer = Umem::pin(&file.running.pinned, given.buf_addr, length, false)?;
    let number = raw::create_rq(file, &ring, &buffer)?;
    let handle =
        state.enter(Wq { number, uid, pd, cq, state: RST, _buffer: buffer, _record: record });
    attributes.put(9, &max_wr.to_ne_bytes())?;
    attributes.put(10, &max_sge.to_ne_bytes())?;
    attributes.put(11, &number.to_ne_bytes())?;
    attributes.put(DRIVER_OUT, &[8u32.to_ne_bytes(), [0; 4]].concat())?;
    attributes.put_handle(0, u64::from(handle))
}

/// `MODIFY_WQ`, extended.
pub(crate) fn modify(file: &CommandFile, request: &Request) -> Result<()> {
    /// `enum ib_wq_attr_mask`
    const STATE: u32 = 1;
    const CURRENT: u32 = 2;
    let asked: ExModifyWq = user::whole(&request.core)?;
    // Of flags, the one that could change cannot without another command.
    if asked.attr_mask & !(STATE | CURRENT) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    // Reset, ready, error.
    let card = |state: u32| [RST, RDY, ERR].get(state as usize).copied().ok_or(Errno::EINVAL);
    let mut state = file.state();
    state.context()?;
    let wq = state.get_mut::<Wq>(asked.wq_handle)?;
    // Linux tells the device what the program says, who may know that the queue has failed.
    let from = if asked.attr_mask & CURRENT == 0 { wq.state } else { card(asked.curr_wq_state)? };
    if asked.attr_mask & STATE == 0 {
        return Ok(());
    }
    let to = card(asked.wq_state)?;
    raw::modify_rq(file, wq.uid, wq.number, (from, to))?;
    wq.state = to;
    Ok(())
}

impl Object for Wq {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        [self.pd, self.cq].into_iter().for_each(each);
    }

    fn turn(&self) -> Turn {
        Turn::Queues
    }

    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        raw::destroy_rq(file, self.uid, self.number)?;
        // None of its events is ever raised.
        Ok(0u32.to_ne_bytes().to_vec())
    }
}

/// `CREATE_RWQ_IND_TBL`, extended.
pub(crate) fn create_table(file: &CommandFile, request: &Request) -> Result<()> {
    /// `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`
    const MOST: u32 = 13;
    let asked: ExCreateTable = user::whole(&request.core)?;
    if asked.comp_mask != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if asked.log_ind_tbl_size > MOST {
        return Err(Errno::EINVAL);
    }
    let count = 1usize << asked.log_ind_tbl_size;
    let mut state = file.state();
    let uid = state.context()?.uid;
    let queues: Vec<u32> = (0..count)
        .map(|index| request.word(size_of::<ExCreateTable>() + index * 4))
        .collect::<Result<_>>()?;
    let mut command = Command::new(opcode::CREATE_RQT, create_rqt_in::SIZE, create_rqt_out::SIZE);
    command.set(create_rqt_in::UID, uid);
    command.set(rqtc::RQT_ACTUAL_SIZE.within(create_rqt_in::RQT_CONTEXT), count as u64);
    command.set(rqtc::RQT_MAX_SIZE.within(create_rqt_in::RQT_CONTEXT), count as u64);
    for queue in &queues {
        let number = state.get::<Wq>(*queue)?.number;
        command.bytes().extend_from_slice(&number.to_be_bytes());
    }
    let number = create_rqt_out::RQTN.get(&file.function().run(command)?) as u32;
    let handle = state.enter(IndirectionTable { number, uid, queues });
    let reply = ExCreateTableReply {
        comp_mask: 0,
        response_length: size_of::<ExCreateTableReply>() as u32,
        ind_tbl_handle: handle,
        ind_tbl_num: number,
    };
    request.reply_short(reply.as_bytes())?;
    request.reply_driver(&[8u32.to_ne_bytes(), [0; 4]].concat())
}

impl Object for IndirectionTable {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        self.queues.iter().copied().for_each(each);
    }

    fn turn(&self) -> Turn {
        Turn::Users
    }

    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        let mut command =
            Command::new(opcode::DESTROY_RQT, destroy_rqt_in::SIZE, destroy_rqt_out::SIZE);
        command.set(destroy_rqt_in::UID, self.uid);
        command.set(destroy_rqt_in::RQTN, self.number);
        file.function().run(command).map(|_| Vec::new())
    }
}
