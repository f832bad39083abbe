//! The cost of a queue pair when there are many: processor time for each to create, connect, move
//! to Error and destroy, and the time that idle ones in Error use. Prints the table of
//! docs/model.md.

use std::ptr::null_mut;
use std::time::Duration;

use mlx5_model as _;
use mlx5_sys::verbs::*;

/// The model, whatever card the machine has.
extern "C" fn always() {
    // SAFETY: both are C strings; run before `main`, when there is one thread.
    unsafe { libc::setenv(c"MLX5_MODEL".as_ptr(), c"always".as_ptr(), 1) };
}

// SAFETY: the section is a list of functions of this type, which the loader calls.
#[used]
#[unsafe(link_section = ".init_array")]
static ALWAYS: extern "C" fn() = always;

/// Processor time of all threads of the process.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct outlives the call, which fills it.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn modify(qp: *mut ibv_qp, attributes: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) {
    // SAFETY: the queue pair exists, and the attributes outlive the call.
    let result = unsafe { ibv_modify_qp(qp, attributes, mask.0 as libc::c_int) };
    assert_eq!(result, 0, "modify");
}

fn zeroed<T>() -> T {
    // SAFETY: used for plain structures of libibverbs, of which all zeros is a value.
    unsafe { std::mem::zeroed() }
}

fn connect(qp: *mut ibv_qp, peer: u32, lid: u16) {
    use ibv_qp_attr_mask as mask;
    let mut init: ibv_qp_attr = zeroed();
    (init.qp_state, init.port_num) = (ibv_qp_state::IBV_QPS_INIT, 1);
    let state = mask::IBV_QP_STATE;
    modify(
        qp,
        &mut init,
        state | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS,
    );
    let mut rtr: ibv_qp_attr = zeroed();
    rtr.qp_state = ibv_qp_state::IBV_QPS_RTR;
    rtr.path_mtu = ibv_mtu::IBV_MTU_1024;
    rtr.dest_qp_num = peer;
    (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (1, 12);
    (rtr.ah_attr.dlid, rtr.ah_attr.port_num) = (lid, 1);
    let responder = mask::IBV_QP_RQ_PSN
        | mask::IBV_QP_MAX_DEST_RD_ATOMIC
        | mask::IBV_QP_MIN_RNR_TIMER
        | mask::IBV_QP_DEST_QPN;
    modify(qp, &mut rtr, state | mask::IBV_QP_AV | mask::IBV_QP_PATH_MTU | responder);
    let mut rts: ibv_qp_attr = zeroed();
    rts.qp_state = ibv_qp_state::IBV_QPS_RTS;
    (rts.timeout, rts.retry_cnt, rts.rnr_retry, rts.max_rd_atomic) = (14, 7, 7, 1);
    let requester = mask::IBV_QP_TIMEOUT
        | mask::IBV_QP_RETRY_CNT
        | mask::IBV_QP_RNR_RETRY
        | mask::IBV_QP_SQ_PSN
        | mask::IBV_QP_MAX_QP_RD_ATOMIC;
    modify(qp, &mut rts, state | requester);
}

fn main() {
    // SAFETY: the calls are made as their manual pages say, on objects that exist; what is left at
    // the end goes with the process.
    let (context, pd, cq, lid) = unsafe {
        let list = ibv_get_device_list(null_mut());
        let context = ibv_open_device(*list);
        assert!(!context.is_null(), "the model's device");
        let mut port: ibv_port_attr = zeroed();
        assert_eq!(ibv_query_port(context, 1, (&raw mut port).cast()), 0);
        let cq = ibv_create_cq(context, 1024, null_mut(), null_mut(), 0);
        (context, ibv_alloc_pd(context), cq, port.lid)
    };
    assert!(!context.is_null() && !pd.is_null() && !cq.is_null());
    println!("| queue pairs | create | connect | to Error | idle in Error, 3 s | destroy |");
    println!("|---|---|---|---|---|---|");
    for count in [100, 1_000, 10_000u32] {
        let begin = now();
        let qps: Vec<*mut ibv_qp> = (0..count)
            .map(|_| {
                let mut attributes: ibv_qp_init_attr = zeroed();
                (attributes.send_cq, attributes.recv_cq) = (cq, cq);
                attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
                (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (8, 8);
                (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
                // SAFETY: protection domain, CQ and attributes exist through the call.
                let qp = unsafe { ibv_create_qp(pd, &mut attributes) };
                assert!(!qp.is_null(), "create: {}", std::io::Error::last_os_error());
                qp
            })
            .collect();
        let created = now();
        for (at, qp) in qps.iter().enumerate() {
            // SAFETY: the queue pair exists.
            let peer = unsafe { (*qps[at ^ 1]).qp_num };
            connect(*qp, peer, lid);
        }
        let connected = now();
        for qp in &qps {
            let mut error: ibv_qp_attr = zeroed();
            error.qp_state = ibv_qp_state::IBV_QPS_ERR;
            modify(*qp, &mut error, ibv_qp_attr_mask::IBV_QP_STATE);
        }
        let failed = now();
        std::thread::sleep(Duration::from_secs(3));
        let rested = now();
        for qp in &qps {
            // SAFETY: it exists, and is not used after.
            assert_eq!(unsafe { ibv_destroy_qp(*qp) }, 0, "destroy");
        }
        let each =
            |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6 / f64::from(count));
        println!(
            "| {count} | {} | {} | {} | {:.1} ms | {} |",
            each(created - begin),
            each(connected - created),
            each(failed - connected),
            (rested - failed).as_secs_f64() * 1e3,
            each(now() - rested),
        );
    }
}
