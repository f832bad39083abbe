//! Receivers, which lend packets where they arrived.

mod builder;
mod lent;
mod losses;
mod ring;
mod supply;

pub use builder::PacketReceiverBuilder;
pub use lent::{Packet, PacketError, PacketFault, Packets};
pub use losses::{LossScope, Losses};

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use self::losses::Counting;
use self::supply::Supply;
use super::{Group, PacketPort};
use crate::error::{Error, Result};
use crate::verbs::{CompletionChannel, Flow, FlowBuilder};

/// Receives the packets that its rules steer to it, and lends their bytes. Made by
/// [`PacketPort::receiver`].
///
/// A [poll](Self::poll) returns packets up to a limit, and posts the slots of the packets that the previous
/// poll returned. So the program holds no more packets than it asks for, and all other slots are posted.
/// [`wait`](Self::wait) sleeps until a packet comes. [`losses`](Self::losses) is the number of packets
/// that matched and did not arrive.
///
/// When its interface goes down and comes up again, rules and memberships stay.
///
/// See the example on [`packet`](crate::packet).
pub struct PacketReceiver {
    /// Dropped before the queue.
    rules: Vec<Rule>,
    next_rule: u64,
    supply: Supply,
    counting: Counting,
    channel: CompletionChannel,
    builder: PacketReceiverBuilder,
}

/// A rule, with the membership that ends with it.
struct Rule {
    id: RuleId,
    /// For the queue that comes after this one.
    description: FlowBuilder,
    _flow: Flow,
    _group: Option<Group>,
}

/// A rule of a receiver.
///
/// See the example on [`PacketReceiver::steer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

impl PacketReceiver {
    /// Returns a builder for a rule of this receiver's port, for [`steer`](Self::steer).
    pub fn rule(&self) -> FlowBuilder {
        Flow::builder(self.port().number())
    }

    /// Steers the packets of a rule here, until the rule is [removed](Self::remove) or the receiver is
    /// dropped. One or two calls into the kernel.
    ///
    /// ```
    /// # // SAFETY: no other thread runs yet.
    /// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let port = mlx5::packet::PacketPort::new(&context, 1)?;
    /// # let mut receiver = port.receiver().build()?;
    /// let (from, to) = ("192.0.2.1:7000".parse()?, "192.0.2.2:7001".parse()?);
    /// let session = receiver.steer(receiver.rule().tcp(from, to).tag(7))?;
    /// assert!(receiver.remove(session));
    /// assert!(!receiver.remove(session), "it is gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`FlowBuilder::build`].
    pub fn steer(&mut self, rule: FlowBuilder) -> Result<RuleId> {
        self.add(rule, None)
    }

    /// Steers the packets of a group that come to a UDP port here. The membership lives as long as the
    /// rule. `tag` comes with each packet ([`PacketInfo::flow_tag`](crate::cqe::PacketInfo)).
    ///
    /// # Errors
    /// The errors of [`FlowBuilder::build`].
    pub fn join(&mut self, group: Group, udp_port: u16, tag: u32) -> Result<RuleId> {
        let rule = self.rule().group(group.address()).udp_port(udp_port).tag(tag);
        let rule = match group.source() {
            Some(source) => rule.source_ip(source),
            None => rule,
        };
        self.add(rule, Some(group))
    }

    fn add(&mut self, rule: FlowBuilder, group: Option<Group>) -> Result<RuleId> {
        let description = self.counting.count(rule);
        let flow = self.supply.ring.steer(description.clone())?;
        let id = RuleId(self.next_rule);
        self.next_rule += 1;
        self.rules.push(Rule { id, description, _flow: flow, _group: group });
        Ok(id)
    }

    /// Removes a rule, and leaves its group. Returns whether there was one. Packets that have arrived
    /// before still come.
    pub fn remove(&mut self, rule: RuleId) -> bool {
        let found = self.rules.iter().position(|known| known.id == rule);
        found.map(|at| self.rules.swap_remove(at)).is_some()
    }

    /// Returns up to `most` packets that have arrived, oldest first; the iterator takes them one by one.
    /// First posts the slots of the packets that the last poll returned: all that `poll(0)` does. No
    /// allocation, no system call.
    ///
    /// The iterator ends at the first error, and the next poll goes on behind it.
    ///
    /// The CQE of a packet names no queue, so each receiver has a CQ of its own. Several are polled in
    /// turn:
    ///
    /// ```
    /// use mlx5::packet::PacketReceiver;
    ///
    /// /// Handles up to eight packets of each.
    /// fn poll(receivers: &mut [PacketReceiver]) -> mlx5::Result<()> {
    ///     for packet in receivers.iter_mut().flat_map(|receiver| receiver.poll(8)) {
    ///         println!("{} bytes", packet?.len());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias("ibv_poll_cq", "ibv_post_recv"))]
    #[inline]
    pub fn poll(&mut self, most: usize) -> Packets<'_> {
        // SAFETY: packets that were lent borrow from `self`, which is borrowed anew.
        unsafe { self.supply.refill() };
        Packets::new(&mut self.supply, most)
    }

    /// Requests that the [descriptor](AsFd) becomes readable at the next packet. Returns whether
    /// packets are there already: then poll. Posts slots as a poll does. For event loops; others call
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::Poll`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) -> Result<bool> {
        // SAFETY: packets that were lent borrow from `self`, which is borrowed anew.
        unsafe { self.supply.refill() };
        while self.channel.try_event()?.is_some() {}
        self.supply.ring.arm();
        Ok(self.supply.ring.is_ready()?)
    }

    /// Waits until a packet is there, and returns whether there is one before `timeout`. It may return
    /// true without one. A signal does not end it.
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::Poll`] if the device failed or was removed.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        Ok(self.arm()? || self.channel.get_event(timeout)?.is_some())
    }

    /// Returns how many packets matched the rules and did not arrive. One call into the kernel.
    ///
    /// The count is one for all rules, also for those that were removed, and goes on behind a recovery. A
    /// packet that was longer than its slot is lost, too. For losses of each stream, make a receiver for each,
    /// or find the numbers that are missing.
    ///
    /// Packets that have arrived and that no poll has returned yet are counted as lost, too, so call it
    /// after a poll that returned none. To stop with an exact count, [remove](Self::remove) the rules before.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Withheld`].
    pub fn losses(&self) -> Result<Losses> {
        self.counting.losses(self.supply.polled.packets)
    }

    /// Recovers from [`PacketError::Failed`]: replaces the queue and its slots by new ones, to which the
    /// rules steer. Packets that are kept stay.
    ///
    /// # Errors
    /// Nothing is changed then.
    /// - [`Error::Attribute`] for a receiver that has not failed.
    /// - The errors of [`PacketReceiverBuilder::build`] and [`steer`](Self::steer).
    pub fn recover(&mut self) -> Result<()> {
        if !matches!(self.supply.polled.failed, Some(PacketError::Failed(_))) {
            let rule = "only a receiver that has failed recovers";
            return Err(Error::attribute("receiver", "one that has not failed", rule));
        }
        let mut supply = self.builder.supply(&self.channel)?;
        let rules = self.rules.iter();
        let flows: Result<Vec<Flow>> =
            rules.map(|rule| supply.ring.steer(rule.description.clone())).collect();
        for (rule, flow) in self.rules.iter_mut().zip(flows?) {
            rule._flow = flow;
        }
        supply.polled.packets = self.supply.polled.packets;
        self.supply = supply;
        Ok(())
    }

    /// Returns the port.
    pub fn port(&self) -> &PacketPort {
        self.builder.port()
    }
}

/// The descriptor becomes readable after [`arm`](PacketReceiver::arm), when a packet comes. It can only
/// be waited on.
impl AsFd for PacketReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl fmt::Debug for PacketReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketReceiver")
            .field("supply", &self.supply)
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}
