//! Compression of CQEs.

/// The fields that compressed CQEs of a receive queue report for each completion, see
/// [`compression`](crate::verbs::CompletionQueueBuilder::compression). The length of the message
/// and the WQE are always among them. All other fields are taken from the title CQE.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::ib::CqeCompression;
/// use mlx5::verbs::CompletionQueue;
///
/// // The device may write CQEs of receives that follow each other as mini-CQEs.
/// let cq = CompletionQueue::builder(&context, 256).compression(CqeCompression::Hash).build()?;
/// assert_eq!(cq.compression(), Some(CqeCompression::Hash));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
