//! The objects of a verbs program, through libibverbs alone: a device, and stations on it. Each
//! station is a queue pair with a completion queue and a registered buffer.

use std::ops::Range;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use libc::c_int;
use mlx5_sys::verbs::*;

/// Time-out for a hang: far longer than any operation on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a station's buffer.
pub const LENGTH: usize = 64 << 10;
/// Access rights of peers to a station's buffer: all.
pub const ACCESS: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
/// WQEs of a send queue, and of a receive queue.
pub const DEPTH: u32 = 64;

/// These tests are of the model: a real device in the machine is not used.
extern "C" fn always() {
    // SAFETY: both are C strings. This runs before `main`, when no other thread can read the
    // environment.
    unsafe { libc::setenv(c"MLX5_MODEL".as_ptr(), c"always".as_ptr(), 1) };
}

// SAFETY: the section is a list of functions of this type, which the loader calls.
#[used]
#[unsafe(link_section = ".init_array")]
static ALWAYS: extern "C" fn() = always;

/// An open device. Closed by the test or with the process: objects do not keep it open.
#[derive(Clone, Copy)]
pub struct Device {
    pub context: *mut ibv_context,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Device {}
// SAFETY: libibverbs may be called from any thread, and it locks the state that threads share.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device of this index in the library's list. Its timers are the specification's:
    /// [`Timing::least`] is their time.
    pub fn open(index: usize) -> Self {
        let mut count = 0;
        // SAFETY: `count` outlives the call. The list is used before it is freed, and only if it
        // has devices.
        unsafe {
            let list = ibv_get_device_list(&mut count);
            assert!(index < count as usize, "device {index} of {count}");
            let context = ibv_open_device(*list.add(index));
            assert!(!context.is_null(), "open: {}", std::io::Error::last_os_error());
            ibv_free_device_list(list);
            mlx5_model::set_timeouts(index, mlx5_model::Timeouts::SPECIFICATION);
            Self { context }
        }
    }

    /// Returns the number of devices.
    pub fn count() -> usize {
        let mut count = 0;
        // SAFETY: `count` outlives the call, and no entry of the list is used.
        unsafe { ibv_free_device_list(ibv_get_device_list(&mut count)) };
        count as usize
    }

    /// LID of its port.
    pub fn lid(self) -> u16 {
        // SAFETY: all zeros is a valid value, and the structure outlives the call.
        unsafe {
            let mut port: ibv_port_attr = std::mem::zeroed();
            assert_eq!(___ibv_query_port(self.context, 1, &mut port), 0);
            port.lid
        }
    }

    /// Closes it.
    pub fn close(self) {
        // SAFETY: the context is open, and the caller has destroyed what was made on it.
        assert_eq!(unsafe { ibv_close_device(self.context) }, 0);
    }
}

/// A station's address for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub qpn: u32,
    pub lid: u16,
    pub rkey: u32,
    pub buffer: u64,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.qpn, self.lid, self.rkey, self.buffer)
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<u64> =
            text.split_whitespace().map_while(|number| number.parse().ok()).collect();
        match numbers[..] {
            [qpn, lid, rkey, buffer] => {
                Ok(Self { qpn: qpn as u32, lid: lid as u16, rkey: rkey as u32, buffer })
            }
            _ => Err(format!("no address: {text:?}")),
        }
    }
}

/// The time that a requester waits for its peer.
#[derive(Clone, Copy)]
pub struct Timing {
    /// `timeout`: 4.096 µs · 2^code before a request is repeated.
    pub code: u8,
    /// `retry_cnt`.
    pub retries: u8,
}

impl Timing {
    /// For live peers: a process that waits long for a processor must not count as gone.
    pub const PATIENT: Self = Self { code: 18, retries: 7 };

    /// Time until the peer is given up, at least: each try waits for the time-out.
    pub fn least(self) -> Duration {
        Duration::from_nanos(4096 << self.code) * (u32::from(self.retries) + 1)
    }
}

/// The fields of a completion that tests check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub id: u64,
    pub status: ibv_wc_status::Type,
    pub length: u32,
}

/// A queue pair with its completion queue and buffer.
pub struct Station {
    pub device: Device,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub mr: *mut ibv_mr,
    pub buffer: *mut u8,
    /// Whether all objects except the queue pair belong to another station.
    shared: bool,
}

// SAFETY: libibverbs may be called from any thread; a station is used by one at a time.
unsafe impl Send for Station {}

#[track_caller]
fn made<T>(object: *mut T) -> *mut T {
    assert!(!object.is_null(), "{}", std::io::Error::last_os_error());
    object
}

impl Station {
    /// Creates a station with its own objects.
    pub fn new(device: Device) -> Self {
        Self::with_completions(device, 4 * DEPTH)
    }

    /// Creates a station whose completion queue has this many entries.
    pub fn with_completions(device: Device, room: u32) -> Self {
        Self::made(device, room, 0)
    }

    /// Creates a station whose buffer is an ODP region: the device cannot reach what the process
    /// unmaps.
    pub fn on_demand(device: Device) -> Self {
        Self::made(device, 4 * DEPTH, ibv_access_flags::IBV_ACCESS_ON_DEMAND.0)
    }

    fn made(device: Device, room: u32, further: u32) -> Self {
        let access = ACCESS | further;
        // SAFETY: the context is open; a new anonymous mapping is registered as long as the
        // station lives.
        unsafe {
            let pd = made(ibv_alloc_pd(device.context));
            let cq = made(ibv_create_cq(device.context, room as c_int, null_mut(), null_mut(), 0));
            let buffer = libc::mmap(
                null_mut(),
                LENGTH,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(buffer, libc::MAP_FAILED);
            let mr = made(ibv_reg_mr(pd, buffer, LENGTH, access as c_int));
            let qp = create_qp(pd, cq, DEPTH);
            Self { device, pd, cq, qp, mr, buffer: buffer.cast(), shared: false }
        }
    }

    /// Creates another queue pair, of this depth, that shares all other objects of this station.
    pub fn another(&self, depth: u32) -> Self {
        let qp = create_qp(self.pd, self.cq, depth);
        Self { qp, shared: true, ..*self }
    }

    /// Returns the station's address for its peer.
    pub fn address(&self) -> Address {
        // SAFETY: both objects live as long as the station.
        let (qpn, rkey) = unsafe { ((*self.qp).qp_num, (*self.mr).rkey) };
        Address { qpn, lid: self.device.lid(), rkey, buffer: self.buffer as u64 }
    }

    fn modify(&self, state: ibv_qp_state::Type, mask: u32, fill: impl FnOnce(&mut ibv_qp_attr)) {
        // SAFETY: all zeros are valid attributes; the queue pair lives as long as the station.
        let result = unsafe {
            let mut attributes: ibv_qp_attr = std::mem::zeroed();
            attributes.qp_state = state;
            fill(&mut attributes);
            let mask = mask | ibv_qp_attr_mask::IBV_QP_STATE.0;
            ibv_modify_qp(self.qp, &mut attributes, mask as c_int)
        };
        assert_eq!(result, 0, "to state {state}: {}", std::io::Error::from_raw_os_error(result));
    }

    /// Moves the queue pair from any state to RTS, connected to a peer that does the same.
    pub fn connect(&self, peer: Address, timing: Timing) {
        self.connect_over(peer, timing, None);
    }

    /// Connects like [`Station::connect`], over Ethernet: from the GID of this index to the peer's.
    pub fn connect_over(&self, peer: Address, timing: Timing, gids: Option<(u8, [u8; 16])>) {
        use ibv_qp_attr_mask as mask;
        self.modify(ibv_qp_state::IBV_QPS_RESET, 0, |_| {});
        let init = mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | mask::IBV_QP_ACCESS_FLAGS.0;
        self.modify(ibv_qp_state::IBV_QPS_INIT, init, |attributes| {
            attributes.port_num = 1;
            attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
                | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
                | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
        });
        let rtr = mask::IBV_QP_AV.0
            | mask::IBV_QP_PATH_MTU.0
            | mask::IBV_QP_DEST_QPN.0
            | mask::IBV_QP_RQ_PSN.0
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | mask::IBV_QP_MIN_RNR_TIMER.0;
        self.modify(ibv_qp_state::IBV_QPS_RTR, rtr, |attributes| {
            attributes.path_mtu = ibv_mtu::IBV_MTU_1024;
            attributes.dest_qp_num = peer.qpn;
            attributes.max_dest_rd_atomic = 4;
            attributes.min_rnr_timer = 12;
            attributes.ah_attr.dlid = peer.lid;
            attributes.ah_attr.port_num = 1;
            if let Some((index, gid)) = gids {
                attributes.ah_attr.is_global = 1;
                attributes.ah_attr.grh.sgid_index = index;
                attributes.ah_attr.grh.dgid.raw = gid;
                attributes.ah_attr.grh.hop_limit = 64;
            }
        });
        let rts = mask::IBV_QP_TIMEOUT.0
            | mask::IBV_QP_RETRY_CNT.0
            | mask::IBV_QP_RNR_RETRY.0
            | mask::IBV_QP_SQ_PSN.0
            | mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
        self.modify(ibv_qp_state::IBV_QPS_RTS, rts, |attributes| {
            attributes.timeout = timing.code;
            attributes.retry_cnt = timing.retries;
            attributes.rnr_retry = 7;
            attributes.max_rd_atomic = 4;
        });
    }

    /// Returns the device's state of the queue pair.
    pub fn state(&self) -> ibv_qp_state::Type {
        // SAFETY: all zeros are valid structures, and both outlive the call.
        unsafe {
            let mut attributes: ibv_qp_attr = std::mem::zeroed();
            let mut init: ibv_qp_init_attr = std::mem::zeroed();
            let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
            assert_eq!(ibv_query_qp(self.qp, &mut attributes, mask, &mut init), 0);
            attributes.qp_state
        }
    }

    /// Posts a signaled request over `length` bytes from `from` of the own buffer. `to` is the
    /// place in the peer's memory, for requests that name one. Returns the result of
    /// `ibv_post_send`.
    pub fn try_post(
        &self,
        opcode: ibv_wr_opcode::Type,
        id: u64,
        from: usize,
        length: usize,
        to: (u64, u32),
    ) -> c_int {
        assert!(from + length <= LENGTH);
        // SAFETY: all zeros is a valid request, filled with what it needs; the library copies the
        // request before it returns.
        unsafe {
            let mut sge = ibv_sge {
                addr: self.buffer as u64 + from as u64,
                length: length as u32,
                lkey: (*self.mr).lkey,
            };
            let mut request: ibv_send_wr = std::mem::zeroed();
            request.wr_id = id;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            request.opcode = opcode;
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            request.wr.rdma.remote_addr = to.0;
            request.wr.rdma.rkey = to.1;
            let mut bad = null_mut();
            ibv_post_send(self.qp, &mut request, &mut bad)
        }
    }

    #[track_caller]
    fn post(
        &self,
        opcode: ibv_wr_opcode::Type,
        id: u64,
        from: usize,
        length: usize,
        to: (u64, u32),
    ) {
        assert_eq!(self.try_post(opcode, id, from, length, to), 0, "post_send");
    }

    /// Posts a SEND.
    #[track_caller]
    pub fn send(&self, id: u64, from: usize, length: usize) {
        self.post(ibv_wr_opcode::IBV_WR_SEND, id, from, length, (0, 0));
    }

    /// Posts a WRITE to the same place in the peer's buffer.
    #[track_caller]
    pub fn write(&self, id: u64, from: usize, length: usize, peer: Address) {
        let to = (peer.buffer + from as u64, peer.rkey);
        self.post(ibv_wr_opcode::IBV_WR_RDMA_WRITE, id, from, length, to);
    }

    /// Posts a READ of the same place in the peer's buffer.
    #[track_caller]
    pub fn read(&self, id: u64, from: usize, length: usize, peer: Address) {
        let to = (peer.buffer + from as u64, peer.rkey);
        self.post(ibv_wr_opcode::IBV_WR_RDMA_READ, id, from, length, to);
    }

    /// Posts a receive.
    #[track_caller]
    pub fn receive(&self, id: u64, to: usize, length: usize) {
        assert!(to + length <= LENGTH);
        // SAFETY: all zeros is a valid request, filled with what it needs; the library copies the
        // request before it returns.
        let result = unsafe {
            let mut sge = ibv_sge {
                addr: self.buffer as u64 + to as u64,
                length: length as u32,
                lkey: (*self.mr).lkey,
            };
            let mut request: ibv_recv_wr = std::mem::zeroed();
            request.wr_id = id;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            let mut bad = null_mut();
            ibv_post_recv(self.qp, &mut request, &mut bad)
        };
        assert_eq!(result, 0, "post_recv");
    }

    /// Returns the next completion, if there is one.
    #[track_caller]
    pub fn poll(&self) -> Option<Done> {
        poll(self.cq)
    }

    /// Waits for the next completion.
    #[track_caller]
    pub fn wait(&self) -> Done {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            assert!(Instant::now() < end, "no completion within {PATIENCE:?}");
            std::thread::yield_now();
        }
    }

    /// Waits for the next completion, which must be a success of this request.
    #[track_caller]
    pub fn expect(&self, id: u64) {
        let done = self.wait();
        assert_eq!((done.id, done.status), (id, ibv_wc_status::IBV_WC_SUCCESS), "{done:?}");
    }

    /// Writes bytes to the own buffer.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= LENGTH);
        // SAFETY: the range is inside the buffer, as just checked, and no reference points into the
        // buffer.
        unsafe { self.buffer.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads a byte of the own buffer, which a card may be writing to.
    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < LENGTH);
        // SAFETY: the byte is inside the buffer.
        unsafe { self.buffer.add(at).read_volatile() }
    }

    /// Reads bytes of the own buffer.
    pub fn get(&self, at: usize, length: usize) -> Vec<u8> {
        (at..at + length).map(|at| self.byte(at)).collect()
    }

    /// Unmaps memory of the own buffer, or maps it again, zeroed. Its addresses stay reserved, so
    /// that no other mapping is placed there. A device notices only if the buffer is an ODP region.
    pub fn remap(&self, part: Range<usize>, there: bool) {
        assert!(part.end <= LENGTH);
        // SAFETY: the call maps over pages of the buffer, which no reference points into.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let protection =
                if there { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
            let start = self.buffer.add(part.start).cast();
            libc::mmap(start, part.len(), protection, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
    }

    /// Destroys the station.
    pub fn destroy(self) {
        // SAFETY: each object is destroyed once, before the objects it uses. The caller destroys
        // stations that share it before; otherwise this call fails.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            if self.shared {
                return;
            }
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            libc::munmap(self.buffer.cast(), LENGTH);
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
        }
    }
}

/// A reliable queue pair.
fn create_qp(pd: *mut ibv_pd, cq: *mut ibv_cq, depth: u32) -> *mut ibv_qp {
    // SAFETY: both objects live. All zeros are valid attributes, filled with what is asked for.
    unsafe {
        let mut attributes: ibv_qp_init_attr = std::mem::zeroed();
        attributes.send_cq = cq;
        attributes.recv_cq = cq;
        attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
        attributes.cap.max_send_wr = depth;
        attributes.cap.max_recv_wr = depth;
        attributes.cap.max_send_sge = 1;
        attributes.cap.max_recv_sge = 1;
        made(ibv_create_qp(pd, &mut attributes))
    }
}

/// Returns the next completion of a queue, if there is one.
#[track_caller]
pub fn poll(cq: *mut ibv_cq) -> Option<Done> {
    // SAFETY: all zeros is a valid completion, and the call writes one at most.
    unsafe {
        let mut completion: ibv_wc = std::mem::zeroed();
        let count = ibv_poll_cq(cq, 1, &mut completion);
        assert!(count >= 0, "poll_cq gives {count}");
        (count == 1).then_some(Done {
            id: completion.wr_id,
            status: completion.status,
            length: completion.byte_len,
        })
    }
}

/// Connects two stations of this process.
pub fn connect(one: &Station, other: &Station) {
    one.connect(other.address(), Timing::PATIENT);
    other.connect(one.address(), Timing::PATIENT);
}

/// Sends a message one way, and a WRITE and a READ the other way, and checks their bytes.
#[track_caller]
pub fn exchange(one: &Station, other: &Station) {
    let message: Vec<u8> = (0..3000u32).map(|n| ((n * 7) >> 3) as u8 ^ 0x5a).collect();
    one.put(0, &message);
    other.receive(1, 8192, 4096);
    one.send(2, 0, message.len());
    one.expect(2);
    other.expect(1);
    assert_eq!(other.get(8192, message.len()), message);
    one.write(3, 0, message.len(), other.address());
    one.expect(3);
    assert_eq!(other.get(0, message.len()), message);
    other.put(16384, &message);
    one.read(4, 16384, message.len(), other.address());
    one.expect(4);
    assert_eq!(one.get(16384, message.len()), message);
}
