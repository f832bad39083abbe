//! Compression of CQEs.

/// What the HCA says of each completion of a receive queue that it compresses with others, see
/// [`compression`](CompletionQueueBuilder::compression). All else is what the first of them has: of
/// every completion it says the length of the message and the WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CqeCompression {
    /// The RSS hash of the packet.
    #[default]
    Hash,
    /// The checksum of the packet.
    Checksum,
    /// The checksum of the packet, and the index of its first stride.
    ChecksumStride,
}
