//! The same requests through `mlx5_ring.h`, or prepared by the library, and through the driver, on twin queue pairs:
//! WQEs, doorbell records, and every store to a register are equal but for the queue pair's number.

mod support;

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use mlx5::cqe::Completion;
use mlx5::ib::{RawPacket, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionQueue, Init, MemoryRegion, QueuePair, QueuePairBuilder, Rts, ThreadDomain,
};
use mlx5::wqe::{EthSend, Inline, Nop, Payload, RdmaWrite, Remote, SendMessage, Sge};
use mlx5_sys::verbs::{ibv_cq, ibv_qp};
use mlx5direct::{CHECKSUMS, FENCED, INLINE, SIGNALED, SOLICITED, SQ_OWN_REGISTER, Status};
use rig::Rig;
use rig::random::Random;
use rig::stores::{self, Store};
use rig::verbs::{CqMemory, QpMemory};
use support::Loaded;

/// The stores that are recorded are the process's.
static ALONE: Mutex<()> = Mutex::new(());

const POSTS: u32 = 2000;
const MEMORY: usize = 1 << 13;
/// The place of messages in the memory.
const INTO: usize = 1 << 12;
const LONGEST_WRITE: u32 = 220;
const LONGEST_SEND: u32 = 236;

/// `struct twin` of twin.c.
type Handle = *mut c_void;

/// The functions of twin.c.
struct Native {
    new: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_cq, u32) -> Handle,
    free: unsafe extern "C" fn(Handle),
    write_inline: unsafe extern "C" fn(Handle, u64, *const u8, u32, u64, u32, u32) -> c_int,
    send_inline: unsafe extern "C" fn(Handle, u64, *const u8, u32, u32) -> c_int,
    write: unsafe extern "C" fn(Handle, u64, *const Sge, u64, u32, u32) -> c_int,
    send: unsafe extern "C" fn(Handle, u64, *const Sge, u32) -> c_int,
    nop: unsafe extern "C" fn(Handle, u64, u32) -> c_int,
    fire: unsafe extern "C" fn(Handle, u64, *const u8, u32, u64, u32, u32) -> c_int,
    packet_inline: unsafe extern "C" fn(Handle, u64, *const u8, u32, u32) -> c_int,
    packet: unsafe extern "C" fn(Handle, u64, *const Sge, u32) -> c_int,
    fire_packet: unsafe extern "C" fn(Handle, u64, *const u8, u32, u32) -> c_int,
    receive: unsafe extern "C" fn(Handle, u64, *const Sge) -> c_int,
    poll: unsafe extern "C" fn(Handle, *mut u64) -> c_int,
    poll_receive: unsafe extern "C" fn(Handle, *mut u64, *mut u32) -> c_int,
}

impl Native {
    fn load() -> Self {
        let code = Loaded::new("twin/twin.c");
        macro_rules! functions {
            ($($field:ident $name:literal)*) => {
                // SAFETY: twin.c defines functions of these types under these names.
                Self { $($field: unsafe { code.function($name) },)* }
            };
        }
        functions! {
            new c"twin_new" free c"twin_free" write_inline c"twin_write_inline"
            send_inline c"twin_send_inline" write c"twin_write" send c"twin_send" nop c"twin_nop"
            fire c"twin_fire" packet_inline c"twin_packet_inline" packet c"twin_packet"
            fire_packet c"twin_fire_packet" receive c"twin_receive" poll c"twin_poll"
            poll_receive c"twin_poll_receive"
        }
    }
}

/// A request to post.
#[derive(Clone, Debug)]
enum Request {
    WriteInline(Vec<u8>),
    SendInline(Vec<u8>),
    Write(Sge),
    Send(Sge),
    Nop,
    /// A prepared WRITE with these bytes.
    Fire(Vec<u8>),
}

impl Request {
    fn any(random: &mut Random, memory: &MemoryRegion) -> Self {
        // Short ones more often: each length of one block is met many times.
        let mut bytes = |least: u32, longest: u32| {
            let longest = if random.one_in(2) { 48.min(longest) } else { longest };
            let length = least + random.below(longest + 1 - least);
            random.bytes(length as usize)
        };
        let long = bytes(0, LONGEST_SEND);
        let (written, fired) = (bytes(0, LONGEST_WRITE), bytes(1, LONGEST_WRITE));
        let sge = memory.sge(0, random.below(2000) as usize).expect("within the region");
        match random.below(6) {
            0 => Self::WriteInline(written),
            1 => Self::SendInline(long),
            2 => Self::Write(sge),
            3 => Self::Send(sge),
            4 => Self::Nop,
            _ => Self::Fire(fired),
        }
    }

    /// The length of the message, if it takes a receive.
    fn message(&self) -> Option<u32> {
        match self {
            Self::SendInline(bytes) => Some(bytes.len() as u32),
            Self::Send(sge) => Some(sge.length),
            _ => None,
        }
    }

    /// Bytes of the WQE that both write: without padding behind inline data.
    fn bytes(&self) -> usize {
        let inline = |bytes: &[u8]| if bytes.is_empty() { 0 } else { 4 + bytes.len() };
        match self {
            Self::WriteInline(bytes) | Self::Fire(bytes) => 32 + inline(bytes),
            Self::SendInline(bytes) => 16 + inline(bytes),
            Self::Write(sge) => {
                if sge.length == 0 {
                    32
                } else {
                    48
                }
            }
            Self::Send(sge) => {
                if sge.length == 0 {
                    16
                } else {
                    32
                }
            }
            Self::Nop => 16,
        }
    }
}

/// A queue pair, and the one that receives from it.
struct Line {
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    peer: QueuePair<Rc, Rts>,
    peer_cq: CompletionQueue,
}

fn line(rig: &Rig) -> Line {
    let (cq, peer_cq) = (rig.cq(512), rig.cq(512));
    let domain = ThreadDomain::new(&rig.context).expect("a thread domain");
    let qp = QueuePair::builder(&rig.pd, &cq).max_send_wr(64).max_inline_data(LONGEST_SEND);
    let peer = QueuePair::builder(&rig.pd, &peer_cq).max_recv_wr(32).max_recv_sge(2);
    let qp: QueuePair<Rc, Init> = rig.init(qp.thread_domain(&domain));
    let (qp, peer) = rig.connect(qp, rig.init(peer));
    Line { qp, cq, peer, peer_cq }
}

/// One end of C.
struct End<'a>(&'a Native, Handle);

impl<'a> End<'a> {
    fn new(native: &'a Native, qp: NonNull<ibv_qp>, cq: NonNull<ibv_cq>) -> Self {
        let (qp, cq) = (qp.as_ptr(), cq.as_ptr());
        // SAFETY: both are alive longer than the result, and nothing else uses their queues.
        let handle = unsafe { (native.new)(qp, cq, SQ_OWN_REGISTER) };
        assert!(!handle.is_null());
        Self(native, handle)
    }

    fn post(&self, id: u64, request: &Request, remote: Remote, flags: u32) -> c_int {
        let Self(native, handle) = *self;
        let (addr, rkey) = (remote.addr, remote.rkey);
        // Solicited is for messages.
        let quiet = flags & !SOLICITED;
        // SAFETY: the handle is alive, bytes are readable, and memory is registered to the end of the test.
        unsafe {
            match request {
                Request::WriteInline(bytes) => {
                    let (data, length) = (bytes.as_ptr(), bytes.len() as u32);
                    (native.write_inline)(handle, id, data, length, addr, rkey, quiet)
                }
                Request::Fire(bytes) => {
                    let (data, length) = (bytes.as_ptr(), bytes.len() as u32);
                    (native.fire)(handle, id, data, length, addr, rkey, quiet)
                }
                Request::SendInline(bytes) => {
                    (native.send_inline)(handle, id, bytes.as_ptr(), bytes.len() as u32, flags)
                }
                Request::Write(sge) => (native.write)(handle, id, sge, addr, rkey, quiet),
                Request::Send(sge) => (native.send)(handle, id, sge, flags),
                Request::Nop => (native.nop)(handle, id, quiet),
            }
        }
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is used no more.
        unsafe { (self.0.free)(self.1) }
    }
}

/// Posts by the driver.
fn post(queue: &mut SendQueue<Rc>, id: u64, request: &Request, remote: Remote, flags: u32) {
    macro_rules! flagged {
        ($operation:expr) => {{
            let operation = $operation.signaled_if(flags & SIGNALED != 0);
            let operation = if flags & FENCED != 0 { operation.fenced() } else { operation };
            // SAFETY: memory is registered to the end of the test.
            unsafe { queue.post(id, operation) }.expect("posted")
        }};
        (solicited $operation:expr) => {
            if flags & SOLICITED != 0 {
                flagged!($operation.solicited())
            } else {
                flagged!($operation)
            }
        };
    }
    match request {
        Request::WriteInline(bytes) | Request::Fire(bytes) => {
            flagged!(RdmaWrite::new(Inline(bytes.as_slice()), remote))
        }
        Request::SendInline(bytes) => {
            flagged!(solicited SendMessage::new(Inline(bytes.as_slice())))
        }
        Request::Write(sge) => flagged!(RdmaWrite::new(*sge, remote)),
        Request::Send(sge) => flagged!(solicited SendMessage::new(*sge)),
        Request::Nop => flagged!(Nop::new()),
    }
}

/// Places and widths of a post's stores to the register, from the half that is used first on, and what was stored without
/// the queue pair's number. Bytes behind the WQE's end are no matter.
fn stored(
    log: Vec<Store>,
    first: &mut Option<usize>,
    bytes: usize,
) -> (Vec<(usize, usize)>, Vec<u8>) {
    let half = *first.get_or_insert(log[0].offset);
    let places = log.iter().map(|store| (store.offset ^ half, store.bytes.len())).collect();
    let mut all: Vec<u8> = log.into_iter().flat_map(|store| store.bytes).collect();
    all[4..7].fill(0);
    all.truncate(bytes);
    (places, all)
}

/// The WQE at an index, without the queue pair's number.
fn wqe(rings: &QpMemory, index: u32, bytes: usize) -> Vec<u8> {
    let ring = rings.send_ring();
    let at = index as usize * 64;
    let mut wqe: Vec<u8> = (0..bytes).map(|byte| ring[(at + byte) % ring.len()]).collect();
    wqe[4..7].fill(0);
    wqe
}

/// All that both ends have stored so far.
struct Compared {
    /// The driver's, then the header's.
    rings: [QpMemory; 2],
    /// The half of the register that each has used first.
    halves: [Option<usize>; 2],
    /// The place of the next WQE, in blocks.
    index: u32,
}

impl Compared {
    fn new(rings: [QpMemory; 2]) -> Self {
        Self { rings, halves: [None; 2], index: 0 }
    }

    /// Compares the stores of a post of so many bytes, and the logs of stores to registers.
    #[track_caller]
    fn post(&mut self, bytes: usize, logs: [Vec<Store>; 2], what: &str) {
        let [ours, theirs] = &self.rings;
        let index = self.index;
        assert_eq!(wqe(ours, index, bytes), wqe(theirs, index, bytes), "at {index}, {what}");
        assert_eq!(ours.record(), theirs.record(), "the record, {what}");
        let [our_log, their_log] = logs;
        let [our_half, their_half] = &mut self.halves;
        assert_eq!(
            stored(our_log, our_half, bytes),
            stored(their_log, their_half, bytes),
            "at {index}, {what}"
        );
        self.index += bytes.div_ceil(64) as u32;
    }

    fn has_wrapped(&self) -> bool {
        self.index as usize * 64 > 4 * self.rings[0].send_ring().len()
    }
}

#[test]
fn the_header_stores_what_the_driver_stores() {
    let native = Native::load();
    let rig = rig::ethernet::rig();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _recording = stores::record();
    let mut random = Random::new();
    let memory = rig.memory(MEMORY);
    let remote = Remote::new(memory.remote_address() + INTO as u64, memory.rkey());
    let (ours, theirs) = (line(&rig), line(&rig));
    let mut reader = CqReader::new(&ours.cq).unwrap();
    let mut queue = SendQueue::new(&ours.qp, &mut reader, SendConfig::default()).unwrap();
    let mut peer_reader = CqReader::new(&ours.peer_cq).unwrap();
    let mut receive =
        ReceiveQueue::new(&ours.peer, &mut peer_reader, ReceiveConfig::default()).unwrap();
    let end = End::new(&native, theirs.qp.as_raw(), theirs.cq.as_raw());
    let peer_end = End::new(&native, theirs.peer.as_raw(), theirs.peer_cq.as_raw());
    // SAFETY: the objects live to the end of the test.
    let [rings, peers] = unsafe {
        [[&ours.qp, &theirs.qp], [&ours.peer, &theirs.peer]]
            .map(|pair| pair.map(|qp| QpMemory::new(qp.as_raw())))
    };
    // SAFETY: the objects live to the end of the test.
    let cqs = [&ours, &theirs].map(|line| unsafe {
        (CqMemory::new(line.cq.as_raw()), CqMemory::new(line.peer_cq.as_raw()))
    });
    let (mut compared, mut unsignaled) = (Compared::new(rings), 0);
    for id in 0..u64::from(POSTS) {
        let request = Request::any(&mut random, &memory);
        unsignaled += 1;
        let mut flags = random.below(8) & (FENCED | SOLICITED);
        if unsignaled == 5 || random.one_in(2) {
            flags |= SIGNALED;
            unsignaled = 0;
        }
        if request.message().is_some() {
            let into = memory.sge(INTO, 2048).unwrap();
            // SAFETY: the memory is registered to the end of the test, and the handle is alive.
            unsafe {
                receive.post(id, into).unwrap();
                assert_eq!((native.receive)(peer_end.1, id, &into), 0);
            }
            assert_eq!(peers[0].receive_ring(), peers[1].receive_ring(), "the receive ring");
            assert_eq!(peers[0].record(), peers[1].record(), "the receive record");
        }
        drop(stores::take());
        post(&mut queue, id, &request, remote, flags);
        let our_log = stores::take();
        assert_eq!(end.post(id, &request, remote, flags), 0, "{request:?}");
        let their_log = stores::take();
        let what = || format!("post {id}: {request:?}, flags {flags}");
        compared.post(request.bytes(), [our_log, their_log], &what());
        // The model has executed it. Polls return the same.
        let done = reader.poll(&mut queue).unwrap();
        let mut their_id = u64::MAX;
        // SAFETY: the handle is alive.
        let found = unsafe { (native.poll)(end.1, &mut their_id) };
        match done {
            Some(Completion::Send(done)) => assert_eq!((found, their_id), (1, done.id)),
            None => assert_eq!(found, 0),
            other => panic!("{other:?}, {}", what()),
        }
        if let Some(length) = request.message() {
            let Some(Completion::Receive(done)) = peer_reader.poll(&mut receive).unwrap() else {
                panic!("no message, {}", what());
            };
            let (mut their_id, mut their_length) = (0, 0);
            // SAFETY: the handle is alive.
            let status =
                unsafe { (native.poll_receive)(peer_end.1, &mut their_id, &mut their_length) };
            assert_eq!((status, their_id, their_length), (0, done.id, length), "{}", what());
            assert_eq!(done.byte_len, length);
        }
        let [ours, theirs] = &cqs;
        assert_eq!(ours.0.record(), theirs.0.record(), "the CQ's record, {}", what());
        assert_eq!(ours.1.record(), theirs.1.record(), "the peer CQ's record, {}", what());
    }
    assert!(compared.has_wrapped());
}

/// The queues of one end, by the library.
struct Taken {
    cq: *mut mlx5direct::Cq,
    sq: *mut mlx5direct::Sq,
}

impl Taken {
    fn new(line: &Line) -> Self {
        let (mut cq, mut sq) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the objects are alive longer than the result, and nothing else uses their queues.
        unsafe {
            let taken = mlx5direct::mlx5_cq_take(line.cq.as_raw().as_ptr(), 0, &mut cq);
            assert_eq!(taken, Status::Ok);
            let qp = line.qp.as_raw().as_ptr();
            let taken = mlx5direct::mlx5_sq_take(qp, cq, 0, SQ_OWN_REGISTER, &mut sq);
            assert_eq!(taken, Status::Ok);
        }
        Self { cq, sq }
    }

    /// Prepares a WRITE.
    fn prepare(&self, id: u64, payload: &[Sge], remote: Remote, flags: u32) {
        let request = mlx5direct::Request {
            id,
            operation: mlx5direct::Operation::Write as u32,
            flags,
            sg_list: payload.as_ptr(),
            num_sge: payload.len() as u32,
            immediate: 0,
            remote_addr: remote.addr,
            rkey: remote.rkey,
            reserved: 0,
            compare_add: 0,
            swap: 0,
            compare_mask: 0,
            swap_mask: 0,
            address: ptr::null(),
        };
        // SAFETY: the handle is alive, inline bytes are readable, and memory is registered to the end of
        // the test.
        assert_eq!(unsafe { mlx5direct::mlx5_sq_prepare(self.sq, &request) }, Status::Ok);
    }

    /// Fires with these bytes of the payload, from a place on.
    fn fire(&self, at: usize, bytes: &[u8]) {
        let (offset, length) = (at as u32, bytes.len() as u32);
        let change = mlx5direct::Change { bytes: bytes.as_ptr().cast(), offset, length };
        let count = u32::from(length != 0);
        // SAFETY: the handle is alive, and memory is registered to the end of the test.
        assert_eq!(unsafe { mlx5direct::mlx5_sq_fire(self.sq, &change, count) }, Status::Ok);
    }

    /// Takes all completions, and returns their ids.
    fn poll(&self) -> Vec<u64> {
        // SAFETY: zeros are a completion.
        let mut done: [mlx5direct::Completion; 8] = unsafe { std::mem::zeroed() };
        // SAFETY: the handle is alive.
        let count = unsafe { mlx5direct::mlx5_cq_poll(self.cq, done.as_mut_ptr(), 8) };
        let count = usize::try_from(count).expect("no failure");
        done[..count].iter().map(|done| done.id).collect()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the handles are used no more.
        unsafe {
            mlx5direct::mlx5_sq_abandon(self.sq);
            mlx5direct::mlx5_cq_abandon(self.cq);
        }
    }
}

/// WRITEs inline, of which bytes change, and by pointer. Each waits behind the one that is fired before it.
#[test]
fn the_library_fires_what_the_driver_posts() {
    let rig = rig::ethernet::rig();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _recording = stores::record();
    let mut random = Random::new();
    let memory = rig.memory(MEMORY);
    let remote = Remote::new(memory.remote_address() + INTO as u64, memory.rkey());
    let (ours, theirs) = (line(&rig), line(&rig));
    let mut reader = CqReader::new(&ours.cq).unwrap();
    let mut queue = SendQueue::new(&ours.qp, &mut reader, SendConfig::default()).unwrap();
    let taken = Taken::new(&theirs);
    // SAFETY: the objects live to the end of the test.
    let rings = [&ours.qp, &theirs.qp].map(|qp| unsafe { QpMemory::new(qp.as_raw()) });
    // WQEs are written ahead of the record.
    rig::lint::be_lenient(&rings[1]);
    let (mut compared, mut waiting) = (Compared::new(rings), VecDeque::new());
    for id in 0..u64::from(POSTS) {
        let length = random.below(LONGEST_WRITE + 1) as usize;
        let mut bytes = random.bytes(length);
        let sge = memory.sge(0, random.below(2000) as usize).unwrap();
        let pointer = random.one_in(4);
        drop(stores::take());
        if pointer {
            taken.prepare(id, &[sge], remote, SIGNALED);
        } else {
            let addr = bytes.as_ptr().expose_provenance() as u64;
            let inline = [Sge::new(addr, length as u32, 0)];
            taken.prepare(id, &inline, remote, SIGNALED | INLINE);
        }
        assert!(stores::take().is_empty(), "a prepared request rings");
        let at = random.below(length as u32 + 1) as usize;
        let count = random.below((length - at) as u32 + 1);
        let changed = random.bytes(count as usize);
        bytes[at..at + changed.len()].copy_from_slice(&changed);
        let request = if pointer { Request::Write(sge) } else { Request::WriteInline(bytes) };
        waiting.push_back((id, request, at, if pointer { Vec::new() } else { changed }));
        while waiting.len() > 2 || id + 1 == u64::from(POSTS) {
            let Some((id, request, at, changed)) = waiting.pop_front() else { break };
            post(&mut queue, id, &request, remote, SIGNALED);
            let our_log = stores::take();
            taken.fire(at, &changed);
            let what = format!("post {id}: {request:?}, {} bytes at {at}", changed.len());
            compared.post(request.bytes(), [our_log, stores::take()], &what);
            let done = reader.poll(&mut queue).unwrap();
            assert!(matches!(done, Some(Completion::Send(done)) if done.id == id), "{what}");
            assert_eq!(taken.poll(), [id], "{what}");
        }
    }
    assert!(compared.has_wrapped());
}

/// A queue pair for packets.
fn packet_line(rig: &Rig) -> (QueuePair<RawPacket, Rts>, CompletionQueue) {
    let (cq, domain) = (rig.cq(511), ThreadDomain::new(&rig.context).expect("a thread domain"));
    let qp = QueuePairBuilder::<RawPacket>::new(&rig.pd, &cq).max_send_wr(64);
    let qp =
        qp.max_inline_data(LONGEST_WRITE).thread_domain(&domain).build().expect("a queue pair");
    let qp = qp.init(1).expect("INIT").rtr().expect("RTR").rts().expect("RTS");
    (qp, cq)
}

#[test]
fn the_header_stores_packets_as_the_driver_does() {
    let native = Native::load();
    let rig = rig::ethernet::rig();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _recording = stores::record();
    let mut random = Random::new();
    let memory = rig.memory(MEMORY);
    let (ours, theirs) = (packet_line(&rig), packet_line(&rig));
    let mut reader = CqReader::new(&ours.1).unwrap();
    let mut queue = SendQueue::new(&ours.0, &mut reader, SendConfig::default()).unwrap();
    let end = End::new(&native, theirs.0.as_raw(), theirs.1.as_raw());
    // SAFETY: the objects live to the end of the test.
    let mut compared =
        Compared::new([&ours.0, &theirs.0].map(|qp| unsafe { QpMemory::new(qp.as_raw()) }));
    for id in 0..u64::from(POSTS) {
        let length = 14 + random.below(LONGEST_WRITE + 1 - 14);
        let packet = random.bytes(length as usize);
        let flags = SIGNALED | (random.below(2) * CHECKSUMS);
        let form = random.below(3);
        drop(stores::take());
        let bytes = if form == 0 {
            let sge = memory.sge(0, length as usize).unwrap();
            // SAFETY: the memory is registered to the end of the test.
            unsafe { queue.post(id, with_checksums(EthSend::new(sge).signaled(), flags)) }.unwrap();
            48
        } else {
            let send = EthSend::new(Inline(packet.as_slice())).signaled();
            // SAFETY: the payload is copied.
            unsafe { queue.post(id, with_checksums(send, flags)) }.unwrap();
            36 + packet.len()
        };
        let our_log = stores::take();
        let (data, sge) = (packet.as_ptr(), memory.sge(0, length as usize).unwrap());
        // SAFETY: the handle is alive, and the memory is registered to the end of the test.
        let status = unsafe {
            match form {
                0 => (native.packet)(end.1, id, &sge, flags),
                1 => (native.packet_inline)(end.1, id, data, length, flags),
                _ => (native.fire_packet)(end.1, id, data, length, flags),
            }
        };
        assert_eq!(status, 0);
        let what = format!("post {id}: form {form} of {length} bytes, flags {flags}");
        compared.post(bytes, [our_log, stores::take()], &what);
        let mut their_id = u64::MAX;
        // SAFETY: the handle is alive.
        assert_eq!(unsafe { (native.poll)(end.1, &mut their_id) }, 1, "{what}");
        assert_eq!(their_id, id);
        assert!(
            matches!(reader.poll(&mut queue).unwrap(), Some(Completion::Send(done)) if done.id == id)
        );
    }
    assert!(compared.has_wrapped());
}

/// The request with these flags.
fn with_checksums<P: Payload>(send: EthSend<'_, P>, flags: u32) -> EthSend<'_, P> {
    if flags & CHECKSUMS != 0 { send.checksums() } else { send }
}
