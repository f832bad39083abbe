//! Compression of CQEs.

/// The fields that compressed CQEs of a receive queue report for each completion, see
/// [`compression`](crate::verbs::CompletionQueueBuilder::compression). The length of the message
/// and the WQE are always among them. All other fields are taken from the title CQE.
#[doc(alias = "mlx5dv_cqe_comp_res_format")]
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
