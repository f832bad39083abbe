//! Flow steering: which Ethernet packets a queue pair receives.

use std::fmt;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use mlx5_sys::verbs::{
    ibv_create_flow, ibv_destroy_flow, ibv_flow, ibv_flow_attr, ibv_flow_attr_type,
    ibv_flow_spec_action_tag, ibv_flow_spec_eth, ibv_flow_spec_ipv4, ibv_flow_spec_tcp_udp,
    ibv_flow_spec_type, ibv_qp,
};

use super::matching::{Matcher, Matching};
use super::{Context, QueuePair, RssQueues, State};
use crate::error::{Cause, Errno, Result, non_null};
use crate::ib::RawPacket;
use crate::verbs::Zeroed;

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
            port,
            priority: 0,
            ethernet: None,
            addresses: None,
            ports: None,
            tag: None,
            counter: None,
        }
    }
}

/// Builder for [`Flow`], see [`Flow::builder`]. Fields that are not set match every packet.
///
/// See the example on [`Flow`].
#[doc(alias = "ibv_flow_attr")]
#[derive(Clone)]
#[must_use = "nothing is led anywhere before build"]
pub struct FlowBuilder {
    kind: ibv_flow_attr_type::Type,
    port: u8,
    priority: u16,
    ethernet: Option<ibv_flow_spec_eth>,
    addresses: Option<ibv_flow_spec_ipv4>,
    ports: Option<ibv_flow_spec_tcp_udp>,
    tag: Option<u32>,
    counter: Option<Arc<dyn Counter>>,
}

impl FlowBuilder {
    fn ethernet(&mut self) -> &mut ibv_flow_spec_eth {
        self.ethernet.get_or_insert_with(Zeroed::zeroed)
    }

    fn addresses(&mut self) -> &mut ibv_flow_spec_ipv4 {
        self.addresses.get_or_insert_with(Zeroed::zeroed)
    }

    fn ports(&mut self, kind: ibv_flow_spec_type::Type) -> &mut ibv_flow_spec_tcp_udp {
        let ports = self.ports.get_or_insert_with(Zeroed::zeroed);
        ports.type_ = kind;
        ports
    }

    /// Matches packets to that MAC address.
    #[doc(alias = "ibv_flow_spec_eth")]
    pub fn destination(mut self, address: [u8; 6]) -> Self {
        let spec = self.ethernet();
        (spec.val.dst_mac, spec.mask.dst_mac) = (address, [0xff; 6]);
        self
    }

    /// Matches packets from that MAC address.
    pub fn source(mut self, address: [u8; 6]) -> Self {
        let spec = self.ethernet();
        (spec.val.src_mac, spec.mask.src_mac) = (address, [0xff; 6]);
        self
    }

    /// Matches packets of that EtherType, behind a VLAN tag if there is one.
    pub fn ether_type(mut self, kind: u16) -> Self {
        let spec = self.ethernet();
        (spec.val.ether_type, spec.mask.ether_type) = (kind.to_be(), u16::MAX);
        self
    }

    /// Matches packets with that VLAN identifier.
    pub fn vlan(mut self, identifier: u16) -> Self {
        let spec = self.ethernet();
        (spec.val.vlan_tag, spec.mask.vlan_tag) = (identifier.to_be(), 0xfff_u16.to_be());
        self
    }

    /// Matches IPv4 packets from that address.
    #[doc(alias = "ibv_flow_spec_ipv4")]
    pub fn source_ip(mut self, address: Ipv4Addr) -> Self {
        let spec = self.addresses();
        (spec.val.src_ip, spec.mask.src_ip) = (u32::from(address).to_be(), u32::MAX);
        self
    }

    /// Matches IPv4 packets to that address.
    #[doc(alias = "ibv_flow_spec_ipv4")]
    pub fn destination_ip(mut self, address: Ipv4Addr) -> Self {
        let spec = self.addresses();
        (spec.val.dst_ip, spec.mask.dst_ip) = (u32::from(address).to_be(), u32::MAX);
        self
    }

    /// Matches UDP packets to that port.
    #[doc(alias = "ibv_flow_spec_tcp_udp")]
    pub fn udp_port(mut self, port: u16) -> Self {
        let spec = self.ports(ibv_flow_spec_type::IBV_FLOW_SPEC_UDP);
        (spec.val.dst_port, spec.mask.dst_port) = (port.to_be(), u16::MAX);
        self
    }

    /// Matches TCP packets to that port.
    #[doc(alias = "ibv_flow_spec_tcp_udp")]
    pub fn tcp_port(mut self, port: u16) -> Self {
        let spec = self.ports(ibv_flow_spec_type::IBV_FLOW_SPEC_TCP);
        (spec.val.dst_port, spec.mask.dst_port) = (port.to_be(), u16::MAX);
        self
    }

    /// Sets the flow tag in completions, 24 bits.
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

    /// Has a counter made by command count the packets.
    #[cfg(feature = "devx")]
    pub(crate) fn counted_by(mut self, counter: Arc<dyn Counter>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Steers matching packets to `target`.
    ///
    /// # Errors
    /// - [`Error::Call`](crate::Error::Call): no such port or priority, a match that the HCA does not
    ///   support, or no right to steer packets (`CAP_NET_RAW`).
    /// - [`Error::Attribute`](crate::Error) for the [rest](Self::rest) or a [sniffer](Self::sniffer)
    ///   to a TIR or with a counter, which the kernel does not offer; or for a counter of another
    ///   device.
    #[doc(alias = "ibv_create_flow")]
    pub fn build(self, target: &impl FlowTarget) -> Result<Flow> {
        let (flow, matcher) = match (target.place(), &self.counter) {
            (Place::Qp(qp), None) => (self.lead_to(qp)?, None),
            (place, counter) => {
                let counter = counter.as_deref();
                if let Some(counter) = counter {
                    target.device().require_same("counter", counter.device().as_raw())?;
                }
                let counter = counter.map(Counter::object);
                // SAFETY: the target, which is borrowed, keeps the destination alive, and the counter
                // is kept.
                let led = unsafe { self.matching().lead_to(place, counter, target.device())? };
                (led.0, Some(led.1))
            }
        };
        Ok(Flow { flow, _matcher: matcher, _counter: self.counter, _target: target.keep() })
    }

    fn lead_to(&self, qp: NonNull<ibv_qp>) -> Result<NonNull<ibv_flow>> {
        let mut bytes = Vec::new();
        let mut count = 0;
        if let Some(mut spec) = self.ethernet {
            spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ETH;
            spec.size = size_of_val(&spec) as u16;
            append(&mut bytes, &spec, &mut count);
        }
        if let Some(mut spec) = self.addresses {
            spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_IPV4;
            spec.size = size_of_val(&spec) as u16;
            append(&mut bytes, &spec, &mut count);
        }
        if let Some(mut spec) = self.ports {
            spec.size = size_of_val(&spec) as u16;
            append(&mut bytes, &spec, &mut count);
        }
        if let Some(tag) = self.tag {
            let mut spec = ibv_flow_spec_action_tag::zeroed();
            spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ACTION_TAG;
            spec.size = size_of_val(&spec) as u16;
            spec.tag_id = tag;
            append(&mut bytes, &spec, &mut count);
        }
        let mut attr = ibv_flow_attr::zeroed();
        attr.type_ = self.kind;
        attr.size = (size_of::<ibv_flow_attr>() + bytes.len()) as u16;
        attr.priority = self.priority;
        attr.num_of_specs = count;
        attr.port = self.port;
        let mut whole = Vec::new();
        append(&mut whole, &attr, &mut 0);
        whole.extend_from_slice(&bytes);
        // Words, so that the structure is aligned. Padding makes no integers.
        let mut words = vec![MaybeUninit::<u64>::zeroed(); whole.len().div_ceil(8)];
        // SAFETY: the words have room for all bytes, and are other memory.
        unsafe { ptr::copy_nonoverlapping(whole.as_ptr(), words.as_mut_ptr().cast(), whole.len()) };
        // SAFETY: the queue pair is alive, and the attributes live through the call.
        let flow = unsafe { ibv_create_flow(qp.as_ptr(), words.as_mut_ptr().cast()) };
        explained("ibv_create_flow", flow.unwrap_or(ptr::null_mut()))
    }

    /// Returns the same match in the form of a firmware command.
    fn matching(&self) -> Matching {
        let mut matching = Matching::new(self.kind, self.priority, self.tag);
        if let Some(spec) = &self.ethernet {
            matching.ethernet(spec);
        }
        if let Some(spec) = &self.addresses {
            matching.addresses(spec);
        }
        if let Some(spec) = &self.ports {
            matching.ports(spec);
        }
        matching
    }
}

/// Returns the flow, or the error with its cause.
pub(super) fn explained(call: &'static str, flow: *mut ibv_flow) -> Result<NonNull<ibv_flow>> {
    non_null(call, flow).map_err(|error| {
        let cause = (error.errno() == Some(Errno(libc::EPERM)))
            .then_some(Cause::Known("leading frames to a program takes CAP_NET_RAW"));
        error.because(cause)
    })
}

/// Appends a structure's bytes, some of which may be padding without a value.
fn append<T: Copy>(bytes: &mut Vec<MaybeUninit<u8>>, value: &T, count: &mut u8) {
    // SAFETY: the structure's own bytes, which need not have values, as long as it is borrowed.
    bytes.extend_from_slice(unsafe {
        slice::from_raw_parts(ptr::from_ref(value).cast::<MaybeUninit<u8>>(), size_of::<T>())
    });
    *count += 1;
}
