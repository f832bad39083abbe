//! Event subscriptions by libmlx5: to queues created by command, and to the port, with the kernel
//! interface's rules for reading events.

mod verbs;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use mlx5_sys::dv::*;
use mlx5_sys::ifc::*;
use mlx5_sys::verbs::ibv_close_device;
use verbs::{Device, errno};

/// The port is the process's: tests that pull its cable take turns.
fn cable() -> MutexGuard<'static, ()> {
    static CABLE: Mutex<()> = Mutex::new(());
    CABLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An event channel.
struct Channel(NonNull<mlx5dv_devx_event_channel>);

impl Channel {
    fn new(device: &Device, omit: bool) -> Self {
        // SAFETY: the context is open.
        let channel =
            unsafe { mlx5dv_devx_create_event_channel(device.context.as_ptr(), u32::from(omit)) };
        Self(NonNull::new(channel).unwrap_or_else(|| panic!("errno {}", errno())))
    }

    fn fd(&self) -> RawFd {
        // SAFETY: the channel lives.
        unsafe { self.0.as_ref().fd }
    }

    /// Subscribes to events of `object`, or of the device.
    fn subscribe(&self, object: *mut mlx5dv_devx_obj, events: &[u16], cookie: u64) -> i32 {
        let mut events = events.to_vec();
        // SAFETY: channel and object live, and the list is as long as said.
        unsafe {
            let bytes = size_of_val(&events[..]) as u16;
            let list = events.as_mut_ptr();
            mlx5dv_devx_subscribe_devx_event(self.0.as_ptr(), object, bytes, list, cookie)
        }
    }

    /// Reads one event: the cookie, and what follows it.
    fn read(&self, room: usize) -> Result<(u64, Vec<u8>), i32> {
        let mut event = [0u64; 9];
        assert!(room <= size_of_val(&event));
        // SAFETY: there is as much room as said.
        let got =
            unsafe { mlx5dv_devx_get_event(self.0.as_ptr(), event.as_mut_ptr().cast(), room) };
        let got = usize::try_from(got).map_err(|_| errno())?;
        let bytes: Vec<u8> = event.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok((event[0], bytes[8..got].to_vec()))
    }

    fn is_readable(&self) -> bool {
        let mut wait = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&mut wait, 1, 0) == 1 }
    }

    fn do_not_wait(&self) {
        // SAFETY: flags only.
        assert_eq!(unsafe { libc::fcntl(self.fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }

    fn close(self) {
        // SAFETY: the channel is not used again.
        unsafe { mlx5dv_devx_destroy_event_channel(self.0.as_ptr()) };
    }
}

const PORT: u16 = event_type::PORT_CHANGE as u16;
const WHOLE: usize = 8 + eqe::SIZE;

fn pull_and_plug() {
    assert!(mlx5_model::set_port(0, false));
    assert!(mlx5_model::set_port(0, true));
}

#[test]
fn a_change_of_the_port_is_read_with_its_eqe() {
    let _turn = cable();
    let device = Device::open(0);
    let channel = Channel::new(&device, false);
    assert_eq!(channel.subscribe(null_mut(), &[PORT], 0x1234_5678_9abc_def0), 0);
    assert!(!channel.is_readable());
    pull_and_plug();
    assert!(channel.is_readable());
    // Too little room takes nothing out.
    assert_eq!(channel.read(WHOLE - 8), Err(libc::EINVAL));
    for subtype in [1, 4] {
        let (cookie, event) = channel.read(WHOLE).unwrap();
        assert_eq!(cookie, 0x1234_5678_9abc_def0);
        assert_eq!(event.len(), eqe::SIZE);
        assert_eq!(eqe::EVENT_TYPE.get(&event), u64::from(PORT));
        assert_eq!(eqe::EVENT_SUB_TYPE.get(&event), subtype);
        let data = &event[eqe::EVENT_DATA.bytes()];
        assert_eq!(port_state_change_event::PORT_NUM.get(data), 1);
    }
    assert!(!channel.is_readable());
    channel.do_not_wait();
    assert_eq!(channel.read(WHOLE), Err(libc::EAGAIN));
    channel.close();
    pull_and_plug();
}

#[test]
fn without_data_a_cookie_waits_once_for_each_subscription() {
    let _turn = cable();
    let device = Device::open(0);
    let channel = Channel::new(&device, true);
    channel.do_not_wait();
    assert_eq!(channel.subscribe(null_mut(), &[PORT], 1), 0);
    assert_eq!(channel.subscribe(null_mut(), &[PORT], 2), 0);
    for _ in 0..2 {
        pull_and_plug();
        assert_eq!(channel.read(4), Err(libc::EINVAL));
        assert_eq!(channel.read(WHOLE), Ok((1, vec![])));
        assert_eq!(channel.read(8), Ok((2, vec![])));
        assert_eq!(channel.read(8), Err(libc::EAGAIN));
    }
    channel.close();
}

#[test]
fn an_eventfd_counts() {
    let _turn = cable();
    let device = Device::open(0);
    let channel = Channel::new(&device, false);
    channel.do_not_wait();
    let subscribe = |fd: RawFd| {
        // SAFETY: the channel lives.
        let result = unsafe {
            mlx5dv_devx_subscribe_devx_event_fd(channel.0.as_ptr(), fd, null_mut(), PORT)
        };
        if result == 0 { Ok(()) } else { Err(result) }
    };
    assert_eq!(subscribe(-1), Err(libc::EBADF));
    assert_eq!(subscribe(channel.fd()), Err(libc::EINVAL));
    // SAFETY: a descriptor of this test.
    let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
    assert_eq!(subscribe(counter.as_raw_fd()), Ok(()));
    let mut counter = File::from(counter);
    pull_and_plug();
    let mut count = [0; 8];
    counter.read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 2);
    assert_eq!(channel.read(WHOLE), Err(libc::EAGAIN), "they went elsewhere");
    // It ends with the channel, not with the device.
    channel.close();
    pull_and_plug();
    assert_eq!(counter.read(&mut count).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
}

#[test]
fn too_many_unread_events_are_reported_as_lost_once() {
    let _turn = cable();
    let device = Device::open(0);
    let channel = Channel::new(&device, false);
    channel.do_not_wait();
    assert_eq!(channel.subscribe(null_mut(), &[PORT], 7), 0);
    // The model's limit: two for each turn.
    for _ in 0..(1 << 13) + 1 {
        pull_and_plug();
    }
    assert_eq!(channel.read(WHOLE), Err(libc::EOVERFLOW));
    let mut read = 0;
    let limit = std::time::Instant::now() + verbs::LIMIT;
    while read < 1 << 14 {
        match channel.read(WHOLE) {
            Ok((7, _)) => read += 1,
            // Those that did not fit the socket are brought in by a thread.
            Err(libc::EAGAIN) if std::time::Instant::now() < limit => std::thread::yield_now(),
            other => panic!("{other:?} after {read}"),
        }
    }
    pull_and_plug();
    assert_eq!(channel.read(WHOLE).unwrap().0, 7);
    channel.close();
}

#[test]
fn a_reader_hears_that_the_device_was_closed() {
    let _turn = cable();
    let device = Device::open(0);
    let waiting = Channel::new(&device, false);
    let full = Channel::new(&device, true);
    assert_eq!(full.subscribe(null_mut(), &[PORT], 1), 0);
    pull_and_plug();
    assert!(full.is_readable());
    // Not by the library, which would use the context.
    let read = |fd| {
        let mut event = [0u8; WHOLE];
        // SAFETY: there is as much room as said.
        let got = unsafe { libc::read(fd, event.as_mut_ptr().cast(), event.len()) };
        (got, errno())
    };
    let fd = waiting.fd();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(fd));
        // SAFETY: nothing uses the context any more: its other objects leak.
        assert_eq!(unsafe { ibv_close_device(device.context.as_ptr()) }, 0);
        assert_eq!(reader.join().unwrap(), (-1, libc::EIO));
    });
    // The unread events are gone.
    assert_eq!(read(full.fd()), (-1, libc::EIO));
    full.do_not_wait();
    assert_eq!(read(full.fd()), (-1, libc::EAGAIN));
    for channel in [waiting, full] {
        // SAFETY: the descriptor is not used any more. The channel leaks.
        assert_eq!(unsafe { libc::close(channel.fd()) }, 0);
    }
    pull_and_plug();
}

#[test]
fn subscriptions_are_checked() {
    let device = Device::open(0);
    let channel = Channel::new(&device, false);
    let queues = Queues::new(&device);
    let (none, cq) = (null_mut(), queues.cq.0.as_ptr());
    // Of the device there are changes of the port; of objects, what the card names.
    assert_eq!(channel.subscribe(none, &[event_type::CQ_ERROR.into()], 0), libc::EINVAL);
    assert_eq!(channel.subscribe(none, &[0], 0), libc::EINVAL);
    assert_eq!(channel.subscribe(cq, &[PORT], 0), libc::EINVAL);
    assert_eq!(channel.subscribe(cq, &[0, 0x18], 0), libc::EINVAL);
    assert_eq!(channel.subscribe(cq, &[0x100], 0), libc::EINVAL);
    assert_eq!(channel.subscribe(cq, &[0; 16], 0), 0);
    assert_eq!(channel.subscribe(cq, &[0; 17], 0), libc::EINVAL);
    // A channel of another context.
    let other = Device::open(0);
    let foreign = Channel::new(&other, false);
    assert_eq!(foreign.subscribe(cq, &[0], 0), libc::ENOENT);
    // SAFETY: the context is open.
    let refused = unsafe { mlx5dv_devx_create_event_channel(device.context.as_ptr(), 2) };
    assert!(refused.is_null());
    assert_eq!(errno(), libc::EINVAL);
    foreign.close();
    channel.close();
}

/// An object that was made by command.
struct Object(NonNull<mlx5dv_devx_obj>);

impl Object {
    fn new(device: &Device, command: &[u8], reply: &mut [u8]) -> Self {
        let (input, output) = (command.as_ptr().cast(), reply.as_mut_ptr().cast());
        let context = device.context.as_ptr();
        // SAFETY: both buffers are as long as said.
        let object =
            unsafe { mlx5dv_devx_obj_create(context, input, command.len(), output, reply.len()) };
        Self(NonNull::new(object).unwrap_or_else(|| panic!("errno {}: {reply:02x?}", errno())))
    }

    fn modify(&self, command: &[u8]) {
        let mut reply = [0u8; 0x10];
        let (input, output) = (command.as_ptr().cast(), reply.as_mut_ptr().cast());
        // SAFETY: both buffers are as long as said.
        let result = unsafe {
            mlx5dv_devx_obj_modify(self.0.as_ptr(), input, command.len(), output, reply.len())
        };
        assert_eq!(result, 0, "{reply:02x?}");
    }

    fn destroy(&self) {
        // SAFETY: it is not used again.
        assert_eq!(unsafe { mlx5dv_devx_obj_destroy(self.0.as_ptr()) }, 0);
    }
}

/// Positions of the queues below in their memory.
const RECORDS: usize = 0x0;
const CQES: usize = 0x1000;
const BLOCKS: usize = 0x2000;

/// A CQ of 16 and a queue pair with a send queue of 16 blocks, by command, in RTS.
struct Queues {
    memory: &'static [AtomicU64; 0x600],
    uar: NonNull<mlx5dv_devx_uar>,
    cq: Object,
    cqn: u32,
    qp: Object,
    qpn: u32,
    posted: AtomicU32,
}

impl Queues {
    fn new(device: &Device) -> Self {
        #[repr(align(4096))]
        struct Memory([AtomicU64; 0x600]);
        let memory = Box::leak(Box::new(Memory([const { AtomicU64::new(0) }; 0x600])));
        let memory = &memory.0;
        let context = device.context.as_ptr();
        let mut eqn = 0;
        let mut pd = mlx5dv_pd { pdn: 0, comp_mask: 0 };
        // SAFETY: the context is open. The memory is never freed, and the structures outlive the
        // calls.
        let (umem, uar) = unsafe {
            assert_eq!(mlx5dv_devx_query_eqn(context, 0, &mut eqn), 0);
            let mut object: mlx5dv_obj = std::mem::zeroed();
            object.pd.in_ = device.pd.as_ptr();
            object.pd.out = &mut pd;
            assert_eq!(mlx5dv_init_obj(&mut object, MLX5DV_OBJ_PD.into()), 0);
            let start = memory.as_ptr().cast_mut().cast();
            let umem = mlx5dv_devx_umem_reg(context, start, size_of_val(memory), 1);
            (
                (*NonNull::new(umem).expect("umem").as_ptr()).umem_id,
                NonNull::new(mlx5dv_devx_alloc_uar(context, 0)).expect("uar"),
            )
        };
        // SAFETY: the register page lives.
        let page: u64 = unsafe { uar.as_ref() }.page_id.into();
        let set = |command: &mut [u8], outer: Field, fields: &[(Field, u64)]| {
            for (field, value) in fields {
                field.within(outer).set(command, *value);
            }
        };
        let mut command = [0; create_cq_in::SIZE];
        create_cq_in::OPCODE.set(&mut command, opcode::CREATE_CQ.into());
        create_cq_in::CQ_UMEM_ID.set(&mut command, umem.into());
        create_cq_in::CQ_UMEM_OFFSET.set(&mut command, CQES as u64);
        set(
            &mut command,
            create_cq_in::CQ_CONTEXT,
            &[
                (cqc::LOG_CQ_SIZE, 4),
                (cqc::UAR_PAGE, page),
                (cqc::C_EQN_OR_APU_ELEMENT, eqn.into()),
                (cqc::DBR_UMEM_ID, umem.into()),
                (cqc::DBR_ADDR, RECORDS as u64 + 8),
            ],
        );
        let mut reply = [0; create_cq_out::SIZE];
        let cq = Object::new(device, &command, &mut reply);
        let cqn = create_cq_out::CQN.get(&reply);
        let mut command = [0; create_qp_in::SIZE];
        create_qp_in::OPCODE.set(&mut command, opcode::CREATE_QP.into());
        create_qp_in::WQ_UMEM_ID.set(&mut command, umem.into());
        create_qp_in::WQ_UMEM_OFFSET.set(&mut command, BLOCKS as u64);
        set(
            &mut command,
            create_qp_in::QPC,
            &[
                (qpc::PM_STATE, 3),
                (qpc::PD, pd.pdn.into()),
                (qpc::UAR_PAGE, page),
                (qpc::CQN_SND, cqn),
                (qpc::CQN_RCV, cqn),
                // No receive queue.
                (qpc::RQ_TYPE, 3),
                (qpc::LOG_SQ_SIZE, 4),
                (qpc::DBR_UMEM_ID, umem.into()),
                (qpc::DBR_ADDR, RECORDS as u64),
            ],
        );
        let mut reply = [0; create_qp_out::SIZE];
        let qp = Object::new(device, &command, &mut reply);
        let qpn = create_qp_out::QPN.get(&reply);
        for step in [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP] {
            let mut command = [0; rst2init_qp_in::SIZE];
            rst2init_qp_in::OPCODE.set(&mut command, step.into());
            rst2init_qp_in::QPN.set(&mut command, qpn);
            set(
                &mut command,
                rst2init_qp_in::QPC,
                &[
                    (qpc::PM_STATE, 3),
                    (qpc::MTU, 3),
                    (qpc::LOG_MSG_MAX, 20),
                    (qpc::REMOTE_QPN, qpn),
                    (ads::VHCA_PORT_NUM.within(qpc::PRIMARY_ADDRESS_PATH), 1),
                    (ads::RLID.within(qpc::PRIMARY_ADDRESS_PATH), device.port().lid.into()),
                ],
            );
            qp.modify(&command);
        }
        let posted = AtomicU32::new(0);
        Self { memory, uar, cq, cqn: cqn as u32, qp, qpn: qpn as u32, posted }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.memory[at / 8]
    }

    /// Posts a signaled WQE of a ctrl segment alone: 0 is NOP.
    fn post(&self, opcode: u8) {
        let index = self.posted.fetch_add(1, Ordering::Relaxed);
        let ctrl = u64::from(index & 0xffff) << 40 | u64::from(opcode) << 32;
        let ctrl = (ctrl | u64::from(self.qpn) << 8 | 1).to_be();
        let block = BLOCKS + (index as usize % 16) * 64;
        self.word(block).store(ctrl, Ordering::Release);
        self.word(block + 8).store((8u64 << 32).to_be(), Ordering::Release);
        let record = u64::from((index + 1) & 0xffff).to_be();
        self.word(RECORDS).store(record, Ordering::Release);
        // SAFETY: the doorbell register of a page that lives.
        unsafe { self.uar.as_ref().base_addr.cast::<u64>().add(0x800 / 8).write_volatile(ctrl) };
    }

    /// Asks for the event of the next completion.
    fn arm(&self, sequence: u32, consumer: u32) {
        let word = u64::from(sequence & 3) << 28 | u64::from(consumer);
        let record = (u64::from(consumer) << 32 | word).to_be();
        self.word(RECORDS + 8).store(record, Ordering::Release);
        let arm = (word << 32 | u64::from(self.cqn)).to_be();
        // SAFETY: the arm register of a page that lives.
        unsafe { self.uar.as_ref().base_addr.cast::<u64>().add(0x20 / 8).write_volatile(arm) };
    }
}

/// The source of an event, by type.
fn event(bytes: &[u8]) -> (u8, u32) {
    let (kind, data) = (eqe::EVENT_TYPE.get(bytes) as u8, &bytes[eqe::EVENT_DATA.bytes()]);
    let number = match kind {
        event_type::COMP => comp_event::CQ_NUMBER.get(data),
        event_type::CQ_ERROR => cq_error::CQN.get(data),
        _ => qp_events::QPN_RQN_SQN.get(data),
    };
    (kind, number as u32)
}

#[test]
fn completions_of_an_armed_cq_are_events() {
    let device = Device::open(0);
    let (one, other) = (Queues::new(&device), Queues::new(&device));
    let channel = Channel::new(&device, false);
    let bare = Channel::new(&device, true);
    bare.do_not_wait();
    assert_eq!(channel.subscribe(one.cq.0.as_ptr(), &[0], 11), 0);
    assert_eq!(channel.subscribe(other.cq.0.as_ptr(), &[0], 22), 0);
    assert_eq!(bare.subscribe(other.cq.0.as_ptr(), &[0], 33), 0);
    one.post(0);
    assert!(!channel.is_readable(), "nobody asked for it");
    one.arm(0, 0);
    let (cookie, bytes) = channel.read(WHOLE).unwrap();
    assert_eq!((cookie, event(&bytes)), (11, (0, one.cqn)));
    other.arm(0, 0);
    assert!(!channel.is_readable());
    other.post(0);
    other.post(0);
    let (cookie, bytes) = channel.read(WHOLE).unwrap();
    assert_eq!((cookie, event(&bytes)), (22, (0, other.cqn)));
    assert!(!channel.is_readable(), "once per arm");
    assert_eq!(bare.read(8), Ok((33, vec![])));
    assert_eq!(bare.read(8), Err(libc::EAGAIN));
    // An event that was not read outlives its object; the object can go meanwhile.
    other.arm(1, 2);
    other.post(0);
    other.qp.destroy();
    other.cq.destroy();
    assert_eq!(bare.read(8), Ok((33, vec![])));
    assert_eq!(channel.read(WHOLE).unwrap().0, 22);
    // The next queue with that number does not report there.
    let next = Queues::new(&device);
    next.arm(0, 0);
    next.post(0);
    channel.do_not_wait();
    assert_eq!(channel.read(WHOLE), Err(libc::EAGAIN));
    // No queue reports when the channel is closed.
    channel.close();
    one.arm(1, 1);
    one.post(0);
}

#[test]
fn an_overrun_is_an_event_of_the_cq_and_of_its_queue_pair() {
    let device = Device::open(0);
    let (queues, bystander) = (Queues::new(&device), Queues::new(&device));
    let channel = Channel::new(&device, false);
    channel.do_not_wait();
    let (failure, catastrophe) = (event_type::CQ_ERROR, event_type::WQ_CATAS_ERROR);
    let both = [u16::from(failure), u16::from(catastrophe)];
    for (object, cookie) in
        [(&queues.cq, 1), (&queues.qp, 2), (&bystander.cq, 3), (&bystander.qp, 4)]
    {
        assert_eq!(channel.subscribe(object.0.as_ptr(), &both, cookie), 0);
    }
    // Nothing is taken of sixteen entries.
    for _ in 0..17 {
        queues.post(0);
    }
    let (cookie, bytes) = channel.read(WHOLE).unwrap();
    assert_eq!((cookie, event(&bytes)), (1, (failure, queues.cqn)));
    let data = &bytes[eqe::EVENT_DATA.bytes()];
    assert_eq!(cq_error::SYNDROME.get(data), 1);
    let (cookie, bytes) = channel.read(WHOLE).unwrap();
    assert_eq!((cookie, event(&bytes)), (2, (catastrophe, queues.qpn)));
    assert_eq!(channel.read(WHOLE), Err(libc::EAGAIN));
    channel.close();
}
