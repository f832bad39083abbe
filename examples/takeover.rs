//! Takes over a queue pair that a C program made. The module `c` stands for that program: it calls
//! only libibverbs. It has used the queue pair before, and gets it back.
//!
//! `cargo run --example takeover`

use std::error::Error;
use std::process::ExitCode;

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::wqe::{Inline, SendMessage, Sge};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    // 1. The C program's objects, connected to each other by themselves, and a first message by
    //    ibv_post_send and ibv_poll_cq.
    let program = c::Program::start()?;
    program.send(b"by libmlx5")?;

    // 2. The conditions of the `unsafe` calls: the objects stay alive, nothing is outstanding on
    //    them, and from now on no other code posts, polls or arms. The queues continue where
    //    libmlx5 stopped, according to the doorbell records.
    // ANCHOR: from-raw
    // SAFETY: the objects are idle and stay alive. The program waits in `main` until it gets them
    // back, and does not post, poll or arm meanwhile.
    let (mut completions, mut send, mut receive) = unsafe {
        let mut completions = CqReader::from_raw(program.cq)?;
        let send = SendQueue::<Rc>::from_raw(program.qp, &mut completions, SendConfig::default())?;
        let config = ReceiveConfig::default();
        let receive = ReceiveQueue::from_raw(program.qp, &mut completions, config)?;
        (completions, send, receive)
    };
    // ANCHOR_END: from-raw
    println!("took over {send:?}");

    // 3. The program's registered memory is named by its address and key.
    let memory = Sge::new(program.address(), 64, program.lkey());
    for id in 0..3 {
        // SAFETY: the memory is the program's, which leaves it alone meanwhile.
        unsafe {
            receive.post(id, memory)?;
            send.post(id, SendMessage::new(Inline(b"by this crate")).signaled())?;
        }
        let mut left = 2;
        while left > 0 {
            match completions.poll(&mut (&mut send, &mut receive))? {
                Some(Completion::Failed(failure)) => return Err(failure.to_string().into()),
                Some(done) => {
                    left -= 1;
                    println!("{done:?}");
                }
                None => std::thread::yield_now(),
            }
        }
    }
    println!("memory: {:?}", program.text(13));

    // 4. Hand the objects back when nothing is outstanding. The program can query, reset and
    //    destroy them. To post by libmlx5 again, it takes the queue pair through RESET. It never
    //    polls the CQ again: libmlx5 does not know which CQEs were read (docs/takeover.md).
    // ANCHOR: into-raw
    let qp = send.into_raw().map_err(|_| "requests are outstanding")?;
    receive.into_raw().map_err(|_| "receives are outstanding")?;
    let cq = completions.into_raw().map_err(|_| "not a CQ of libibverbs")?;
    // ANCHOR_END: into-raw
    assert_eq!((qp, cq), (program.qp, program.cq));
    program.end()?;
    println!("handed back");
    Ok(())
}

/// The part of a C program, with libibverbs' calls. It ends at the first error, and leaves its objects
/// to the end of the process.
mod c {
    use std::io::Error;
    use std::mem::zeroed;
    use std::ptr::{NonNull, null_mut};

    use mlx5_sys::verbs::{
        ___ibv_query_port, __ibv_get_device_list, __ibv_reg_mr, ibv_access_flags, ibv_alloc_pd,
        ibv_close_device, ibv_context, ibv_cq, ibv_create_cq, ibv_create_qp, ibv_dealloc_pd,
        ibv_dereg_mr, ibv_destroy_cq, ibv_destroy_qp, ibv_free_device_list, ibv_modify_qp, ibv_mr,
        ibv_mtu, ibv_open_device, ibv_pd, ibv_poll_cq, ibv_port_attr, ibv_port_state,
        ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as set, ibv_qp_cap,
        ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr,
        ibv_sge, ibv_wc, ibv_wc_status, ibv_wr_opcode,
    };

    type Result<T = ()> = std::result::Result<T, String>;

    /// A queue pair connected to itself, with memory.
    pub struct Program {
        context: NonNull<ibv_context>,
        pd: NonNull<ibv_pd>,
        mr: NonNull<ibv_mr>,
        bytes: *mut u8,
        pub cq: NonNull<ibv_cq>,
        pub qp: NonNull<ibv_qp>,
    }

    /// The result of a call that returns a pointer, or null with `errno` set.
    fn made<T>(call: &str, pointer: *mut T) -> Result<NonNull<T>> {
        NonNull::new(pointer).ok_or_else(|| format!("{call} failed: {}", Error::last_os_error()))
    }

    /// The result of a call that returns 0, or an error number.
    fn done(call: &str, errno: i32) -> Result {
        match errno {
            0 => Ok(()),
            _ => Err(format!("{call} failed: {}", Error::from_raw_os_error(errno))),
        }
    }

    impl Program {
        pub fn start() -> Result<Self> {
            // SAFETY: the calls get objects of the calls before them, which succeeded. The
            // structures are C's, for which zero is a value.
            unsafe {
                let list = made("ibv_get_device_list", __ibv_get_device_list(null_mut()))
                    .map_err(|error| format!("there is no RDMA device: {error}"))?;
                let first = *list.as_ptr();
                if first.is_null() {
                    return Err("there is no RDMA device".to_owned());
                }
                // Null if the device cannot be opened. The next call would read it.
                let context = made("ibv_open_device", ibv_open_device(first))?;
                ibv_free_device_list(list.as_ptr());
                let pd = made("ibv_alloc_pd", ibv_alloc_pd(context.as_ptr()))?;
                let bytes = Box::leak(Box::new([0u8; 4096])).as_mut_ptr();
                let rights = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
                let mr = __ibv_reg_mr(pd.as_ptr(), bytes.cast(), 4096, rights, 1);
                let mr = made("ibv_reg_mr", mr)?;
                let cq = ibv_create_cq(context.as_ptr(), 64, null_mut(), null_mut(), 0);
                let cq = made("ibv_create_cq", cq)?;
                let mut init: ibv_qp_init_attr = zeroed();
                (init.send_cq, init.recv_cq) = (cq.as_ptr(), cq.as_ptr());
                init.qp_type = ibv_qp_type::IBV_QPT_RC;
                init.cap = ibv_qp_cap {
                    max_send_wr: 16,
                    max_recv_wr: 16,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 32,
                };
                let qp = made("ibv_create_qp", ibv_create_qp(pd.as_ptr(), &mut init))?;
                let program = Self { context, pd, mr, bytes, cq, qp };
                program.connect()?;
                Ok(program)
            }
        }

        fn connect(&self) -> Result {
            // SAFETY: the context is open, and zero is a value of the structure.
            let port = unsafe {
                let mut port: ibv_port_attr = zeroed();
                done("ibv_query_port", ___ibv_query_port(self.context.as_ptr(), 1, &mut port))?;
                port
            };
            if port.state != ibv_port_state::IBV_PORT_ACTIVE {
                return Err(format!(
                    "port 1 is not active (state {}): check the cable and the peer's link, or the \
                     subnet manager",
                    port.state
                ));
            }
            let modify = |to: &str, attr: &mut ibv_qp_attr, bits: u32| {
                let bits = bits | set::IBV_QP_STATE.0;
                // SAFETY: the queue pair exists, and the bits name fields of the structure.
                let errno = unsafe { ibv_modify_qp(self.qp.as_ptr(), attr, bits as i32) };
                done(&format!("ibv_modify_qp to {to}"), errno)
            };
            // SAFETY: zero is a value of the structure.
            let mut attr: ibv_qp_attr = unsafe { zeroed() };
            attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
            attr.port_num = 1;
            let bits = set::IBV_QP_PKEY_INDEX | set::IBV_QP_PORT | set::IBV_QP_ACCESS_FLAGS;
            modify("INIT", &mut attr, bits.0)?;
            attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
            attr.path_mtu = ibv_mtu::IBV_MTU_1024;
            // SAFETY: the queue pair exists.
            attr.dest_qp_num = unsafe { (*self.qp.as_ptr()).qp_num };
            attr.max_dest_rd_atomic = 1;
            attr.ah_attr.dlid = port.lid;
            attr.ah_attr.port_num = 1;
            let bits = set::IBV_QP_AV
                | set::IBV_QP_PATH_MTU
                | set::IBV_QP_DEST_QPN
                | set::IBV_QP_RQ_PSN
                | set::IBV_QP_MAX_DEST_RD_ATOMIC
                | set::IBV_QP_MIN_RNR_TIMER;
            modify("RTR", &mut attr, bits.0)?;
            attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
            (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
            attr.max_rd_atomic = 1;
            let bits = set::IBV_QP_TIMEOUT
                | set::IBV_QP_RETRY_CNT
                | set::IBV_QP_RNR_RETRY
                | set::IBV_QP_SQ_PSN
                | set::IBV_QP_MAX_QP_RD_ATOMIC;
            modify("RTS", &mut attr, bits.0)
        }

        /// A message to itself, and both its completions.
        pub fn send(&self, text: &[u8]) -> Result {
            // SAFETY: the objects and the memory are the program's, which still exists. The text
            // lives through the call, and travels in the WQE. Zero is a value of the structures.
            unsafe {
                let mut entry = ibv_sge { addr: self.address(), length: 64, lkey: self.lkey() };
                let mut receive: ibv_recv_wr = zeroed();
                (receive.sg_list, receive.num_sge) = (&mut entry, 1);
                let errno = ibv_post_recv(self.qp.as_ptr(), &mut receive, &mut null_mut());
                done("ibv_post_recv", errno)?;
                let (addr, length) = (text.as_ptr() as u64, text.len() as u32);
                let mut entry = ibv_sge { addr, length, lkey: 0 };
                let mut send: ibv_send_wr = zeroed();
                (send.sg_list, send.num_sge) = (&mut entry, 1);
                send.opcode = ibv_wr_opcode::IBV_WR_SEND;
                let flags = ibv_send_flags::IBV_SEND_SIGNALED | ibv_send_flags::IBV_SEND_INLINE;
                send.send_flags = flags.0;
                let errno = ibv_post_send(self.qp.as_ptr(), &mut send, &mut null_mut());
                done("ibv_post_send", errno)?;
                for _ in 0..2 {
                    let mut wc: ibv_wc = zeroed();
                    while ibv_poll_cq(self.cq.as_ptr(), 1, &mut wc) == 0 {
                        std::thread::yield_now();
                    }
                    if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
                        return Err(format!("a request of libmlx5 failed: status {}", wc.status));
                    }
                }
            }
            println!("memory: {:?}", self.text(text.len()));
            Ok(())
        }

        pub fn address(&self) -> u64 {
            self.bytes as u64
        }

        pub fn lkey(&self) -> u32 {
            // SAFETY: the region lives on.
            unsafe { self.mr.as_ref().lkey }
        }

        pub fn text(&self, length: usize) -> String {
            // SAFETY: fewer than 4096 bytes of the program's memory; no message is under way.
            let bytes = unsafe { std::slice::from_raw_parts(self.bytes, length) };
            String::from_utf8_lossy(bytes).into_owned()
        }

        pub fn end(self) -> Result {
            // SAFETY: each was made by `start`; children go first.
            unsafe {
                done("ibv_destroy_qp", ibv_destroy_qp(self.qp.as_ptr()))?;
                done("ibv_destroy_cq", ibv_destroy_cq(self.cq.as_ptr()))?;
                done("ibv_dereg_mr", ibv_dereg_mr(self.mr.as_ptr()))?;
                done("ibv_dealloc_pd", ibv_dealloc_pd(self.pd.as_ptr()))?;
                done("ibv_close_device", ibv_close_device(self.context.as_ptr()))
            }
        }
    }
}
