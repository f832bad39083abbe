//! Opcodes of the base transport header and the headers that follow each.

/// Opcode of a packet of the reliable connection service (IBA 1.3, table 38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Opcode {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
}

impl Opcode {
    /// The opcode with this encoding; `None` for reserved ones and other services.
    pub fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast,
            0x03 => Self::SendLastImmediate,
            0x04 => Self::SendOnly,
            0x05 => Self::SendOnlyImmediate,
            0x06 => Self::WriteFirst,
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast,
            0x09 => Self::WriteLastImmediate,
            0x0a => Self::WriteOnly,
            0x0b => Self::WriteOnlyImmediate,
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadResponseFirst,
            0x0e => Self::ReadResponseMiddle,
            0x0f => Self::ReadResponseLast,
            0x10 => Self::ReadResponseOnly,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x16 => Self::SendLastInvalidate,
            0x17 => Self::SendOnlyInvalidate,
            _ => return None,
        })
    }

    /// Whether a responder sends it.
    pub fn is_response(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
                | Self::Acknowledge
                | Self::AtomicAcknowledge
        )
    }

    /// Whether a RETH follows.
    pub fn has_reth(self) -> bool {
        matches!(
            self,
            Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImmediate | Self::ReadRequest
        )
    }

    /// Whether an AtomicETH follows.
    pub fn has_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether an AETH follows.
    pub fn has_aeth(self) -> bool {
        self.is_response() && self != Self::ReadResponseMiddle
    }

    /// Whether ImmDt or IETH follows.
    pub fn has_immediate(self) -> bool {
        matches!(
            self,
            Self::SendLastImmediate
                | Self::SendOnlyImmediate
                | Self::WriteLastImmediate
                | Self::WriteOnlyImmediate
                | Self::SendLastInvalidate
                | Self::SendOnlyInvalidate
        )
    }

    /// Whether it starts a message of several packets or is one by itself.
    pub fn starts(self) -> bool {
        !matches!(
            self,
            Self::SendMiddle
                | Self::SendLast
                | Self::SendLastImmediate
                | Self::SendLastInvalidate
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastImmediate
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast
        )
    }

    /// Whether it ends a message.
    pub fn ends(self) -> bool {
        !matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::WriteFirst
                | Self::WriteMiddle
                | Self::ReadResponseFirst
                | Self::ReadResponseMiddle
        )
    }

    /// Whether it belongs to a SEND.
    pub fn is_send(self) -> bool {
        matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::SendLast
                | Self::SendLastImmediate
                | Self::SendLastInvalidate
                | Self::SendOnly
                | Self::SendOnlyImmediate
                | Self::SendOnlyInvalidate
        )
    }

    /// Whether it belongs to an RDMA WRITE.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::WriteFirst
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastImmediate
                | Self::WriteOnly
                | Self::WriteOnlyImmediate
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_decodes_to_itself() {
        let known =
            (0..=255u8).filter_map(|byte| Opcode::decode(byte).map(|opcode| (byte, opcode)));
        let mut count = 0;
        for (byte, opcode) in known {
            assert_eq!(opcode as u8, byte);
            count += 1;
        }
        assert_eq!(count, 23);
    }
}
