//! Tables of receive queues.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_rqt_in, create_rqt_out, modify_rqt_in, opcode, query_rqt_in,
    query_rqt_out, rq_num, rqt_bitmask, rqtc,
};

use super::super::{Command, Object};
use super::Rq;
use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::verbs::Context;

/// A table of receive queues (`CREATE_RQT`) among which a [`Tir`](super::Tir) spreads packets by a
/// hash. A queue may have several entries. The table keeps its queues.
///
/// Clones are cheap and name the same table. It is destroyed after its last clone, and the last TIR
/// that uses it, are dropped.
///
/// See the example on [`Tir`](super::Tir).
#[doc(alias("MLX5_CMD_OP_CREATE_RQT", "MLX5_CMD_OP_DESTROY_RQT"))]
#[derive(Clone)]
pub struct Rqt {
    inner: Arc<RqtInner>,
}

struct RqtInner {
    object: Object,
    number: u32,
    room: usize,
    /// The queues in the table, dropped after it.
    queues: Mutex<Vec<Rq>>,
}

impl Rqt {
    /// Creates a table of `queues`, a power of two of them, with space for `room` entries. One call
    /// into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for another number of queues.
    /// - [`Error::NoCapability`] for more entries than the HCA supports.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    pub fn new(queues: &[&Rq], room: usize) -> Result<Rqt> {
        check(queues, room)?;
        let context = queues[0].context();
        require_same(context, queues)?;
        context.capabilities().require_at_least(
            Group::General,
            cmd_hca_cap::LOG_MAX_RQT_SIZE,
            room.next_power_of_two().ilog2().into(),
            "a table of so many receive queues",
        )?;
        let command = Command::new(opcode::CREATE_RQT, create_rqt_in::SIZE)
            .set(rqtc::RQT_MAX_SIZE.within(create_rqt_in::RQT_CONTEXT), room as u64);
        let command = listed(command, create_rqt_in::RQT_CONTEXT, queues);
        let command = command.reply(create_rqt_out::SIZE);
        // SAFETY: the table keeps the queues that it names, and gives access to no memory itself.
        let object = unsafe { command.create(context)? };
        let number = object.reply().get(create_rqt_out::RQTN) as u32;
        let queues = Mutex::new(queues.iter().map(|queue| (*queue).clone()).collect());
        Ok(Rqt { inner: Arc::new(RqtInner { object, number, room, queues }) })
    }

    /// Returns its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns how many entries the table can have.
    pub fn room(&self) -> usize {
        self.inner.room
    }

    /// Replaces the queues in the table by others, a power of two of them. Packets follow the new
    /// list or the old one; none is lost between. One call into the kernel.
    ///
    /// # Errors
    /// After an error the list is unchanged.
    ///
    /// - [`Error::Attribute`]: the number of queues is not a power of two, or the table has too few
    ///   entries.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn set(&self, queues: &[&Rq]) -> Result<()> {
        check(queues, self.inner.room)?;
        require_same(self.context(), queues)?;
        let mut listed_now = self.inner.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let command = Command::new(opcode::MODIFY_RQT, modify_rqt_in::SIZE)
            .set(modify_rqt_in::RQTN, self.number())
            .set(rqt_bitmask::RQN_LIST.within(modify_rqt_in::BITMASK), 1u32);
        let command = listed(command, modify_rqt_in::CTX, queues);
        // SAFETY: the table keeps the queues it named before and, from the next line on, the queues
        // it names now. No queue changes.
        unsafe { self.inner.object.modify(&command)? };
        *listed_now = queues.iter().map(|queue| (*queue).clone()).collect();
        Ok(())
    }

    /// Returns the numbers of its queues from the HCA. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn list(&self) -> Result<Vec<u32>> {
        let at = query_rqt_out::RQT_CONTEXT;
        let query = Command::new(opcode::QUERY_RQT, query_rqt_in::SIZE)
            .set(query_rqt_in::RQTN, self.number())
            .reply(query_rqt_out::SIZE + self.inner.room * rq_num::SIZE);
        let reply = self.inner.object.query(&query)?;
        let size = reply.get(rqtc::RQT_ACTUAL_SIZE.within(at)) as usize;
        let list = reply.as_bytes()[query_rqt_out::SIZE..].chunks_exact(rq_num::SIZE);
        Ok(list.take(size).map(|entry| rq_num::RQ_NUM.get(entry) as u32).collect())
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.object.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.inner.object
    }
}

fn check(queues: &[&Rq], room: usize) -> Result<()> {
    if !queues.len().is_power_of_two() || queues.len() > room {
        let rule = format!("a power of two of them, no more than there is room for ({room})");
        return Err(Error::attribute("queues", queues.len(), rule));
    }
    Ok(())
}

fn require_same(context: &Context, queues: &[&Rq]) -> Result<()> {
    queues
        .iter()
        .try_for_each(|queue| context.require_same("receive queue", queue.context().as_raw()))
}

/// Appends the queues' numbers to a command with the context of a table at `at`.
fn listed(command: Command, at: Field, queues: &[&Rq]) -> Command {
    queues
        .iter()
        .fold(command.set(rqtc::RQT_ACTUAL_SIZE.within(at), queues.len() as u64), |command, rq| {
            command.tail_bytes(&rq.number().to_be_bytes())
        })
}

impl fmt::Debug for Rqt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rqt")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("room", &self.inner.room)
            .finish_non_exhaustive()
    }
}
