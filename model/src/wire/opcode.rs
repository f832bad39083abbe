//! Opcodes of the base transport header and the headers that follow each.

use super::Service;

/// The operation of a packet: the lower five bits of the opcode (IBA 1.3, table 38). The upper
/// three name the transport service. The reliable connections have all of these operations but the
/// last, which is of no service. How cards send atomics under masks is not published: here they have
/// encodings that IBA reserves.
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
    MaskedCompareSwap = 0x18,
    MaskedFetchAdd = 0x19,
    MaskedAcknowledge = 0x1a,
    /// Opens a dynamic connection.
    Connect = 0x1e,
    /// Gives one up.
    Disconnect = 0x1f,
    /// Tells the sender of packets that they meet congestion (CNP; IBA 1.3, A17.9.3). It is the
    /// whole opcode. Here its service is that of reliable connections, whatever the queue pair's.
    CongestionNotification = 0x81,
}

/// The upper three bits of an opcode.
fn code(service: Service) -> u8 {
    match service {
        Service::Rc => 0,
        Service::Uc => 1,
        Service::Ud => 3,
        Service::Xrc => 5,
        // Left to manufacturers. What cards use is not public.
        Service::Dc => 6,
        // No packet of the transport is of it.
        Service::Ethernet => 7,
    }
}

impl Opcode {
    /// The service and the opcode with this encoding; `None` for reserved ones, for services that
    /// are not modelled, and for what the service does not have.
    pub fn decode(byte: u8) -> Option<(Service, Self)> {
        if byte == Self::CongestionNotification as u8 {
            return Some((Service::Rc, Self::CongestionNotification));
        }
        let service = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc, Service::Dc]
            .into_iter()
            .find(|service| code(*service) == byte >> 5)?;
        let opcode = Self::operation(byte & 0x1f)?;
        opcode.is_of(service).then_some((service, opcode))
    }

    /// The encoding.
    pub fn encode(self, service: Service) -> u8 {
        match self {
            Self::CongestionNotification => self as u8,
            _ => code(service) << 5 | self as u8,
        }
    }

    /// Whether a service has it.
    pub fn is_of(self, service: Service) -> bool {
        match service {
            Service::Dc => self != Self::CongestionNotification,
            Service::Xrc => Self::is_of(self, Service::Rc) && self != Self::CongestionNotification,
            Service::Rc => !matches!(self, Self::Connect | Self::Disconnect),
            Service::Uc => (self.is_send() || self.is_write()) && !self.invalidates(),
            Service::Ud => matches!(self, Self::SendOnly | Self::SendOnlyImmediate),
            Service::Ethernet => false,
        }
    }

    /// The opcode of a SEND's packet that starts the message, ends it, both, or neither; with
    /// immediate data at the end or without.
    pub fn send(starts: bool, ends: bool, immediate: bool) -> Self {
        match (starts, ends, immediate) {
            (true, true, false) => Self::SendOnly,
            (true, true, true) => Self::SendOnlyImmediate,
            (true, false, _) => Self::SendFirst,
            (false, false, _) => Self::SendMiddle,
            (false, true, false) => Self::SendLast,
            (false, true, true) => Self::SendLastImmediate,
        }
    }

    /// The same of a WRITE's.
    pub fn write(starts: bool, ends: bool, immediate: bool) -> Self {
        match (starts, ends, immediate) {
            (true, true, false) => Self::WriteOnly,
            (true, true, true) => Self::WriteOnlyImmediate,
            (true, false, _) => Self::WriteFirst,
            (false, false, _) => Self::WriteMiddle,
            (false, true, false) => Self::WriteLast,
            (false, true, true) => Self::WriteLastImmediate,
        }
    }

    /// The opcode of the same packet of a SEND with invalidate.
    pub fn invalidating(self) -> Self {
        match self {
            Self::SendLast => Self::SendLastInvalidate,
            Self::SendOnly => Self::SendOnlyInvalidate,
            other => other,
        }
    }

    /// Whether it invalidates a key.
    pub fn invalidates(self) -> bool {
        matches!(self, Self::SendLastInvalidate | Self::SendOnlyInvalidate)
    }

    fn operation(code: u8) -> Option<Self> {
        Some(match code {
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
            0x18 => Self::MaskedCompareSwap,
            0x19 => Self::MaskedFetchAdd,
            0x1a => Self::MaskedAcknowledge,
            0x1e => Self::Connect,
            0x1f => Self::Disconnect,
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
                | Self::MaskedAcknowledge
        )
    }

    /// Whether a RETH follows.
    pub fn has_reth(self) -> bool {
        matches!(
            self,
            Self::WriteFirst
                | Self::WriteOnly
                | Self::WriteOnlyImmediate
                | Self::ReadRequest
                | Self::MaskedCompareSwap
                | Self::MaskedFetchAdd
        )
    }

    /// Whether an AtomicETH follows.
    pub fn has_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it is an atomic under masks: a RETH says what it changes, the payload are its
    /// operands.
    pub fn has_masked(self) -> bool {
        matches!(self, Self::MaskedCompareSwap | Self::MaskedFetchAdd)
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
mod tests;
