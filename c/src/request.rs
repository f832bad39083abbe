//! `struct mlx5_request` and `struct mlx5_receive`, and their checks.

use core::ffi::c_void;
use core::slice;

use mlx5::cqe::SendOperation;
use mlx5::ib::{Access, Transport};
use mlx5::ring::PostError;
use mlx5::wqe::{Remote, Sge, Word};
use mlx5_sys::verbs::ibv_sge;

use crate::address::Address;
use crate::error::{Failed, Result};
use crate::status::Status;

// The lists of C are read in place.
const _: () =
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());

/// Asks for a completion.
pub const SIGNALED: u32 = 1;
/// Starts when the READs and atomics before it are done.
pub const FENCED: u32 = 2;
/// Raises a solicited event at the peer.
pub const SOLICITED: u32 = 4;
/// Copies the payload into the WQE.
pub const INLINE: u32 = 8;
/// Packets: the HCA fills the checksums of IPv4, TCP and UDP in.
pub const CHECKSUMS: u32 = 16;
/// Packets: the first entry is copied into the WQE.
pub const INLINE_HEADER: u32 = 32;
/// Packets: the HCA inserts the VLAN tag in `immediate`.
pub const VLAN: u32 = 64;

/// BIND_WINDOW: the window is of type 2.
pub const TYPE_2: u32 = 128;
/// BIND_WINDOW: addresses behind the window start at 0.
pub const ZERO_BASED: u32 = 256;
/// CONFIGURE_KEY: the entries are pieces of a cycle.
pub const INTERLEAVED: u32 = 512;
/// CONFIGURE_KEY: the entry is memory that has the list of pieces.
pub const LIST_IN_MEMORY: u32 = 1024;

/// Defines [`Operation`] with its numbers and names.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// `enum mlx5_operation`: what a request does, and what has completed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub enum Operation {
            $($(#[$doc])* $name = $number,)*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &'static [Operation] = &[$(Operation::$name),*];

            /// Returns the name of an operation's number.
            pub(crate) fn name(number: u32) -> &'static str {
                match number {
                    $($number => $text,)*
                    _ => "request",
                }
            }
        }
    };
}

operations! {
    /// Completions only: of no request that is outstanding.
    Unexpected = 0, "request";
    /// SEND.
    Send = 1, "SEND";
    /// SEND with immediate.
    SendImm = 2, "SEND with immediate";
    /// RDMA WRITE.
    Write = 3, "RDMA WRITE";
    /// RDMA WRITE with immediate.
    WriteImm = 4, "RDMA WRITE with immediate";
    /// RDMA READ.
    Read = 5, "RDMA READ";
    /// Atomic compare and swap.
    CompareSwap = 6, "compare and swap";
    /// Atomic fetch and add.
    FetchAdd = 7, "fetch and add";
    /// Does nothing, and completes.
    Nop = 8, "NOP";
    /// SEND that also invalidates a key of the peer.
    SendInvalidate = 9, "SEND with invalidate";
    /// A key of this side opens nothing any more.
    LocalInvalidate = 10, "local invalidate";
    /// Atomic compare and swap under masks.
    MaskedCompareSwap = 11, "masked compare and swap";
    /// Atomic fetch and add, field by field.
    MaskedFetchAdd = 12, "masked fetch and add";
    /// Packets of a large payload behind one header (TSO).
    LargeSend = 13, "large send";
    /// Several packets by one WQE.
    MultiPacket = 14, "multi-packet SEND";
    /// Binds a memory window.
    BindWindow = 15, "bind of a window";
    /// Gives a key of `mlx5dv_create_mkey` its memory and rights.
    ConfigureKey = 16, "configuration of a key";
    /// Packets: the requests behind it wait for a time.
    WaitUntil = 17, "wait for a time";
    /// Completions only: a receive took a SEND, or failed.
    Receive = 32, "receive";
    /// Completions only: a receive took a SEND with immediate.
    ReceiveImm = 33, "receive of a SEND with immediate";
    /// Completions only: a receive took a SEND that invalidated a key.
    ReceiveInvalidate = 34, "receive of a SEND with invalidate";
    /// Completions only: a WRITE with immediate took a receive.
    ReceiveWriteImm = 35, "receive of a WRITE with immediate";
    /// Completions only: a request that changes a key: a bind, a configuration, a local invalidate.
    ChangeKey = 36, "change of a key";
    /// Completions only: an operation that this interface does not post.
    Other = 63, "request";
}

impl Operation {
    #[inline]
    pub(crate) fn of_send(operation: SendOperation) -> Self {
        match operation {
            SendOperation::Send => Self::Send,
            SendOperation::SendImm => Self::SendImm,
            SendOperation::Write => Self::Write,
            SendOperation::WriteImm => Self::WriteImm,
            SendOperation::Read => Self::Read,
            SendOperation::CompareSwap => Self::CompareSwap,
            SendOperation::FetchAdd => Self::FetchAdd,
            SendOperation::Nop => Self::Nop,
            SendOperation::SendInvalidate => Self::SendInvalidate,
            SendOperation::Umr => Self::ChangeKey,
            SendOperation::Wait => Self::WaitUntil,
            SendOperation::MaskedCompareSwap => Self::MaskedCompareSwap,
            SendOperation::MaskedFetchAdd => Self::MaskedFetchAdd,
            SendOperation::LargeSend => Self::LargeSend,
            SendOperation::MultiPacket => Self::MultiPacket,
            _ => Self::Other,
        }
    }
}

/// `struct mlx5_request`: a request of a send queue.
#[derive(Debug)]
#[repr(C)]
pub struct Request {
    /// Comes back in the completion.
    pub id: u64,
    /// `enum mlx5_operation`.
    pub operation: u32,
    /// [`SIGNALED`], [`FENCED`], [`SOLICITED`], [`INLINE`].
    pub flags: u32,
    /// The payload, or the memory that is written.
    pub sg_list: *const Sge,
    /// Its entries.
    pub num_sge: u32,
    /// Immediate data, in host byte order.
    pub immediate: u32,
    /// The peer's memory.
    pub remote_addr: u64,
    /// Its key.
    pub rkey: u32,
    /// Zero.
    pub reserved: u32,
    /// Atomics: what is compared, or added. Changes of keys: `enum ibv_access_flags`. Waits: the time.
    pub compare_add: u64,
    /// Compare and swap: the new value. Configurations by a list in memory: bytes behind the key.
    pub swap: u64,
    /// Masked compare and swap, and waits: the bits that are compared.
    pub compare_mask: u64,
    /// Masked compare and swap: the bits that are replaced. Masked fetch and add: the most significant
    /// bit of each field.
    pub swap_mask: u64,
    /// UD: the destination.
    pub address: *const Address,
}

/// `struct mlx5_receive`: a receive.
#[derive(Debug)]
#[repr(C)]
pub struct Receive {
    /// Comes back in the completion.
    pub id: u64,
    /// The memory for the message.
    pub sg_list: *const Sge,
    /// Its entries.
    pub num_sge: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct mlx5_change`: other bytes for a part of the payload of a prepared request.
#[derive(Debug)]
#[repr(C)]
pub struct Change {
    /// The bytes.
    pub bytes: *const c_void,
    /// Their place in the payload.
    pub offset: u32,
    /// Their number.
    pub length: u32,
}

/// Returns a list of entries.
///
/// # Safety
/// `list` is null or has `count` readable entries, as long as the result is used.
#[inline(always)]
pub(crate) unsafe fn entries<'a>(list: *const Sge, count: u32) -> Result<&'a [Sge]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || !list.is_aligned() {
        return Err(Failed::argument("sg_list is null or unaligned, and num_sge is not 0"));
    }
    // SAFETY: not null, aligned, and of that many entries by this function's contract.
    Ok(unsafe { slice::from_raw_parts(list, count as usize) })
}

/// Appends receives to a batch by `append`, until one is refused.
///
/// # Safety
/// The lists are readable.
#[inline(always)]
pub(crate) unsafe fn append_all(
    receives: &[Receive],
    mut append: impl FnMut(u64, &[Sge]) -> core::result::Result<(), PostError>,
) -> Result {
    for receive in receives {
        if receive.reserved != 0 {
            return Err(Failed::argument("reserved is not 0: clear the whole mlx5_receive first"));
        }
        // SAFETY: this function's contract.
        append(receive.id, unsafe { entries(receive.sg_list, receive.num_sge)? })?;
    }
    Ok(())
}

impl Request {
    /// Checks the flags against those that the operation has.
    #[inline(always)]
    pub(crate) fn check(&self, known: u32) -> Result {
        if self.flags & !known != 0 {
            return Err(self.refused_flags());
        }
        if self.reserved != 0 {
            return Err(Failed::argument("reserved is not 0: clear the whole mlx5_request first"));
        }
        Ok(())
    }

    #[cold]
    fn refused_flags(&self) -> Failed {
        Failed::told(
            Status::InvalidArgument,
            format_args!(
                "flags {:#x} do not fit a {}: MLX5_SOLICITED is for SEND and WRITE_IMM, MLX5_INLINE for \
                 SEND, WRITE and MULTI_PACKET, MLX5_CHECKSUMS for packets, MLX5_INLINE_HEADER and \
                 MLX5_VLAN for SENDs of packets, MLX5_TYPE_2 and MLX5_ZERO_BASED for BIND_WINDOW, \
                 MLX5_INTERLEAVED and MLX5_LIST_IN_MEMORY for CONFIGURE_KEY",
                self.flags,
                Operation::name(self.operation)
            ),
        )
    }

    /// Returns the peer's memory.
    pub(crate) fn remote(&self) -> Remote {
        Remote::new(self.remote_addr, self.rkey)
    }

    /// Returns the eight bytes for an atomic's old value.
    ///
    /// # Safety
    /// The list is readable.
    pub(crate) unsafe fn word(&self) -> Result<Word> {
        // SAFETY: the caller's contract for the list.
        match unsafe { entries(self.sg_list, self.num_sge)? } {
            [old] if old.length == 8 => Ok(Word::new(old.addr, old.lkey)),
            _ => Err(Failed::argument(
                "an atomic has one entry of 8 bytes in sg_list, which takes the old value",
            )),
        }
    }

    /// Returns the rights of a key that the request changes, which are among `known`.
    pub(crate) fn access(&self, known: Access) -> Result<Access> {
        let bits = u32::try_from(self.compare_add).ok();
        let access = bits.and_then(Access::from_bits).filter(|access| known.contains(*access));
        access.ok_or_else(|| {
            Failed::told(
                Status::InvalidArgument,
                format_args!(
                    "access {:#x} has other bits than {:#x} of enum ibv_access_flags",
                    self.compare_add,
                    known.bits()
                ),
            )
        })
    }

    /// Returns why the operation is not posted on a transport.
    #[cold]
    pub(crate) fn not_on<T: Transport>(&self) -> Failed {
        if Operation::ALL.iter().all(|known| *known as u32 != self.operation)
            || self.operation == 0
            || self.operation >= 32
        {
            return Failed::told(
                Status::InvalidArgument,
                format_args!("operation {} is none of a request", self.operation),
            );
        }
        Failed::told(
            Status::NotOnTransport,
            format_args!("{} cannot post a {}", T::NAME, Operation::name(self.operation)),
        )
    }
}

/// Implements `list` of a structure whose arrays are passed.
macro_rules! lists {
    ($($type:ty, $null:literal;)*) => { $(
        impl $type {
            /// Returns the array at this address.
            ///
            /// # Safety
            /// `list` is null or has `count` readable elements, as long as the result is used.
            #[inline(always)]
            pub(crate) unsafe fn list<'a>(list: *const Self, count: u32) -> Result<&'a [Self]> {
                if count == 0 {
                    return Ok(&[]);
                }
                if list.is_null() || !list.is_aligned() {
                    return Err(Failed::argument($null));
                }
                // SAFETY: not null, aligned, and of that many elements by this function's contract.
                Ok(unsafe { slice::from_raw_parts(list, count as usize) })
            }
        }
    )* };
}

lists! {
    Request, "the requests are null or unaligned";
    Receive, "the receives are null or unaligned";
    Change, "the changes are null or unaligned";
}
