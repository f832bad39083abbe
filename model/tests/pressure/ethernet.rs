//! Frames for a process that does not run.

use super::*;

/// A raw queue pair with memory for frames.
struct Raw {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    mr: *mut ibv_mr,
    buffer: *mut u8,
}

/// Bytes of a frame.
const FRAME: usize = 1500;
/// Frames that a raw queue holds.
const RAW: u32 = 128;

impl Raw {
    fn new() -> Self {
        let device = Device::open(0);
        let buffer = Box::leak(vec![0u8; FRAME * RAW as usize].into_boxed_slice());
        // SAFETY: the memory is never freed; all zeros are valid attributes, which are filled.
        unsafe {
            let pd = ibv_alloc_pd(device.context);
            let cq = ibv_create_cq(device.context, 1024, null_mut(), null_mut(), 0);
            let mr = ibv_reg_mr(pd, buffer.as_mut_ptr().cast(), buffer.len(), 1);
            let mut attributes: ibv_qp_init_attr = zeroed();
            (attributes.send_cq, attributes.recv_cq) = (cq, cq);
            attributes.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET;
            (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (RAW, RAW);
            (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
            let qp = ibv_create_qp(pd, &mut attributes);
            assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
            let mut attributes: ibv_qp_attr = zeroed();
            attributes.port_num = 1;
            for (state, mask) in [
                (ibv_qp_state::IBV_QPS_INIT, ibv_qp_attr_mask::IBV_QP_PORT.0),
                (ibv_qp_state::IBV_QPS_RTR, 0),
                (ibv_qp_state::IBV_QPS_RTS, 0),
            ] {
                attributes.qp_state = state;
                let mask = mask | ibv_qp_attr_mask::IBV_QP_STATE.0;
                assert_eq!(ibv_modify_qp(qp, &mut attributes, mask as c_int), 0);
            }
            Self { qp, cq, mr, buffer: buffer.as_mut_ptr() }
        }
    }

    fn sge(&self, place: usize) -> ibv_sge {
        // SAFETY: the region lives.
        let lkey = unsafe { (*self.mr).lkey };
        let addr = self.buffer as u64 + (place % RAW as usize * FRAME) as u64;
        ibv_sge { addr, length: FRAME as u32, lkey }
    }

    fn receive(&self, place: usize) {
        // SAFETY: all zeros is a valid request, which is filled.
        unsafe {
            let mut sge = self.sge(place);
            let mut request: ibv_recv_wr = zeroed();
            (request.sg_list, request.num_sge) = (&mut sge, 1);
            let mut bad = null_mut();
            assert_eq!(ibv_post_recv(self.qp, &mut request, &mut bad), 0);
        }
    }

    /// Sends frames to an address until so many have left.
    fn send(&self, to: [u8; 6], count: usize) {
        // SAFETY: the frame is in the buffer, which no reference points into.
        unsafe {
            self.buffer.copy_from_nonoverlapping(to.as_ptr(), 6);
            self.buffer.add(6).copy_from_nonoverlapping([2, 0, 0, 0, 0, 9].as_ptr(), 6);
            self.buffer.add(12).copy_from_nonoverlapping([0x88, 0xb5].as_ptr(), 2);
        }
        let (mut posted, mut sent) = (0, 0);
        let end = Instant::now() + PATIENCE;
        while sent < count {
            // SAFETY: all zeros are valid values, which are filled.
            unsafe {
                let mut sge = self.sge(0);
                let mut request: ibv_send_wr = zeroed();
                (request.sg_list, request.num_sge) = (&mut sge, 1);
                request.opcode = ibv_wr_opcode::IBV_WR_SEND;
                request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                let mut bad = null_mut();
                while posted < count && posted - sent < RAW as usize {
                    assert_eq!(ibv_post_send(self.qp, &mut request, &mut bad), 0);
                    posted += 1;
                }
                let mut completion: ibv_wc = zeroed();
                while ibv_poll_cq(self.cq, 1, &mut completion) == 1 {
                    assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
                    sent += 1;
                }
            }
            assert!(Instant::now() < end, "{sent} of {count} frames have left");
        }
    }
}

/// Destination of the frames for the listener: a group, since both processes have the same port.
const WANTED: [u8; 6] = [3, 0, 0, 0, 0, 2];
/// Destination of the other frames.
const UNWANTED: [u8; 6] = [3, 0, 0, 0, 0, 1];

/// Wants frames to [`WANTED`], and says when one has come.
pub fn listener() -> i32 {
    #[repr(C)]
    struct Flow {
        attributes: ibv_flow_attr,
        ethernet: ibv_flow_spec_eth,
    }
    let raw = Raw::new();
    (0..RAW as usize).for_each(|place| raw.receive(place));
    // SAFETY: all zeros are valid values, which are filled; the flow lives as long as the process.
    unsafe {
        let mut flow: Flow = zeroed();
        flow.attributes.size = size_of::<Flow>() as u16;
        (flow.attributes.num_of_specs, flow.attributes.port) = (1, 1);
        flow.ethernet.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ETH;
        flow.ethernet.size = size_of::<ibv_flow_spec_eth>() as u16;
        flow.ethernet.val.dst_mac = WANTED;
        flow.ethernet.mask.dst_mac = [0xff; 6];
        let made = ibv_create_flow(raw.qp, &mut flow.attributes);
        let made = made.is_some_and(|flow| !flow.is_null());
        assert!(made, "{}", std::io::Error::last_os_error());
    }
    say("listening");
    let end = Instant::now() + PATIENCE;
    // SAFETY: all zeros is a valid completion, which is filled.
    while unsafe { ibv_poll_cq(raw.cq, 1, &mut zeroed()) } == 0 {
        assert!(Instant::now() < end, "no frame");
        std::thread::yield_now();
    }
    say("received");
    assert_eq!(hear(), None);
    0
}

/// Sends as many frames as it is told.
pub fn frames() -> i32 {
    let raw = Raw::new();
    while let Some(line) = hear() {
        let (address, count) = line.split_once(' ').expect("two of them");
        let to = if address == "wanted" { WANTED } else { UNWANTED };
        raw.send(to, count.parse().expect("a number"));
        say("sent");
    }
    0
}

#[test]
fn nobody_waits_for_a_stopped_process_that_listens_to_an_ethernet() {
    let on_ethernet = |role| {
        let mut command = Player::command(role);
        command.env("MLX5_MODEL_LINK", "roce");
        Player::start(command)
    };
    let mut listener = on_ethernet("listener");
    assert_eq!(listener.hear(), "listening");
    let mut sender = on_ethernet("frames");
    let process = listener.child.id() as libc::pid_t;
    // SAFETY: stops and continues a child of this process that was not waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    signal(libc::SIGSTOP);
    // More than the way to it has room for.
    sender.tell("unwanted 16000");
    assert_eq!(sender.hear(), "sent");
    signal(libc::SIGCONT);
    // It hears what it wants again, as soon as it has read the rest.
    let end = Instant::now() + PATIENCE;
    let heard = std::thread::spawn(move || (listener.hear(), listener));
    while !heard.is_finished() {
        assert!(Instant::now() < end, "not heard any more");
        sender.tell("wanted 1");
        assert_eq!(sender.hear(), "sent");
    }
    let (said, listener) = heard.join().expect("a line");
    assert_eq!(said, "received");
    listener.end_well();
    sender.end_well();
}
