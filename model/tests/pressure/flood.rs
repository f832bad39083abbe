//! A flood of unreliable WRITEs beside a reliable connection.

use super::*;

/// Bytes of each WRITE of a flood.
const WAVE: u32 = 16384;

/// An unreliable queue pair of a station.
struct Unreliable {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Unreliable {}

impl Unreliable {
    fn new(station: &Station) -> Self {
        // SAFETY: the station lives; all zeros are valid attributes, which are filled.
        unsafe {
            let cq = ibv_create_cq(station.device.context, 256, null_mut(), null_mut(), 0);
            let mut attributes: ibv_qp_init_attr = zeroed();
            (attributes.send_cq, attributes.recv_cq) = (cq, cq);
            attributes.qp_type = ibv_qp_type::IBV_QPT_UC;
            attributes.cap.max_send_wr = 64;
            attributes.cap.max_recv_wr = 1;
            (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
            let qp = ibv_create_qp(station.pd, &mut attributes);
            assert!(!qp.is_null());
            Self { qp, cq }
        }
    }

    fn number(&self) -> u32 {
        // SAFETY: it lives.
        unsafe { (*self.qp).qp_num }
    }

    fn connect(&self, station: &Station, peer: u32) {
        use ibv_qp_attr_mask as mask;
        // SAFETY: the queue pair lives; all zeros are valid attributes, which are filled.
        let modify = |attributes: &mut ibv_qp_attr, state, bits: u32| unsafe {
            attributes.qp_state = state;
            let bits = bits | mask::IBV_QP_STATE.0;
            assert_eq!(ibv_modify_qp(self.qp, attributes, bits as c_int), 0);
        };
        // SAFETY: plain numbers.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.port_num = 1;
        attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let init = mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | mask::IBV_QP_ACCESS_FLAGS.0;
        modify(&mut attributes, ibv_qp_state::IBV_QPS_INIT, init);
        attributes.path_mtu = ibv_mtu::IBV_MTU_256;
        attributes.dest_qp_num = peer;
        attributes.ah_attr.dlid = station.device.lid();
        attributes.ah_attr.port_num = 1;
        let rtr = mask::IBV_QP_AV.0
            | mask::IBV_QP_PATH_MTU.0
            | mask::IBV_QP_DEST_QPN.0
            | mask::IBV_QP_RQ_PSN.0;
        modify(&mut attributes, ibv_qp_state::IBV_QPS_RTR, rtr);
        modify(&mut attributes, ibv_qp_state::IBV_QPS_RTS, mask::IBV_QP_SQ_PSN.0);
    }

    /// Keeps 32 WRITEs of [`WAVE`] bytes under way.
    fn flood(&self, station: &Station, peer: Address, stop: &AtomicBool) {
        let mut outstanding = 0;
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: all zeros are valid values, which are filled; memory and objects live.
            unsafe {
                let mut sge =
                    ibv_sge { addr: station.buffer as u64, length: WAVE, lkey: (*station.mr).lkey };
                let mut request: ibv_send_wr = zeroed();
                (request.sg_list, request.num_sge) = (&mut sge, 1);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                (request.wr.rdma.remote_addr, request.wr.rdma.rkey) = (peer.buffer, peer.rkey);
                let mut bad = null_mut();
                while outstanding < 32 {
                    assert_eq!(ibv_post_send(self.qp, &mut request, &mut bad), 0);
                    outstanding += 1;
                }
                let mut completion: ibv_wc = zeroed();
                while ibv_poll_cq(self.cq, 1, &mut completion) == 1 {
                    assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
                    outstanding -= 1;
                }
            }
        }
    }
}

/// Is written to by the peer of [`flood`].
pub fn passive() -> i32 {
    let station = Station::new(Device::open(0));
    let unreliable = Unreliable::new(&station);
    say(format_args!("{} {}", unreliable.number(), station.address()));
    let line = hear().expect("a peer");
    let (number, address) = line.split_once(' ').expect("two of them");
    station.connect(address.parse().expect("an address"), Timing::PATIENT);
    unreliable.connect(&station, number.parse().expect("a number"));
    say("connected");
    assert_eq!(hear(), None);
    0
}

/// Reads and writes over a reliable connection beside a flood of the same process.
pub fn flood() -> i32 {
    /// Half a second until the peer is given up, which is nothing on a busy machine.
    const USUAL: Timing = Timing { code: 14, retries: 7 };
    let mut outside = Player::of("passive");
    let station = Station::new(Device::open(0));
    let flooding = Station::new(station.device);
    let unreliable = Unreliable::new(&flooding);
    let line = outside.hear();
    let (number, address) = line.split_once(' ').expect("two of them");
    let peer: Address = address.parse().expect("an address");
    outside.tell(format_args!("{} {}", unreliable.number(), station.address()));
    assert_eq!(outside.hear(), "connected");
    station.connect(peer, USUAL);
    unreliable.connect(&flooding, number.parse().expect("a number"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, unreliable) = (&stop, unreliable);
        scope.spawn(move || unreliable.flood(&flooding, peer, stop));
        let end = Instant::now() + Duration::from_secs(3);
        let mut turns = 0;
        while turns == 0 || Instant::now() < end {
            station.read(turns, 32768, 64, peer);
            station.expect(turns);
            turns += 1;
        }
        println!("{turns} READs beside the flood");
        stop.store(true, Ordering::Relaxed);
    });
    outside.end_well();
    0
}

#[test]
fn a_flood_does_not_take_a_live_connection_for_lost() {
    for mode in ["trapped", "polled"] {
        let mut command = Player::command("flood");
        command.env("MLX5_MODEL_MODE", mode);
        Player::start(command).end_well();
    }
}
