//! The places of messages in memory.

use super::{MOST_MEMORY, Plan};

/// The layout of a queue pair's messages in memory. Slots have equal size, and their numbers are
/// powers of two, so that a mask finds the slot of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a message.
    pub size: usize,
    /// Distance between slots, with space for the header of a datagram.
    pub stride: usize,
    /// Slots of outgoing messages, and of fetched data.
    pub out: u64,
    /// Slots of incoming messages, which the peer can access.
    pub target: u64,
}

impl Layout {
    /// Bytes of the header (GRH) that the HCA puts before a datagram.
    pub const GRH: usize = 40;
    /// Bytes of the headers of an Ethernet frame with a UDP packet: Ethernet, IPv4, UDP.
    pub const FRAME: usize = 14 + 20 + 8;
    /// Bytes of the longest header before a message.
    pub const HEADER: usize = Layout::FRAME;

    /// Returns the bytes of all outgoing slots of one queue pair.
    #[must_use]
    pub fn out_bytes(&self) -> usize {
        self.out as usize * self.stride
    }

    /// Returns the bytes of all incoming slots of one queue pair.
    #[must_use]
    pub fn target_bytes(&self) -> usize {
        self.target as usize * self.stride
    }
}

impl Plan {
    /// Returns the layout of messages in memory, the same at both sides.
    ///
    /// # Errors
    /// Fails if the messages exceed the memory limit.
    pub fn layout(&self) -> Result<Layout, String> {
        /// Bytes of all slots together, where several messages share slots.
        const ENOUGH: u64 = 4 << 20;
        let stride = (self.size + Layout::HEADER as u64).next_multiple_of(64);
        // Checking contents needs a slot for each message in flight.
        let own = self.validate || self.polls_memory() || self.operation.is_atomic();
        let slots = |outstanding: u32| {
            let all = u64::from(outstanding).next_power_of_two();
            if own { all } else { all.min((ENOUGH / stride).max(1).next_power_of_two()) }
        };
        let (out, target) = (slots(self.depth), slots(self.depth.max(self.receives())));
        let bytes = (out + target).checked_mul(stride);
        let total = bytes.and_then(|bytes| bytes.checked_mul(u64::from(self.queue_pairs)));
        match total {
            Some(total) if total <= MOST_MEMORY => {
                Ok(Layout { size: self.size as usize, stride: stride as usize, out, target })
            }
            _ => Err(format!(
                "messages of {} bytes, {} outstanding on each of {} queue pairs, take more than {} \
                 GiB of memory: choose a smaller --depth or --size, or leave --validate out",
                self.size,
                self.depth,
                self.queue_pairs,
                MOST_MEMORY >> 30
            )),
        }
    }
}
