//! Tests in two processes. A test starts its own program again for the peer's part, and both sides
//! talk over a connection. Queues are posted to and polled by this crate or, with a [`Library`], by
//! libmlx5.

use std::time::Instant;

use mlx5::connect::{Connection, Listener};
use mlx5::ib::{Receives, Transport, Ud};
use mlx5::verbs::attr::{RtrAttributes, RtsAttributes, UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Connected, MemoryRegion, QueuePair, QueuePairBuilder, Rts,
};
use mlx5::wqe::{Remote, Sge};
use mlx5_sys::verbs::{ibv_send_wr, ibv_wc, ibv_wc_status, ibv_wr_opcode};

use super::multicast::GROUPS;
use rig::pair::Pair;
use rig::process::{self, Peer};
use rig::verbs::{self, Request};
use rig::{Line, QKEY, Side};
use rig::{PATIENCE, Rig};

/// In the peer's environment: where the test listens.
const ADDRESS: &str = "MLX5_PEER_ADDRESS";
/// Bytes of either side's memory.
const MEMORY: usize = 1 << 16;

/// Runs `test` again in a process of its own, where it does the peer's part, and does this one's with it.
pub fn with_peer(
    test: impl Fn(),
    peer: impl FnOnce(Rig, Connection),
    own: impl FnOnce(Rig, Connection),
) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    if process::role().is_some() {
        let address =
            std::env::var(ADDRESS).expect("a test that starts this says where it listens");
        return peer(rig, Connection::connect(address.as_str(), PATIENCE).unwrap());
    }
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut command = process::child(test, "peer");
    let other = Peer::start(
        command
            .env(GROUPS, std::process::id().to_string())
            .env(ADDRESS, listener.local_address().unwrap().to_string()),
    );
    own(rig, listener.accept(PATIENCE).unwrap());
    other.end();
}

/// Changes attributes of a connection before it is made, except the other side's address.
pub type Attributes<'a> = &'a dyn Fn(&mut RtrAttributes, &mut RtsAttributes);

/// A connection to the other process, as both kinds of sides have it.
fn pair<'a, T>(rig: &'a Rig, change: Attributes<'a>) -> Pair<'a, T>
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    let pair = rig.pair::<T>().entries(512).memory(MEMORY);
    let pair = pair.qp(|qp| qp.max_send_wr(64).max_recv_wr(128).max_inline_data(64));
    pair.attributes(move |_, rtr, rts| change(rtr, rts))
}

/// Either side's end of a connection between the processes, and the other side's memory.
pub fn connected<T>(rig: &Rig, control: &mut Connection, change: Attributes) -> (Side<T>, Remote)
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    pair(rig, change).side_to(control)
}

/// A side whose queues libmlx5 posts to and polls.
pub struct Library<T: Transport> {
    pub memory: MemoryRegion,
    pub qp: QueuePair<T, Rts>,
    pub cq: CompletionQueue,
}

impl<T> Library<T>
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    /// Connects like the function [`connected`].
    pub fn connected(rig: &Rig, control: &mut Connection, change: Attributes) -> (Self, Remote) {
        let (Line { qp, cq, memory }, remote) = pair(rig, change).line_to(control);
        (Self { memory, qp, cq }, remote)
    }
}

impl Library<Ud> {
    /// A queue pair for datagrams.
    pub fn datagrams(rig: &Rig) -> Self {
        let cq = rig.cq(512);
        let builder = QueuePairBuilder::<Ud>::new(&rig.pd, &cq);
        let qp = builder.max_send_wr(64).max_recv_wr(128).max_inline_data(64).build().unwrap();
        let qp = qp.init(&UdInitAttributes::new(1, QKEY)).unwrap().rtr().unwrap();
        let qp = qp.rts(&UnreliableRtsAttributes::default()).unwrap();
        Self { memory: rig.memory(MEMORY), qp, cq }
    }
}

/// Tells the other process of a queue pair for datagrams, and hears of one there.
pub fn exchange_datagrams(
    rig: &Rig,
    control: &mut Connection,
    qp: &QueuePair<Ud, Rts>,
) -> (AddressHandle, u32) {
    let theirs = control.exchange(&rig.local.connection_data(qp)).unwrap();
    (AddressHandle::new(&rig.pd, &rig.local.address(&theirs)).unwrap(), theirs.qpn)
}

impl<T: Transport> Library<T> {
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    /// Posts a signaled request, of which `say` says what verbs have no common place for. Memory that
    /// it names must live to the end.
    pub fn post(
        &self,
        id: u64,
        opcode: ibv_wr_opcode::Type,
        list: &[Sge],
        mut say: impl FnMut(&mut ibv_send_wr),
    ) {
        let request = Request::signaled(id, opcode, list);
        // SAFETY: the queue pair is alive; the caller vouches for the memory.
        unsafe { verbs::post_send_with(self.qp.as_raw(), &[request], |_, wr| say(wr)).unwrap() };
    }

    pub fn receive(&self, id: u64, offset: usize, length: usize) {
        // SAFETY: the queue pair is alive, and memory as long.
        let posted =
            unsafe { verbs::post_receive(self.qp.as_raw(), id, &[self.sge(offset, length)]) };
        posted.unwrap();
    }

    /// The next completion, if there is one.
    pub fn poll(&self) -> Option<ibv_wc> {
        // SAFETY: the CQ is alive, and no other code polls it.
        unsafe { verbs::poll(self.cq.as_raw()) }.unwrap()
    }

    /// The next completion.
    pub fn wait(&self) -> ibv_wc {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            assert!(Instant::now() < deadline, "no completion");
            std::thread::yield_now();
        }
    }

    /// The next completion, which is a success.
    pub fn success(&self) -> ibv_wc {
        let done = self.wait();
        assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS, "request {:#x}", done.wr_id);
        done
    }
}

/// Returns a change to requests of verbs that sets their remote memory.
pub fn to(remote: Remote) -> impl FnMut(&mut ibv_send_wr) {
    move |wr| {
        wr.wr.rdma.remote_addr = remote.addr;
        wr.wr.rdma.rkey = remote.rkey;
    }
}

/// Places in memory as they are told to the other side.
pub fn told(places: &[Remote]) -> Vec<u8> {
    let one = |place: &Remote| [&place.addr.to_be_bytes()[..], &place.rkey.to_be_bytes()].concat();
    places.iter().flat_map(one).collect()
}

/// Parses the memory that the other side [told](told).
pub fn heard(bytes: &[u8]) -> Vec<Remote> {
    let one = |bytes: &[u8]| {
        let (addr, rkey) = bytes.split_at(8);
        Remote::new(
            u64::from_be_bytes(addr.try_into().unwrap()),
            u32::from_be_bytes(rkey.try_into().unwrap()),
        )
    };
    bytes.chunks_exact(12).map(one).collect()
}
