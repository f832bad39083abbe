//! Threads of one process that use two devices at the same time, in both directions.

mod support;
mod verbs;

use std::fs::File;
use std::io::BufReader;
use std::process::Command;
use std::ptr::{NonNull, null_mut};

use mlx5_model::replay::replay;
use mlx5_model::trace::Reader;
use mlx5_sys::verbs::*;
use support::role::{Player, play};
use verbs::Device;

const THREADS: usize = 8;
/// The devices of the requester and of the responder.
const WAYS: [[usize; 2]; 4] = [[0, 1], [1, 0], [0, 0], [1, 1]];
const ROUNDS: u64 = 200;

/// Memory that all threads add to, eight bytes aligned to eight, and that every thread writes to.
#[repr(align(64))]
struct Shared([u8; 4096]);

/// Takes the completion of work within the process, which is there when the post has returned.
#[track_caller]
fn take(device: &Device) {
    let completion = device.poll_now().expect("done when the post has returned");
    assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
}

/// Posts a request for eight bytes, whose completion is there at the first poll.
fn request(
    device: &Device,
    qp: &verbs::Qp,
    own: NonNull<ibv_mr>,
    to: u64,
    key: u32,
    opcode: ibv_wr_opcode::Type,
) {
    // SAFETY: all zero is a valid request; queue pair, regions and memory are there until it completes.
    unsafe {
        let (addr, lkey) = (own.as_ref().addr as u64, own.as_ref().lkey);
        let mut sge = ibv_sge { addr, length: 8, lkey };
        let mut request: ibv_send_wr = std::mem::zeroed();
        (request.sg_list, request.num_sge, request.opcode) = (&mut sge, 1, opcode);
        if opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
            request.wr.atomic.remote_addr = to;
            request.wr.atomic.rkey = key;
            request.wr.atomic.compare_add = 1;
        } else {
            request.wr.rdma.remote_addr = to;
            request.wr.rdma.rkey = key;
        }
        let mut bad = null_mut();
        assert_eq!(ibv_post_send(qp.0.as_ptr(), &mut request, &mut bad), 0);
    }
    take(device);
}

/// Has each thread add to a number behind a device, write what it has read, and send a message. Of
/// four threads, two use both devices, in both directions, and two use one device each.
fn exchange() {
    let mut shared = Box::new(Shared([0; 4096]));
    let base = shared.0.as_mut_ptr() as usize;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let [near, far] = WAYS[thread % WAYS.len()].map(Device::open);
                let (one, other) = (near.qp(), far.qp());
                one.connect(far.port().lid, other.number());
                other.connect(near.port().lid, one.number());
                let mut own = vec![0; 8];
                let read = near.register(&mut own);
                let mut message = vec![0; 8];
                let received = far.register(&mut message);
                let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
                // SAFETY: the memory is there until all threads have ended, and until then only
                // devices access it.
                let target =
                    unsafe { ibv_reg_mr(far.pd.as_ptr(), base as *mut _, 4096, access.0 as i32) };
                let target = NonNull::new(target).expect("a region");
                // SAFETY: the region is registered.
                let key = unsafe { target.as_ref() }.rkey;
                let line = (base + 64 * (1 + thread)) as u64;
                for _ in 0..ROUNDS {
                    let add = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
                    request(&near, &one, read, base as u64, key, add);
                    request(&near, &one, read, line, key, ibv_wr_opcode::IBV_WR_RDMA_WRITE);
                    other.receive(0, received, 8);
                    request(&near, &one, read, 0, 0, ibv_wr_opcode::IBV_WR_SEND);
                    take(&far);
                }
                one.destroy();
                other.destroy();
            });
        }
    });
    let number = |at: usize| u64::from_ne_bytes(shared.0[at..at + 8].try_into().unwrap());
    let all = THREADS as u64 * ROUNDS;
    assert_eq!(number(0), all);
    let last = (0..THREADS).map(|thread| number(64 * (1 + thread))).max();
    assert_eq!(last, Some(all - 1), "the last thread to add has written what it read");
}

#[test]
fn role() {
    let exchange = || {
        exchange();
        0
    };
    play(&[("exchange", exchange)]);
}

fn player() -> Command {
    let mut command = Player::command("exchange");
    command.env("MLX5_MODEL", "always").env("MLX5_MODEL_DEVICES", "2");
    // Every request is signaled. libmlx5 would take answers of atomics in CQEs, and copy them as they are
    // there: most significant byte first.
    command.env("MLX5_SCATTER_TO_CQE", "0");
    command
}

#[test]
fn every_request_of_threads_is_executed_once_before_its_post_returns() {
    Player::start(player()).end_well();
}

#[test]
fn recording_of_threads_on_two_devices_is_done_again() {
    let path = std::env::temp_dir().join(format!("mlx5-threads-{}.trace", std::process::id()));
    let mut command = player();
    command.env("MLX5_MODEL_TRACE", &path);
    Player::start(command).end_well();
    let file = File::open(&path).expect("it is there");
    let verdict = replay(&mut Reader::new(BufReader::new(file)).expect("a recording"));
    let _ = std::fs::remove_file(&path);
    let verdict = verdict.expect("a recording");
    assert!(verdict.is_equal() && !verdict.cut, "{verdict:#?}");
    assert_eq!(verdict.cqes, 4 * THREADS as u64 * ROUNDS);
}
