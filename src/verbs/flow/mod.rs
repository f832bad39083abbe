//! Flow steering: which Ethernet packets a queue pair receives, and changes to received and sent packets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::{ibv_destroy_flow, ibv_flow, ibv_flow_attr_type, ibv_qp};

use super::{Context, QueuePair, RssQueues, State};
use crate::error::{Cause, Errno, Error, Result, non_null};
use crate::ib::RawPacket;

mod action;
mod filter;
mod matching;
mod specs;

pub use action::{FieldChange, FlowDirection, HeaderAction};
use filter::Filter;
pub(crate) use filter::group_mac;
use matching::{Actions, Fate, Matcher, Matching};

/// A target to which packets can be steered.
///
/// See the example on [`Flow`].
pub trait FlowTarget: sealed::Target {}

pub(crate) mod sealed {
    use mlx5_sys::dv::mlx5dv_devx_obj;

    use super::{Context, NonNull, ibv_qp};

    /// The destination of a flow.
    #[derive(Clone, Copy)]
    pub enum Place {
        /// A queue pair.
        Qp(NonNull<ibv_qp>),
        /// An object made by command.
        Object(NonNull<mlx5dv_devx_obj>),
    }

    /// A destination, with an owner that keeps it alive.
    pub trait Target {
        fn place(&self) -> Place;
        fn device(&self) -> &Context;
        fn keep(&self) -> Box<dyn Send + Sync>;
    }

    /// A counter of flows, made by command.
    pub trait Counter: Send + Sync {
        fn object(&self) -> NonNull<mlx5dv_devx_obj>;
        fn device(&self) -> &Context;
    }
}
use sealed::{Counter, Place};

impl<S: State> FlowTarget for QueuePair<RawPacket, S> {}
impl<S: State> sealed::Target for QueuePair<RawPacket, S> {
    fn place(&self) -> Place {
        Place::Qp(self.as_raw())
    }

    fn device(&self) -> &Context {
        self.context()
    }

    fn keep(&self) -> Box<dyn Send + Sync> {
        Box::new(self.keep())
    }
}

impl FlowTarget for RssQueues {}
impl sealed::Target for RssQueues {
    fn place(&self) -> Place {
        Place::Qp(self.as_raw())
    }

    fn device(&self) -> &Context {
        self.context()
    }

    fn keep(&self) -> Box<dyn Send + Sync> {
        Box::new(self.clone())
    }
}

/// A flow rule. It steers matching packets to its target as long as it exists.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::RawPacket;
/// use mlx5::verbs::{Flow, QueuePairBuilder};
///
/// let qp = QueuePairBuilder::<RawPacket>::new(&pd, &cq).build()?.init(1)?.rtr()?;
/// // UDP packets to this MAC address and port come to the queue pair, until the rule is dropped.
/// let rule = Flow::builder(1).destination([2, 0, 0, 0, 0, 7]).udp_port(4791).build(&qp)?;
/// drop(rule);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_flow", "ibv_destroy_flow"))]
pub struct Flow {
    flow: NonNull<ibv_flow>,
    /// Dropped after the flow, and before the target, which keeps the context open.
    _matcher: Option<Matcher>,
    _counter: Option<Arc<dyn Counter>>,
    _headers: Vec<HeaderAction>,
    _target: Box<dyn Send + Sync>,
}

// SAFETY: libibverbs allows calls on a flow from any thread; this crate only destroys it.
unsafe impl Send for Flow {}
// SAFETY: a shared reference only gives out the raw pointer.
unsafe impl Sync for Flow {}

impl Drop for Flow {
    fn drop(&mut self) {
        // SAFETY: this crate created the flow and destroys it once, here, while its queue pair is
        // alive.
        unsafe { ibv_destroy_flow(self.flow.as_ptr()) };
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").finish_non_exhaustive()
    }
}

impl Flow {
    /// Creates a builder that matches all packets of a port.
    pub fn builder(port: u8) -> FlowBuilder {
        FlowBuilder {
            kind: ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL,
            direction: FlowDirection::Received,
            port,
            priority: 0,
            filter: Filter::default(),
            tag: None,
            counter: None,
            headers: Vec::new(),
        }
    }
}

/// Builder for [`Flow`], see [`Flow::builder`]. Fields that are not set match every packet.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # let qp = mlx5::verbs::QueuePairBuilder::<mlx5::ib::RawPacket>::new(&pd, &cq).build()?;
/// # let qp = qp.init(1)?.rtr()?;
/// use mlx5::verbs::Flow;
///
/// // One connection: both addresses and both ports.
/// let (from, to) = ("192.0.2.1:7000".parse()?, "192.0.2.2:7001".parse()?);
/// let session = Flow::builder(1).tcp(from, to).tag(1).build(&qp)?;
/// // A group, by its Ethernet and its IP address; what comes from one host is discarded.
/// let feed = Flow::builder(1).group("239.1.1.1".parse()?).udp_port(9000).priority(1);
/// let ignored = feed.clone().source_ip("192.0.2.9".parse()?).priority(0).discard(&context)?;
/// let feed = feed.build(&qp)?;
/// # drop((session, ignored, feed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_flow_attr")]
#[derive(Clone)]
#[must_use = "nothing is led anywhere before build"]
pub struct FlowBuilder {
    kind: ibv_flow_attr_type::Type,
    direction: FlowDirection,
    port: u8,
    priority: u16,
    filter: Filter,
    tag: Option<u32>,
    counter: Option<Arc<dyn Counter>>,
    headers: Vec<HeaderAction>,
}

impl FlowBuilder {
    /// Matches packets to that MAC address.
    #[doc(alias = "ibv_flow_spec_eth")]
    pub fn destination(mut self, address: [u8; 6]) -> Self {
        self.filter.destination = Some(address);
        self
    }

    /// Matches packets from that MAC address.
    pub fn source(mut self, address: [u8; 6]) -> Self {
        self.filter.source = Some(address);
        self
    }

    /// Matches packets of that EtherType, behind a VLAN tag if there is one.
    pub fn ether_type(mut self, kind: u16) -> Self {
        self.filter.ether_type = Some(kind);
        self
    }

    /// Matches packets with that VLAN identifier, 0 to 4095.
    pub fn vlan(mut self, identifier: u16) -> Self {
        self.filter.vlan = Some(identifier);
        self
    }

    /// Matches packets from that IP address.
    #[doc(alias("ibv_flow_spec_ipv4", "ibv_flow_spec_ipv6"))]
    pub fn source_ip(mut self, address: IpAddr) -> Self {
        self.filter.source_ip = Some(address);
        self
    }

    /// Matches packets to that IP address.
    #[doc(alias("ibv_flow_spec_ipv4", "ibv_flow_spec_ipv6"))]
    pub fn destination_ip(mut self, address: IpAddr) -> Self {
        self.filter.destination_ip = Some(address);
        self
    }

    /// Matches packets to that multicast group: to its IP address, and to the MAC address that follows
    /// from it. A switch delivers them to hosts that have joined the group.
    pub fn group(mut self, group: IpAddr) -> Self {
        self.filter.group(group);
        self
    }

    /// Matches UDP packets to that port, of IPv4 and IPv6.
    #[doc(alias = "ibv_flow_spec_tcp_udp")]
    pub fn udp_port(mut self, port: u16) -> Self {
        self.filter.udp.destination = Some(port);
        self
    }

    /// Matches UDP packets from that port.
    pub fn udp_source_port(mut self, port: u16) -> Self {
        self.filter.udp.source = Some(port);
        self
    }

    /// Matches UDP packets from one address and port to another.
    pub fn udp(mut self, from: SocketAddr, to: SocketAddr) -> Self {
        self.filter.udp = self.filter.connection(from, to);
        self
    }

    /// Matches TCP packets to that port, of IPv4 and IPv6.
    #[doc(alias = "ibv_flow_spec_tcp_udp")]
    pub fn tcp_port(mut self, port: u16) -> Self {
        self.filter.tcp.destination = Some(port);
        self
    }

    /// Matches TCP packets from that port.
    pub fn tcp_source_port(mut self, port: u16) -> Self {
        self.filter.tcp.source = Some(port);
        self
    }

    /// Matches TCP packets from one address and port to another.
    pub fn tcp(mut self, from: SocketAddr, to: SocketAddr) -> Self {
        self.filter.tcp = self.filter.connection(from, to);
        self
    }

    /// Sets the flow tag in completions, 24 bits. Default: 0.
    #[doc(alias = "ibv_flow_spec_action_tag")]
    pub fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Sets the priority. If two flows match a packet, the lower number gets it. Default: 0.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// Matches all packets that no other flow steers, instead of those described.
    #[doc(alias = "IBV_FLOW_ATTR_ALL_DEFAULT")]
    pub fn rest(mut self) -> Self {
        self.kind = ibv_flow_attr_type::IBV_FLOW_ATTR_ALL_DEFAULT;
        self
    }

    /// Matches a copy of each packet that the port receives or sends, instead of those described.
    #[doc(alias = "IBV_FLOW_ATTR_SNIFFER")]
    pub fn sniffer(mut self) -> Self {
        self.kind = ibv_flow_attr_type::IBV_FLOW_ATTR_SNIFFER;
        self
    }

    /// Matches packets that send queues of the device send, instead of arriving ones. The rule either lets
    /// them [pass](Self::pass) or [discards](Self::discard) them.
    #[doc(alias("IBV_FLOW_ATTR_FLAGS_EGRESS", "MLX5DV_FLOW_TABLE_TYPE_NIC_TX"))]
    pub fn sent(mut self) -> Self {
        self.direction = FlowDirection::Sent;
        self
    }

    /// Adds an action on the headers of matching packets.
    #[doc(alias = "MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION")]
    pub fn action(mut self, action: &HeaderAction) -> Self {
        self.headers.push(action.clone());
        self
    }

    /// Returns whether a counter can be added: the rule has none, and is of a kind that counts.
    #[cfg(feature = "devx")]
    pub(crate) fn can_be_counted(&self) -> bool {
        self.kind == ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL && self.counter.is_none()
    }

    /// Has a counter made by command count the packets.
    #[cfg(feature = "devx")]
    pub(crate) fn counted_by(mut self, counter: Arc<dyn Counter>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Steers matching packets to `target`.
    ///
    /// # Errors
    /// - [`Error::Attribute`] with the field whose value is out of range or contradicts another one.
    /// - [`Error::Call`]: no such port or priority, a match that the HCA does not support, or no right
    ///   to steer packets (`CAP_NET_RAW`).
    /// - [`Error::Attribute`] for the [rest](Self::rest) or a [sniffer](Self::sniffer) to a TIR or
    ///   with a counter, which the kernel does not offer; or for a counter of another device.
    #[doc(alias = "ibv_create_flow")]
    pub fn build(self, target: &impl FlowTarget) -> Result<Flow> {
        self.check()?;
        if self.direction == FlowDirection::Sent {
            let rule = "that of the rule: packets that are sent pass or are discarded";
            return Err(Error::attribute("target", "a queue", rule));
        }
        match (target.place(), &self.counter) {
            (Place::Qp(qp), None) if self.headers.is_empty() => {
                let flow = specs::create(&self, qp)?;
                let (target, headers) = (target.keep(), Vec::new());
                Ok(Flow {
                    flow,
                    _matcher: None,
                    _counter: None,
                    _headers: headers,
                    _target: target,
                })
            }
            // SAFETY: the target, which the flow keeps, keeps the destination alive.
            (place, _) => unsafe {
                self.by_matcher(Fate::To(place), target.device(), target.keep())
            },
        }
    }

    /// Lets matching packets leave, with the changes of the rule's actions.
    ///
    /// # Errors
    /// - [`Error::Attribute`] with the field whose value is out of range or contradicts another one, if the
    ///   rule is for packets that arrive, or if an action is of another device or direction.
    /// - [`Error::Call`]: no such priority, a match or action that the HCA does not support, or no right to
    ///   steer packets (`CAP_NET_RAW`).
    pub fn pass(self, context: &Context) -> Result<Flow> {
        self.check()?;
        if self.direction == FlowDirection::Received {
            let rule = "packets that arrive need a target, or are discarded";
            return Err(Error::attribute("target", "none", rule));
        }
        // SAFETY: there is no destination.
        unsafe { self.by_matcher(Fate::Passed, context, Box::new(context.clone())) }
    }

    /// Discards matching packets. No queue receives them, or they do not leave.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    #[doc(alias("IBV_FLOW_SPEC_ACTION_DROP", "MLX5DV_FLOW_ACTION_DROP"))]
    pub fn discard(self, context: &Context) -> Result<Flow> {
        self.check()?;
        // SAFETY: there is no destination.
        unsafe { self.by_matcher(Fate::Discarded, context, Box::new(context.clone())) }
    }

    fn check(&self) -> Result<()> {
        if let Some(tag) = self.tag.filter(|tag| *tag >= 1 << 24) {
            return Err(Error::attribute("tag", tag, "24 bits: at most 0xffffff"));
        }
        self.filter.check(self.kind)
    }

    /// # Safety
    /// `keep` keeps the destination alive.
    unsafe fn by_matcher(
        self,
        fate: Fate,
        device: &Context,
        keep: Box<dyn Send + Sync>,
    ) -> Result<Flow> {
        if let Some(counter) = &self.counter {
            device.require_same("counter", counter.device().as_raw())?;
        }
        self.headers.iter().try_for_each(|header| header.check(self.direction, device))?;
        let counter = self.counter.as_ref().map(|counter| counter.object());
        let matching = Matching::new(&self);
        let actions = Actions { counter, headers: &self.headers };
        // SAFETY: the caller keeps the destination alive, and the flow keeps counter and actions, which
        // `self` has until then.
        let (flow, matcher) = unsafe { matching.create(fate, actions, device)? };
        let FlowBuilder { counter, headers, .. } = self;
        Ok(Flow {
            flow,
            _matcher: Some(matcher),
            _counter: counter,
            _headers: headers,
            _target: keep,
        })
    }
}

/// Returns the flow, or the error with its cause.
fn explained(call: &'static str, flow: *mut ibv_flow) -> Result<NonNull<ibv_flow>> {
    non_null(call, flow).map_err(|error| {
        let cause = (error.errno() == Some(Errno(libc::EPERM)))
            .then_some(Cause::Known("leading frames to a program takes CAP_NET_RAW"));
        error.because(cause)
    })
}
