//! The HCA's check results for the headers of a received packet.

/// The check results and types of a packet's headers.
///
/// ```
/// # use mlx5::ring::CqReader;
/// use mlx5::cqe::Layer3;
///
/// /// Whether the next packet is of IPv4, with right checksums.
/// fn is_good(reader: &mut CqReader) -> mlx5::Result<bool> {
///     let Ok(Some(cqe)) = reader.peek() else { return Ok(false) };
///     let headers = cqe.headers();
///     Ok(headers.l3 == Layer3::Ipv4 && headers.checksums_ok())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Whether the layer 2 headers are right.
    pub l2_ok: bool,
    /// Whether the IP header's checksum is right.
    pub l3_ok: bool,
    /// Whether the TCP or UDP checksum is right.
    pub l4_ok: bool,
    /// The layer 3 header.
    pub l3: Layer3,
    /// Type of the layer 4 header, by the HCA's numbers: 0 none; TCP is 1 without ACK, 3 with an
    /// ACK and no data, 4 with an ACK and data; 2 UDP.
    pub l4: u8,
}

/// A layer 3 header.
///
/// See the example on [`Headers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer3 {
    /// No header that the HCA knows.
    None,
    /// IPv6.
    Ipv6,
    /// IPv4.
    Ipv4,
}

impl Headers {
    /// Returns whether the packet is of IPv4, and its checksums are right, what `IBV_WC_IP_CSUM_OK`
    /// says.
    pub fn checksums_ok(&self) -> bool {
        self.l3 == Layer3::Ipv4 && self.l3_ok && self.l4_ok
    }
}
