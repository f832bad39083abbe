//! The table's rows: the measured operation, its preparation, and its limit.
//!
//! A new row is one line of [`rows!`], and an arm in [`Side::run`] of each side that supports it.
//!
//! [`Side::run`]: crate::side::Side::run

/// Columns of the table.
pub mod column {
    /// libmlx5 by `ibv_post_send`, `ibv_post_recv`, `ibv_poll_cq`.
    pub const CLASSIC: &str = "ibv_post/poll_cq";
    /// libmlx5 by `ibv_wr_*`; polls by `ibv_start_poll` and `ibv_end_poll`.
    pub const EXTENDED: &str = "ibv_wr/start_poll";
    /// The same in a process that says to have one thread, for which libmlx5 takes no locks.
    pub const UNLOCKED: &str = "the same, no locks";
    /// This crate's layer that owns memory.
    pub const OWNED: &str = "mlx5 owned";
    /// This crate's raw layer.
    pub const RAW: &str = "mlx5";
    /// A C program by `mlx5_ring.h`.
    pub const HEADER: &str = "mlx5_ring.h";
    /// A C program by libmlx5direct.
    pub const LIBRARY: &str = "libmlx5direct";
    /// The stores that must happen, alone.
    pub const FLOOR: &str = "floor";
}

/// WRs in a list.
pub const LIST: usize = 32;

/// Unsignaled requests before each signaled one, in the row that has them.
pub const UNSIGNALED: usize = 8;

/// The unmeasured work around the measured calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The calls post requests that complete. Afterwards the model executes them, and polls take
    /// the completions.
    Post,
    /// Like [`Post`](Self::Post); each call posts so many.
    Lists(usize),
    /// Like [`Post`](Self::Post), for requests that [`Side::prepare`](crate::side::Side::prepare)
    /// has written to the ring.
    Fire,
    /// The calls poll the completions of requests that as many posting calls of the same
    /// [program](Row::program) have posted and the model has executed.
    Poll,
    /// The calls poll completions that the side has prepared ([`Side::prepare`]).
    ///
    /// [`Side::prepare`]: crate::side::Side::prepare
    Take,
    /// Like [`Take`](Self::Take), for completions that retire many requests each.
    TakeFew,
    /// Like [`Take`](Self::Take); each call takes so many.
    TakeLists(usize),
    /// The calls poll an empty CQ.
    Idle,
    /// The calls fill a queue that nothing empties. Each section has a side of its own, on which
    /// nothing was posted before.
    Fill,
    /// Like [`Fill`](Self::Fill); each call posts so many.
    FillLists(usize),
}

impl How {
    /// Whether a side that was used before has no room for the calls.
    pub const fn fills(self) -> bool {
        matches!(self, Self::Fill | Self::FillLists(_))
    }

    /// Whether the side prepares what the calls take.
    pub const fn takes(self) -> bool {
        matches!(self, Self::Take | Self::TakeFew | Self::TakeLists(_))
    }
}

/// The most that one side may execute in a row.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The side's column.
    pub column: &'static str,
    /// Instructions per call.
    pub most: f64,
    /// And so many times what another side executes.
    pub times: Option<(f64, &'static str)>,
    /// Whether passing it is a failure. Where not, the table shows how far it is.
    pub held: bool,
}

/// The raw layer executes at most `most`, which fails where it is passed.
const fn at_most(most: f64) -> Limit {
    Limit { column: column::RAW, most, times: None, held: true }
}

/// The owned layer executes at most `most`.
const fn at_most_owned(most: f64) -> Limit {
    Limit { column: column::OWNED, ..at_most(most) }
}

/// A C program by `mlx5_ring.h` executes at most `most`, as gcc compiles it.
const fn at_most_header(most: f64) -> Limit {
    Limit { column: column::HEADER, ..at_most(most) }
}

/// A C program by libmlx5direct executes at most `most`.
const fn at_most_library(most: f64) -> Limit {
    Limit { column: column::LIBRARY, ..at_most(most) }
}

/// The owned layer executes at most so many times what the raw layer does.
const fn at_most_raw(times: f64) -> Limit {
    Limit {
        column: column::OWNED,
        most: f64::INFINITY,
        times: Some((times, column::RAW)),
        held: true,
    }
}

impl Limit {
    /// And at most `times` times what the side in `column` executes.
    const fn and(self, times: f64, column: &'static str) -> Self {
        Self { times: Some((times, column)), ..self }
    }

    /// A goal that is not reached yet.
    #[allow(dead_code, reason = "there are times when every limit is reached")]
    const fn goal(self) -> Self {
        Self { held: false, ..self }
    }
}

/// All there is to know of a row.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its name in the table.
    pub text: &'static str,
    pub how: How,
    pub limits: &'static [Limit],
}

macro_rules! rows {
    ($($row:ident: $text:literal, $how:expr, [$($limit:expr),*];)*) => {
        /// One row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Row { $($row),* }

        impl Row {
            /// In the table's order, which is also the order of measuring.
            pub const ALL: &[Self] = &[$(Self::$row),*];

            pub const fn spec(self) -> Spec {
                match self {
                    $(Self::$row => Spec { text: $text, how: $how, limits: const { &[$($limit),*] } }),*
                }
            }
        }
    };
}

use column::{EXTENDED, FLOOR};

rows! {
    Inline: "8-byte inline WRITE, signaled, BlueFlame", How::Post,
        [
            at_most(54.0).and(1.5, FLOOR), at_most_owned(62.0), at_most_header(58.0),
            at_most_library(280.0)
        ];
    Pointer: "64-byte pointer WRITE, signaled, BlueFlame", How::Post,
        [at_most(49.0).and(1.5, FLOOR), at_most_header(58.0), at_most_library(245.0)];
    List: "list of 32 such, one doorbell, per WR", How::Lists(LIST),
        [at_most(26.8), at_most_library(130.0)];
    Inline12: "12-byte inline WRITE", How::Post, [];
    Inline16: "16-byte inline WRITE", How::Post, [at_most(56.0).goal(), at_most_header(61.0)];
    Inline24: "24-byte inline WRITE", How::Post, [];
    Inline28: "28-byte inline WRITE", How::Post,
        [at_most(60.0), at_most_header(62.0)];
    Inline32: "32-byte inline WRITE, two blocks", How::Post, [];
    Inline44: "44-byte inline WRITE, two blocks", How::Post, [];
    Inline64: "64-byte inline WRITE, two blocks", How::Post,
        [at_most(75.0).goal(), at_most_header(136.0)];
    Inline96: "96-byte inline WRITE, three blocks", How::Post, [at_most(94.0)];
    RunTime: "8-byte inline WRITE of run-time length", How::Post,
        [at_most(97.0), at_most_header(122.0)];
    RunTime16: "16-byte inline WRITE of run-time length", How::Post, [];
    RunTime28: "28-byte inline WRITE of run-time length", How::Post, [];
    DoorbellInline: "8-byte inline WRITE, doorbell", How::Post, [at_most(54.0)];
    DoorbellPointer: "64-byte pointer WRITE, doorbell", How::Post, [at_most(47.0)];
    Uncached: "64-byte pointer WRITE, doorbell, uncached register", How::Post, [at_most(53.0)];
    Recordless: "64-byte pointer WRITE, doorbell, no record", How::Post, [at_most(48.0)];
    Sse2: "64-byte pointer WRITE, BlueFlame by SSE2", How::Post, [];
    Avx2: "64-byte pointer WRITE, BlueFlame by AVX2", How::Post, [];
    Avx512: "64-byte pointer WRITE, BlueFlame by AVX-512", How::Post, [];
    Movdir64b: "64-byte pointer WRITE, BlueFlame by MOVDIR64B", How::Post, [];
    Prepared: "prepared fire, 8-byte payload, signaled, BlueFlame", How::Fire,
        [at_most(25.0), at_most_header(98.0), at_most_library(315.0)];
    DoorbellPrepared: "prepared fire, 8-byte payload, signaled, doorbell", How::Fire, [];
    Prepared64: "prepared fire, 64-byte payload, two blocks", How::Fire, [at_most(43.0)];
    Prepared128: "prepared fire, 128-byte payload, three blocks", How::Fire, [at_most(57.0)];
    Prepared200: "prepared fire, 200-byte payload, four blocks", How::Fire, [at_most(73.0)];
    PreparedField: "prepared fire, 8 of 200 bytes changed, four blocks", How::Fire, [at_most(54.0)];
    PreparedUd: "prepared fire, 64-byte payload on UD, three blocks", How::Fire, [at_most(51.0)];
    ListLast: "list of 32 such, the last by BlueFlame, per WR", How::Lists(LIST), [at_most(29.0)];
    UcPointer: "64-byte pointer SEND on UC", How::Post, [at_most(52.0)];
    UdPointer: "64-byte pointer SEND on UD, two blocks", How::Post, [at_most(70.0)];
    UdInline: "8-byte inline SEND on UD, two blocks", How::Post, [at_most(71.0)];
    UdInline24: "24-byte inline SEND on UD, two blocks", How::Post, [];
    UdList: "list of 32 by pointer on UD, per WR", How::Lists(LIST), [at_most(39.5)];
    DcSend: "64-byte pointer SEND on DC, two blocks", How::Post,
        [at_most(74.0).and(1.0 / 3.0, EXTENDED)];
    DcWrite: "64-byte pointer WRITE on DC, two blocks", How::Post,
        [at_most(79.0).and(1.0 / 3.0, EXTENDED)];
    Masked: "masked fetch and add, 8 bytes, BlueFlame", How::Post, [at_most(53.0)];
    KeyList: "key over four pieces, UMR of three blocks", How::Post,
        [at_most(141.0).and(1.0 / 3.0, EXTENDED)];
    Bind: "memory window bound, UMR of three blocks", How::Post, [at_most(137.0)];
    Poll: "poll, one success", How::Poll,
        [at_most(30.3), at_most_owned(38.0), at_most_header(54.0), at_most_library(165.0)];
    Empty: "poll, empty", How::Idle,
        [at_most(10.0), at_most_header(24.0), at_most_library(85.0)];
    PollQuiet: "poll, one success, record every 16", How::Take, [at_most(40.0)];
    PollLater: "poll, one success of 8 unsignaled and it", How::TakeFew, [at_most(45.0)];
    PollMany: "poll of 32 successes, per CQE", How::TakeLists(LIST), [at_most(33.0)];
    PollReceive: "poll, one receive", How::Take, [at_most(47.0)];
    PollWide: "poll, one success in a CQE of 128 bytes", How::Take, [at_most(31.0)];
    PollFolded: "poll, one success in a compressed block", How::Take,
        [at_most(55.0).and(1.0 / 3.0, EXTENDED)];
    PollFoldedReceive: "poll, one receive in a compressed block", How::Take,
        [at_most(73.0)];
    PollInside: "poll, one receive of 8 bytes in the CQE", How::Take, [at_most(110.0)];
    PollReceives: "poll of 32 receives, per CQE", How::TakeLists(LIST), [at_most(47.0)];
    Receive: "post_recv, one SGE", How::Fill,
        [at_most(20.0), at_most_owned(40.0), at_most_header(40.0), at_most_library(140.0)];
    ReceiveWide: "post_recv, one SGE of four", How::Fill, [at_most(30.0)];
    ReceiveList: "list of 32 receives, per receive", How::FillLists(LIST), [at_most(12.0)];
    ReceiveShared: "post_srq_recv, one SGE", How::Fill, [at_most(36.0)];
    ReceiveSharedList: "list of 32 receives of a shared queue, per receive", How::FillLists(LIST),
        [at_most(26.0)];
    PollShared: "poll, one receive of a shared queue", How::Take, [at_most(70.0)];
    PollTable: "the same, of one of 300 queue pairs in a table", How::Take, [at_most(97.0)];
    TagAppend: "append to a list of tags, reported", How::Post, [at_most(113.0)];
    TagPoll: "poll, one message of a list of tags", How::Take, [at_most(104.0)];
    PacketSend: "60-byte inline packet, two blocks", How::Post, [at_most(75.0)];
    PacketFire: "prepared fire, 8 of 60 bytes of a packet changed, two blocks", How::Fire,
        [at_most(36.0)];
    PacketPoll: "poll of 32 packets, slots posted again, per packet", How::TakeLists(LIST),
        [at_most_owned(93.0)];
    PacketEmpty: "poll for packets, empty", How::Idle, [at_most_owned(32.0)];
    PoolPost: "the same program: 64-byte WRITE from a pool", How::Post, [at_most_raw(1.15)];
    PoolList: "the same program: list of 32 such, per WR", How::Lists(LIST), [at_most_raw(1.15)];
    PoolPoll: "the same program: poll, buffer back to the pool", How::Poll, [at_most_raw(1.3)];
    PoolEmpty: "the same program: poll, empty", How::Idle, [at_most_raw(1.15)];
    PoolReceive: "the same program: post_recv from a pool", How::Fill, [at_most_raw(1.0)];
}

impl Row {
    /// Posting, polling what is there, and polling nothing, by the same side.
    pub const fn program(self) -> [Self; 3] {
        match self {
            Self::PoolPost
            | Self::PoolList
            | Self::PoolPoll
            | Self::PoolEmpty
            | Self::PoolReceive => [Self::PoolPost, Self::PoolPoll, Self::PoolEmpty],
            _ => [Self::Inline, Self::Poll, Self::Empty],
        }
    }

    /// Whether it is of Ethernet packets, which a process of their own counts.
    #[allow(dead_code, reason = "not every benchmark counts in several processes")]
    pub const fn is_of_packets(self) -> bool {
        matches!(self, Self::PacketSend | Self::PacketFire | Self::PacketPoll | Self::PacketEmpty)
    }

    /// Whether passing one of its limits is a failure.
    pub fn is_held(self) -> bool {
        self.spec().limits.iter().any(|limit| limit.held)
    }

    pub const fn text(self) -> &'static str {
        self.spec().text
    }

    /// Returns the number of payload bytes of an inline WRITE or SEND.
    pub const fn inline_bytes(self) -> Option<usize> {
        match self {
            Self::Inline | Self::RunTime | Self::UdInline => Some(8),
            Self::Inline12 => Some(12),
            Self::Inline16 | Self::RunTime16 => Some(16),
            Self::Inline24 | Self::UdInline24 => Some(24),
            Self::Inline28 | Self::RunTime28 => Some(28),
            Self::Inline32 => Some(32),
            Self::Inline44 => Some(44),
            Self::Inline64 => Some(64),
            Self::Inline96 => Some(96),
            _ => None,
        }
    }

    /// Returns how many operations of the table a call of [`Side::run`] performs.
    ///
    /// [`Side::run`]: crate::side::Side::run
    pub const fn per_call(self) -> usize {
        match self.spec().how {
            How::Lists(requests) | How::FillLists(requests) | How::TakeLists(requests) => requests,
            _ => 1,
        }
    }
}
