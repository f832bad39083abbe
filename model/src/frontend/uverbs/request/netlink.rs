//! Messages of RDMA netlink (`rdma_netlink.h`, the client RDMA_NL_NLDEV), as they are read and written.

/// Bytes of a message's header.
pub(crate) const HEADER: usize = 16;
/// `RDMA_NL_NLDEV`
const CLIENT: u16 = 5;

/// What a message asks for (`enum rdma_nldev_command`).
pub(crate) mod command {
    pub const GET: u16 = 1;
    pub const PORT_GET: u16 = 5;
    pub const SYS_GET: u16 = 6;
    pub const RES_GET: u16 = 9;
    pub const RES_QP_GET: u16 = 10;
    pub const RES_CQ_GET: u16 = 12;
    pub const RES_MR_GET: u16 = 13;
    pub const RES_PD_GET: u16 = 14;
    pub const GET_CHARDEV: u16 = 15;
    pub const STAT_GET: u16 = 17;
    pub const RES_CTX_GET: u16 = 22;
    pub const RES_SRQ_GET: u16 = 23;
}

/// Types of attributes (`enum rdma_nldev_attr`).
pub(crate) mod attribute {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const PORT_INDEX: u16 = 3;
    pub const CAP_FLAGS: u16 = 4;
    pub const FW_VERSION: u16 = 5;
    pub const NODE_GUID: u16 = 6;
    pub const SYS_IMAGE_GUID: u16 = 7;
    pub const SUBNET_PREFIX: u16 = 8;
    pub const LID: u16 = 9;
    pub const SM_LID: u16 = 10;
    pub const LMC: u16 = 11;
    pub const PORT_STATE: u16 = 12;
    pub const PORT_PHYS_STATE: u16 = 13;
    pub const DEV_NODE_TYPE: u16 = 14;
    pub const RES_SUMMARY: u16 = 15;
    pub const RES_SUMMARY_ENTRY: u16 = 16;
    pub const RES_SUMMARY_ENTRY_NAME: u16 = 17;
    pub const RES_SUMMARY_ENTRY_CURR: u16 = 18;
    pub const RES_QP: u16 = 19;
    pub const RES_LQPN: u16 = 21;
    pub const RES_RQPN: u16 = 22;
    pub const RES_RQ_PSN: u16 = 23;
    pub const RES_SQ_PSN: u16 = 24;
    pub const RES_PATH_MIG_STATE: u16 = 25;
    pub const RES_TYPE: u16 = 26;
    pub const RES_STATE: u16 = 27;
    pub const RES_PID: u16 = 28;
    pub const RES_CQ: u16 = 35;
    pub const RES_CQE: u16 = 37;
    pub const RES_USECNT: u16 = 38;
    pub const RES_MR: u16 = 40;
    pub const RES_MRLEN: u16 = 45;
    pub const RES_PD: u16 = 46;
    pub const NDEV_INDEX: u16 = 50;
    pub const NDEV_NAME: u16 = 51;
    pub const RES_PDN: u16 = 60;
    pub const RES_CQN: u16 = 61;
    pub const RES_MRN: u16 = 62;
    pub const RES_CTXN: u16 = 64;
    pub const SYS_NETNS_MODE: u16 = 66;
    pub const DEV_PROTOCOL: u16 = 67;
    pub const CHARDEV_TYPE: u16 = 69;
    pub const CHARDEV_NAME: u16 = 70;
    pub const CHARDEV_ABI: u16 = 71;
    pub const CHARDEV: u16 = 72;
    pub const UVERBS_DRIVER_ID: u16 = 73;
    pub const STAT_RES: u16 = 75;
    pub const STAT_HWCOUNTERS: u16 = 80;
    pub const STAT_HWCOUNTER_ENTRY: u16 = 81;
    pub const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
    pub const RES_CTX: u16 = 86;
    pub const RES_SRQ: u16 = 88;
    pub const RES_SRQN: u16 = 90;
    pub const SYS_COPY_ON_FORK: u16 = 93;
}

/// Flags of an attribute's type: nested, and the byte order of networks.
const FLAGS: u16 = 0xc000;
const NESTED: u16 = 0x8000;

/// Attributes that are being written, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.0.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a number of 8 bits.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.put(kind, &[value])
    }

    /// Adds a number of 32 bits.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a number of 64 bits.
    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a text, with its zero.
    pub fn text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.put(kind, format!("{text}\0").as_bytes())
    }

    /// Adds attributes in an attribute.
    pub fn nest(&mut self, kind: u16, inner: &[u8]) -> &mut Self {
        self.put(kind | NESTED, inner)
    }

    /// Adds attributes that are written already.
    pub fn append(&mut self, others: &[u8]) -> &mut Self {
        self.0.extend(others);
        self
    }

    /// Returns what was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns what was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Returns the value of the first attribute of a kind.
pub(crate) fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let header = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) & !FLAGS == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

/// Returns the number of 32 bits in the first attribute of a kind.
pub(crate) fn find_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    find(bytes, kind)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// A program's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    header: &'a [u8; HEADER],
    /// Its attributes.
    pub attributes: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns the first message of what a program has sent, and what follows it. `None` for the rest of a
    /// message that is cut off.
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = bytes.first_chunk::<HEADER>()?;
        let [a, b, c, d, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let attributes = bytes.get(HEADER..length)?;
        let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Self { header, attributes }, rest))
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.header[at], self.header[at + 1]])
    }

    /// Returns what it asks for; `None` for another client of netlink.
    pub fn command(&self) -> Option<u16> {
        let kind = self.half(4);
        (kind >> 10 == CLIENT).then_some(kind & 0x3ff)
    }

    /// Returns whether it has all of these flags.
    pub fn has(&self, flags: libc::c_int) -> bool {
        libc::c_int::from(self.half(6)) & flags == flags
    }

    /// Returns a reply with attributes to a program at this port.
    pub fn reply(&self, command: u16, flags: libc::c_int, port: u32, attributes: &[u8]) -> Vec<u8> {
        self.message(CLIENT << 10 | command, flags, port, attributes)
    }

    /// Returns the message that ends a list.
    pub fn done(&self, port: u32) -> Vec<u8> {
        self.message(libc::NLMSG_DONE as u16, libc::NLM_F_MULTI, port, &0i32.to_ne_bytes())
    }

    /// Returns the message that says how the request ended: 0 or an errno.
    pub fn ended(&self, errno: i32, port: u32) -> Vec<u8> {
        /// The reply has no more of the request than its header.
        const CAPPED: libc::c_int = 0x100;
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend(self.header);
        self.message(libc::NLMSG_ERROR as u16, CAPPED, port, &payload)
    }

    fn message(&self, kind: u16, flags: libc::c_int, port: u32, payload: &[u8]) -> Vec<u8> {
        let mut message = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((flags as u16).to_ne_bytes());
        message.extend(&self.header[8..12]);
        message.extend(port.to_ne_bytes());
        message.extend(payload);
        message
    }
}

#[cfg(test)]
mod tests;
