//! Messages of vfio-user (QEMU's `docs/interop/vfio-user.rst`) as values. All are little-endian.

/// Bytes of a message's header.
pub const HEADER: usize = 16;
/// Most bytes that a read or write transfers.
pub const MAX_TRANSFER: usize = 1 << 20;
/// Most descriptors in a message.
pub const MAX_DESCRIPTORS: usize = 16;
/// Most mappings of guest memory.
pub const MAX_MAPPINGS: usize = 4096;
/// Bytes of a page. Mappings of guest memory are whole pages.
pub const PAGE: u64 = 4096;
/// Most bytes of guest memory that are mapped at a time. All functions of a server together leave most
/// of the process's address space free.
pub const MAX_MAPPED: u64 = 1 << 40;
/// Most bytes of a message: a write with its offset, region and count.
pub const MAX_MESSAGE: usize = HEADER + 16 + MAX_TRANSFER;

/// Commands that the server answers.
pub mod command {
    #![allow(missing_docs, reason = "the names are those of the specification")]
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

/// Bits of a header's flags.
mod flag {
    /// The type of the message: zero is a command.
    pub const TYPE: u32 = 0xf;
    pub const REPLY: u32 = 0x1;
    pub const NO_REPLY: u32 = 0x10;
    pub const ERROR: u32 = 0x20;
}

/// Why a request is refused: an errno of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field has a value that the request does not allow.
    #[error("invalid argument")]
    Invalid,
    /// A mapping that overlaps another one.
    #[error("the range is mapped")]
    Exists,
    /// More than the server accepts.
    #[error("too many or too long")]
    TooMuch,
    /// A request that the server does not know.
    #[error("not supported")]
    Unsupported,
    /// A file that is not in memory. Reads of its pages may wait for a disk or for another process.
    #[error("the file is not in memory; share a memory-backend-memfd, or a file in /dev/shm")]
    NotInMemory,
    /// The kernel refused a mapping.
    #[error("cannot map")]
    Unmappable,
}

impl Refusal {
    /// Returns the errno.
    pub fn errno(self) -> i32 {
        match self {
            Self::Invalid => libc::EINVAL,
            Self::Exists => libc::EEXIST,
            Self::TooMuch => libc::E2BIG,
            Self::Unsupported | Self::NotInMemory => libc::ENOTSUP,
            Self::Unmappable => libc::EFAULT,
        }
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender of a command, and repeated in the reply.
    pub id: u16,
    /// See [`command`].
    pub command: u16,
    /// Bytes of the message with this header.
    pub size: u32,
    /// Type of the message and how it is answered.
    pub flags: u32,
    /// An errno, in replies.
    pub error: u32,
}

impl Header {
    /// Reads a header.
    pub fn read(bytes: &[u8; HEADER]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        Self { id: half(0), command: half(2), size: word(4), flags: word(8), error: word(12) }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_le_bytes());
        for (at, word) in [(4, self.size), (8, self.flags), (12, self.error)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns whether the message is a command.
    pub fn is_command(&self) -> bool {
        self.flags & flag::TYPE == 0
    }

    /// Returns whether the sender of a command waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.flags & flag::NO_REPLY == 0
    }

    /// Returns the reply to this command as a message.
    pub fn reply(&self, outcome: Result<&[u8], Refusal>) -> Vec<u8> {
        let (payload, flags, error) = match outcome {
            Ok(payload) => (payload, flag::REPLY, 0),
            Err(refusal) => (&[][..], flag::REPLY | flag::ERROR, refusal.errno() as u32),
        };
        let size = (HEADER + payload.len()) as u32;
        let header = Self { id: self.id, command: self.command, size, flags, error };
        let mut message = header.bytes().to_vec();
        message.extend_from_slice(payload);
        message
    }
}

/// Reads 32 bits of a payload.
///
/// # Errors
/// [`Refusal::Invalid`] if the payload is too short.
pub fn word(payload: &[u8], at: usize) -> Result<u32, Refusal> {
    let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_le_bytes).ok_or(Refusal::Invalid)
}

/// Reads 64 bits of a payload.
///
/// # Errors
/// [`Refusal::Invalid`] if the payload is too short.
pub fn long(payload: &[u8], at: usize) -> Result<u64, Refusal> {
    Ok(u64::from(word(payload, at)?) | u64::from(word(payload, at + 4)?) << 32)
}

/// Returns words as bytes.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A part of a region that a read or write is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes from the region's start.
    pub offset: u64,
    /// Index of the region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

impl Access {
    /// Bytes before the data.
    pub const SIZE: usize = 16;

    /// Reads it from a payload.
    ///
    /// # Errors
    /// If the payload is too short, or the access longer than [`MAX_TRANSFER`].
    pub fn read(payload: &[u8]) -> Result<Self, Refusal> {
        let access = Self {
            offset: long(payload, 0)?,
            region: word(payload, 8)?,
            count: word(payload, 12)?,
        };
        if access.count as usize > MAX_TRANSFER {
            return Err(Refusal::TooMuch);
        }
        Ok(access)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.region.to_le_bytes());
        bytes[12..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }
}
