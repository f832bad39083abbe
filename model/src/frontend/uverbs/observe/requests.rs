//! Reads what a program asked the kernel for, once the kernel has answered.
//!
//! Requests and answers are in the program's memory, in the forms that `ioctl` and `legacy` serve. Those
//! that make, change or destroy an object of the data path are recorded.

use std::ffi::c_int;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use mlx5_sys::ifc::{cmd_in, opcode, qp_2rst_in};
use zerocopy::{FromBytes, IntoBytes};

use super::super::abi::{
    CreateCq, CreateCqDriver, CreateCqDriverReply, CreateQp, CreateQpDriver, CreateQpDriverReply,
    CreateSrq, CreateSrqDriver, CreateSrqDriverReply, CreateXsrq, ExCreateCq, ExCreateQp, ModifyQp,
    RegMr, RegMrReply, ResizeCq, ResizeCqDriver,
};
use super::super::devx::KINDS;
use super::super::errno::{Errno, Result};
use super::super::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::super::qp::{Asked, Kind, Parents, flag};
use super::super::qp_modify::mask;
use super::super::{descriptors, lock, user};
use super::commanded;
use super::commands::{self, Told};
use super::queues::{Context, Object, Pair, Qp, Queues, Receive};
use super::rings::{CqRing, ReceiveRing, SendRing, SharedRing};
use super::{DEVICE, FILE, LIMIT, Observer, device};
use crate::object::{MiniFormat, Service};
use crate::trace::{Call, Record};

/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
const EXTENDED: u32 = 0x8000_0000;

/// The requests that are recorded: object, method, and for those of the older form the command; and
/// the function that reads them.
const REQUESTS: &[(u16, u16, u32, &str, Read)] = &[
    (0, 0, 3, "ALLOC_PD", alloc_pd),
    (0, 0, 4, "DEALLOC_PD", |request| request.destroyed(request.core_word(0)?)),
    (0, 0, 9, "REG_MR", reg_mr),
    (0, 0, 13, "DEREG_MR", |request| request.destroyed(request.core_word(0)?)),
    (0, 0, 18, "CREATE_CQ", create_cq_legacy),
    (0, 0, EXTENDED | 18, "CREATE_CQ", create_cq_extended),
    (0, 0, 19, "RESIZE_CQ", resize_cq),
    (0, 0, 20, "DESTROY_CQ", |request| request.destroyed(request.core_word(8)?)),
    (0, 0, 24, "CREATE_QP", create_qp_legacy),
    (0, 0, EXTENDED | 24, "CREATE_QP", create_qp_extended),
    (0, 0, 26, "MODIFY_QP", modify_qp),
    (0, 0, EXTENDED | 26, "MODIFY_QP", modify_qp),
    (0, 0, 27, "DESTROY_QP", |request| request.destroyed(request.core_word(8)?)),
    (0, 0, 32, "CREATE_SRQ", create_srq_legacy),
    (0, 0, 35, "DESTROY_SRQ", |request| request.destroyed(request.core_word(8)?)),
    (0, 0, 39, "CREATE_XSRQ", create_srq_extended),
    (1, 0, 0, "DEALLOC_PD", |request| request.destroyed(request.attributes.handle(0)?)),
    (3, 0, 0, "CREATE_CQ", create_cq),
    (3, 1, 0, "DESTROY_CQ", |request| request.destroyed(request.attributes.handle(0)?)),
    (4, 0, 0, "CREATE_QP", create_qp),
    (4, 1, 0, "DESTROY_QP", |request| request.destroyed(request.attributes.handle(0)?)),
    (5, 0, 0, "CREATE_SRQ", create_srq),
    (5, 1, 0, "DESTROY_SRQ", |request| request.destroyed(request.attributes.handle(0)?)),
    (7, 1, 0, "DEREG_MR", |request| request.destroyed(request.attributes.handle(0)?)),
    (0x1000, 0x1000, 0, "DEVX_OTHER", |request| request.issued(0x1000, 0x1001).map(drop)),
    (0x1001, 0x1000, 0, "DEVX_OBJ_CREATE", create_object),
    (0x1001, 0x1001, 0, "DEVX_OBJ_DESTROY", |request| {
        request.destroyed(request.attributes.handle(0x1000)?)
    }),
    (0x1001, 0x1002, 0, "DEVX_OBJ_MODIFY", modify_object),
    (0x1001, 0x1003, 0, "DEVX_OBJ_QUERY", |request| request.issued(0x1001, 0x1002).map(drop)),
    (0x1002, 0x1000, 0, "DEVX_UMEM_REG", register_umem),
    (0x1002, 0x1001, 0, "DEVX_UMEM_DEREG", |request| {
        request.destroyed(request.attributes.handle(0x1000)?)
    }),
    (0x1008, 0x1000, 0, "UAR_OBJ_ALLOC", alloc_uar),
    (0x1008, 0x1001, 0, "UAR_OBJ_DESTROY", |request| {
        request.destroyed(request.attributes.handle(0x1000)?)
    }),
];

/// Reads a request that succeeded.
type Read = fn(&mut Request<'_>) -> Result<()>;

/// A request that the kernel has answered.
struct Request<'a> {
    observer: &'a Observer,
    queues: MutexGuard<'a, Queues>,
    fd: c_int,
    card: u8,
    attributes: Attributes,
}

/// The kernel has answered a request: `error` is its error number, or 0.
pub(super) fn done(fd: c_int, argument: u64, error: c_int) {
    let Ok((header, attributes)) = Attributes::read(argument) else { return };
    let command = match (header.object, header.method) {
        (0, 0) => attributes.number(2).unwrap_or(0) as u32,
        _ => 0,
    };
    let opens = matches!((header.object, header.method, command), (0, 3, _) | (0, 0, 0));
    if opens && error == 0 {
        return open(fd);
    }
    let known = REQUESTS.iter().find(|(object, method, code, ..)| {
        (*object, *method, *code) == (header.object, header.method, command)
    });
    let (Some((.., name, read)), Some(observer)) = (known, Observer::current()) else { return };
    let Some(card) = device(fd) else { return };
    let queues = lock(&observer.queues);
    let mut request = Request { observer, queues, fd, card, attributes };
    match error {
        // What cannot be read the kernel could not either: there is nothing to record.
        0 => drop(read(&mut request)),
        // The firmware's answer says more.
        libc::EREMOTEIO if request.refused().is_ok() => {}
        errno => {
            let call = Call::Refused { request: name.as_bytes().into(), errno };
            observer.record(card, call, || {});
        }
    }
    observer.tap.flush();
}

/// A program has opened a device.
fn open(fd: c_int) {
    let Some(index) = usize::try_from(fd).ok().filter(|fd| *fd < LIMIT) else { return };
    let (Some(observer), Some(file)) = (Observer::get(), descriptors::identity(fd)) else { return };
    let card = observer.devices.of_descriptor(fd);
    FILE[index].store(file, Ordering::Release);
    DEVICE[index].store(card + 1, Ordering::Release);
    lock(&observer.queues).contexts.insert(fd, Context::default());
}

impl Request<'_> {
    /// Reads an output.
    fn output(&self, id: u16) -> Result<Vec<u8>> {
        let (address, length) = self.attributes.target(id).ok_or(Errno::EINVAL)?;
        user::read(address, length)
    }

    /// A structure of an output. What is not there is zero.
    fn answer<T: FromBytes + IntoBytes>(&self, id: u16) -> T {
        user::lenient(&self.output(id).unwrap_or_default())
    }

    /// The structure of the older form.
    fn core<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        Ok(user::lenient(&self.attributes.input(0)?))
    }

    fn core_word(&self, at: usize) -> Result<u32> {
        let core = self.attributes.input(0)?;
        let word = core.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::EINVAL)?;
        Ok(u32::from_ne_bytes(*word))
    }

    /// The driver's structure.
    fn driver<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        Ok(user::lenient(&self.attributes.input(DRIVER_IN)?))
    }

    fn tell(&self, told: Told) {
        let tap = &self.observer.tap;
        tap.begin(self.card, || Call::Command(told.input.into()));
        tap.end(&Record::Reply(told.reply.into()), false);
    }

    fn context(&mut self) -> Result<&mut Context> {
        self.queues.contexts.get_mut(&self.fd).ok_or(Errno::EINVAL)
    }

    fn object(&mut self, handle: Option<u32>) -> Option<Object> {
        self.context().ok()?.objects.get(&handle?).copied()
    }

    fn enter(&mut self, handle: u32, object: Object) -> Result<()> {
        self.context()?.objects.insert(handle, object);
        Ok(())
    }

    fn pdn(&mut self, handle: Option<u32>) -> u32 {
        match self.object(handle) {
            Some(Object::Pd(number)) => number,
            _ => 0,
        }
    }

    /// Number of a CQ, and the size of its CQEs.
    fn cq(&mut self, handle: Option<u32>) -> (u32, u32) {
        match self.object(handle) {
            Some(Object::Cq(number, size)) => (number, size),
            _ => (0, 0),
        }
    }

    /// Reads the rings while the objects are known whose requests the device may have completed until
    /// it answered.
    fn look_a_last_time(&mut self) {
        self.queues.look(self.observer);
    }

    fn destroyed(&mut self, handle: u32) -> Result<()> {
        self.look_a_last_time();
        let object = self.context()?.objects.remove(&handle).ok_or(Errno::ENOENT)?;
        commands::destroy(&object).into_iter().for_each(|told| self.tell(told));
        let card = self.card;
        self.queues.forget(card, &object);
        Ok(())
    }

    /// A command of the program itself.
    fn issued(&mut self, input: u16, output: u16) -> Result<Told> {
        let (input, reply) = (self.attributes.input(input)?, self.output(output)?);
        if input.len() < cmd_in::SIZE {
            return Err(Errno::EINVAL);
        }
        self.tell(Told { input: input.clone(), reply: reply.clone() });
        Ok(Told { input, reply })
    }

    /// A command of the program that the firmware has refused.
    fn refused(&mut self) -> Result<()> {
        let of = |id: u16| self.attributes.has(id).then_some(id).ok_or(Errno::EINVAL);
        let (input, output) = match of(0x1002) {
            Ok(output) => (of(0x1001)?, output),
            Err(_) => (of(0x1000)?, of(0x1001)?),
        };
        self.issued(input, output).map(drop)
    }
}

fn alloc_pd(request: &mut Request<'_>) -> Result<()> {
    let (handle, number) = (request.answer(1), request.answer(DRIVER_OUT));
    request.tell(commands::alloc_pd(number));
    request.enter(handle, Object::Pd(number))
}

fn reg_mr(request: &mut Request<'_>) -> Result<()> {
    let (asked, reply): (RegMr, RegMrReply) = (request.core()?, request.answer(1));
    let pdn = request.pdn(Some(asked.pd_handle));
    request.tell(commands::create_mkey(&asked, pdn, reply.lkey));
    request.enter(reply.mr_handle, Object::Mr(reply.lkey))
}

fn alloc_uar(request: &mut Request<'_>) -> Result<()> {
    let (offset, number): (u64, u32) = (request.answer(0x1002), request.answer(0x1004));
    let handle = request.attributes.handle(0x1000)?;
    request.tell(commands::alloc_uar(number));
    let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    request.context()?.pages.insert(offset, number);
    request.enter(handle, Object::Uar(number))
}

fn create_cq(request: &mut Request<'_>) -> Result<()> {
    let handle = request.attributes.handle(0)?;
    let (cqe, flags) = (request.answer(6), request.attributes.number(5)? as u32);
    made_cq(request, handle, cqe, flags)
}

fn create_cq_legacy(request: &mut Request<'_>) -> Result<()> {
    let _: CreateCq = request.core()?;
    let [handle, cqe] = request.answer(1);
    made_cq(request, handle, cqe, 0)
}

fn create_cq_extended(request: &mut Request<'_>) -> Result<()> {
    let asked: ExCreateCq = request.core()?;
    let [handle, cqe] = request.answer(1);
    made_cq(request, handle, cqe, asked.flags)
}

/// A CQ was made, with room for so many CQEs.
fn made_cq(request: &mut Request<'_>, handle: u32, cqe: u32, flags: u32) -> Result<()> {
    let given: CreateCqDriver = request.driver()?;
    let reply: CreateCqDriverReply = request.answer(DRIVER_OUT);
    let entries = cqe.checked_add(1).ok_or(Errno::EINVAL)?;
    request.tell(commands::create_cq(&given, entries, flags, reply.cqn));
    let ring = CqRing::new(given.buf_addr, entries, given.cqe_size, given.db_addr);
    let ring = match (given.cqe_comp_en, MiniFormat::from_verbs(given.cqe_comp_res_format)) {
        (0, _) => ring,
        (_, Some(format)) => ring.map(|ring| ring.compressed(format)),
        (_, None) => None,
    };
    enter_cq(request, reply.cqn, ring);
    request.enter(handle, Object::Cq(reply.cqn, given.cqe_size))
}

/// Enters the ring of a CQ, if it is one that can be read.
fn enter_cq(request: &mut Request<'_>, number: u32, ring: Option<CqRing>) {
    let card = request.card;
    match ring {
        Some(ring) => drop(request.queues.cqs.insert((card, number), ring)),
        None => eprintln!(
            "mlx5-model: CQ {number:#x} has a layout that is not known, so its CQEs are not traced"
        ),
    }
}

fn resize_cq(request: &mut Request<'_>) -> Result<()> {
    let (asked, given): (ResizeCq, ResizeCqDriver) = (request.core()?, request.driver()?);
    let cqe: u32 = request.answer(1);
    let entries = cqe.checked_add(1).ok_or(Errno::EINVAL)?;
    let (number, _) = request.cq(Some(asked.cq_handle));
    let card = request.card;
    let Some(ring) = request.queues.cqs.get_mut(&(card, number)) else { return Ok(()) };
    ring.resize(given.buf_addr, entries);
    request.tell(commands::resize_cq(number, entries));
    Ok(())
}

fn create_qp(request: &mut Request<'_>) -> Result<()> {
    let asked = Asked::of_attributes(&request.attributes)?;
    let (handle, number) = (request.attributes.handle(0)?, request.answer(14));
    made_qp(request, &asked, handle, number)
}

fn create_qp_legacy(request: &mut Request<'_>) -> Result<()> {
    let core = request.attributes.input(0)?;
    let given: ExCreateQp = user::lenient(core.get(8..size_of::<CreateQp>()).ok_or(Errno::EINVAL)?);
    let [handle, number] = request.answer(1);
    made_qp(request, &Asked::of_structure(&given)?, handle, number)
}

fn create_qp_extended(request: &mut Request<'_>) -> Result<()> {
    let given: ExCreateQp = request.core()?;
    let [handle, number] = request.answer(1);
    made_qp(request, &Asked::of_structure(&given)?, handle, number)
}

fn service(kind: Kind) -> Service {
    match kind {
        Kind::Rc => Service::Rc,
        Kind::Uc => Service::Uc,
        Kind::Ud => Service::Ud,
        Kind::XrcInitiator | Kind::XrcTarget => Service::Xrc,
        Kind::DcInitiator | Kind::DcTarget => Service::Dc,
        Kind::RawPacket => Service::Ethernet,
    }
}

/// A queue pair was made.
fn made_qp(request: &mut Request<'_>, asked: &Asked, handle: u32, number: u32) -> Result<()> {
    let given: CreateQpDriver = request.driver()?;
    let reply: CreateQpDriverReply = request.answer(DRIVER_OUT);
    let kind = Kind::of(asked.kind, given.flags).ok_or(Errno::EINVAL)?;
    let (send, receive) = (request.cq(asked.send_cq), request.cq(asked.recv_cq));
    let srqn = match request.object(asked.srq) {
        Some(Object::Srq(number)) => Some(number),
        _ => None,
    };
    let parents = Parents {
        pd: asked.pd.unwrap_or(0),
        send_cq: asked.send_cq.unwrap_or(0),
        recv_cq: asked.recv_cq,
        pdn: request.pdn(asked.pd),
        send,
        receive: asked.recv_cq.map(|_| receive),
        srqn,
    };
    let qp = Qp {
        number,
        kind,
        pdn: parents.pdn,
        send_cq: send.0,
        recv_cq: receive.0,
        state: 0,
        access: 0,
        depth: 0,
        sqn: reply.sqn,
        rqn: reply.rqn,
    };
    // The number of a target of dynamic connections comes later, and a queue pair over a table of
    // receive queues has none.
    if kind == Kind::DcTarget || number == 0 {
        return request.enter(handle, Object::Pair(qp));
    }
    let mut named = given;
    if given.flags & flag::UAR_PAGE_INDEX == 0 {
        // The kernel chose the register.
        named.bfreg_index = 0;
    }
    let told = commands::create_qp(&qp, asked, &named, &parents);
    told.into_iter().for_each(|told| request.tell(told));
    enter_pair(request, &qp, &given, srqn);
    request.enter(handle, Object::Pair(qp))
}

/// Enters the rings of a queue pair. The receive queue is in front of the send queue, other than of a
/// queue pair for packets.
fn enter_pair(request: &mut Request<'_>, qp: &Qp, given: &CreateQpDriver, srqn: Option<u32>) {
    let receives = if srqn.is_some() { 0 } else { given.rq_wqe_count };
    let shift = given.rq_wqe_shift.min(32);
    let send_base = match qp.kind {
        Kind::RawPacket => given.sq_buf_addr,
        _ => given.buf_addr.wrapping_add(u64::from(receives) << shift),
    };
    let send_record = given.db_addr.wrapping_add(4);
    let pair = |number: u32| Pair {
        number,
        service: service(qp.kind),
        send: None,
        receive: Receive::None,
        cqs: [qp.send_cq, qp.recv_cq],
    };
    let receive = match srqn {
        Some(srqn) => Receive::Shared(srqn),
        None => ReceiveRing::new(given.buf_addr, receives, shift, given.db_addr)
            .map_or(Receive::None, Receive::Own),
    };
    let send = SendRing::new(send_base, given.sq_wqe_count, send_record);
    let (card, pairs) = (request.card, &mut request.queues.pairs);
    if qp.kind == Kind::RawPacket && qp.rqn != 0 {
        // CQEs name each queue by its own number, and doorbells name the queue pair.
        pairs.insert((card, qp.rqn), Pair { receive, ..pair(qp.rqn) });
        let number = if qp.sqn == 0 { qp.number } else { qp.sqn };
        pairs.insert((card, qp.number), Pair { send, ..pair(number) });
    } else {
        pairs.insert((card, qp.number), Pair { send, receive, ..pair(qp.number) });
    }
}

fn modify_qp(request: &mut Request<'_>) -> Result<()> {
    let asked: ModifyQp = request.core()?;
    let has = |bit: u32| asked.attr_mask & bit != 0;
    let handle = asked.qp_handle;
    let Some(Object::Pair(mut qp)) = request.object(Some(handle)) else { return Ok(()) };
    if has(mask::CUR_STATE) {
        qp.state = asked.cur_qp_state;
    }
    let to = if has(mask::STATE) { asked.qp_state } else { qp.state };
    let link = request.observer.devices.link(request.card);
    if qp.kind != Kind::DcTarget {
        if let Some(told) = commands::modify_qp(&qp, to, &asked, link) {
            request.tell(told);
        }
    }
    if has(mask::ACCESS_FLAGS) {
        qp.access = asked.qp_access_flags;
    }
    if has(mask::MAX_DEST_RD_ATOMIC) {
        qp.depth = asked.max_dest_rd_atomic;
    }
    qp.state = to;
    if to == super::super::qp_modify::RESET {
        request.reset(&[qp.number, qp.rqn]);
    }
    request.enter(handle, Object::Pair(qp))
}

impl Request<'_> {
    /// Queue pairs were reset: their rings start from the beginning.
    fn reset(&mut self, numbers: &[u32]) {
        self.look_a_last_time();
        let card = self.card;
        for number in numbers {
            let Some(pair) = self.queues.pairs.get_mut(&(card, *number)) else { continue };
            if let Some(send) = &mut pair.send {
                send.reset();
            }
            if let Receive::Own(ring) = &mut pair.receive {
                ring.reset();
            }
        }
    }
}

fn create_srq(request: &mut Request<'_>) -> Result<()> {
    let (handle, pd) = (request.attributes.handle(0)?, request.attributes.handle(1)?);
    let sizes = [request.attributes.number(5)? as u32, request.attributes.number(6)? as u32];
    made_srq(request, handle, pd, sizes)
}

fn create_srq_legacy(request: &mut Request<'_>) -> Result<()> {
    let asked: CreateSrq = request.core()?;
    let handle = request.answer(1);
    made_srq(request, handle, asked.pd_handle, [asked.max_wr, asked.max_sge])
}

fn create_srq_extended(request: &mut Request<'_>) -> Result<()> {
    let asked: CreateXsrq = request.core()?;
    let handle = request.answer(1);
    made_srq(request, handle, asked.pd_handle, [asked.max_wr, asked.max_sge])
}

/// A shared receive queue was made, with so many WQEs, and SGEs of each.
fn made_srq(request: &mut Request<'_>, handle: u32, pd: u32, [wqes, sges]: [u32; 2]) -> Result<()> {
    let given: CreateSrqDriver = request.driver()?;
    let reply: CreateSrqDriverReply = request.answer(DRIVER_OUT);
    let pdn = request.pdn(Some(pd));
    if let Some(ring) = SharedRing::new(given.buf_addr, wqes, sges) {
        let (wqes, stride) = ring.sizes();
        request.tell(commands::create_rmp(pdn, wqes, stride, reply.srqn));
        let card = request.card;
        request.queues.shared.insert((card, reply.srqn), ring);
    }
    request.enter(handle, Object::Srq(reply.srqn))
}

fn create_object(request: &mut Request<'_>) -> Result<()> {
    let told = request.issued(0x1001, 0x1002)?;
    let handle = request.attributes.handle(0x1000)?;
    let made = cmd_in::OPCODE.get(&told.input) as u16;
    let mut reply = told.reply;
    reply.resize(reply.len().max(0x20), 0);
    let kind = KINDS.iter().find(|kind| kind.create == made);
    let number = kind.map_or(0, |kind| kind.created.get(&reply)) as u32;
    let card = request.card;
    let context = request.queues.contexts.get(&request.fd).ok_or(Errno::EINVAL)?;
    let at = |umem: u64, offset: u64| context.address(umem)?.checked_add(offset);
    match made {
        opcode::CREATE_CQ => {
            let ring = commanded::cq(&told.input, at);
            enter_cq(request, number, ring);
        }
        opcode::CREATE_RMP => {
            if let Some(ring) = commanded::shared_queue(&told.input, at) {
                request.queues.shared.insert((card, number), ring);
            }
        }
        _ => {
            let pair = match made {
                opcode::CREATE_QP => commanded::queue_pair(&told.input, number, at),
                opcode::CREATE_SQ => commanded::send_queue(&told.input, number, at),
                opcode::CREATE_RQ => commanded::receive_queue(&told.input, number, at),
                _ => None,
            };
            if let Some(pair) = pair {
                request.queues.pairs.insert((card, number), pair);
            }
        }
    }
    request.enter(handle, Object::Devx { made, number })
}

fn modify_object(request: &mut Request<'_>) -> Result<()> {
    let told = request.issued(0x1001, 0x1002)?;
    let is_reset = cmd_in::OPCODE.get(&told.input) == u64::from(opcode::QP_2RST);
    if is_reset && told.input.len() >= qp_2rst_in::SIZE {
        request.reset(&[qp_2rst_in::QPN.get(&told.input) as u32]);
    }
    Ok(())
}

fn register_umem(request: &mut Request<'_>) -> Result<()> {
    let [address, length] =
        [request.attributes.number(0x1001)?, request.attributes.number(0x1002)?];
    let (handle, number) = (request.attributes.handle(0x1000)?, request.answer(0x1004));
    request.tell(commands::create_umem(length, number));
    request.enter(handle, Object::Umem { number, address })
}
