//! Just enough of libibverbs, called directly, to bring a queue pair to RTS and pass messages. It
//! belongs to the tests, so that they check the model without the driver.

#![allow(dead_code, reason = "each test file uses its own part of this module")]

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use mlx5_sys::verbs::*;
// The model behind the libraries: nothing else has to be done.
use mlx5_model as _;

/// How long anything that must happen may take.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The last errno.
pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap()
}

/// Names of the devices.
pub fn devices() -> Vec<String> {
    let mut count = 0;
    // SAFETY: the list is read before it is freed.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        assert!(!list.is_null(), "ibv_get_device_list: {}", io::Error::last_os_error());
        let names = (0..count as usize)
            .map(|index| {
                CStr::from_ptr(ibv_get_device_name(*list.add(index))).to_str().unwrap().to_string()
            })
            .collect();
        ibv_free_device_list(list);
        names
    }
}

/// An open device with a PD and a CQ.
pub struct Device {
    pub context: NonNull<ibv_context>,
    pub pd: NonNull<ibv_pd>,
    pub channel: NonNull<ibv_comp_channel>,
    pub cq: NonNull<ibv_cq>,
}

impl Device {
    /// Opens device `index`, with a CQ of 64 entries on a channel.
    pub fn open(index: usize) -> Self {
        // SAFETY: the list outlives the open; everything else is checked for null.
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&mut count);
            assert!((count as usize) > index, "{count} devices");
            let context = NonNull::new(ibv_open_device(*list.add(index)))
                .unwrap_or_else(|| panic!("ibv_open_device: {}", io::Error::last_os_error()));
            ibv_free_device_list(list);
            let pd = NonNull::new(ibv_alloc_pd(context.as_ptr())).expect("ibv_alloc_pd");
            let channel = NonNull::new(ibv_create_comp_channel(context.as_ptr())).expect("channel");
            let cq = ibv_create_cq(context.as_ptr(), 63, null_mut(), channel.as_ptr(), 0);
            let cq = NonNull::new(cq)
                .unwrap_or_else(|| panic!("ibv_create_cq: {}", io::Error::last_os_error()));
            Self { context, pd, channel, cq }
        }
    }

    /// A queue pair in RESET.
    pub fn qp(&self) -> Qp {
        // SAFETY: all zero is a valid attribute structure; the objects live.
        unsafe {
            let mut init: ibv_qp_init_attr = zeroed();
            init.send_cq = self.cq.as_ptr();
            init.recv_cq = self.cq.as_ptr();
            init.cap.max_send_wr = 16;
            init.cap.max_recv_wr = 16;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            init.cap.max_inline_data = 64;
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            init.sq_sig_all = 1;
            let qp = ibv_create_qp(self.pd.as_ptr(), &mut init);
            Qp(NonNull::new(qp)
                .unwrap_or_else(|| panic!("ibv_create_qp: {}", io::Error::last_os_error())))
        }
    }

    /// The port.
    pub fn port(&self) -> ibv_port_attr {
        // SAFETY: all zero is a valid attribute structure, which the call fills.
        unsafe {
            let mut port: ibv_port_attr = zeroed();
            let result = ___ibv_query_port(self.context.as_ptr(), 1, &mut port);
            assert_eq!(result, 0, "ibv_query_port");
            port
        }
    }

    /// Waits for one completion.
    pub fn poll(&self) -> ibv_wc {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(completion) = self.poll_now() {
                return completion;
            }
            assert!(Instant::now() < deadline, "no completion");
            std::thread::yield_now();
        }
    }

    /// A completion, if one is there.
    pub fn poll_now(&self) -> Option<ibv_wc> {
        // SAFETY: the CQ lives; the call fills at most one entry.
        unsafe {
            let mut completion: ibv_wc = zeroed();
            match ibv_poll_cq(self.cq.as_ptr(), 1, &mut completion) {
                0 => None,
                1 => Some(completion),
                error => panic!("ibv_poll_cq: {error}"),
            }
        }
    }

    /// Registers memory for everything.
    pub fn register(&self, memory: &mut [u8]) -> NonNull<ibv_mr> {
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
            | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
            | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
            | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
        // SAFETY: the tests keep the memory as long as the region.
        let mr = unsafe {
            ibv_reg_mr(self.pd.as_ptr(), memory.as_mut_ptr().cast(), memory.len(), access as i32)
        };
        NonNull::new(mr).unwrap_or_else(|| panic!("ibv_reg_mr: {}", io::Error::last_os_error()))
    }

    /// Closes everything, which has to succeed.
    pub fn close(self) {
        // SAFETY: in the order in which they depend on each other, each once.
        unsafe {
            assert_eq!(ibv_destroy_cq(self.cq.as_ptr()), 0, "ibv_destroy_cq");
            assert_eq!(ibv_destroy_comp_channel(self.channel.as_ptr()), 0, "channel");
            assert_eq!(ibv_dealloc_pd(self.pd.as_ptr()), 0, "ibv_dealloc_pd");
            assert_eq!(ibv_close_device(self.context.as_ptr()), 0, "ibv_close_device");
        }
    }
}

/// A queue pair.
pub struct Qp(pub NonNull<ibv_qp>);

impl Qp {
    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { self.0.as_ref().qp_num }
    }

    /// Changes attributes, giving the errno.
    pub fn modify(&self, attributes: &mut ibv_qp_attr, mask: u32) -> i32 {
        // SAFETY: the queue pair lives.
        unsafe { ibv_modify_qp(self.0.as_ptr(), attributes, mask as i32) }
    }

    /// RESET to RTS, towards a queue pair at a LID.
    pub fn connect(&self, lid: u16, remote: u32) {
        use ibv_qp_attr_mask as mask;
        // SAFETY: all zero is a valid attribute structure.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = 0xf;
        let init = mask::IBV_QP_STATE.0
            | mask::IBV_QP_PKEY_INDEX.0
            | mask::IBV_QP_PORT.0
            | mask::IBV_QP_ACCESS_FLAGS.0;
        assert_eq!(self.modify(&mut attr, init), 0, "to INIT");
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = ibv_mtu::IBV_MTU_1024;
        attr.dest_qp_num = remote;
        attr.max_dest_rd_atomic = 4;
        attr.min_rnr_timer = 12;
        attr.ah_attr.dlid = lid;
        attr.ah_attr.port_num = 1;
        let rtr = mask::IBV_QP_STATE.0
            | mask::IBV_QP_AV.0
            | mask::IBV_QP_PATH_MTU.0
            | mask::IBV_QP_DEST_QPN.0
            | mask::IBV_QP_RQ_PSN.0
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | mask::IBV_QP_MIN_RNR_TIMER.0;
        assert_eq!(self.modify(&mut attr, rtr), 0, "to RTR");
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 4;
        let rts = mask::IBV_QP_STATE.0
            | mask::IBV_QP_TIMEOUT.0
            | mask::IBV_QP_RETRY_CNT.0
            | mask::IBV_QP_RNR_RETRY.0
            | mask::IBV_QP_SQ_PSN.0
            | mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
        assert_eq!(self.modify(&mut attr, rts), 0, "to RTS");
    }

    /// Posts a receive of memory behind a key.
    pub fn receive(&self, id: u64, mr: NonNull<ibv_mr>, length: u32) {
        // SAFETY: all zero is a valid request; the region lives.
        unsafe {
            let mut sge = ibv_sge { addr: mr.as_ref().addr as u64, length, lkey: mr.as_ref().lkey };
            let mut request: ibv_recv_wr = zeroed();
            request.wr_id = id;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            let mut bad = null_mut();
            assert_eq!(ibv_post_recv(self.0.as_ptr(), &mut request, &mut bad), 0);
        }
    }

    /// Posts a send.
    pub fn send(&self, id: u64, mr: NonNull<ibv_mr>, length: u32, flags: ibv_send_flags) {
        // SAFETY: all zero is a valid request; the region lives.
        unsafe {
            let mut sge = ibv_sge { addr: mr.as_ref().addr as u64, length, lkey: mr.as_ref().lkey };
            let mut request: ibv_send_wr = zeroed();
            request.wr_id = id;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            request.opcode = ibv_wr_opcode::IBV_WR_SEND;
            request.send_flags = flags.0;
            let mut bad = null_mut();
            assert_eq!(ibv_post_send(self.0.as_ptr(), &mut request, &mut bad), 0);
        }
    }

    /// Destroys it, which has to succeed.
    pub fn destroy(self) {
        // SAFETY: it is destroyed once.
        assert_eq!(unsafe { ibv_destroy_qp(self.0.as_ptr()) }, 0, "ibv_destroy_qp");
    }
}

/// Two queue pairs connected to each other.
pub fn connected(device: &Device) -> (Qp, Qp) {
    let lid = device.port().lid;
    let (one, other) = (device.qp(), device.qp());
    one.connect(lid, other.number());
    other.connect(lid, one.number());
    (one, other)
}
