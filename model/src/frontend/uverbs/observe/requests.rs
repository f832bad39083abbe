//! Reads what a program asked the kernel for, once the kernel has answered.
//!
//! Requests and answers are in the program's memory, in the forms that `ioctl` and `legacy` serve. Those
//! that make, change or destroy an object of the data path are recorded.

use std::ffi::c_int;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use mlx5_sys::ifc::{cmd_in, opcode, qp_2rst_in};
use zerocopy::{FromBytes, IntoBytes};

use super::super::objects::devx::KINDS;
use super::super::objects::qp::{Asked, Kind, Parents, flag};
use super::super::objects::qp_modify::mask;
use super::super::process::errno::{Errno, Result};
use super::super::process::{descriptors, lock, user};
use super::super::request::abi::{
    CreateCq, CreateCqDriver, CreateCqDriverReply, CreateQp, CreateQpDriver, CreateQpDriverReply,
    CreateSrq, CreateSrqDriver, CreateSrqDriverReply, CreateXsrq, ExCreateCq, ExCreateQp, ModifyQp,
    RegMr, RegMrReply, ResizeCq, ResizeCqDriver,
};
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::commanded;
use super::commands::{self, Told};
use super::queues::{Context, Object, Pair, Qp, Queues, Receive, Ticket};
use super::rings::{CqRing, ReceiveRing, SendRing, SharedRing};
use super::{DEVICE, FILE, LIMIT, Observer, device};
use crate::object::{MiniFormat, Service};
use crate::trace::{Call, Record};

use crate::private::complain;
use Recorded::{Destroys, Reads};

/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
const EXTENDED: u32 = 0x8000_0000;

/// The requests that are recorded: object, method, and for those of the older form the command;
/// then the name and what the request does.
const REQUESTS: &[(u16, u16, u32, &str, Recorded)] = &[
    (0, 0, 3, "ALLOC_PD", Reads(alloc_pd)),
    (0, 0, 4, "DEALLOC_PD", Destroys(|given| word(given, 0))),
    (0, 0, 9, "REG_MR", Reads(reg_mr)),
    (0, 0, 13, "DEREG_MR", Destroys(|given| word(given, 0))),
    (0, 0, 18, "CREATE_CQ", Reads(create_cq_legacy)),
    (0, 0, EXTENDED | 18, "CREATE_CQ", Reads(create_cq_extended)),
    (0, 0, 19, "RESIZE_CQ", Reads(resize_cq)),
    (0, 0, 20, "DESTROY_CQ", Destroys(|given| word(given, 8))),
    (0, 0, 24, "CREATE_QP", Reads(create_qp_legacy)),
    (0, 0, EXTENDED | 24, "CREATE_QP", Reads(create_qp_extended)),
    (0, 0, 26, "MODIFY_QP", Reads(modify_qp)),
    (0, 0, EXTENDED | 26, "MODIFY_QP", Reads(modify_qp)),
    (0, 0, 27, "DESTROY_QP", Destroys(|given| word(given, 8))),
    (0, 0, 32, "CREATE_SRQ", Reads(create_srq_legacy)),
    (0, 0, 35, "DESTROY_SRQ", Destroys(|given| word(given, 8))),
    (0, 0, 39, "CREATE_XSRQ", Reads(create_srq_extended)),
    (1, 0, 0, "DEALLOC_PD", Destroys(|given| given.handle(0))),
    (3, 0, 0, "CREATE_CQ", Reads(create_cq)),
    (3, 1, 0, "DESTROY_CQ", Destroys(|given| given.handle(0))),
    (4, 0, 0, "CREATE_QP", Reads(create_qp)),
    (4, 1, 0, "DESTROY_QP", Destroys(|given| given.handle(0))),
    (5, 0, 0, "CREATE_SRQ", Reads(create_srq)),
    (5, 1, 0, "DESTROY_SRQ", Destroys(|given| given.handle(0))),
    (7, 1, 0, "DEREG_MR", Destroys(|given| given.handle(0))),
    (0x1000, 0x1000, 0, "DEVX_OTHER", Reads(|request| request.issued(0x1000, 0x1001).map(drop))),
    (0x1001, 0x1000, 0, "DEVX_OBJ_CREATE", Reads(create_object)),
    (0x1001, 0x1001, 0, "DEVX_OBJ_DESTROY", Destroys(|given| given.handle(0x1000))),
    (0x1001, 0x1002, 0, "DEVX_OBJ_MODIFY", Reads(modify_object)),
    (
        0x1001,
        0x1003,
        0,
        "DEVX_OBJ_QUERY",
        Reads(|request| request.issued(0x1001, 0x1002).map(drop)),
    ),
    (0x1002, 0x1000, 0, "DEVX_UMEM_REG", Reads(register_umem)),
    (0x1002, 0x1001, 0, "DEVX_UMEM_DEREG", Destroys(|given| given.handle(0x1000))),
    (0x1008, 0x1000, 0, "UAR_OBJ_ALLOC", Reads(alloc_uar)),
    (0x1008, 0x1001, 0, "UAR_OBJ_DESTROY", Destroys(|given| given.handle(0x1000))),
];

/// The effect of a recorded request.
enum Recorded {
    /// It makes, changes or asks for an object. The function reads the request after its success.
    Reads(fn(&mut Request<'_>) -> Result<()>),
    /// It destroys the object with the handle that the function returns.
    Destroys(fn(&Attributes) -> Result<u32>),
}

/// A request that the kernel has answered.
struct Request<'a> {
    observer: &'a Observer,
    queues: MutexGuard<'a, Queues>,
    fd: c_int,
    card: u8,
    attributes: Attributes,
}

/// Reads a request: object, method and command, and its attributes.
fn parse(argument: u64) -> Result<((u16, u16, u32), Attributes)> {
    let (header, attributes) = Attributes::read(argument)?;
    let command = match (header.object, header.method) {
        (0, 0) => attributes.number(2).unwrap_or(0) as u32,
        _ => 0,
    };
    Ok(((header.object, header.method, command), attributes))
}

fn find(what: (u16, u16, u32)) -> Option<(&'static str, &'static Recorded)> {
    REQUESTS.iter().find_map(|(object, method, code, name, recorded)| {
        ((*object, *method, *code) == what).then_some((*name, recorded))
    })
}

/// The kernel is about to be asked. Returns the ticket of the object that the request destroys.
pub(super) fn asked(fd: c_int, argument: u64) -> Option<Ticket> {
    let (observer, card) = (Observer::current()?, device(fd)?);
    let mut queues = lock(&observer.queues);
    // A ring may be gone afterwards.
    queues.look(observer);
    observer.tap.flush();
    let (what, attributes) = parse(argument).ok()?;
    match find(what)? {
        (_, Destroys(handle)) => queues.leave((card, fd), handle(&attributes).ok()?),
        (_, Reads(_)) => None,
    }
}

/// The kernel has answered a request: `error` is its error number, or 0. `ticket` is the answer of
/// [`asked`].
pub(super) fn done(fd: c_int, argument: u64, error: c_int, ticket: Option<Ticket>) {
    let Ok((what, attributes)) = parse(argument) else { return };
    let opens = matches!(what, (0, 3, _) | (0, 0, 0));
    if opens && error == 0 {
        return open(fd);
    }
    let (Some((name, recorded)), Some(observer)) = (find(what), Observer::current()) else {
        return;
    };
    let Some(card) = device(fd) else { return };
    let queues = lock(&observer.queues);
    let mut request = Request { observer, queues, fd, card, attributes };
    if let Some(ticket) = ticket.filter(|_| error != 0) {
        request.queues.stay(ticket);
    }
    match (error, recorded) {
        (0, Destroys(_)) => ticket.into_iter().for_each(|ticket| request.destroyed(ticket)),
        // What cannot be read the kernel could not either: there is nothing to record.
        (0, Reads(read)) => drop(read(&mut request)),
        // The firmware's answer says more.
        (libc::EREMOTEIO, _) if request.refused().is_ok() => {}
        (errno, _) => {
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

/// Reads a word of the structure of the older form.
fn word(given: &Attributes, at: usize) -> Result<u32> {
    let core = given.input(0)?;
    let word = core.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::EINVAL)?;
    Ok(u32::from_ne_bytes(*word))
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

    /// The kernel has made an object, by these commands.
    ///
    /// The object that had its handle or number before is gone. The thread that asked for that may be
    /// later than this one, so its request is recorded here.
    fn made(
        &mut self,
        handle: u32,
        object: Object,
        told: impl IntoIterator<Item = Told>,
    ) -> Result<()> {
        while let Some(ticket) = self.queues.displaced((self.card, self.fd), handle, &object) {
            self.destroyed(ticket);
        }
        told.into_iter().for_each(|told| self.tell(told));
        self.enter(handle, object)
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

    /// The kernel has destroyed an object. Does nothing if that was recorded before.
    fn destroyed(&mut self, ticket: Ticket) {
        self.look_a_last_time();
        let Some(object) = self.queues.left(ticket) else { return };
        commands::destroy(&object).into_iter().for_each(|told| self.tell(told));
    }

    /// Reads a command of the program itself, and its reply.
    fn issue(&self, input: u16, output: u16) -> Result<Told> {
        let (input, reply) = (self.attributes.input(input)?, self.output(output)?);
        if input.len() < cmd_in::SIZE {
            return Err(Errno::EINVAL);
        }
        Ok(Told { input, reply })
    }

    /// A command of the program itself.
    fn issued(&mut self, input: u16, output: u16) -> Result<Told> {
        let told = self.issue(input, output)?;
        self.tell(told.clone());
        Ok(told)
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
    request.made(handle, Object::Pd(number), [commands::alloc_pd(number)])
}

fn reg_mr(request: &mut Request<'_>) -> Result<()> {
    let (asked, reply): (RegMr, RegMrReply) = (request.core()?, request.answer(1));
    let pdn = request.pdn(Some(asked.pd_handle));
    let told = commands::create_mkey(&asked, pdn, reply.lkey);
    request.made(reply.mr_handle, Object::Mr(reply.lkey), [told])
}

fn alloc_uar(request: &mut Request<'_>) -> Result<()> {
    let (offset, number): (u64, u32) = (request.answer(0x1002), request.answer(0x1004));
    let handle = request.attributes.handle(0x1000)?;
    request.made(handle, Object::Uar(number), [commands::alloc_uar(number)])?;
    let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    request.context()?.pages.insert(offset, number);
    Ok(())
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
    let told = commands::create_cq(&given, entries, flags, reply.cqn);
    request.made(handle, Object::Cq(reply.cqn, given.cqe_size), [told])?;
    let ring = CqRing::new(given.buf_addr, entries, given.cqe_size, given.db_addr);
    let ring = match (given.cqe_comp_en, MiniFormat::from_verbs(given.cqe_comp_res_format)) {
        (0, _) => ring,
        (_, Some(format)) => ring.map(|ring| ring.compressed(format)),
        (_, None) => None,
    };
    enter_cq(request, reply.cqn, ring);
    Ok(())
}

/// Enters the ring of a CQ, if it is one that can be read.
fn enter_cq(request: &mut Request<'_>, number: u32, ring: Option<CqRing>) {
    let card = request.card;
    match ring {
        Some(ring) => drop(request.queues.cqs.insert((card, number), ring)),
        None => {
            complain!("CQ {number:#x} has a layout that is not known, so its CQEs are not traced")
        }
    }
}

fn resize_cq(request: &mut Request<'_>) -> Result<()> {
    let (asked, given): (ResizeCq, ResizeCqDriver) = (request.core()?, request.driver()?);
    let cqe: u32 = request.answer(1);
    let entries = cqe.checked_add(1).ok_or(Errno::EINVAL)?;
    let (number, _) = request.cq(Some(asked.cq_handle));
    // The device's last CQE in the old ring tells of the resize. The program moves the CQEs that wait
    // there to the new ring, each one further, once this request is over.
    request.look_a_last_time();
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
        return request.made(handle, Object::Pair(qp), []);
    }
    let mut named = given;
    if given.flags & flag::UAR_PAGE_INDEX == 0 {
        // The kernel chose the register.
        named.bfreg_index = 0;
    }
    let told = commands::create_qp(&qp, asked, &named, &parents);
    request.made(handle, Object::Pair(qp), told)?;
    enter_pair(request, &qp, &given, srqn);
    Ok(())
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
    if to == super::super::objects::qp_modify::RESET {
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
    let ring = SharedRing::new(given.buf_addr, wqes, sges);
    let told = ring.as_ref().map(|ring| {
        let (wqes, stride) = ring.sizes();
        commands::create_rmp(pdn, wqes, stride, reply.srqn)
    });
    request.made(handle, Object::Srq(reply.srqn), told)?;
    let key = (request.card, reply.srqn);
    request.queues.shared.extend(ring.map(|ring| (key, ring)));
    Ok(())
}

fn create_object(request: &mut Request<'_>) -> Result<()> {
    let told = request.issue(0x1001, 0x1002)?;
    let handle = request.attributes.handle(0x1000)?;
    let made = cmd_in::OPCODE.get(&told.input) as u16;
    let mut reply = told.reply.clone();
    reply.resize(reply.len().max(0x20), 0);
    let kind = KINDS.iter().find(|kind| kind.create == made);
    // Whatever the kernel let through has its fields.
    let mut command = told.input.to_vec();
    command.resize(command.len().max(0x40), 0);
    let number = kind.map_or(0, |kind| kind.number(&command, &reply)) as u32;
    request.made(handle, Object::Devx { made, number }, [told.clone()])?;
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
    Ok(())
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
    let told = commands::create_umem(length, number);
    request.made(handle, Object::Umem { number, address }, [told])
}

#[cfg(test)]
mod tests;
