//! Programs that must not compile, each with the error that stops it, beside one that differs in
//! nothing else and does.
//!
//! Sends are posted in RTS, not before:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*};
//! fn early(qp: &QueuePair<Rc, Rtr>, completions: &mut Completions) -> mlx5::Result<SendQueue> {
//!     SendQueue::new(qp, completions, SendConfig::default())
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*};
//! fn ready(qp: &QueuePair<Rc, Rts>, completions: &mut Completions) -> mlx5::Result<SendQueue> {
//!     SendQueue::new(qp, completions, SendConfig::default())
//! }
//! ```
//!
//! Receives are posted in INIT or later:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*};
//! fn early(qp: &QueuePair<Rc, Reset>, completions: &mut Completions) -> mlx5::Result<ReceiveQueue> {
//!     ReceiveQueue::new(qp, completions, ReceiveConfig::default())
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*};
//! fn ready(qp: &QueuePair<Rc, Init>, completions: &mut Completions) -> mlx5::Result<ReceiveQueue> {
//!     ReceiveQueue::new(qp, completions, ReceiveConfig::default())
//! }
//! ```
//!
//! A move from one state to the next uses the queue pair up:
//! ```compile_fail,E0382
//! # use mlx5::verbs::*;
//! fn twice(qp: QueuePair<Rc, Init>, to: &RtrAttributes) {
//!     let connected = qp.rtr(to);
//!     let again = qp.rtr(to);
//! }
//! ```
//! ```
//! # use mlx5::verbs::*;
//! fn once(qp: QueuePair<Rc, Init>, to: &RtrAttributes) {
//!     let connected = qp.rtr(to);
//! }
//! ```
//!
//! An object that was destroyed is not asked about, and capabilities are of an opened device:
//! ```compile_fail,E0382
//! # use mlx5::devx::*;
//! fn late(object: Object, query: &Command) {
//!     let _ = object.destroy();
//!     let _ = object.query(query);
//! }
//! ```
//! ```compile_fail,E0515
//! # use mlx5::{devx::*, verbs::*};
//! fn kept() -> mlx5::Result<Capabilities<'static>> {
//!     let context = Context::open_first()?;
//!     Ok(context.capabilities())
//! }
//! ```
//! ```
//! # use mlx5::{devx::*, verbs::*};
//! fn in_time(object: Object, query: &Command) {
//!     let _ = object.query(query);
//!     let _ = object.destroy();
//! }
//! fn kept(context: &Context) -> Capabilities<'_> {
//!     context.capabilities()
//! }
//! ```
//!
//! Commands that create or change an object can give the card access to any memory, and start WQEs
//! again whose memory was given back. They take a promise; queries take none:
//! ```compile_fail,E0133
//! # use mlx5::{devx::*, verbs::*};
//! fn create(command: &Command, context: &Context) {
//!     let _ = command.create(context);
//! }
//! ```
//! ```compile_fail,E0133
//! # use mlx5::{devx::*, verbs::*};
//! fn execute(command: &Command, context: &Context) {
//!     let _ = command.execute(context);
//! }
//! ```
//! ```compile_fail,E0133
//! # use mlx5::devx::*;
//! fn change(key: &Mkey, command: &Command) {
//!     let _ = key.object().modify(command);
//! }
//! ```
//! ```compile_fail,E0133
//! # use mlx5::{devx::*, ring::owned::Channel};
//! fn reset(channel: &Channel, command: &Command) {
//!     let _ = channel.queue_pair().modify_by(command);
//! }
//! ```
//! ```
//! # use mlx5::{devx::*, ring::owned::Channel, verbs::*};
//! fn ask(context: &Context, key: &Mkey, channel: &Channel, command: &Command) {
//!     let _ = command.query(context);
//!     let _ = key.object().query(command);
//!     let _ = channel.queue_pair().query_by(command);
//! }
//! ```
//!
//! What was seen of the next completion is not looked at once a poll has taken it:
//! ```compile_fail,E0499
//! # use mlx5::ring::*;
//! fn late(completions: &mut Completions, queue: &mut SendQueue) -> Result<u64, PollError> {
//!     let Some(next) = completions.peek()? else { return Ok(0) };
//!     let _ = completions.poll(queue)?;
//!     Ok(next.timestamp())
//! }
//! ```
//! ```
//! # use mlx5::ring::*;
//! fn in_time(completions: &mut Completions, queue: &mut SendQueue) -> Result<u64, PollError> {
//!     let Some(next) = completions.peek()? else { return Ok(0) };
//!     let time = next.timestamp();
//!     let _ = completions.poll(queue)?;
//!     Ok(time)
//! }
//! ```
//!
//! A completion queue whose ring others may look at is not given another one:
//! ```compile_fail,E0596
//! # use mlx5::verbs::*;
//! fn shared(cq: &CompletionQueue) -> mlx5::Result<()> {
//!     cq.resize(1000)
//! }
//! ```
//! ```
//! # use mlx5::verbs::*;
//! fn alone(cq: &mut CompletionQueue) -> mlx5::Result<()> {
//!     cq.resize(1000)
//! }
//! ```
//!
//! No state is left out:
//! ```compile_fail,E0599
//! # use mlx5::verbs::*;
//! fn skip(qp: QueuePair<Rc, Init>, to: &RtsAttributes) {
//!     let _ = qp.rts(to);
//! }
//! ```
//! ```
//! # use mlx5::verbs::*;
//! fn step(qp: QueuePair<Rc, Rtr>, to: &RtsAttributes) {
//!     let _ = qp.rts(to);
//! }
//! ```
//!
//! A batch is rung once:
//! ```compile_fail,E0382
//! # use mlx5::{ring::*, wqe::*};
//! fn twice(queue: &mut SendQueue) -> Result<(), PostError> {
//!     let mut batch = queue.batch();
//!     batch.append(1, Nop::new())?;
//!     unsafe { batch.ring() };
//!     batch.append(2, Nop::new())
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, wqe::*};
//! fn once(queue: &mut SendQueue) -> Result<(), PostError> {
//!     let mut batch = queue.batch();
//!     batch.append(1, Nop::new())?;
//!     batch.append(2, Nop::new())?;
//!     unsafe { batch.ring() };
//!     Ok(())
//! }
//! ```
//!
//! A queue has one batch at a time, and is not polled for while it is filled:
//! ```compile_fail,E0499
//! # use mlx5::{ring::*, wqe::*};
//! fn two(queue: &mut SendQueue) {
//!     let (first, second) = (queue.batch(), queue.batch());
//! }
//! ```
//! ```compile_fail,E0499
//! # use mlx5::{ring::*, wqe::*};
//! fn polled(queue: &mut SendQueue, completions: &mut Completions) {
//!     let batch = queue.batch();
//!     let _ = completions.poll(queue);
//!     unsafe { batch.ring() };
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, wqe::*};
//! fn in_turn(queue: &mut SendQueue, completions: &mut Completions) {
//!     let batch = queue.batch();
//!     unsafe { batch.ring() };
//!     let _ = completions.poll(queue);
//! }
//! ```
//!
//! Naming memory by address takes a promise:
//! ```compile_fail,E0133
//! # use mlx5::{ring::*, wqe::*};
//! fn post(queue: &mut SendQueue, sge: Sge) -> Result<(), PostError> {
//!     queue.post(1, Send::new(sge))
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::{ring::owned::*, wqe::*};
//! fn post(channel: &mut Channel, sge: Sge) {
//!     let _ = channel.post(1, Send::new(sge));
//! }
//! ```
//! ```
//! # use mlx5::{ring::owned::*, wqe::*};
//! fn post(channel: &mut Channel, slice: Slice) {
//!     let _ = channel.post(1, Send::new(slice));
//! }
//! ```
//!
//! Memory in flight is out of reach, also by what was borrowed of it before:
//! ```compile_fail,E0382
//! # use mlx5::{ring::owned::*, wqe::*};
//! fn read(channel: &mut Channel, slice: Slice) -> Vec<u8> {
//!     let _ = channel.post_receive(1, slice);
//!     slice.to_vec()
//! }
//! ```
//! ```compile_fail,E0505
//! # use mlx5::{ring::owned::*, wqe::*};
//! fn keep(channel: &mut Channel, mut slice: Slice) -> u8 {
//!     let bytes = slice.as_mut_slice().unwrap();
//!     let _ = channel.post_receive(1, slice);
//!     bytes[0]
//! }
//! ```
//! ```
//! # use mlx5::{ring::owned::*, wqe::*};
//! fn before(channel: &mut Channel, mut slice: Slice) -> u8 {
//!     let byte = slice.as_mut_slice().unwrap()[0];
//!     let _ = channel.post_receive(1, slice);
//!     byte
//! }
//! ```
//!
//! A slice is not copied, and its region is not reached past it:
//! ```compile_fail,E0277
//! # use mlx5::{ring::owned::*, wqe::*};
//! fn copy(slice: &Slice) -> Slice {
//!     Slice::clone(slice)
//! }
//! ```
//! ```compile_fail,E0382
//! # use mlx5::{ring::owned::*, verbs::*};
//! fn both(mut region: MemoryRegion) -> Slice {
//!     let slice = Slice::new(region);
//!     region.write(0, b"behind its back");
//!     slice
//! }
//! ```
//! ```
//! # use mlx5::{ring::owned::*, verbs::*};
//! fn either(mut region: MemoryRegion) -> Slice {
//!     region.write(0, b"before");
//!     Slice::new(region)
//! }
//! ```
//!
//! Two threads do not write one region, post to one queue or poll one CQ:
//! ```compile_fail,E0596
//! # use mlx5::verbs::*;
//! fn write(region: &MemoryRegion) {
//!     region.write(0, b"so may others");
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::ring::*;
//! fn shared<T: Sync>() {}
//! shared::<SendQueue>();
//! ```
//! ```compile_fail,E0277
//! # use mlx5::ring::*;
//! fn shared<T: Sync>() {}
//! shared::<ReceiveQueue>();
//! ```
//! ```compile_fail,E0277
//! # use mlx5::ring::*;
//! fn shared<T: Sync>() {}
//! shared::<Completions>();
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*};
//! fn moved<T: Send>() {}
//! moved::<SendQueue>();
//! moved::<ReceiveQueue>();
//! moved::<Completions>();
//! moved::<owned::Channel>();
//! fn shared<T: Sync>() {}
//! shared::<MemoryRegion>();
//! ```
//!
//! The memory of a region is an owner of its own, or a promise:
//! ```compile_fail,E0597
//! # use mlx5::verbs::*;
//! fn borrowed(pd: &ProtectionDomain) -> mlx5::Result<MemoryRegion> {
//!     let mut bytes = [0u8; 64];
//!     Ok(pd.register(&mut bytes[..], Access::LOCAL_WRITE)?)
//! }
//! ```
//! ```compile_fail,E0200
//! # use mlx5::verbs::*;
//! struct Liar;
//! impl Buffer for Liar {
//!     fn into_parts(self) -> (std::ptr::NonNull<u8>, usize, usize) {
//!         (std::ptr::NonNull::dangling(), 1 << 40, 0)
//!     }
//!     unsafe fn from_parts(_: std::ptr::NonNull<u8>, _: usize, _: usize) -> Self {
//!         Liar
//!     }
//! }
//! ```
//! ```
//! # use mlx5::verbs::*;
//! fn owned(pd: &ProtectionDomain) -> mlx5::Result<MemoryRegion> {
//!     let bytes = vec![0u8; 64];
//!     Ok(pd.register(bytes, Access::LOCAL_WRITE)?)
//! }
//! ```
//!
//! A reliable connection fails as a whole; a send queue that stopped alone goes on:
//! ```compile_fail,E0599
//! # use mlx5::{ring::*, verbs::*};
//! fn again(queue: &mut SendQueue<Rc>) {
//!     let _ = queue.recover();
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*};
//! fn again(queue: &mut SendQueue<Ud>) {
//!     let _ = queue.recover();
//! }
//! ```
//!
//! Memory of the card has no bytes to borrow, and no region of its own kind is taken for one of the
//! process's:
//! ```compile_fail,E0308
//! # use mlx5::{ring::owned::*, verbs::*};
//! fn lend(region: DeviceRegion) -> Slice {
//!     Slice::new(region)
//! }
//! ```
//! ```compile_fail,E0133
//! # use mlx5::verbs::*;
//! fn everything(pd: &ProtectionDomain) -> mlx5::Result<WholeRegion> {
//!     pd.register_whole(Access::LOCAL_WRITE)
//! }
//! ```
//! ```
//! # use mlx5::{ring::owned::*, verbs::*};
//! fn lend(region: MemoryRegion) -> Slice {
//!     Slice::new(region)
//! }
//! ```
//!
//! Atomics, also those under masks, have a reliable connection's peer to answer them:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn unreliable(queue: &mut SendQueue<Uc>, old: Word, at: Remote) {
//!     let _ = unsafe { queue.post(1, MaskedFetchAdd::new(old, at, 1u64)) };
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn reliable(queue: &mut SendQueue<Rc>, old: Word, at: Remote) {
//!     let _ = unsafe { queue.post(1, MaskedFetchAdd::new(old, at, 1u64)) };
//! }
//! ```
//!
//! Their numbers have a size that cards know:
//! ```compile_fail,E0277
//! # use mlx5::wqe::*;
//! fn short(old: Word, at: Remote) {
//!     let _ = MaskedFetchAdd::new(old, at, 1u16);
//! }
//! ```
//! ```
//! # use mlx5::wqe::*;
//! fn long(old: Word, at: Remote) {
//!     let _ = MaskedFetchAdd::new(old, at, 1u32);
//! }
//! ```
//!
//! A WQE given as bytes is the caller's promise:
//! ```compile_fail,E0133
//! # use mlx5::wqe::*;
//! fn taken(bytes: &[u8]) -> Result<RawWqe<'_>, RawWqeError> {
//!     RawWqe::new(bytes)
//! }
//! ```
//! ```
//! # use mlx5::wqe::*;
//! fn promised(bytes: &[u8]) -> Result<RawWqe<'_>, RawWqeError> {
//!     // SAFETY: …
//!     unsafe { RawWqe::new(bytes) }
//! }
//! ```
//!
//! A BlueFlame register that several queues copy to is one thread's, and one queue's at a time:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, wqe::*};
//! fn two_threads(register: &mut DedicatedRegister) {
//!     let shared = &*register;
//!     std::thread::scope(|threads| {
//!         threads.spawn(|| shared.len());
//!     });
//! }
//! ```
//! ```compile_fail,E0499
//! # use mlx5::{ring::*, wqe::*};
//! fn two_turns(register: &mut DedicatedRegister) {
//!     let (mut first, mut second) = (register.turn(0), register.turn(1));
//!     let _ = (first.batch(), second.batch());
//! }
//! ```
//! ```compile_fail,E0382
//! # use mlx5::{ring::*, wqe::*};
//! fn two_owners(register: DedicatedRegister) {
//!     let there = std::thread::spawn(move || register.len());
//!     let here = register.len();
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, wqe::*};
//! fn moved(mut register: DedicatedRegister) {
//!     let there = std::thread::spawn(move || {
//!         let first = register.turn(0).free_blocks();
//!         first + register.turn(1).free_blocks()
//!     });
//! }
//! ```
//!
//! A datagram carries its address, and there is nothing but SEND:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn to_nobody(queue: &mut SendQueue<Ud>, sge: Sge) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Send::new(sge)) }
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn read(queue: &mut SendQueue<Ud>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Read::new(sge, Remote::new(0, 0)).to(to)) }
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn to_somebody(queue: &mut SendQueue<Ud>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Send::new(sge).to(to)) }
//! }
//! ```
//!
//! An initiator of dynamic connections has nobody to send to by itself, and receives nothing; a target
//! only receives:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn to_nobody(queue: &mut SendQueue<Dci>, sge: Sge) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Write::new(sge, Remote::new(0, 0))) }
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn datagram(queue: &mut SendQueue<Dci>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Write::new(sge, Remote::new(0, 0)).to(to)) }
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*};
//! fn receives(qp: &QueuePair<Dci, Rts>, completions: &mut Completions) -> mlx5::Result<ReceiveQueue> {
//!     ReceiveQueue::new(qp, completions, ReceiveConfig::default())
//! }
//! ```
//! ```compile_fail,E0599
//! # use mlx5::verbs::*;
//! fn sends(qp: QueuePair<Dct, Rtr>) {
//!     let _ = qp.rts(&RtsAttributes::default());
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn to_target(queue: &mut SendQueue<Dci>, sge: Sge, to: DcAddress) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Write::new(sge, Remote::new(0, 0)).to(to)) }
//! }
//! fn receives(
//!     qp: &QueuePair<Dct, Rtr>,
//!     shared: &mut SharedReceives,
//!     completions: &mut Completions,
//! ) -> mlx5::Result<()> {
//!     shared.attach(qp, completions)
//! }
//! fn sends(qp: QueuePair<Dci, Rtr>) {
//!     let _ = qp.rts(&RtsAttributes::default());
//! }
//! ```
//!
//! A connection's requests go to its peer, wherever they are said to go:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn elsewhere(queue: &mut SendQueue<Rc>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Send::new(sge).to(to)) }
//! }
//! ```
//!
//! An unreliable connection has no answers: no READ, no atomics, and no timeouts.
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn add(queue: &mut SendQueue<Uc>, old: Word, remote: Remote) -> Result<(), PostError> {
//!     unsafe { queue.post(1, FetchAdd::new(old, remote, 1)) }
//! }
//! ```
//! ```compile_fail,E0308
//! # use mlx5::verbs::*;
//! fn timeouts(qp: QueuePair<Uc, Rtr>) {
//!     let _ = qp.rts(&RtsAttributes::default());
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn write(queue: &mut SendQueue<Uc>, sge: Sge, remote: Remote) -> Result<(), PostError> {
//!     unsafe { queue.post(1, Write::new(sge, remote)) }
//! }
//! fn none(qp: QueuePair<Uc, Rtr>) {
//!     let _ = qp.rts(&UcRtsAttributes::default());
//! }
//! ```
//!
//! Only datagrams are multicast:
//! ```compile_fail,E0599
//! # use mlx5::verbs::*;
//! fn join(qp: &QueuePair<Uc, Rts>, group: Gid) -> mlx5::Result<MulticastMembership> {
//!     qp.attach_multicast(group, 0)
//! }
//! ```
//! ```
//! # use mlx5::verbs::*;
//! fn join(qp: &QueuePair<Ud, Rts>, group: Gid) -> mlx5::Result<MulticastMembership> {
//!     qp.attach_multicast(group, 0)
//! }
//! ```
//!
//! Who gives queues their memory makes a promise:
//! ```compile_fail,E0200
//! # use mlx5::verbs::*;
//! struct Liar;
//! impl QueueAllocator for Liar {
//!     fn allocate(&self, _: usize, _: usize, _: QueueBuffer) -> Option<std::ptr::NonNull<u8>> {
//!         Some(std::ptr::NonNull::dangling())
//!     }
//!     unsafe fn free(&self, _: std::ptr::NonNull<u8>, _: QueueBuffer) {}
//! }
//! ```
//! ```
//! # use mlx5::verbs::*;
//! fn placed(builder: QueuePairBuilder<Rc>) -> mlx5::Result<QueuePair<Rc, Reset>> {
//!     builder.placement(&std::sync::Arc::new(Placement::new().on_node(0))).build()
//! }
//! ```
//!
//! Memory windows are bound on connections, and only those of type 2 are invalidated:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn bind(queue: &mut SendQueue<Ud>, request: BindWindow) -> Result<(), PostError> {
//!     unsafe { queue.post(1, request) }
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn bind(queue: &mut SendQueue<Uc>, request: BindWindow) -> Result<(), PostError> {
//!     unsafe { queue.post(1, request) }
//! }
//! ```
//! ```compile_fail,E0599
//! # use mlx5::{verbs::*, wqe::*};
//! fn end(window: &MemoryWindow<Type1>) -> LocalInvalidate {
//!     window.invalidate()
//! }
//! ```
//! ```
//! # use mlx5::{verbs::*, wqe::*};
//! fn end(window: &MemoryWindow<Type2>) -> LocalInvalidate {
//!     window.invalidate()
//! }
//! ```
//!
//! An unreliable connection has no SEND with invalidate:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn end(queue: &mut SendQueue<Uc>, rkey: u32) -> Result<(), PostError> {
//!     unsafe { queue.post(1, SendInvalidate::new(Inline(b"done"), rkey)) }
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn end(queue: &mut SendQueue<Rc>, rkey: u32) -> Result<(), PostError> {
//!     unsafe { queue.post(1, SendInvalidate::new(Inline(b"done"), rkey)) }
//! }
//! ```
//!
//! A request on an extended reliable connection names a shared receive queue:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn nowhere(queue: &mut SendQueue<XrcSend>, sge: Sge) {
//!     let _ = unsafe { queue.post(1, Send::new(sge)) };
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn elsewhere(queue: &mut SendQueue<XrcSend>, sge: Sge, to: UdAddress) {
//!     let _ = unsafe { queue.post(1, Send::new(sge).to(to)) };
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn somewhere(queue: &mut SendQueue<XrcSend>, sge: Sge, to: XrcAddress) {
//!     let _ = unsafe { queue.post(1, Send::new(sge).to(to)) };
//! }
//! ```
//!
//! So does SEND with invalidate, while the change of a key of this side goes nowhere:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn nowhere(queue: &mut SendQueue<XrcSend>, rkey: u32) {
//!     let _ = unsafe { queue.post(1, SendInvalidate::new(Inline(b"done"), rkey)) };
//! }
//! ```
//! ```compile_fail,E0599
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn somewhere(queue: &mut SendQueue<Dci>, rkey: u32, to: DcAddress) {
//!     let _ = unsafe { queue.post(1, LocalInvalidate::new(rkey).to(to)) };
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! fn both(xrc: &mut SendQueue<XrcSend>, dc: &mut SendQueue<Dci>, rkey: u32, to: XrcAddress) {
//!     let _ = unsafe { xrc.post(1, SendInvalidate::new(Inline(b"done"), rkey).to(to)) };
//!     let _ = unsafe { dc.post(1, LocalInvalidate::new(rkey)) };
//! }
//! ```
//!
//! Neither end of one takes receives, and the end that answers has no queues at all:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*};
//! fn receive(qp: &QueuePair<XrcSend, Init>, completions: &mut Completions) {
//!     let _ = ReceiveQueue::new(qp, completions, ReceiveConfig::default());
//! }
//! ```
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*};
//! fn share(srq: &mut SharedReceives, qp: &QueuePair<XrcRecv, Init>, cq: &mut Completions) {
//!     let _ = srq.attach(qp, cq);
//! }
//! ```
//! ```compile_fail,E0599
//! # use mlx5::verbs::*;
//! fn answers(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue) {
//!     let _ = QueuePairBuilder::<XrcSend>::new(pd, cq).shared_receive_queue(srq);
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*};
//! fn share(srq: &mut SharedReceives, qp: &QueuePair<Rc, Init>, cq: &mut Completions) {
//!     let _ = srq.attach(qp, cq);
//! }
//! fn answers(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue) {
//!     let _ = QueuePairBuilder::<Rc>::new(pd, cq).shared_receive_queue(srq);
//! }
//! ```
//!
//! A shared receive queue has one batch at a time, and is not polled for while it is filled:
//! ```compile_fail,E0499
//! # use mlx5::ring::*;
//! fn polled(queue: &mut SharedReceives, completions: &mut Completions) {
//!     let batch = queue.batch();
//!     let _ = completions.poll(queue);
//!     unsafe { batch.ring() };
//! }
//! ```
//! ```
//! # use mlx5::ring::*;
//! fn in_turn(queue: &mut SharedReceives, completions: &mut Completions) {
//!     let batch = queue.batch();
//!     unsafe { batch.ring() };
//!     let _ = completions.poll(queue);
//! }
//! ```
//!
//! A queue pair for frames of Ethernet sends frames, and nothing to a peer's memory:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn write(queue: &mut SendQueue<RawPacket>, sge: Sge, remote: Remote) {
//!     let _ = unsafe { queue.post(1, Write::new(sge, remote)) };
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn frame(queue: &mut SendQueue<RawPacket>, sge: Sge) {
//!     let _ = unsafe { queue.post(1, EthSend::new(sge)) };
//! }
//! ```
//!
//! Large sends are of Ethernet alone, and their header is not left out:
//! ```compile_fail,E0277
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn large(queue: &mut SendQueue<Ud>, header: &[u8], sge: Sge) {
//!     let _ = unsafe { queue.post(1, EthTso::new(header, 1400, sge)) };
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*, wqe::*};
//! unsafe fn large(queue: &mut SendQueue<RawPacket>, header: &[u8], sge: Sge) {
//!     let _ = unsafe { queue.post(1, EthTso::new(header, 1400, sge)) };
//! }
//! ```
//!
//! Memory that was posted to a striding receiver comes back when it is reclaimed, and not before:
//! ```compile_fail,E0382
//! # use mlx5::ring::owned::*;
//! fn both(receiver: &mut StridingReceiver, memory: Slice) {
//!     let _ = receiver.post(memory);
//!     memory.to_vec();
//! }
//! ```
//! ```
//! # use mlx5::ring::owned::*;
//! fn again(receiver: &mut StridingReceiver) {
//!     if let Some(memory) = receiver.reclaim() {
//!         let _ = receiver.post(memory);
//!     }
//! }
//! ```
//!
//! Tags are matched on reliable connections alone:
//! ```compile_fail,E0271
//! # use mlx5::{ring::*, verbs::*};
//! fn datagrams(tags: &mut TaggedReceives, qp: &QueuePair<Ud, Init>, completions: &mut Completions) {
//!     let _ = tags.attach(qp, completions);
//! }
//! ```
//! ```
//! # use mlx5::{ring::*, verbs::*};
//! fn reliable(tags: &mut TaggedReceives, qp: &QueuePair<Rc, Init>, completions: &mut Completions) {
//!     let _ = tags.attach(qp, completions);
//! }
//! ```
//!
//! What matches tags is polled by its own poll, which others would take completions from:
//! ```compile_fail,E0277
//! # use mlx5::ring::*;
//! fn others(tags: &mut TaggedReceives, completions: &mut Completions) {
//!     let _ = completions.poll(tags);
//! }
//! ```
//! ```
//! # use mlx5::ring::*;
//! fn own(tags: &mut TaggedReceives, completions: &mut Completions) {
//!     let _ = tags.poll(completions, &mut ());
//! }
//! ```
//!
//! A header is put before memory that is named, since the WQE's own room for bytes is the header's:
//! ```compile_fail,E0277
//! # use mlx5::wqe::*;
//! let message = TagHeader::eager(7).with(Inline(b"bytes"));
//! ```
//! ```
//! # use mlx5::wqe::*;
//! let message = TagHeader::eager(7).with(Sge::new(0, 5, 0));
//! ```
//!
//! A key over pieces of memory may grant more of them than they were registered for, so whoever makes
//! one vouches for that:
//! ```compile_fail,E0133
//! # use mlx5::{devx::*, wqe::*};
//! fn over(pd: &ProtectionDomain, piece: Sge) {
//!     let _ = Mkey::builder(pd).list(&[piece]);
//! }
//! ```
//! ```
//! # use mlx5::{devx::*, wqe::*};
//! unsafe fn over(pd: &ProtectionDomain, piece: Sge) {
//!     let _ = unsafe { Mkey::builder(pd).list(&[piece]) };
//! }
//! ```
//!
//! A send queue of Ethernet has no receives:
//! ```compile_fail,E0277
//! # use mlx5::{devx::*, ring::*};
//! fn receive(sq: &Sq, completions: &mut Completions) {
//!     let _ = ReceiveQueue::new(sq, completions, ReceiveConfig::default());
//! }
//! ```
//! ```
//! # use mlx5::{devx::*, ring::*};
//! fn receive(rq: &Rq, completions: &mut Completions) {
//!     let _ = ReceiveQueue::new(rq, completions, ReceiveConfig::default());
//! }
//! ```
//!
//! Flows lead to what leads frames to queues, not to a table:
//! ```compile_fail,E0277
//! # use mlx5::{devx::*, verbs::*};
//! fn lead(table: &Rqt) {
//!     let _ = Flow::builder(1).build(table);
//! }
//! ```
//! ```
//! # use mlx5::{devx::*, verbs::*};
//! fn lead(tir: &Tir) {
//!     let _ = Flow::builder(1).build(tir);
//! }
//! ```
//!
//! Queue pairs by command have the same states:
//! ```compile_fail,E0277
//! # use mlx5::{devx::QueuePair, ring::*, verbs::{Rc, Rtr}};
//! fn early(qp: &QueuePair<Rc, Rtr>, completions: &mut Completions) -> mlx5::Result<SendQueue> {
//!     SendQueue::new(qp, completions, SendConfig::default())
//! }
//! ```
//! ```
//! # use mlx5::{devx::QueuePair, ring::*, verbs::{Rc, Rts}};
//! fn ready(qp: &QueuePair<Rc, Rts>, completions: &mut Completions) -> mlx5::Result<SendQueue> {
//!     SendQueue::new(qp, completions, SendConfig::default())
//! }
//! ```
//! ```compile_fail,E0599
//! # use mlx5::{devx::QueuePair, verbs::{Init, Rc, RtsAttributes}};
//! fn skip(qp: QueuePair<Rc, Init>, to: &RtsAttributes) {
//!     let _ = qp.rts(to);
//! }
//! ```
//! ```compile_fail,E0382
//! # use mlx5::{devx::QueuePair, verbs::{Init, Rc, RtrAttributes}};
//! fn twice(qp: QueuePair<Rc, Init>, to: &RtrAttributes) {
//!     let connected = qp.rtr(to);
//!     let again = qp.rtr(to);
//! }
//! ```
//! ```
//! # use mlx5::{devx::QueuePair, verbs::{Init, Rc, RtrAttributes, RtsAttributes}};
//! fn once(qp: QueuePair<Rc, Init>, to: &RtrAttributes, then: &RtsAttributes) -> mlx5::Result<()> {
//!     let connected = qp.rtr(to)?.rts(then)?;
//!     Ok(())
//! }
//! ```
//!
//! Verbs take CQs of verbs alone, since the kernel knows no others by handle:
//! ```compile_fail,E0308
//! # use mlx5::{devx::CompletionQueue, verbs::*};
//! fn mixed(pd: &ProtectionDomain, cq: &CompletionQueue) -> mlx5::Result<QueuePair<Rc, Reset>> {
//!     QueuePair::builder(pd, cq).build()
//! }
//! ```
//! ```
//! # use mlx5::{devx::QueuePair, verbs::{CompletionQueue, ProtectionDomain, Rc, Reset}};
//! fn mixed(pd: &ProtectionDomain, cq: &CompletionQueue) -> mlx5::Result<QueuePair<Rc, Reset>> {
//!     QueuePair::builder(pd, cq).build()
//! }
//! ```
//!
//! Resetting a queue pair under its queues takes a promise:
//! ```compile_fail,E0133
//! # use mlx5::{devx::QueuePair, verbs::{Rc, Rts}};
//! fn reset(qp: QueuePair<Rc, Rts>) {
//!     let _ = qp.reset_under_queues();
//! }
//! ```
//! ```
//! # use mlx5::{devx::QueuePair, verbs::{Rc, Rts}};
//! fn reset(qp: QueuePair<Rc, Rts>) {
//!     let _ = qp.reset();
//! }
//! ```
//!
//! A target of dynamic connections that was made by command has a number in RTR, and not before, so
//! nothing is shared with it before:
//! ```compile_fail,E0277
//! # use mlx5::{devx::DcTarget, ring::*, verbs::*};
//! fn share(srq: &mut SharedReceives, target: &DcTarget<Init>, cq: &mut Completions) {
//!     let _ = srq.attach(target, cq);
//! }
//! ```
//! ```
//! # use mlx5::{devx::DcTarget, ring::*, verbs::*};
//! fn share(srq: &mut SharedReceives, target: &DcTarget<Rtr>, cq: &mut Completions) {
//!     let _ = srq.attach(target, cq);
//! }
//! ```
//!
//! It is no queue pair by command, and initiators and the ends of extended reliable connections take no
//! receives:
//! ```compile_fail,E0277
//! # use mlx5::{devx, verbs::*};
//! fn target(pd: &ProtectionDomain, cq: &CompletionQueue) {
//!     let _ = devx::QueuePairBuilder::<Dct>::new(pd, cq);
//! }
//! ```
//! ```compile_fail,E0599
//! # use mlx5::{devx, verbs::*};
//! fn receives(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &devx::SharedReceiveQueue) {
//!     let _ = devx::QueuePairBuilder::<Dci>::new(pd, cq).shared_receive_queue(srq);
//! }
//! ```
//! ```
//! # use mlx5::{devx, verbs::*};
//! fn both(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &devx::SharedReceiveQueue) {
//!     let _ = devx::QueuePairBuilder::<Dci>::new(pd, cq).build();
//!     let _ = devx::QueuePairBuilder::<Ud>::new(pd, cq).shared_receive_queue(srq).build();
//!     let _ = devx::DcTarget::builder(pd, cq, srq, 1);
//! }
//! ```
//!
//! Events of verbs objects do not come to the channel of those that were made by command:
//! ```compile_fail,E0277
//! # use mlx5::{devx::*, verbs};
//! fn listen(channel: &EventChannel, cq: &verbs::CompletionQueue) {
//!     let _ = channel.subscribe(cq, EventKind::Completion, 1);
//! }
//! ```
//! ```
//! # use mlx5::{devx::*, verbs};
//! fn listen(channel: &EventChannel, cq: &CompletionQueue) {
//!     let _ = channel.subscribe(cq, EventKind::Completion, 1);
//! }
//! ```
//!
//! A collapsed CQ tells of a send queue, not of receives, whose lengths it would lose:
//! ```compile_fail,E0308
//! # use mlx5::ring::*;
//! fn poll(completions: &mut CollapsedCompletions, queue: &mut ReceiveQueue) {
//!     let _ = completions.poll(queue);
//! }
//! ```
//! ```
//! # use mlx5::ring::*;
//! fn poll(completions: &mut CollapsedCompletions, queue: &mut SendQueue) {
//!     let _ = completions.poll(queue);
//! }
//! ```
