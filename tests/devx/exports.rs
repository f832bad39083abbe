//! UAR pages and device memory as dma-bufs: other devices reach them, until they are freed.
//!
//! Libraries before rdma-core 62 cannot export. There the driver says so, and the tests make the request to
//! the kernel's interface by themselves.

#[path = "exports/request.rs"]
mod request;

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use mlx5::Error;
use mlx5::cqe::{Completion, Status};
use mlx5::devx::{Firmware, Uar, UarKind, Umem};
use mlx5::expert::{EngineHandles, EngineQueue};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendQueue};
use mlx5::verbs::{CompletionQueue, DeviceMemory, DmaBufRegion, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{FetchAdd, Inline, RdmaRead, RdmaWrite, Remote};
use mlx5_model::Mode;
use rig::{Rig, all_rights, until, wait};

use super::ends::{Device, sends};
use request::{page_of_memory, page_of_uar};

const PAGE: usize = 4096;

/// Returns whether the installed library has a function in a version.
fn has(library: &CStr, name: &CStr, version: &CStr) -> bool {
    // SAFETY: all three are C strings. The libraries of rdma-core are open already, and stay open.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        !handle.is_null() && !libc::dlvsym(handle, name.as_ptr(), version.as_ptr()).is_null()
    }
}

/// Returns what the driver has exported, or, where the library cannot, what the kernel's interface gives.
fn taken(
    exported: Result<OwnedFd, Error>,
    is_new: bool,
    otherwise: impl FnOnce() -> io::Result<OwnedFd>,
) -> OwnedFd {
    match exported {
        Ok(page) => {
            assert!(is_new);
            page
        }
        Err(error) => {
            assert!(!is_new, "{error}");
            assert_eq!(error.errno().map(|errno| errno.0), Some(libc::ENOSYS));
            let text = error.to_string();
            assert!(text.contains("export_dmabuf_fd"), "{text}");
            assert!(text.contains("older than rdma-core 62"), "{text}");
            assert!(text.contains("install rdma-core 62 or newer"), "{text}");
            otherwise().unwrap()
        }
    }
}

/// Exports the page of the UAR that all of an opened device share.
fn export(uar: &Uar) -> OwnedFd {
    assert_eq!(uar.kind(), UarKind::NonCached);
    let name = c"mlx5dv_devx_uar_export_dmabuf_fd";
    let is_new = has(c"libmlx5.so.1", name, c"MLX5_1.26");
    taken(uar.export_dmabuf(), is_new, || page_of_uar(uar.context()))
}

fn export_memory(memory: &DeviceMemory) -> OwnedFd {
    let is_new = has(c"libibverbs.so.1", c"ibv_dm_export_dmabuf_fd", c"IBVERBS_1.16");
    taken(memory.export_dmabuf(), is_new, || page_of_memory(memory))
}

/// Registers the page of a UAR.
fn register(pd: &ProtectionDomain, page: &OwnedFd) -> mlx5::Result<DmaBufRegion> {
    // SAFETY: the tests write only to registers of queues that nothing else uses.
    unsafe { pd.register_dmabuf(page.as_fd(), 0, PAGE, 0, all_rights()) }
}

/// A request that does nothing, which an engine has put into the first block of its ring.
fn put_nop(handles: &EngineHandles) {
    let control = [0, handles.qpn << 8 | 1, 8, 0];
    for (index, word) in control.into_iter().enumerate() {
        let place = with_exposed_provenance_mut::<u32>(handles.ring as usize);
        // SAFETY: the first block of a ring that is the engine's alone, which this test plays.
        unsafe { place.add(index).write_volatile(u32::to_be(word)) };
    }
    let record = with_exposed_provenance_mut::<u32>(handles.record as usize);
    // SAFETY: the send word of a record whose queue is the engine's alone.
    unsafe { record.add(1).write_volatile(1u32.to_be()) };
}

/// The opcode of the engine's last completion.
fn opcode(queue: &EngineQueue) -> u8 {
    queue.cqe(0)[63] >> 4
}

#[test]
fn a_device_rings_the_doorbell_of_an_exported_page() {
    for mode in [Mode::Trapped, Mode::Polled] {
        let rig = Rig::new(mode);
        let uar = Uar::new(&rig.context, UarKind::NonCached).unwrap();
        let cq = CompletionQueue::by_command(&rig.context, 1).collapsed().build().unwrap();
        let builder = QueuePair::by_command(&rig.pd, &cq).max_send_wr(16).uar(&uar);
        let qp = rig.looped(rig.init(builder));
        let engine = EngineQueue::new(&qp, &cq).unwrap();
        let handles = engine.handles();
        let offset = uar.dmabuf_offset();
        assert_eq!(uar.register().addr().get() - uar.page().addr().get(), offset);

        let page = export(&uar);
        // SAFETY: the engine's queue is used by this test alone.
        let region = register(&rig.pd, &page).unwrap();
        // The region keeps the dma-buf.
        drop(page);
        put_nop(&handles);
        let others = CompletionQueue::by_command(&rig.context, 64).build().unwrap();
        let ringer = rig.looped(rig.init(QueuePair::by_command(&rig.pd, &others)));
        let mut completions = CqReader::new(&others).unwrap();
        let mut queue = sends(&ringer, &mut completions);
        assert_eq!(opcode(&engine), 0xf, "nothing has rung");
        let doorbell = [0u32, handles.qpn << 8 | 1].map(u32::to_be_bytes).concat();
        let register = Remote::new(offset as u64, region.rkey());
        // SAFETY: the register is that of the engine's queue, whose WQE names no memory.
        unsafe { queue.post(1, RdmaWrite::new(Inline(&doorbell), register).signaled()) }.unwrap();
        assert!(
            matches!(wait(&mut completions, &mut queue), Completion::Send(done) if done.id == 1)
        );
        until(|| (opcode(&engine) == 0).then_some(()));
    }
}

/// Two connected queue pairs: one that is connected to itself flushes what it refuses.
fn connected(device: &Device, cq: &CompletionQueue<Firmware>) -> [QueuePair<Rc, Rts, Firmware>; 2] {
    let [one, other] = [(); 2].map(|()| device.builder(cq).build().unwrap());
    device.connect(one, other)
}

/// The next request fails: nothing answers at its remote address.
#[track_caller]
fn fails(completions: &mut CqReader, queue: &mut SendQueue<Rc>) {
    match wait(completions, queue) {
        Completion::Failed(failure) => assert_eq!(failure.status, Status::RemoteAccess),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_register_takes_no_atomics() {
    let device = Device::new();
    let uar = Uar::new(&device.context, UarKind::NonCached).unwrap();
    let region = register(&device.pd, &export(&uar)).unwrap();
    let cq = device.cq(64);
    let [qp, _peer] = connected(&device, &cq);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    let memory = device.memory(64);
    let register = Remote::new(uar.dmabuf_offset() as u64, region.rkey());
    // SAFETY: the region lives, and the register is rung by nothing.
    unsafe { queue.post(1, FetchAdd::new(memory.word(0).unwrap(), register, 1).signaled()) }
        .unwrap();
    fails(&mut completions, &mut queue);
}

#[test]
fn exported_device_memory_is_reached_until_it_is_freed() {
    let device = Device::new();
    let mut memory = DeviceMemory::allocate(&device.context, 256, 6).unwrap();
    memory.store(8, 7);
    memory.flush();
    let exported = export_memory(&memory);
    let offset = memory.dmabuf_offset();
    // SAFETY: only requests of this test name the memory.
    let registered = unsafe {
        device.pd.register_dmabuf(exported.as_fd(), offset as u64, 256, offset as u64, all_rights())
    };
    let region = registered.unwrap();
    let cq = device.cq(64);
    let [qp, _peer] = connected(&device, &cq);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    let (host, nine) = (device.memory(64), 9u64.to_ne_bytes());
    let done = |completions: &mut CqReader, queue: &mut _| match wait(completions, queue) {
        Completion::Send(done) => done.id,
        other => panic!("{other:?}"),
    };
    // SAFETY: both regions live, and are looked at only after the completions.
    unsafe {
        let read = RdmaRead::new(host.sge(0, 8).unwrap(), region.remote(8).unwrap());
        queue.post(1, read.signaled()).unwrap();
        assert_eq!(done(&mut completions, &mut queue), 1);
        let write = RdmaWrite::new(Inline(&nine), region.remote(16).unwrap());
        queue.post(2, write.signaled()).unwrap();
        assert_eq!(done(&mut completions, &mut queue), 2);
    }
    let mut bytes = [0; 8];
    host.read(0, &mut bytes);
    assert_eq!((u64::from_ne_bytes(bytes), memory.load(16)), (7, 9));

    drop(memory);
    // It is another allocation's now, which the old key does not reach.
    let mut other = DeviceMemory::allocate(&device.context, 256, 6).unwrap();
    other.store(16, 5);
    // SAFETY: the region lives. What is behind it is freed, which is tested here.
    unsafe {
        let write = RdmaWrite::new(Inline(&nine), region.remote(16).unwrap());
        queue.post(3, write.signaled()).unwrap();
    }
    fails(&mut completions, &mut queue);
    assert_eq!(other.load(16), 5);
    // SAFETY: the memory is gone, so no request reaches any.
    let again = unsafe {
        device.pd.register_dmabuf(exported.as_fd(), offset as u64, 256, offset as u64, all_rights())
    };
    assert_eq!(again.unwrap_err().errno().map(|errno| errno.0), Some(libc::ENODEV));
}

#[test]
fn a_page_is_revoked_when_its_device_is_closed() {
    let device = Device::new();
    let closing = Rig::new(Mode::Trapped);
    let uar = Uar::new(&closing.context, UarKind::NonCached).unwrap();
    let page = export(&uar);
    let region = register(&device.pd, &page).unwrap();
    let offset = uar.dmabuf_offset() as u64;
    drop((uar, closing));
    let cq = device.cq(64);
    let [qp, _peer] = connected(&device, &cq);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    let register_of_nobody = Remote::new(offset, region.rkey());
    // SAFETY: the page is gone, so no register is written.
    unsafe {
        queue.post(1, RdmaWrite::new(Inline(&[1; 8]), register_of_nobody).signaled()).unwrap();
    }
    fails(&mut completions, &mut queue);
    let again = register(&device.pd, &page).unwrap_err();
    assert_eq!(again.errno().map(|errno| errno.0), Some(libc::ENODEV), "{again}");
}

#[test]
fn a_processor_cannot_reach_an_exported_page_and_a_umem_not_pin_it() {
    let device = Device::new();
    let uar = Uar::new(&device.context, UarKind::NonCached).unwrap();
    let page = export(&uar);
    let map = |protection| {
        // SAFETY: the kernel chooses the place; nothing is mapped if the call fails, as it must.
        let at = unsafe {
            libc::mmap(null_mut(), PAGE, protection, libc::MAP_SHARED, page.as_raw_fd(), 0)
        };
        assert_eq!(at, libc::MAP_FAILED);
        io::Error::last_os_error().raw_os_error()
    };
    assert_eq!(map(libc::PROT_READ), Some(libc::EINVAL));
    assert_eq!(map(libc::PROT_READ | libc::PROT_WRITE), Some(libc::EINVAL));
    // SAFETY: F_GETFD passes no memory.
    let flags = unsafe { libc::fcntl(page.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags, libc::FD_CLOEXEC);
    // SAFETY: nothing maps the memory.
    let refused = unsafe { Umem::builder(&device.context).dmabuf(page.as_fd(), 0, PAGE) };
    assert_eq!(refused.unwrap_err().errno().map(|errno| errno.0), Some(libc::EOPNOTSUPP));
    // A part that is longer than the dma-buf.
    // SAFETY: nothing is registered.
    let long =
        unsafe { device.pd.register_dmabuf(page.as_fd(), 0, PAGE + 1, 0, Access::LOCAL_WRITE) };
    assert_eq!(long.unwrap_err().errno().map(|errno| errno.0), Some(libc::EINVAL));
    let mut file = File::from(page);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), PAGE as u64);
    let error = file.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}
