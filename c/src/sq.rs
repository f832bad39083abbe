//! `struct mlx5_sq`: the send queue of a queue pair.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;

use mlx5::expert::Ahead;
use mlx5::ib::{Uc, Ud};
use mlx5::ring::{RegisterUse, SendConfig, SendQueue};
use mlx5_sys::verbs::{ibv_qp, ibv_qp_type};

use crate::claims::{Claim, Own, Part, RegisterClaim};
use crate::error::{Failed, Result, caught, finish};
use crate::group::{Carried, Cq, Grouped, Tables, on, with_transport};
use crate::objects::{self, QpParts};
use crate::operation::{Alone, Carries};
use crate::request::Request;
use crate::status::Status;

/// No other queue stores to the BlueFlame register of this one.
pub const SQ_OWN_REGISTER: u32 = 1;

/// In place of the number of prepared requests: they are forgotten, and still in the ring.
const FORGOTTEN: u32 = u32::MAX;

/// `struct mlx5_sq`. Its fields do not change, but for what is prepared, which belongs to the group.
pub struct Sq {
    pub(crate) cq: *mut Cq,
    pub(crate) qpn: u32,
    pub(crate) transport: Carried,
    /// [`post`] of the transport.
    post: Post,
    /// The requests that are prepared in the queue, and their number.
    ahead: RefCell<Ahead>,
    prepared: Cell<u32>,
    raw: NonNull<ibv_qp>,
    // Dropped after the queue, which the group has.
    _register: RegisterClaim,
    _claim: Claim,
}

impl Sq {
    /// # Safety
    /// [`SendQueue::from_raw`]'s, and `handle` is the handle of `cq`.
    unsafe fn take(
        raw: NonNull<ibv_qp>,
        cq: &mut Cq,
        handle: *mut Cq,
        requests: u32,
        flags: u32,
    ) -> Result<Self> {
        if flags & !SQ_OWN_REGISTER != 0 {
            return Err(Failed::argument("flags has other bits than MLX5_SQ_OWN_REGISTER"));
        }
        cq.require_no_batch()?;
        objects::libraries()?;
        // SAFETY: the QP is alive, and these fields do not change.
        let (qpn, qp_type) = unsafe { ((*raw.as_ptr()).qp_num, (*raw.as_ptr()).qp_type) };
        let transport = match qp_type {
            ibv_qp_type::IBV_QPT_RC => Carried::Rc,
            ibv_qp_type::IBV_QPT_UC => Carried::Uc,
            ibv_qp_type::IBV_QPT_UD => Carried::Ud,
            // SAFETY: the QP is alive.
            ibv_qp_type::IBV_QPT_DRIVER if unsafe { objects::is_dc_target(raw) } => {
                return Err(Failed::with(
                    Status::NotOnTransport,
                    "the QP is a target of dynamic connections, which sends nothing: take an initiator \
                     over (MLX5DV_DCTYPE_DCI), and receives by mlx5_srq_attach",
                ));
            }
            ibv_qp_type::IBV_QPT_DRIVER => Carried::Dci,
            ibv_qp_type::IBV_QPT_XRC_SEND => Carried::XrcSend,
            ibv_qp_type::IBV_QPT_RAW_PACKET => Carried::RawPacket,
            _ => {
                return Err(Failed::told(
                    Status::NotOnTransport,
                    format_args!(
                        "the QP's type is {qp_type}: RC, UC, UD, XRC_SEND, RAW_PACKET and DCIs can be \
                         taken over"
                    ),
                ));
            }
        };
        let claim = Claim::new(raw.as_ptr(), Part::Sends)?;
        // SAFETY: the QP is alive.
        let parts = unsafe { QpParts::of(raw)? };
        let own = if flags & SQ_OWN_REGISTER != 0 { Own::Copies } else { Own::Rings };
        let register = RegisterClaim::new(parts.register, own)?;
        let config = SendConfig {
            register: if own == Own::Copies { RegisterUse::Own } else { RegisterUse::Shared },
            requests: if requests == 0 { u32::MAX } else { requests },
            ..SendConfig::default()
        };
        let Cq { tables, reader, .. } = cq;
        with_transport!(transport, |T| {
            // SAFETY: this function's contract. The claim of the register keeps this library's other queues
            // from it.
            let queue = unsafe { SendQueue::<T>::from_raw(raw, reader, config)? };
            // The claim excludes a former one.
            drop(T::make_table(tables).insert_send(queue));
        });
        cq.queues += 1;
        let post = with_transport!(transport, |T| post::<T> as Post);
        // SAFETY: only this queue's functions use it. While it has requests, those that post, or end the
        // handle with an idle queue, fail or first take the forgotten ones out of the ring
        // (`require_free`, `require_ahead`).
        let ahead = RefCell::new(unsafe { Ahead::new() });
        Ok(Self {
            cq: handle,
            qpn,
            transport,
            post,
            ahead,
            prepared: Cell::new(0),
            raw,
            _register: register,
            _claim: claim,
        })
    }

    /// Returns whether no batch is open on the group, and nothing is written ahead in this queue.
    #[inline(always)]
    fn is_free(&self, cq: &Cq) -> bool {
        cq.open.is_none() && self.prepared.get() == 0
    }

    /// Fails if a batch is open on the group, or if requests are prepared in this queue: nothing else
    /// may be written to its ring. Takes forgotten requests out of it.
    pub(crate) fn require_free(&self, cq: &mut Cq) -> Result {
        cq.require_no_batch()?;
        match self.prepared.get() {
            0 => Ok(()),
            FORGOTTEN => self.cancel(cq),
            _ => Err(Failed::of(Status::Prepared)),
        }
    }

    /// Fails if a batch is open on the group. Takes forgotten requests out of the ring.
    #[inline(always)]
    pub(crate) fn require_ahead(&self, cq: &mut Cq) -> Result {
        cq.require_no_batch()?;
        if self.prepared.get() == FORGOTTEN { self.cancel(cq) } else { Ok(()) }
    }

    /// Returns how many requests are prepared.
    pub(crate) fn prepared(&self) -> u32 {
        match self.prepared.get() {
            FORGOTTEN => 0,
            count => count,
        }
    }

    /// Forgets what is prepared. While a batch of another queue borrows the tables, the requests stay in the
    /// ring: the queue's next call takes them out.
    pub(crate) fn forget(&self, cq: &mut Cq) -> Result {
        if cq.open.is_none() {
            return self.cancel(cq);
        }
        if self.prepared.get() != 0 {
            self.prepared.set(FORGOTTEN);
        }
        Ok(())
    }

    /// Takes what is prepared out of the ring. No batch is open.
    #[cold]
    #[inline(never)]
    fn cancel(&self, cq: &mut Cq) -> Result {
        with_transport!(self.transport, |T| {
            let queue = T::queue(&mut cq.tables, self.qpn)?;
            self.with_ahead(|ahead| {
                ahead.cancel(queue);
                Ok(())
            })
        })
    }

    /// Runs a body with the requests that are prepared.
    #[inline(always)]
    pub(crate) fn with_ahead(&self, body: impl FnOnce(&mut Ahead) -> Result) -> Result {
        let mut ahead = self.ahead.borrow_mut();
        let result = body(&mut ahead);
        self.prepared.set(ahead.len());
        result
    }

    /// Takes the queue out of its group, and drops it. Discards the group's open batch, which borrows
    /// the tables.
    fn end(&self, cq: &mut Cq) {
        cq.open = None;
        let tables = &mut cq.tables;
        with_transport!(self.transport, |T| {
            drop(T::table(tables).map(|table| table.remove_send(self.qpn)));
        });
        cq.queues -= 1;
    }
}

/// Runs a body with a send queue's handle and its group.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[inline(always)]
pub(crate) unsafe fn on_sq<R>(
    sq: *const Sq,
    body: impl FnOnce(&mut Cq, &Sq) -> Result<R>,
) -> Result<R> {
    // SAFETY: null or alive, and its fields do not change.
    let Some(sq) = (unsafe { sq.as_ref() }) else {
        return Err(Failed::argument("the handle is null"));
    };
    // SAFETY: this function's contract. A group lives longer than the handles of its queues.
    unsafe { on(sq.cq, |cq| body(cq, sq)) }
}

type Post = unsafe fn(&mut Tables, u32, &[Request]) -> (u32, Result);

/// Posts requests to a queue pair, with one doorbell for all. Returns how many were posted, and why no more.
///
/// # Safety
/// The requests are readable, and what they name; their memory is the HCA's until they are retired.
unsafe fn post<T: Carries>(tables: &mut Tables, qpn: u32, requests: &[Request]) -> (u32, Result) {
    let queue = match T::queue(tables, qpn) {
        Ok(queue) => queue,
        Err(gone) => return (0, Err(gone)),
    };
    let [one] = requests else {
        // SAFETY: this function's contract.
        return unsafe { post_list(queue, requests) };
    };
    // SAFETY: this function's contract.
    let result = unsafe { T::put(&mut Alone(queue), one) };
    (u32::from(result.is_ok()), result)
}

/// Posts requests of which there are not one. See [`post`].
///
/// # Safety
/// That of [`post`].
#[inline(never)]
unsafe fn post_list<T: Carries>(queue: &mut SendQueue<T>, requests: &[Request]) -> (u32, Result) {
    let mut batch = queue.batch();
    let mut result = Ok(());
    for request in requests {
        // SAFETY: this function's contract.
        result = unsafe { T::put(&mut batch, request) };
        if result.is_err() {
            break;
        }
    }
    let count = batch.len();
    // SAFETY: this function's contract.
    match unsafe { batch.try_ring() } {
        Ok(()) => (count, result),
        Err(error) => (0, Err(error.into())),
    }
}

/// Posts requests to a queue that may not be free. See [`post`].
///
/// # Safety
/// That of [`post`].
#[cold]
#[inline(never)]
unsafe fn post_if_free(cq: &mut Cq, sq: &Sq, requests: &[Request]) -> (u32, Result) {
    match sq.require_free(cq) {
        // SAFETY: this function's contract.
        Ok(()) => unsafe { (sq.post)(&mut cq.tables, sq.qpn, requests) },
        Err(error) => (0, Err(error)),
    }
}

/// Takes the send queue of a queue pair over from libibverbs. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_sq_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_take(
    qp: *mut ibv_qp,
    cq: *mut Cq,
    requests: u32,
    flags: u32,
    taken: *mut *mut Sq,
) -> Status {
    let (Some(raw), Some(taken)) = (NonNull::new(qp), NonNull::new(taken)) else {
        return finish(Err(Failed::argument("qp or taken is null")));
    };
    // SAFETY: this function's contract.
    finish(unsafe {
        on(cq, |group| {
            taken.write(Box::into_raw(Box::new(Sq::take(raw, group, cq, requests, flags)?)));
            Ok(())
        })
    })
}

/// Gives an idle send queue back. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_give_back(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    let ended = unsafe {
        on_sq(sq, |cq, sq| {
            sq.require_free(cq)?;
            with_transport!(sq.transport, |T| {
                let queue = T::queue(&mut cq.tables, sq.qpn)?;
                if queue.is_silent() {
                    return Err(Failed::with(
                        Status::NotIdle,
                        "only unsignaled requests are outstanding: post a signaled MLX5_OP_NOP, and \
                         poll for it",
                    ));
                }
                if !queue.is_idle() {
                    return Err(Failed::of(Status::NotIdle));
                }
            });
            sq.end(cq);
            Ok(())
        })
    };
    finish(ended.and_then(|()| {
        // SAFETY: `mlx5_sq_take` made the box, and the caller does not use it again.
        caught(|| unsafe {
            drop(Box::from_raw(sq));
            Ok(())
        })
    }))
}

/// Ends a send queue's handle whatever is outstanding. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_abandon(sq: *mut Sq) {
    if sq.is_null() {
        return;
    }
    let ended = caught(|| {
        // SAFETY: the handle is alive, and so is its group, even if a call on it has panicked.
        unsafe {
            let handle = Box::from_raw(sq);
            let cq = handle.cq;
            handle.end(&mut *cq);
        }
        Ok(())
    });
    finish(ended);
}

/// Posts requests. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group. `requests` is null or has
/// `count` readable requests, whose lists, inline bytes and addresses are readable. `posted` is null or
/// writable. The memory of requests is the HCA's until they are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_post(
    sq: *mut Sq,
    requests: *const Request,
    count: u32,
    posted: *mut u32,
) -> Status {
    let mut done = 0;
    // SAFETY: this function's contract.
    let result = unsafe {
        on_sq(sq, |cq, sq| {
            let requests = Request::list(requests, count)?;
            let result;
            (done, result) = if sq.is_free(cq) {
                (sq.post)(&mut cq.tables, sq.qpn, requests)
            } else {
                post_if_free(cq, sq, requests)
            };
            result
        })
    };
    // SAFETY: null or writable, by this function's contract.
    if let Some(posted) = unsafe { posted.as_mut() } {
        *posted = done;
    }
    finish(result)
}

/// Lets a queue pair of UC or UD go on after a failed request. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_recover(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            sq.require_free(cq)?;
            let (tables, qpn) = (&mut cq.tables, sq.qpn);
            match sq.transport {
                Carried::Uc => Ok(Uc::queue(tables, qpn)?.recover()?),
                Carried::Ud => Ok(Ud::queue(tables, qpn)?.recover()?),
                Carried::Rc | Carried::Dci | Carried::XrcSend | Carried::RawPacket => {
                    Err(Failed::with(
                        Status::NotOnTransport,
                        "only UC and UD recover: abandon the queue, reset and reconnect the QP, and take it \
                     over again",
                    ))
                }
            }
        })
    })
}

/// Returns how many requests may be outstanding, or 0 for null. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_capacity(sq: *mut Sq) -> u32 {
    // SAFETY: this function's contract.
    let capacity = unsafe {
        on_sq(sq, |cq, sq| {
            cq.require_no_batch()?;
            let tables = &mut cq.tables;
            Ok(with_transport!(sq.transport, |T| T::queue(tables, sq.qpn)?.request_limit()))
        })
    };
    capacity.unwrap_or(0)
}

/// Returns the queue pair of libibverbs. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_ibv(sq: *const Sq) -> *mut ibv_qp {
    // SAFETY: null or alive, by this function's contract; the field does not change.
    unsafe { sq.as_ref() }.map_or(core::ptr::null_mut(), |sq| sq.raw.as_ptr())
}
