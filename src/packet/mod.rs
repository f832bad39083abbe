//! Ethernet packets without `unsafe`: multicast feeds, orders, captures.
//!
//! A [`PacketPort`] is a port of Ethernet, opened by the name of its network interface or as a port of
//! a device. [`PacketReceiver`] receives the packets that its rules steer to it, and lends their bytes
//! where the HCA has put them. [`PacketPort::sender`] makes the
//! [endpoint](crate::endpoint::SendEndpoint) that sends. A [`Group`] is a multicast group that the
//! interface has joined.
//!
//! ```
//! # // SAFETY: no other thread runs yet.
//! # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
//! # use mlx5_model as _;
//! # let context = mlx5::verbs::Context::open_first()?;
//! use mlx5::packet::PacketPort;
//! use mlx5::wqe::{EthSend, Inline};
//!
//! // By its interface: `PacketPort::open("eth0")?`.
//! let port = PacketPort::new(&context, 1)?;
//! let mut receiver = port.receiver().build()?;
//! let group = [3, 0, 0, 0, 0, 7];
//! receiver.steer(receiver.rule().destination(group))?;
//!
//! let mut sender = port.sender().build()?;
//! let packet = [group.as_slice(), &[2, 0, 0, 0, 0, 8], &[0x88, 0xb5], &[7; 46]].concat();
//! sender.post(1, EthSend::new(Inline(&packet)).signaled())?;
//! # let mut found = false;
//! # while !found {
//! for packet in receiver.poll(32) {
//!     let packet = packet?;
//!     println!("{} bytes, of the type {:02x?}", packet.len(), &packet[12..14]);
//! #   found = packet[14..] == [7; 46];
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The memory of packets
//!
//! A receiver has its own memory, in slots of equal size. A slot is the memory of one WQE: of one packet,
//! or, in a [striding](PacketReceiverBuilder::striding) receiver, of several. A [`Packet`] borrows from
//! the receiver, so the next poll comes after it. That poll posts the slots of the packets before it again.
//! [`Packet::keep`] takes a packet out of this cycle: another slot is posted in place of its slot, which
//! returns to the receiver when the packet is dropped.
//!
//! No destructor is needed for soundness: the next poll posts the slots of a [`Packets`] that was leaked, a
//! leaked [`KeptPacket`] keeps its slot for ever, and the slots of a receiver that was dropped belong to
//! its queue until that is destroyed.

mod group;
mod kept;
mod port;
mod receiver;
mod sender;
mod slots;

pub use group::{Group, Membership};
pub use kept::KeptPacket;
pub use port::PacketPort;
pub use receiver::{
    LossScope, Losses, Packet, PacketError, PacketFault, PacketReceiver, PacketReceiverBuilder,
    Packets, RuleId,
};
pub use sender::PacketSenderBuilder;
