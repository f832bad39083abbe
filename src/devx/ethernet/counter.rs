//! Counters of flow rules.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::mlx5dv_devx_obj;
use mlx5_sys::ifc::{
    alloc_flow_counter_in, alloc_flow_counter_out, opcode, query_flow_counter_in,
    query_flow_counter_out, traffic_counter,
};

use crate::devx::{Command, Object};
use crate::error::Result;
use crate::verbs::flow::sealed::Counter;
use crate::verbs::{Context, FlowBuilder};

/// A counter of the packets that flow rules match, and of their bytes (`ALLOC_FLOW_COUNTER`).
///
/// [`FlowBuilder::counter`] has a rule count in it. The counts of several rules add up. The HCA counts a
/// packet when a rule matches it, whether or not a receive is posted: the difference to the packets that
/// arrived is what was lost behind the rule.
///
/// Clones are cheap and name the same counter. It is freed after its last clone, and the last rule that
/// counts in it, are dropped.
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
/// use mlx5::devx::FlowCounter;
/// use mlx5::verbs::Flow;
///
/// let counter = FlowCounter::new(&context)?;
/// let rule = Flow::builder(1).udp_port(4791).counter(&counter).build(&qp)?;
/// assert_eq!(counter.read()?.packets, 0);
/// # drop(rule);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FlowCounter {
    object: Arc<Object>,
    number: u32,
}

/// The counts of a [`FlowCounter`].
///
/// See the example on [`FlowCounter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowCounts {
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes, from the Ethernet header to the end of the payload.
    pub bytes: u64,
}

impl FlowCounter {
    /// Creates a counter at zero. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
    #[doc(alias = "MLX5_CMD_OP_ALLOC_FLOW_COUNTER")]
    pub fn new(context: &Context) -> Result<FlowCounter> {
        let command = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE);
        // SAFETY: a counter names no other object, and gives access to no memory.
        let object = unsafe { command.create(context)? };
        let number = object.reply().get(alloc_flow_counter_out::FLOW_COUNTER_ID) as u32;
        Ok(FlowCounter { object: Arc::new(object), number })
    }

    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the counts since the counter was made or last taken. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) by the HCA,
    /// [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    #[doc(alias = "MLX5_CMD_OP_QUERY_FLOW_COUNTER")]
    pub fn read(&self) -> Result<FlowCounts> {
        self.query(false)
    }

    /// Returns the counts and resets them to zero; no packet is lost between. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) by the HCA,
    /// [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    pub fn take(&self) -> Result<FlowCounts> {
        self.query(true)
    }

    fn query(&self, clear: bool) -> Result<FlowCounts> {
        let command = Command::new(opcode::QUERY_FLOW_COUNTER, query_flow_counter_in::SIZE)
            .set(query_flow_counter_in::FLOW_COUNTER_ID, self.number)
            .set(query_flow_counter_in::CLEAR, clear)
            .reply(query_flow_counter_out::SIZE + traffic_counter::SIZE);
        let reply = self.object.query(&command)?;
        let shown = &reply.as_bytes()[query_flow_counter_out::SIZE..];
        Ok(FlowCounts {
            packets: traffic_counter::PACKETS.get(shown),
            bytes: traffic_counter::OCTETS.get(shown),
        })
    }
}

impl fmt::Debug for FlowCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCounter").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Counter for FlowCounter {
    fn object(&self) -> NonNull<mlx5dv_devx_obj> {
        self.object.as_raw()
    }

    fn device(&self) -> &Context {
        self.context()
    }
}

impl FlowBuilder {
    /// Counts the packets that match.
    ///
    /// See the example on [`FlowCounter`].
    pub fn counter(self, counter: &FlowCounter) -> Self {
        self.counted_by(Arc::new(counter.clone()))
    }
}
