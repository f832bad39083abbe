//! Reading memory without sending it.

use super::SgeList;
use super::encode::{encode, setters};

/// DUMP: the HCA reads memory and sends nothing of it.
///
/// For Ethernet send queues. HCAs that encrypt TLS records need it to process the first part of a
/// record whose rest has to be sent again. Otherwise it shows that the HCA can read the memory.
///
/// ```
/// use mlx5::expert::Dump;
/// use mlx5::wqe::Sge;
///
/// let record = Dump::new(Sge::new(0x1000, 256, 1)).signaled();
/// assert_eq!(record.into_payload().length, 256);
/// ```
#[doc(alias = "MLX5_OPCODE_DUMP")]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Dump<P> {
    payload: P,
    flags: u8,
}

impl<P: SgeList> Dump<P> {
    /// Reads the memory of the entries.
    pub const fn new(from: P) -> Self {
        Self { payload: from, flags: 0 }
    }

    /// Returns the entries that it reads.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
}

encode!([P: SgeList] Dump<P>, DUMP, payload payload);

#[cfg(test)]
mod tests;
