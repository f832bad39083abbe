//! The model linked into a program without preloading: libibverbs finds it, and every store to a
//! register is seen in order.

mod verbs;

use std::ffi::{CStr, c_void};
use std::mem::zeroed;
use std::process::{Command, ExitStatus};
use std::ptr::{null_mut, without_provenance_mut};

use mlx5_model::stores;
#[cfg(target_arch = "x86_64")]
use mlx5_sys::dv::{mlx5dv_devx_alloc_uar, mlx5dv_devx_free_uar};
use mlx5_sys::verbs::*;
use verbs::{Device, LIMIT, connected, devices, errno};

#[test]
fn a_device_is_found_with_nothing_preloaded() {
    assert!(mlx5_model::offered());
    assert!(devices().contains(&"mlx5_0".to_string()), "{:?}", devices());
}

#[test]
fn the_device_says_that_it_is_a_model() {
    let board = std::fs::read_to_string("/sys/class/infiniband/mlx5_0/board_id").unwrap();
    assert_eq!(board.trim(), "MLX5-MODEL");
    let real = std::fs::canonicalize("/sys/class/infiniband/mlx5_0").unwrap();
    let real = real.to_str().unwrap();
    assert!(real.starts_with("/sys/devices/") && real.ends_with("/infiniband/mlx5_0"), "{real}");
    assert!(std::fs::metadata("/sys/class/infiniband/mlx5_99").is_err());
}

#[test]
fn capabilities_and_port_are_those_of_a_card() {
    let device = Device::open(0);
    // SAFETY: all zero is a valid attribute structure, which the call fills.
    let attributes = unsafe {
        let mut attributes: ibv_device_attr = zeroed();
        assert_eq!(ibv_query_device(device.context.as_ptr(), &mut attributes), 0);
        attributes
    };
    assert_eq!(attributes.vendor_id, 0x2c9);
    assert!(attributes.max_qp > 1000 && attributes.max_sge >= 16 && attributes.max_cqe > 1000);
    let port = device.port();
    assert_eq!(port.state, ibv_port_state::IBV_PORT_ACTIVE);
    assert_eq!((port.lid, port.active_mtu), (1, ibv_mtu::IBV_MTU_4096));
    // SAFETY: all zero is a valid GID, which the call fills.
    unsafe {
        let mut gid: ibv_gid = zeroed();
        assert_eq!(ibv_query_gid(device.context.as_ptr(), 1, 0, &mut gid), 0);
        assert_eq!(gid.raw[..2], [0xfe, 0x80]);
        let mut pkey = 0;
        assert_eq!(ibv_query_pkey(device.context.as_ptr(), 1, 0, &mut pkey), 0);
        assert_eq!(pkey, 0xffff);
        let mut none: ibv_port_attr = zeroed();
        assert_ne!(___ibv_query_port(device.context.as_ptr(), 2, &mut none), 0);
    }
    device.close();
}

#[test]
fn registration_fails_as_pinning_would() {
    let device = Device::open(0);
    // Far from where the kernel puts mappings, so that no other thread maps the page behind it.
    let alone: *mut c_void = without_provenance_mut(0x2000_0000_0000);
    // SAFETY: a page of its own that is unmapped at the end; the failing calls keep nothing.
    unsafe {
        let page = libc::mmap(
            alone,
            4096,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(page, alone);
        let write = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
        let register = |length, access| {
            let mr = ibv_reg_mr(device.pd.as_ptr(), page, length, access);
            if mr.is_null() {
                return Err(errno());
            }
            assert_eq!(ibv_dereg_mr(mr), 0);
            Ok(())
        };
        assert_eq!(register(4096, 0), Ok(()));
        assert_eq!(register(4096, write), Err(libc::EFAULT), "a page that is read-only");
        assert_eq!(register(8192, 0), Err(libc::EFAULT), "a page that is not there");
        assert_eq!(register(0, 0), Err(libc::EINVAL));
        let remote = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 as i32;
        assert_eq!(register(4096, remote), Err(libc::EINVAL), "remote without local write");
        libc::munmap(page, 4096);
    }
    device.close();
}

#[test]
fn objects_in_use_stay() {
    let device = Device::open(0);
    let qp = device.qp();
    // SAFETY: the objects live. Every destruction is refused except the window's, which is unused.
    unsafe {
        assert_eq!(ibv_dealloc_pd(device.pd.as_ptr()), libc::EBUSY);
        assert_eq!(ibv_destroy_cq(device.cq.as_ptr()), libc::EBUSY);
        let window = ibv_alloc_mw(device.pd.as_ptr(), ibv_mw_type::IBV_MW_TYPE_2);
        let window = window.expect("the provider has windows");
        assert!(!window.is_null());
        qp.destroy();
        assert_eq!(ibv_dealloc_pd(device.pd.as_ptr()), libc::EBUSY);
        assert_eq!(ibv_dealloc_mw(window), 0);
    }
    device.close();
}

#[test]
fn a_transition_that_skips_a_state_is_refused() {
    let device = Device::open(0);
    let qp = device.qp();
    // SAFETY: all zero is a valid attribute structure.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
    assert_eq!(qp.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), libc::EINVAL);
    qp.destroy();
    device.close();
}

#[test]
fn an_xrc_initiator_has_no_receives() {
    let device = Device::open(0);
    let create = |receives: u32| {
        // SAFETY: all zeros are valid attributes, which are filled; the objects live.
        let qp = unsafe {
            let cq = ibv_create_cq(device.context.as_ptr(), 16, null_mut(), null_mut(), 0);
            let mut attributes: ibv_qp_init_attr = zeroed();
            (attributes.send_cq, attributes.recv_cq) = (cq, cq);
            attributes.qp_type = ibv_qp_type::IBV_QPT_XRC_SEND;
            (attributes.cap.max_send_wr, attributes.cap.max_send_sge) = (1, 1);
            (attributes.cap.max_recv_wr, attributes.cap.max_recv_sge) = (receives, receives);
            ibv_create_qp(device.pd.as_ptr(), &mut attributes)
        };
        if qp.is_null() { errno() } else { 0 }
    };
    assert_eq!([create(0), create(1)], [0, libc::EINVAL]);
}

#[test]
fn a_queue_pair_says_what_it_was_told() {
    let device = Device::open(0);
    let (one, other) = connected(&device);
    // SAFETY: all zero is valid for both structures, which the call fills.
    unsafe {
        let mut attr: ibv_qp_attr = zeroed();
        let mut init: ibv_qp_init_attr = zeroed();
        assert_eq!(ibv_query_qp(one.0.as_ptr(), &mut attr, (1 << 21) - 1, &mut init), 0);
        assert_eq!(attr.qp_state, ibv_qp_state::IBV_QPS_RTS);
        assert_eq!(attr.dest_qp_num, other.number());
        assert_eq!(attr.path_mtu, ibv_mtu::IBV_MTU_1024);
        assert_eq!((attr.retry_cnt, attr.rnr_retry, attr.timeout), (7, 7, 14));
        assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
        assert_eq!((attr.ah_attr.dlid, attr.min_rnr_timer), (1, 12));
        assert_eq!(attr.qp_access_flags & 0xe, 0xe);
        assert_eq!(init.sq_sig_all, 1);
    }
    one.destroy();
    other.destroy();
    device.close();
}

#[test]
fn a_message_is_there_when_the_doorbell_returns_and_its_stores_are_seen() {
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from = vec![0x5a; 4096];
    let mut to = vec![0; 4096];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    other.receive(7, target, 4096);
    let recording = stores::record();
    stores::take();
    one.send(8, source, 100, ibv_send_flags(0));
    let seen = stores::take();
    drop(recording);

    // Inside one process everything happened inside the store.
    let mut ids: Vec<u64> =
        (0..2).map(|_| device.poll_now().expect("a completion").wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8]);
    assert_eq!(to[..100], from[..100]);
    assert_eq!(to[100], 0);

    // The store is the first eight bytes of the control segment: SEND, and the queue's number.
    // Other tests of this process ring their own queues.
    let number = one.number();
    let doorbells: Vec<_> = seen
        .iter()
        .filter(|store| {
            store.bytes.len() >= 8
                && store.offset >= 0x800
                && u32::from_be_bytes(store.bytes[4..8].try_into().unwrap()) >> 8 == number
        })
        .collect();
    assert_eq!(doorbells.len(), 1, "{seen:?}");
    assert_eq!(doorbells[0].bytes[3], 0x0a, "{doorbells:?}");
    assert!(matches!(doorbells[0].offset, 0x800 | 0xa00), "{doorbells:?}");

    one.destroy();
    other.destroy();
    // SAFETY: each region is deregistered once, and the memory still lives.
    unsafe {
        assert_eq!(ibv_dereg_mr(source.as_ptr()), 0);
        assert_eq!(ibv_dereg_mr(target.as_ptr()), 0);
    }
    device.close();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn atomic_and_masked_stores_reach_the_register_and_loads_see_them() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    let device = Device::open(0);
    // SAFETY: the context is open.
    let uar = unsafe { mlx5dv_devx_alloc_uar(device.context.as_ptr(), 0) };
    assert!(!uar.is_null());
    // SAFETY: the registers have more bytes, and are mapped until the UAR is freed.
    let register = unsafe { &*(*uar).reg_addr.cast::<[AtomicU64; 4]>() };
    let loaded = || [0, 1, 2, 3].map(|word: usize| register[word].load(SeqCst));
    assert_eq!(loaded(), [0; 4]);
    // XCHG.
    register[0].store(1 << 40, SeqCst);
    assert_eq!(register[0].swap(2, SeqCst), 1 << 40);
    // LOCK OR, and LOCK XADD.
    register[0].fetch_or(4, SeqCst);
    assert_eq!(register[0].fetch_add(1, SeqCst), 6);
    assert_eq!(loaded(), [7, 0, 0, 0]);
    if is_x86_feature_detected!("avx2") {
        let (mask, values) = ([0, u64::MAX, 0, u64::MAX], [8_u64, 9, 10, 11]);
        // SAFETY: the store is to the register, and the loads are from the two arrays.
        unsafe {
            std::arch::asm!(
                "vmovdqu ymm3, [{mask}]",
                "vmovdqu ymm4, [{values}]",
                "vpmaskmovq [{register}], ymm3, ymm4",
                "vzeroupper",
                mask = in(reg) mask.as_ptr(),
                values = in(reg) values.as_ptr(),
                register = in(reg) register.as_ptr(),
                out("ymm3") _,
                out("ymm4") _,
            );
        }
        assert_eq!(loaded(), [7, 9, 0, 11]);
    }
    // SAFETY: the UAR is freed once, and its registers are not used any more.
    unsafe { mlx5dv_devx_free_uar(uar) };
    device.close();
}

#[test]
fn an_inline_request_reaches_the_blueflame_register_whole() {
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from: Vec<u8> = (0..64).collect();
    let mut to = vec![0; 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    for turn in 0..3 {
        other.receive(turn, target, 64);
        let recording = stores::record();
        stores::take();
        one.send(turn, source, 32, ibv_send_flags::IBV_SEND_INLINE);
        let seen = stores::take();
        drop(recording);
        assert!(device.poll_now().is_some() && device.poll_now().is_some());
        let mut page = vec![0u8; 4096];
        let number = one.number();
        let first = seen
            .iter()
            .find(|store| {
                store.bytes.len() >= 8
                    && u32::from_be_bytes(store.bytes[4..8].try_into().unwrap()) >> 8 == number
            })
            .expect("a doorbell");
        for store in seen.iter().filter(|store| store.uar == first.uar) {
            page[store.offset..store.offset + store.bytes.len()].copy_from_slice(&store.bytes);
        }
        // Control segment, inline header, then the payload.
        assert_eq!(page[first.offset + 16..first.offset + 20], 0x8000_0020u32.to_be_bytes());
        assert_eq!(page[first.offset + 20..first.offset + 52], from[..32]);
        // The halves of the register are used in turn.
        assert_eq!(first.offset & 0x100 != 0, turn % 2 == 1, "{seen:?}");
    }
    assert_eq!(to[..32], from[..32]);
    one.destroy();
    other.destroy();
    // SAFETY: each region is deregistered once, and the memory still lives.
    unsafe {
        assert_eq!(ibv_dereg_mr(source.as_ptr()), 0);
        assert_eq!(ibv_dereg_mr(target.as_ptr()), 0);
    }
    device.close();
}

#[test]
fn events_wake_a_program_and_unread_ones_vanish_with_their_queue() {
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from = vec![1; 64];
    let mut to = vec![0; 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    // SAFETY: the objects live; the pointers are filled by the calls.
    unsafe {
        assert_eq!(ibv_req_notify_cq(device.cq.as_ptr(), 0), 0);
        let mut wait =
            libc::pollfd { fd: device.channel.as_ref().fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut wait, 1, 0), 0, "an event before there was a completion");
        other.receive(1, target, 64);
        one.send(2, source, 8, ibv_send_flags(0));
        assert_eq!(libc::poll(&mut wait, 1, LIMIT.as_millis() as i32), 1);
        let (mut cq, mut argument) = (null_mut(), null_mut());
        assert_eq!(ibv_get_cq_event(device.channel.as_ptr(), &mut cq, &mut argument), 0);
        assert_eq!(cq, device.cq.as_ptr());
        ibv_ack_cq_events(cq, 1);
        assert!(device.poll_now().is_some() && device.poll_now().is_some());
        // Another event, which is never read: destroying the queue would wait for it for ever.
        assert_eq!(ibv_req_notify_cq(device.cq.as_ptr(), 0), 0);
        other.receive(3, target, 64);
        one.send(4, source, 8, ibv_send_flags(0));
        assert_eq!(libc::poll(&mut wait, 1, LIMIT.as_millis() as i32), 1);
    }
    one.destroy();
    other.destroy();
    // SAFETY: each region is deregistered once, and the memory still lives.
    unsafe {
        assert_eq!(ibv_dereg_mr(source.as_ptr()), 0);
        assert_eq!(ibv_dereg_mr(target.as_ptr()), 0);
    }
    device.close();
}

#[test]
fn a_requests_error_becomes_a_completion_and_an_async_event() {
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from = vec![1; 64];
    let source = device.register(&mut from);
    // SAFETY: all zero is a valid request; the objects live.
    unsafe {
        let mut sge = ibv_sge { addr: from.as_ptr() as u64, length: 8, lkey: source.as_ref().lkey };
        let mut request: ibv_send_wr = zeroed();
        request.wr_id = 5;
        request.sg_list = &mut sge;
        request.num_sge = 1;
        request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        request.wr.rdma.remote_addr = from.as_ptr() as u64;
        request.wr.rdma.rkey = 0x00dead00;
        let mut bad = null_mut();
        assert_eq!(ibv_post_send(one.0.as_ptr(), &mut request, &mut bad), 0);
        let completion = device.poll();
        assert_eq!(completion.status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
        let mut event: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(device.context.as_ptr(), &mut event), 0);
        assert_eq!(event.event_type, ibv_event_type::IBV_EVENT_QP_ACCESS_ERR);
        assert_eq!(event.element.qp, other.0.as_ptr());
        ibv_ack_async_event(&mut event);
    }
    one.destroy();
    other.destroy();
    // SAFETY: the region is deregistered once, and the memory still lives.
    unsafe { assert_eq!(ibv_dereg_mr(source.as_ptr()), 0) };
    device.close();
}

/// Runs a test in a process of its own, and returns how that ended. Returns `None` in that process.
fn status_alone(test: &str) -> Option<ExitStatus> {
    const MARK: &str = "MLX5_MODEL_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    Some(command.args(["--exact", test]).env(MARK, "1").status().unwrap())
}

#[test]
fn a_child_of_a_fork_starts_over() {
    // The child calls libibverbs, whose lock another test may hold at the fork.
    if let Some(status) = status_alone("a_child_of_a_fork_starts_over") {
        return assert!(status.success(), "{status:?}");
    }
    let device = Device::open(0);
    // SAFETY: the context lives.
    let fd = unsafe { device.context.as_ref() }.cmd_fd;
    // SAFETY: the child only looks, opens, and leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // What the parent has open is a device to the child, too, which looks at the request; one of
        // its own is.
        // SAFETY: the request is not there, which is found out as the kernel would.
        let theirs = unsafe { libc::ioctl(fd, 0xc018_1b01, null_mut::<u8>()) } == -1
            && errno() == libc::EFAULT;
        let own = Device::open(0);
        let (one, other) = connected(&own);
        let mut from = vec![3; 64];
        let mut to = vec![0; 64];
        let (source, target) = (own.register(&mut from), own.register(&mut to));
        other.receive(1, target, 64);
        one.send(2, source, 8, ibv_send_flags(0));
        let passed = own.poll_now().is_some() && own.poll_now().is_some() && to[..8] == from[..8];
        // SAFETY: ends the child without running what is the parent's.
        unsafe { libc::_exit(if theirs && passed { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's; the status is filled.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    // The parent's goes on.
    let qp = device.qp();
    qp.destroy();
    device.close();
}

#[test]
fn a_program_that_breaks_for_itself_still_gets_its_own_signal() {
    let test = "a_program_that_breaks_for_itself_still_gets_its_own_signal";
    let Some(status) = status_alone(test) else {
        let device = Device::open(0);
        extern "C" fn handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
            // SAFETY: the kernel gives the information; leaving is async-signal-safe.
            unsafe { libc::_exit(if (*info).si_addr() as usize == 0x10 { 42 } else { 43 }) };
        }
        // SAFETY: all zero is a valid sigaction; the handler has the type that SA_SIGINFO names.
        // The store is meant to fault.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = handler as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, null_mut()), 0);
            // Doorbells still work under the program's handler, and with everything blocked: then
            // the card's thread may execute them, so completions are waited for.
            let mut all: libc::sigset_t = zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, null_mut());
            let (one, other) = connected(&device);
            let mut memory = vec![3; 64];
            let mr = device.register(&mut memory);
            other.receive(1, mr, 64);
            one.send(2, mr, 8, ibv_send_flags(0));
            let (first, second) = (device.poll(), device.poll());
            assert_eq!((first.wr_id + second.wr_id, first.status), (3, second.status));
            std::hint::black_box(0x10 as *mut u8).write_volatile(1);
        }
        unreachable!("the store faults");
    };
    assert_eq!(status.code(), Some(42), "{status:?}");
}

#[test]
fn a_name_is_read_through_c() {
    let device = Device::open(0);
    // SAFETY: the context lives; the name is the library's.
    let name = unsafe { CStr::from_ptr(ibv_get_device_name(device.context.as_ref().device)) };
    assert_eq!(name, c"mlx5_0");
    device.close();
}

#[test]
fn addresses_of_an_infiniband_port_cannot_be_set() {
    let device = Device::open(0);
    let refused = mlx5_model::set_addresses(0, &[]).unwrap_err();
    assert_eq!(refused, mlx5_model::FixedAddresses::InfiniBand);
    assert!(refused.to_string().contains("MLX5_MODEL_LINK=roce"));
    assert_eq!(mlx5_model::set_addresses(9, &[]), Ok(false));
    device.close();
}
