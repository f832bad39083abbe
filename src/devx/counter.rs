//! Queue counters: what arrives at queues, and errors.

use std::fmt;
use std::sync::Arc;

use super::{ByCommand, Command, Object};
use crate::error::Result;
use crate::ib::capability::Group;
use crate::verbs::{Context, QueuePair, Rts};
use mlx5_sys::dv::mlx5dv_devx_qp_modify;
use mlx5_sys::ifc::{
    alloc_q_counter_in, alloc_q_counter_out, cmd_hca_cap, opcode, opt_param, qpc,
    query_q_counter_in, query_q_counter_out as counter, rts2rts_qp_in,
};

/// A set of queue counters (`ALLOC_Q_COUNTER`). An HCA has 255 at most.
///
/// Firmware may keep sets to the kernel's driver: a ConnectX-6 with firmware 20.43 refuses them to
/// programs (evidence E063). Then the port's counters are left, in which all verbs queue pairs of the
/// port count: [`PortCounters`](mlx5_diag::sysfs::PortCounters).
///
/// Queues that name the set count in it: queue pairs made by command and receive queues by their
/// builder, verbs queue pairs by [`count`](Self::count). The counts of several queues add up. Queue
/// pairs made by command that name no set count nowhere (evidence E062).
///
/// Clones are cheap and name the same set. It is freed after its last clone, and the last queue
/// made by command that names it, are dropped.
///
/// ```
/// # let rig::Link { qp, .. } = rig::link()?;
/// use mlx5::Error;
/// use mlx5::devx::QueueCounters;
/// use mlx5::diag::sysfs::PortCounters;
///
/// let dropped = match QueueCounters::new(qp.context()) {
///     // The queue pair, which is in RTS, counts in the set from now on.
///     Ok(counters) => {
///         counters.count(&qp)?;
///         u64::from(counters.read()?.out_of_buffer)
///     }
///     // The firmware keeps sets to the kernel's driver.
///     Err(Error::Refused(_)) => {
///         let counters = PortCounters::read(&qp.context().sysfs_path(), 1).transport;
///         counters.iter().filter(|(name, _)| name == "out_of_buffer").map(|(_, count)| count).sum()
///     }
///     Err(error) => return Err(error.into()),
/// };
/// assert_eq!(dropped, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct QueueCounters {
    object: Arc<Object>,
    number: u8,
}

impl QueueCounters {
    /// Creates a new set, with all counters zero. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::NoCapability`](crate::Error::NoCapability).
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA: among others, if its firmware gives sets
    ///   to the kernel's driver alone. Then [`CommandError::cause`](super::CommandError::cause)
    ///   says so.
    /// - [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
    #[doc(alias = "MLX5_CMD_OP_ALLOC_Q_COUNTER")]
    pub fn new(context: &Context) -> Result<QueueCounters> {
        context.capabilities().require(
            Group::General,
            cmd_hca_cap::MAX_QP_CNT,
            "a set of counters",
        )?;
        let command = Command::new(opcode::ALLOC_Q_COUNTER, alloc_q_counter_in::SIZE);
        // SAFETY: a set of counters names no other object, and gives access to no memory.
        let object = unsafe { command.create(context)? };
        let number = object.reply().get(alloc_q_counter_out::COUNTER_SET_ID) as u8;
        Ok(QueueCounters { object: Arc::new(object), number })
    }

    /// Returns its number, by which queues name it; never 0.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the counts since the set was made or last taken. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) by the HCA,
    /// [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    #[doc(alias = "MLX5_CMD_OP_QUERY_Q_COUNTER")]
    pub fn read(&self) -> Result<QueueCounts> {
        self.query(false)
    }

    /// Returns the counts and resets them to zero; no event is lost between. One call into the
    /// kernel.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) by the HCA,
    /// [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    pub fn take(&self) -> Result<QueueCounts> {
        self.query(true)
    }

    fn query(&self, clear: bool) -> Result<QueueCounts> {
        let command = Command::new(opcode::QUERY_Q_COUNTER, query_q_counter_in::SIZE)
            .set(query_q_counter_in::COUNTER_SET_ID, self.number)
            .set(query_q_counter_in::CLEAR, clear)
            .reply(counter::SIZE);
        let reply = self.object.query(&command)?;
        Ok(QueueCounts::of(|field| reply.get(field) as u32))
    }

    /// Makes a verbs queue pair count in this set from now on, like the kernel itself
    /// (`RTS2RTS_QP`). Before, it counted in the port's set, which sysfs shows as `hw_counters`.
    /// One call into the kernel.
    ///
    /// Raw packet queue pairs are not accepted: the HCA knows them as separate queues, which
    /// `RTS2RTS_QP` does not change. They count in the port's set: its `out_of_buffer` counts the
    /// packets for which no receive was posted
    /// ([`PortCounters`](mlx5_diag::sysfs::PortCounters::transport)). An [`Rq`](super::Rq) may have
    /// a set of its own.
    ///
    /// The set must outlive that use, because an HCA may give its number to another set. The set
    /// cannot be freed while the queue pair names it.
    ///
    /// # Errors
    /// - [`Error::Attribute`](crate::Error::Attribute): the queue pair is of another device.
    /// - [`Error::NoCapability`](crate::Error::NoCapability).
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
    pub fn count<T: ByCommand>(&self, qp: &QueuePair<T, Rts>) -> Result<()> {
        let context = qp.context();
        context.require_same("counter set", self.context().as_raw())?;
        let capability = cmd_hca_cap::RTS2RTS_QP_COUNTERS_SET_ID;
        context.capabilities().require(Group::General, capability, "counting on a queue pair")?;
        Command::new(opcode::RTS2RTS_QP, rts2rts_qp_in::SIZE)
            .set(rts2rts_qp_in::QPN, qp.number())
            .set(rts2rts_qp_in::OPT_PARAM_MASK, opt_param::COUNTER_SET_ID)
            .set(qpc::ST.within(rts2rts_qp_in::QPC), u32::from(T::ST))
            .set(qpc::COUNTER_SET_ID.within(rts2rts_qp_in::QPC), self.number)
            .run(context, "mlx5dv_devx_qp_modify", |command, reply| {
                // SAFETY: the queue pair is alive, and both buffers live through the call and are
                // as long as they are said to be.
                unsafe {
                    mlx5dv_devx_qp_modify(
                        qp.as_raw().as_ptr(),
                        command.as_ptr().cast(),
                        command.len(),
                        reply.as_mut_ptr().cast(),
                        reply.len(),
                    )
                }
            })
            .map(|_| ())
    }
}

impl fmt::Debug for QueueCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueCounters").field("number", &self.number).finish_non_exhaustive()
    }
}

macro_rules! counts {
    ($($(#[$meta:meta])* $name:ident: $field:ident,)*) => {
        /// The counts of a [set of counters](QueueCounters), in 32 bits each, which wrap. `Display`
        /// lists the counts that are not zero, by name. See the example on [`QueueCounters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct QueueCounts {
            $($(#[$meta])* pub $name: u32,)*
        }

        impl QueueCounts {
            fn of(get: impl Fn(mlx5_sys::ifc::Field) -> u32) -> Self {
                Self { $($name: get(counter::$field),)* }
            }

            /// Iterates over all counters by name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counts! {
    /// WRITE requests that arrived.
    rx_write_requests: RX_WRITE_REQUESTS,
    /// READ requests that arrived.
    rx_read_requests: RX_READ_REQUESTS,
    /// Atomics that arrived.
    rx_atomic_requests: RX_ATOMIC_REQUESTS,
    /// Dynamic connections that were accepted.
    rx_dct_connect: RX_DCT_CONNECT,
    /// Messages or packets for which no receive was posted.
    out_of_buffer: OUT_OF_BUFFER,
    /// Packets that arrived out of order.
    out_of_sequence: OUT_OF_SEQUENCE,
    /// Requests that had been executed before.
    duplicate_request: DUPLICATE_REQUEST,
    /// Retries because the peer had no receive posted.
    rnr_nak_retry_err: RNR_NAK_RETRY_ERR,
    /// Retransmissions that the peer requested.
    packet_seq_err: PACKET_SEQ_ERR,
    /// Lost packets that a later response of the peer revealed.
    implied_nak_seq_err: IMPLIED_NAK_SEQ_ERR,
    /// Retries because the peer did not respond in time.
    local_ack_timeout_err: LOCAL_ACK_TIMEOUT_ERR,
    /// Requests that failed because the peer had no receive. Kernels before Linux 6.11 do not show it.
    req_rnr_retries_exceeded: REQ_RNR_RETRIES_EXCEEDED,
    /// Receives that were too short.
    resp_local_length_error: RESP_LOCAL_LENGTH_ERROR,
    /// Requests with an invalid length.
    req_local_length_error: REQ_LOCAL_LENGTH_ERROR,
    /// Receives that could not be read.
    resp_local_qp_error: RESP_LOCAL_QP_ERROR,
    /// Requests that could not be executed.
    local_operation_error: LOCAL_OPERATION_ERROR,
    /// Receives whose memory cannot be written.
    resp_local_protection: RESP_LOCAL_PROTECTION,
    /// Requests whose memory cannot be accessed.
    req_local_protection: REQ_LOCAL_PROTECTION,
    /// Receives that completed with an error.
    resp_cqe_error: RESP_CQE_ERROR,
    /// Requests that completed with an error.
    req_cqe_error: REQ_CQE_ERROR,
    /// Binds of memory windows, and changes of keys, that were refused.
    req_mw_binding: REQ_MW_BINDING,
    /// Invalid responses.
    req_bad_response: REQ_BAD_RESPONSE,
    /// Requests that the peer found invalid.
    req_remote_invalid_request: REQ_REMOTE_INVALID_REQUEST,
    /// Requests of the peer that are invalid.
    resp_remote_invalid_request: RESP_REMOTE_INVALID_REQUEST,
    /// Requests for memory to which the peer gives no access.
    req_remote_access_errors: REQ_REMOTE_ACCESS_ERRORS,
    /// Requests of the peer for memory to which it has no access.
    resp_remote_access_errors: RESP_REMOTE_ACCESS_ERRORS,
    /// Requests that the peer could not carry out.
    req_remote_operation_errors: REQ_REMOTE_OPERATION_ERRORS,
    /// Requests that failed because the peer did not respond.
    req_transport_retries_exceeded: REQ_TRANSPORT_RETRIES_EXCEEDED,
    /// Completion queues that overran.
    cq_overflow: CQ_OVERFLOW,
    /// Receives that were flushed.
    resp_cqe_flush_error: RESP_CQE_FLUSH_ERROR,
    /// Requests that were flushed.
    req_cqe_flush_error: REQ_CQE_FLUSH_ERROR,
    /// Adaptive retransmissions on RoCE.
    roce_adp_retrans: ROCE_ADP_RETRANS,
    /// Times that these waited too long.
    roce_adp_retrans_to: ROCE_ADP_RETRANS_TO,
    /// Slow restarts on RoCE.
    roce_slow_restart: ROCE_SLOW_RESTART,
    /// Notifications of congestion that slow restarts made.
    roce_slow_restart_cnps: ROCE_SLOW_RESTART_CNPS,
    /// Times that a slow restart changed its state.
    roce_slow_restart_trans: ROCE_SLOW_RESTART_TRANS,
}

impl fmt::Display for QueueCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut any = false;
        for (name, count) in self.iter().filter(|(_, count)| *count != 0) {
            write!(f, "{}{name} = {count}", if any { ", " } else { "" })?;
            any = true;
        }
        if any { Ok(()) } else { f.write_str("nothing") }
    }
}
