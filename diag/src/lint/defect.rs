//! All that is looked for: one entry each, with its name, how bad it is, what it says and the cure.

use core::fmt;

use super::Transport;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// An HCA executes it, but it is hardly what was meant.
    Suspicious,
    /// An HCA refuses it, does something else, or never completes it.
    Defect,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Suspicious => "suspicious",
            Severity::Defect => "defect",
        })
    }
}

macro_rules! defects {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }
        $severity:ident $text:literal, $says:literal, $cure:literal;
    )*) => {
        /// A defect of a send queue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Defect {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type),* },)*
        }

        impl Defect {
            /// Names of all of them, as [`name`](Self::name) has them.
            pub const NAMES: &'static [&'static str] = &[$($text),*];

            /// Returns its name, for programs: words in lower case with hyphens.
            pub const fn name(&self) -> &'static str {
                match self { $(Defect::$name { .. } => $text,)* }
            }

            /// Returns how bad it is.
            pub const fn severity(&self) -> Severity {
                match self { $(Defect::$name { .. } => Severity::$severity,)* }
            }

            /// Returns the cure.
            pub const fn cure(&self) -> &'static str {
                match self { $(Defect::$name { .. } => $cure,)* }
            }
        }

        impl fmt::Display for Defect {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Defect::$name { $($field),* } => write!(f, $says),)* }
            }
        }
    };
}

defects! {
    /// No operation has this opcode.
    UnknownOpcode { /** The opcode. */ opcode: u8 }
    Defect "unknown-opcode", "no operation has opcode {opcode:#04x}",
        "write one of MLX5_OPCODE_* into bits 7-0 of the first word, big-endian";

    /// The transport does not have the operation.
    NotOnTransport { /** The queue's transport. */ transport: Transport }
    Defect "not-on-transport", "queues of {transport} do not execute this operation",
        "post it on a queue pair of another transport, or use another operation";

    /// The HCA cannot do it.
    NotCapable {}
    Defect "not-capable", "the HCA does not have the capability that this operation needs",
        "ask for the capability before using it (ibv_query_device_ex, QUERY_HCA_CAP)";

    /// The opcode modifier is none of the operation's.
    UnknownModifier { /** The modifier. */ modifier: u8 }
    Defect "unknown-modifier",
        "the opcode modifier is {modifier:#04x}, which this operation does not have",
        "clear bits 31-24 of the first word, or write the modifier the operation has";

    /// Another queue pair's number in the ctrl segment.
    WrongQueuePair { /** The queue's number. */ expected: u32, /** The WQE's. */ found: u32 }
    Defect "wrong-queue-pair", "names queue pair {found:#x}, expected {expected:#x}",
        "write the number of the queue pair whose ring this is into bits 31-8 of the second word";

    /// The index is not that of the WQE's place.
    WrongIndex { /** By its place. */ expected: u16, /** The WQE's. */ found: u16 }
    Defect "wrong-index", "the index is {found:#06x}, expected {expected:#06x}",
        "count 64-byte blocks, not WQEs, from 0 after each RESET, modulo 2^16";

    /// The size is zero.
    SizeZero {}
    Defect "size-zero", "the size (ds) is 0, expected at least 1",
        "count the ctrl segment in: ds is the WQE's size in 16-byte units";

    /// The size is more than a WQE may have.
    TooLong { /** Its size. */ ds: u32, /** The most. */ max: u32 }
    Defect "too-long",
        "the size (ds) is {ds}, at most {max} units fit the queue's WQEs or its ring",
        "make the queue pair for larger WQEs (more entries or inline data), or split the request";

    /// Another WQE begins within its size.
    Overlap { /** Its size. */ ds: u32, /** Which of its blocks is another WQE's. */ block: u32 }
    Defect "overlap", "the size (ds) is {ds}, but another WQE begins in its block {block}",
        "count only the segments that were written: ds is in 16-byte units, not in bytes or blocks";

    /// The next WQE begins further on than its size says.
    Gap { /** Its size. */ ds: u32, /** Blocks that belong to no WQE. */ blocks: u32 }
    Defect "gap", "the size (ds) is {ds}, but the next WQE begins {blocks} blocks after its end",
        "count every segment into ds; the HCA takes the block after the WQE's end for the next \
         WQE";

    /// Bits of the ctrl segment that are reserved.
    ReservedCtrl { /** Those that are set. */ bits: u8 }
    Defect "reserved-ctrl", "reserved bits {bits:#04x} are set, expected 0",
        "clear the whole ctrl segment before filling it in";

    /// A fence mode that is reserved.
    ReservedFence { /** The mode. */ mode: u8 }
    Defect "reserved-fence", "the fence mode is {mode}, expected 0 to 4",
        "use no fence (0), the small fence (1), fence (2), strong ordering (3), or small fence \
         and fence (4)";

    /// The signature is not that of the WQE.
    Signature { /** Of the bytes. */ expected: u8, /** The WQE's. */ found: u8 }
    Defect "signature", "the signature is {found:#04x}, expected {expected:#04x}",
        "write the complement of the XOR of all other bytes of the WQE, as the last of all";

    /// A stream of an initiator on a queue that is none.
    StreamUnused { /** The stream. */ stream: u16 }
    Suspicious "stream-unused",
        "names stream {stream}, which only initiators of dynamic connections have",
        "clear bytes 9 and 10 of the ctrl segment";

    /// Immediate data that is not used.
    ImmediateUnused { /** The word. */ imm: u32 }
    Suspicious "immediate-unused",
        "the immediate is {imm:#010x}, which this operation does not send",
        "use the operation with immediate, or clear the word";

    /// A solicited event asked for where the peer gets no completion.
    SolicitedUnused {}
    Suspicious "solicited-unused", "asks for a solicited event, and the peer gets no completion",
        "leave the bit to SEND and to operations with immediate";

    /// No CQE though the queue pair signals all.
    NotSignaled {}
    Defect "not-signaled", "asks for no CQE on a queue pair that was made to signal every request",
        "set the completion mode to 2 in each WQE: the HCA does not do it, sq_sig_all is \
         software's";

    /// A request follows a change of keys and does not wait for it.
    KeyChangeUnfenced {}
    Suspicious "key-change-unfenced",
        "follows a change of keys and has no fence, so it may run before it",
        "set the small fence (1), as libmlx5 does in the request after one that changes keys";

    /// No WQE in a whole ring asks for a CQE.
    NoCompletion { /** Blocks in a row. */ run: u32, /** Blocks of the ring. */ blocks: u32 }
    Defect "no-completion",
        "{run} blocks in a row bring no CQE in a ring of {blocks}: nothing would ever free them",
        "signal at least one WQE in each ring's length";

    /// More CQEs outstanding than the CQ has room for.
    CqTooSmall { /** Outstanding. */ signaled: u32, /** CQEs of this queue. */ cqes: u32 }
    Defect "cq-too-small",
        "{signaled} signaled WQEs are outstanding, and the CQ has room for {cqes}",
        "make the CQ larger, signal fewer WQEs, or poll before posting more: an overrun CQ loses \
         completions";

    /// The WQE ends before a segment that the operation has.
    SegmentMissing { /** Bytes it needs. */ needed: u16, /** Bytes that are left. */ left: u16 }
    Defect "segment-missing", "needs {needed} bytes here, and the WQE's size (ds) leaves {left}",
        "write the segments the operation has on this transport, and count them into ds";

    /// Bytes behind the last segment of the operation.
    Leftover { /** How many. */ bytes: u16 }
    Defect "leftover", "{bytes} bytes follow the last segment that this operation has",
        "count only the operation's segments into ds";

    /// Reserved bytes of a segment are not zero.
    ReservedField { /** What is there. */ found: u32 }
    Defect "reserved-field", "reserved, and {found:#x}, expected 0",
        "clear the segment before filling it in: the ring holds what was written one lap before";

    /// Bytes that no HCA looks at are not zero.
    StaleBytes { /** The first of them. */ found: u8 }
    Suspicious "stale-bytes",
        "not looked at, and {found:#04x}, which the ring had there one lap before",
        "clear the segment before filling it in, or leave it: no HCA minds";

    /// Inline data where the operation cannot have it.
    InlineForbidden {}
    Defect "inline-forbidden",
        "inline data in an operation that writes to, or reads, this side's memory by key",
        "name memory by address and lkey; bit 31 of a byte count says inline";

    /// Inline data is longer than the WQE.
    InlineBeyond { /** Bytes. */ length: u32, /** Bytes that are left. */ left: u16 }
    Defect "inline-beyond", "{length} bytes of inline data, and the WQE's size (ds) leaves {left}",
        "count (4 + bytes) / 16 units, rounded up, into ds";

    /// Inline data is longer than the queue was made for.
    InlineTooLong { /** Bytes. */ length: u32, /** The limit. */ max: u32 }
    Suspicious "inline-too-long", "{length} bytes of inline data, at most {max} on this queue",
        "make the queue pair with a larger max_inline_data, or send from memory";

    /// Reserved bits of an inline header.
    InlineReserved { /** The word. */ found: u32 }
    Defect "inline-reserved",
        "the inline header is {found:#010x}: bits 30-10 are reserved, expected 0",
        "write bit 31 and a length of at most ten bits";

    /// Inline data of no bytes.
    InlineEmpty {}
    Suspicious "inline-empty", "inline data of no bytes takes a segment",
        "leave the segment out: a request without data has none";

    /// More scatter/gather entries than the queue was made for.
    TooManySges { /** Entries. */ count: u32, /** The limit. */ max: u32 }
    Suspicious "too-many-sges", "{count} data segments, at most {max} on this queue",
        "make the queue pair with a larger max_send_sge, or send less";

    /// A data segment of zeroes.
    Hole {}
    Defect "hole", "a data segment of zeroes, which names 2 GiB of lkey 0",
        "write as many data segments as ds counts; one of no bytes is left out, not cleared";

    /// A key that is none.
    InvalidLkey { /** The key. */ lkey: u32 }
    Defect "invalid-lkey", "the lkey is {lkey:#x}, which is no memory region's",
        "write the region's lkey; 0x100 only ends the list of a receive WQE";

    /// A key whose bytes are in the wrong order: see [`reversed_key`](super::reversed_key).
    KeyByteOrder { /** The key. */ found: u32, /** The region's. */ made: u32 }
    Defect "key-byte-order",
        "the key is {found:#x}, which no region has, and {made:#x} is a region's: its bytes are in the wrong \
         order",
        "store keys big-endian, as all fields of a WQE";

    /// Memory to which the HCA may not write: see [`misused_regions`](super::misused_regions).
    NoLocalWrite { /** The region's key. */ lkey: u32 }
    Defect "no-local-write",
        "the HCA would write to the region of lkey {lkey:#x}, which has no LOCAL_WRITE",
        "register the region with IBV_ACCESS_LOCAL_WRITE: READs and atomics write to this side's memory";

    /// Memory outside of its region: see [`misused_regions`](super::misused_regions).
    OutsideRegion { /** The region's key. */ lkey: u32, /** Address. */ addr: u64, /** Bytes. */ length: u32 }
    Defect "outside-region",
        "{length} bytes from {addr:#x} on are not within the region of lkey {lkey:#x}",
        "post memory of the region only, or register all of it";

    /// A length of 0, which is 2 GiB.
    TwoGib {}
    Suspicious "two-gib", "the byte count is 0, which means 2 GiB",
        "leave a segment of no bytes out";

    /// The memory goes past the end of the address space.
    AddressWraps { /** Address. */ addr: u64, /** Bytes. */ length: u32 }
    Defect "address-wraps", "{length} bytes from {addr:#x} on go past the end of the address space",
        "check address and length; addresses are big-endian";

    /// A message of more than 2 GiB.
    MessageTooLong { /** Bytes. */ bytes: u64 }
    Defect "message-too-long", "a message of {bytes} bytes, at most 2147483648 are possible",
        "split the message";

    /// A key of the peer's that is none.
    InvalidRkey {}
    Suspicious "invalid-rkey", "the rkey is 0, which is no memory region's",
        "write the rkey that the peer told";

    /// An atomic on memory that is not aligned.
    Unaligned { /** Address at the peer. */ addr: u64, /** Bytes. */ size: u32 }
    Defect "unaligned", "an atomic on {size} bytes at {addr:#x}, expected a multiple of {size}",
        "align the variable at the peer: the responder refuses it otherwise (remote invalid \
         request)";

    /// Memory for an atomic's old value is not as long as the atomic.
    AtomicLength { /** The atomic's. */ expected: u32, /** What there is. */ found: u64 }
    Defect "atomic-length", "{found} bytes of memory for the old value, expected {expected}",
        "name exactly as many bytes as the atomic has";

    /// A condition of a wait for a time that no driver posts.
    WaitCondition { /** The condition. */ found: u32 }
    Suspicious "wait-condition", "waits for a time under condition {found:#x}, expected 5 (cyclic, smaller)",
        "write the condition under which the queue waits while the clock is behind the time";

    /// No destination.
    NoDestination {}
    Suspicious "no-destination", "the destination's number is 0",
        "write the peer's queue pair, target or shared receive queue";

    /// Too few bytes of a frame in the WQE.
    HeaderShort { /** Bytes. */ found: u32, /** The least. */ expected: u32 }
    Defect "header-short", "{found} bytes of header in the WQE, expected at least {expected}",
        "put the Ethernet header into the WQE: large sends repeat it, and HCAs before \
         ConnectX-5 want 18 bytes";

    /// A large send that does not say how large its packets are.
    NoMss {}
    Defect "no-mss", "a large send whose MSS is 0",
        "write the largest payload of a packet into the Ethernet segment";

    /// An MSS where nothing is cut.
    MssUnused { /** The MSS. */ mss: u16 }
    Suspicious "mss-unused", "the MSS is {mss}, and the operation cuts no frame",
        "use TSO, or clear the field";

    /// A WQE for several packets without a packet.
    NoPackets {}
    Defect "no-packets", "sends several packets, and has none",
        "write a data segment for each packet behind the Ethernet segment, and count it into ds";

    /// A header or a tag in an Ethernet segment that several packets share.
    HeaderShared { /** Length of the header, or bit 15 for a tag. */ found: u16 }
    Defect "header-shared",
        "the Ethernet segment has a header or a tag ({found:#06x}), and several packets share it",
        "write whole packets, each into its own data segment; a tag goes into the packet";

    /// A packet shorter than an Ethernet header.
    PacketShort { /** Bytes. */ length: u32 }
    Defect "packet-short", "a packet of {length} bytes, expected at least 14",
        "write a whole packet: addresses, type and payload";

    /// Flags that no UMR has.
    UmrFlags { /** Those. */ flags: u8 }
    Defect "umr-flags", "flags {flags:#04x} are reserved, expected 0",
        "use inline (7), check free (5), translation offset (4) and check QPN (3) only";

    /// A translation of another size than the control segment says.
    TranslationSize {
        /// Bytes, by the control segment.
        expected: u32,
        /// Bytes that follow.
        found: u32,
    }
    Defect "translation-size", "{found} bytes follow the key's context, expected {expected}",
        "count entries in 16-byte units, filled up to a multiple of four, and the BSF behind them";

    /// An operation that lists of tags do not have.
    TagOperation { /** The operation. */ operation: u8 }
    Defect "tag-operation",
        "operation {operation} on a list of tags, expected 0 (nothing), 1 (append) or 2 (remove)",
        "write the operation into bits 7-4 of the segment's first byte";

    /// Source and destination of a copy differ in length.
    CopyLengths { /** Of the source. */ from: u32, /** Of the destination. */ to: u32 }
    Defect "copy-lengths", "copies {from} bytes to memory of {to}",
        "give both the same length";

    /// The doorbell record is behind what is written.
    RecordBehind {
        /// The record.
        record: u16,
        /// The counter after the last WQE.
        written: u16,
    }
    Suspicious "record-behind",
        "the record says {record:#06x}, and WQEs are written up to {written:#06x}",
        "store the producer counter before ringing, unless they are meant to be rung later: after an \
         error the HCA reports no WQE behind it";

    /// The doorbell record covers what is not written.
    RecordAhead {
        /// The record.
        record: u16,
        /// The counter after the last WQE.
        written: u16,
    }
    Defect "record-ahead",
        "the record says {record:#06x}, but what is there from {written:#06x} on is a lap old",
        "write WQEs first, and count their 64-byte blocks: after an error the HCA flushes the stale ones";

    /// The doorbell record ends within a WQE.
    RecordInside { /** The record. */ record: u16, /** The counter after the WQE. */ end: u16 }
    Defect "record-inside", "the record says {record:#06x}, within a WQE that ends at {end:#06x}",
        "add all the WQE's blocks to the counter, not 1 for each WQE";

    /// The register was given another WQE than the last.
    WrongDoorbell {
        /// First eight bytes of the last WQE.
        expected: u64,
        /// The value that was stored.
        found: u64,
    }
    Defect "wrong-doorbell",
        "was given {found:#018x}, expected the last WQE's first eight bytes, {expected:#018x}",
        "store the first eight bytes of the last WQE's ctrl segment, as they lie in the ring";
}
