//! The kernel's request for dma-bufs of UARs and device memory: its refusals, writes of a device to a page of
//! registers, and the end of the page.

mod support;

use std::io;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;
use mlx5_model::stores;
use mlx5_sys::verbs::*;
use support::request::{NOBODY, PAGE, attribute, call, make};
use support::verbs::{ACCESS, Device, Done, Station, connect};

/// `UVERBS_OBJECT_DMABUF`
const DMABUF: u16 = 18;
/// `MLX5_IB_OBJECT_UAR`
const UAR: u16 = 0x1008;

/// Pages of freed UARs are used again, and stores are recorded for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A UAR of an open device.
struct Uar {
    handle: u64,
    offset: u64,
    number: u32,
}

fn file(device: Device) -> c_int {
    // SAFETY: the context is open.
    unsafe { (*device.context).cmd_fd }
}

/// Allocates a non-cached UAR.
fn allocate(device: Device) -> Uar {
    let (mut offset, mut length, mut number) = (0u64, 0u32, 0u32);
    let given = [
        attribute(0x1000, 0, 0),
        attribute(0x1001, 1, 1),
        attribute(0x1002, 8, (&raw mut offset) as u64),
        attribute(0x1003, 4, (&raw mut length) as u64),
        attribute(0x1004, 4, (&raw mut number) as u64),
    ];
    let handle = make(file(device), UAR, 0x1000, &given).unwrap();
    Uar { handle, offset, number }
}

fn free(device: Device, uar: &Uar) {
    call(file(device), UAR, 0x1001, &[attribute(0x1000, 0, uar.handle)]).unwrap();
}

/// Exports what is mapped at an offset.
fn export(device: Device, offset: u64) -> Result<c_int, c_int> {
    let given = [attribute(0, 0, 0), attribute(1, 8, offset)];
    make(file(device), DMABUF, 0, &given).map(|fd| fd as c_int)
}

fn close(fd: c_int) {
    // SAFETY: the descriptor is one of this test, which does not use it again.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// Registers a page of registers; the errno if it is refused.
fn register(station: &Station, fd: c_int) -> Result<*mut ibv_mr, c_int> {
    // SAFETY: the domain lives, and no reference covers the page.
    let mr = unsafe { ibv_reg_dmabuf_mr(station.pd, 0, PAGE, 0, fd, ACCESS as c_int) };
    if mr.is_null() { Err(support::request::errno()) } else { Ok(mr) }
}

#[test]
fn only_mapped_objects_of_the_open_device_are_exported() {
    let _alone = alone();
    let (device, other) = (Device::open(0), Device::open(0));
    let uar = allocate(device);
    let fd = export(device, uar.offset).unwrap();
    close(fd);
    // Linux drops the place in the page.
    close(export(device, uar.offset + 8).unwrap());
    let theirs = allocate(other);
    let clock = 5u64 << 8;
    let memory = 8u64 << 8;
    for offset in [0, 1, clock, memory].map(|page| page * PAGE as u64) {
        assert_eq!(export(device, offset), Err(libc::EINVAL), "{offset:#x}");
    }
    for offset in [theirs.offset, NOBODY, u64::MAX] {
        assert_eq!(export(device, offset), Err(libc::EINVAL), "{offset:#x}");
    }
    let request = |given: &[_]| call(file(device), DMABUF, 0, given);
    assert_eq!(request(&[attribute(0, 0, 0)]), Err(libc::EINVAL));
    assert_eq!(request(&[attribute(1, 8, uar.offset)]), Err(libc::EINVAL));
    assert_eq!(request(&[attribute(0, 0, 0), attribute(1, 4, 0)]), Err(libc::EINVAL));
    assert_eq!(call(file(device), DMABUF, 1, &[]), Err(libc::EPROTONOSUPPORT));
    free(device, &uar);
    assert_eq!(export(device, uar.offset), Err(libc::EINVAL));
    free(other, &theirs);
    other.close();
    device.close();
}

/// Has one station write to the page. Returns how the request ends.
fn write(station: &Station, id: u64, length: usize, to: (u64, u32)) -> Done {
    station.put(0, &vec![0x11; length]);
    assert_eq!(station.try_post(ibv_wr_opcode::IBV_WR_RDMA_WRITE, id, 0, length, to), 0);
    station.wait()
}

#[test]
fn a_write_of_a_device_is_stores_until_the_page_is_freed() {
    let _alone = alone();
    let device = Device::open(0);
    let (one, peer) = (Station::new(device), Station::new(device));
    connect(&one, &peer);
    let uar = allocate(device);
    let fd = export(device, uar.offset).unwrap();
    let mr = register(&peer, fd).unwrap();
    // SAFETY: the region was just registered.
    let key = unsafe { (*mr).rkey };
    let recording = stores::record();
    // Words, and pieces of 64 bytes where WQEs are copied to.
    for (to, length, pieces) in [
        (0x800, 8, &[(0x800, 8)][..]),
        (0x20, 12, &[(0x20, 8), (0x28, 4)]),
        (0x7f8, 80, &[(0x7f8, 8), (0x800, 64), (0x840, 8)]),
        (0x804, 4, &[(0x804, 4)]),
        (0x83c, 8, &[(0x83c, 4), (0x840, 4)]),
    ] {
        stores::take();
        let done = write(&one, to, length, (to, key));
        assert_eq!((done.id, done.status), (to, ibv_wc_status::IBV_WC_SUCCESS));
        let made: Vec<_> =
            stores::take().into_iter().filter(|store| store.uar == uar.number).collect();
        let places: Vec<_> = made.iter().map(|it| (it.offset, it.bytes.len())).collect();
        assert_eq!(places, pieces, "{to:#x}");
        assert!(made.iter().all(|store| store.bytes.iter().all(|byte| *byte == 0x11)));
    }
    // A device reads what it has stored.
    let read = one.try_post(ibv_wr_opcode::IBV_WR_RDMA_READ, 7, 64, 8, (0x800, key));
    assert_eq!((read, one.wait().status), (0, ibv_wc_status::IBV_WC_SUCCESS));
    assert_eq!(one.get(64, 8), [0x11; 8]);
    // More than the page has.
    let refused = write(&one, 8, 8, (PAGE as u64 - 4, key));
    assert_eq!(refused.status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);

    connect(&one, &peer);
    stores::take();
    free(device, &uar);
    // The page is another UAR's now, which the old key does not reach.
    let next = allocate(device);
    assert_eq!(next.offset, uar.offset);
    let refused = write(&one, 9, 8, (0x800, key));
    assert_eq!(refused.status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    assert!(stores::take().iter().all(|store| store.uar != next.number));
    assert_eq!(register(&peer, fd), Err(libc::ENODEV));
    drop(recording);
    close(fd);
    // SAFETY: the region is deregistered once, and nothing uses it.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    free(device, &next);
    one.destroy();
    peer.destroy();
    device.close();
}

#[test]
fn a_process_that_does_not_know_the_page_cannot_register_it() {
    let _alone = alone();
    let device = Device::open(0);
    let uar = allocate(device);
    let fd = export(device, uar.offset).unwrap();
    // SAFETY: the child makes system calls alone, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place.
        let at = unsafe { libc::mmap(null_mut(), PAGE, protection, libc::MAP_SHARED, fd, 0) };
        // SAFETY: `_exit` passes no memory.
        unsafe { libc::_exit(c_int::from(at != libc::MAP_FAILED)) };
    }
    let mut status = 0;
    // SAFETY: the call writes one int, `status`.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((ended, status), (child, 0), "{}", io::Error::last_os_error());
    close(fd);
    free(device, &uar);
    device.close();
}
