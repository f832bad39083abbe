//! Commands on objects, made by verbs or by command.

use std::any::TypeId;
use std::mem::MaybeUninit;

use mlx5_sys::dv;
use mlx5_sys::ifc::opcode;
use mlx5_sys::verbs::{ibv_cq, ibv_qp, ibv_rwq_ind_table, ibv_srq, ibv_wq};

use super::command::{Command, Reply};
use super::context::{ObjectContext, Query};
use super::object::Object;
use crate::error::{Error, Name, Result, check};
use crate::ib::{Dct, RawPacket, Transport};
use crate::verbs::{
    CompletionQueue, QueuePair, RssQueues, SharedReceiveQueue, State, StridingQueue,
};

mod sealed {
    pub trait Sealed {}
}
use sealed::Sealed;

/// An object on which commands can be executed, made by verbs or by command.
///
/// The kernel checks that the command names the object. The command runs with the number of the
/// context's user context, which owns objects of both kinds. Change verbs objects only where verbs
/// cannot: libmlx5 and the kernel do not notice such changes.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::devx::CommandTarget;
/// use mlx5::devx::ifc::qpc;
/// use mlx5::verbs::QueuePair;
///
/// // The HCA's context of a queue pair that libibverbs has made.
/// let qp = QueuePair::builder(&pd, &cq).build()?;
/// let context = qp.object_context()?;
/// assert_eq!(context.get(qpc::PD), u64::from(pd.number()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias(
    "mlx5dv_devx_qp_query",
    "mlx5dv_devx_qp_modify",
    "mlx5dv_devx_cq_query",
    "mlx5dv_devx_cq_modify",
    "mlx5dv_devx_srq_query",
    "mlx5dv_devx_srq_modify",
    "mlx5dv_devx_wq_query",
    "mlx5dv_devx_wq_modify",
    "mlx5dv_devx_ind_tbl_query",
    "mlx5dv_devx_ind_tbl_modify"
))]
pub trait CommandTarget: Sealed {
    /// Queries the object by a command that names it. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the opcode is not a query
    ///   ([`is_query`](mlx5_sys::ifc::opcode::is_query)), or lets the HCA write memory (flow
    ///   counters with `dump_to_memory`), or the command cannot be sent.
    /// - [`Error::Refused`] by the HCA.
    /// - [`Error::Withheld`] by the kernel, with EINVAL if the command names another object.
    fn query_by(&self, command: &Command) -> Result<Reply>;

    /// Changes the object by a command that names it. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the command cannot be sent.
    /// - [`Error::Refused`] by the HCA.
    /// - [`Error::Withheld`] by the kernel, with EINVAL if the command names another object.
    ///
    /// # Safety
    /// - The command does not take a queue that this crate posts to or polls to RESET, and changes
    ///   neither its ring, its doorbell record, its counters nor its CQ. A queue that goes to RESET
    ///   and back executes the WQEs in its ring again, after their memory was given back.
    /// - Memory that the change lets the HCA read or write stays registered as long as it may. No
    ///   Rust reference covers what the HCA may write, no `&mut` what it may read, and no queue of
    ///   this crate has its ring or doorbell record there.
    /// - Each object that the command names exists as long as this one, or until another change
    ///   takes it out.
    unsafe fn modify_by(&self, command: &Command) -> Result<Reply>;

    /// Returns the HCA's context of the object. One call into the kernel. Where verbs do not expose
    /// its number, a call to libmlx5 before that gets it.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel, [`Error::Attribute`] if no
    /// command queries such an object.
    fn object_context(&self) -> Result<ObjectContext>;
}

/// The pointer by which libmlx5 names the object.
trait Raw {
    type Verbs;
    fn raw(&self) -> *mut Self::Verbs;
}

macro_rules! raw {
    ($([$($generics:tt)*] $type:ty: $verbs:ty, |$self:ident| $raw:expr;)*) => {$(
        impl<$($generics)*> Raw for $type {
            type Verbs = $verbs;
            fn raw(&self) -> *mut $verbs {
                let $self = self;
                $raw.as_ptr()
            }
        }
    )*};
}

raw! {
    [T: Transport, S: State] QueuePair<T, S>: ibv_qp, |qp| qp.as_raw();
    [] CompletionQueue: ibv_cq, |cq| cq.as_raw();
    [] SharedReceiveQueue: ibv_srq, |srq| srq.as_raw();
    [] StridingQueue: ibv_wq, |wq| wq.as_raw();
    [] RssQueues: ibv_rwq_ind_table, |spread| spread.table();
}

/// Implements [`CommandTarget`] for a kind of verbs object, by two functions of libmlx5.
macro_rules! targets {
    ($(
        [$($generics:tt)*] $type:ty: $query:ident, $modify:ident, |$self:ident| $context:expr, $number:expr;
    )*) => {$(
        impl<$($generics)*> Sealed for $type {}

        impl<$($generics)*> CommandTarget for $type {
            fn query_by(&self, command: &Command) -> Result<Reply> {
                command.check_query()?;
                let $self = self;
                command.run($context, stringify!($query), |command, reply| {
                    // SAFETY: the object is alive, and both buffers live through the call and have
                    // the lengths that are passed. The command only asks, as was checked above.
                    unsafe {
                        dv::$query(
                            Raw::raw($self),
                            command.as_ptr().cast(),
                            command.len(),
                            reply.as_mut_ptr().cast(),
                            reply.len(),
                        )
                    }
                })
            }

            unsafe fn modify_by(&self, command: &Command) -> Result<Reply> {
                let $self = self;
                command.run($context, stringify!($modify), |command, reply| {
                    // SAFETY: the object is alive, and both buffers live through the call and have
                    // the lengths that are passed. The caller upholds the contract on what the
                    // command changes.
                    unsafe {
                        dv::$modify(
                            Raw::raw($self),
                            command.as_ptr().cast(),
                            command.len(),
                            reply.as_mut_ptr().cast(),
                            reply.len(),
                        )
                    }
                })
            }

            fn object_context(&self) -> Result<ObjectContext> {
                let $self = self;
                let (made_by, number) = $number?;
                show(self, made_by, number)
            }
        }
    )*};
}

targets! {
    [T: Transport, S: State] QueuePair<T, S>: mlx5dv_devx_qp_query, mlx5dv_devx_qp_modify,
        |qp| qp.context(), qp_made_by::<T>().map(|made_by| (made_by, qp.number()));
    [] CompletionQueue: mlx5dv_devx_cq_query, mlx5dv_devx_cq_modify,
        |cq| cq.context(), cq_number(cq).map(|number| (opcode::CREATE_CQ, number));
    [] SharedReceiveQueue: mlx5dv_devx_srq_query, mlx5dv_devx_srq_modify,
        |srq| srq.context(), srq.number().map(|number| (srq_made_by(srq), number));
    [] StridingQueue: mlx5dv_devx_wq_query, mlx5dv_devx_wq_modify,
        |wq| wq.context(), Ok::<_, Error>((opcode::CREATE_RQ, wq.number()));
    [] RssQueues: mlx5dv_devx_ind_tbl_query, mlx5dv_devx_ind_tbl_modify,
        |spread| spread.context(), Ok::<_, Error>((opcode::CREATE_RQT, spread.number()));
}

impl Sealed for Object {}

impl CommandTarget for Object {
    fn query_by(&self, command: &Command) -> Result<Reply> {
        self.query(command)
    }

    unsafe fn modify_by(&self, command: &Command) -> Result<Reply> {
        // SAFETY: the caller upholds the contract of `modify`, which is that of this function.
        unsafe { self.modify(command) }
    }

    fn object_context(&self) -> Result<ObjectContext> {
        let query = known(self.made_by())?;
        show(self, self.made_by(), self.reply().get(query.made) as u32)
    }
}

impl<S: State> QueuePair<RawPacket, S> {
    /// Returns the contexts of the parts of a raw packet queue pair, which the HCA does not know as
    /// a queue pair: its send queue, TIS, receive queue and TIR, as far as it has them. One call
    /// into the kernel for each.
    ///
    /// # Errors
    /// - [`Error::Call`] if libmlx5 does not report their numbers.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn part_contexts(&self) -> Result<Vec<ObjectContext>> {
        let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        // SAFETY: all-zero is a value of these plain C structures; the queue pair is alive, and the
        // library fills `out`.
        let out = unsafe {
            out.assume_init_mut().comp_mask = dv::MLX5DV_QP_MASK_RAW_QP_HANDLES.into();
            let object = object.assume_init_mut();
            object.qp.in_ = self.as_raw().as_ptr();
            object.qp.out = out.as_mut_ptr();
            check("mlx5dv_init_obj", dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_QP.into()))?;
            out.assume_init()
        };
        [
            (opcode::CREATE_SQ, out.sqn),
            (opcode::CREATE_TIS, out.tisn),
            (opcode::CREATE_RQ, out.rqn),
            (opcode::CREATE_TIR, out.tirn),
        ]
        .into_iter()
        .filter(|(_, number)| *number != 0)
        .map(|(made_by, number)| show(self, made_by, number))
        .collect()
    }
}

/// Returns the query for objects that a command makes.
fn known(made_by: u16) -> Result<Query> {
    let rule = "no command asks what the HCA knows of such an object";
    Query::of(made_by)
        .ok_or_else(|| Error::attribute("object", format_args!("of {}", Name(made_by)), rule))
}

/// Queries an object by the command for its kind.
fn show(target: &impl CommandTarget, made_by: u16, number: u32) -> Result<ObjectContext> {
    let query = known(made_by)?;
    Ok(query.context(&target.query_by(&query.command(number))?))
}

/// Returns the command by which the kernel makes queue pairs of a transport.
fn qp_made_by<T: Transport>() -> Result<u16> {
    let is = TypeId::of::<T>();
    if is == TypeId::of::<RawPacket>() {
        let rule = "the HCA has them as several objects: QueuePair::part_contexts";
        return Err(Error::attribute("transport", T::NAME, rule));
    }
    Ok(if is == TypeId::of::<Dct>() { opcode::CREATE_DCT } else { opcode::CREATE_QP })
}

fn srq_made_by(srq: &SharedReceiveQueue) -> u16 {
    match srq.xrc_domain() {
        Some(_) => opcode::CREATE_XRC_SRQ,
        None => opcode::CREATE_RMP,
    }
}

/// Returns a CQ's number, which only libmlx5 knows. After this query libmlx5 leaves the CQ's ring
/// alone when queue pairs are destroyed, which readers of this crate need anyway.
fn cq_number(cq: &CompletionQueue) -> Result<u32> {
    let mut out = MaybeUninit::<dv::mlx5dv_cq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: all-zero is a value of these plain C structures; the queue is alive and not resized
    // now, and the library fills `out`.
    cq.with_ring(|cq| unsafe {
        let object = object.assume_init_mut();
        object.cq.in_ = cq.as_ptr();
        object.cq.out = out.as_mut_ptr();
        check("mlx5dv_init_obj", dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_CQ.into()))?;
        Ok(out.assume_init().cqn)
    })
}
