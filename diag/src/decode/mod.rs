//! Decoders of what other programs print: error CQEs, WQEs, firmware commands and contexts.
//!
//! [`text`] finds records in a log, in any of the [`FORMATS`]; [`Stream`] does so for text that comes
//! in pieces; [`bytes`] reads bytes whose kind is given. All return [`DecodedRecord`]s: fields, and codes with meanings, causes and cures. A
//! completion is linked to the WQE that it names, if that is in the input too.
//!
//! Input is untrusted, and no input panics. Time is proportional to the length of the input, times
//! the number of send queues dumped in it. Fields without a known meaning are shown as they are.
//! Text without a known record yields none.
//!
//! | format | programs | source |
//! |---|---|---|
//! | CQE dumps | libmlx5; Linux mlx5_ib and mlx5e; DPDK | `cq.c`, `en/txrx.h`, `mlx5_tx.c` |
//! | WQE dumps | Linux mlx5e; DPDK (a queue's memory) | `wq.c`, `mlx5_tx.c` |
//! | completions in words | UCX, NCCL, perftest, DOCA GPUNetIO, NIXL, any with `IBV_WC_…` | their sources |
//! | commands, refused or timed out | Linux mlx5_core, libmlx5 on VFIO, DPDK, UCX | `cmd.c`, `mlx5_devx_cmds.c` |
//! | health reports | Linux mlx5_core | `health.c` |
//! | power, modules, start-up, resets | Linux mlx5_core, mlx5e | `events.c`, `main.c`, `en_main.c` |
//! | all other errors and warnings | Linux mlx5_core and mlx5_ib | their sources, as hashes of words |
//! | completions of MPI and storage | Open MPI openib, MVAPICH2, Lustre, Mooncake | their sources |
//! | asynchronous events | UCX, NCCL, any with `ibv_event_type_str` | rdma-core |
//! | connections and their events | any with librdmacm, SPDK | rdma-core, their sources |
//! | calls that failed | any program with `ibv_…`, `mlx5dv_…` or `rdma_…` | their sources |
//! | devices that could not be used | DPDK's mlx5 drivers | `mlx5_common.c`, `mlx5_os.c` |
//! | counters; states of links, reporters and objects | Linux's sysfs, `ethtool -S`, `rdma`, `devlink`, `mlxlink` | their documentation |
//! | modules, libraries and tools that do not fit each other | Linux, `modprobe`, libibverbs, DPDK, mstflint | their sources |
//! | failures of the kernel with a trace through RDMA's code | Linux | `panic.c`, `bug.c`, `watchdog.c` |
//! | listings of ports | `ibstat`, `ibv_devinfo`, `rdma link`, `ibdev2netdev` | infiniband-diags, iproute2 |
//! | packets that refuse a request | tshark, Wireshark | InfiniBand specification |
//! | completions and calls of libfabric and VMA | libfabric, libvma | their sources |
//! | flight records | the driver `mlx5` | [`flight`](crate::flight) |
//!
//! ```
//! use mlx5_diag::decode::{self, Options};
//!
//! let log = "Failed status 12: wr_id 0 syndrom 0x81";
//! let records = decode::text(log, Options::default());
//! assert_eq!(records[0].format, "perftest, NCCL");
//! assert_eq!(records[0].value("status"), Some("IBV_WC_RETRY_EXC_ERR"));
//! assert!(!records[0].findings[0].causes.is_empty());
//! ```

mod command;
mod completion;
mod format;
mod hex;
mod join;
mod kind;
mod lines;
mod messages;
mod prefix;
mod rank;
mod record;
mod scan;
mod stream;
mod words;
mod wqe;

use self::lines::Lines;

pub use format::{FORMATS, Format};
pub use hex::hex_bytes;
pub use kind::{BytesKind, DecodeError};
pub use lines::{Options, WordOrder};
pub use prefix::Origin;
pub use record::{DecodedRecord, RecordField, RecordKind};
pub use stream::Stream;

/// Finds the records in a text, in the order of its lines. Empty if it has none.
///
/// The text may have other lines between, log prefixes, quotation marks of mails and terminal
/// colours.
#[must_use]
pub fn text(text: &str, options: Options) -> Vec<DecodedRecord> {
    let lines = Lines::new(text, options);
    let mut around = rank::Surroundings::new(&lines);
    let mut records = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some((format, reading)) = format::read(&lines, at) else {
            at += 1;
            continue;
        };
        let end = reading.end;
        let mut next = 0;
        for &line in &reading.between {
            if line < next {
                continue;
            }
            if let Some((other, reading)) =
                format::read(&lines, line).filter(|(other, _)| other.name != format.name)
            {
                next = reading.end;
                add(&mut records, &lines, &mut around, other, line, reading);
            }
        }
        add(&mut records, &lines, &mut around, format, at, reading);
        at = end.max(next).clamp(at + 1, lines.len());
    }
    // The lines of each process were read together.
    records.sort_by_key(|record| record.lines.map(|(first, _)| first));
    rank::rank(&mut records);
    join::join(join::once(join::reports(records)))
}

/// Adds the records of a reading that began at a line.
fn add(
    records: &mut Vec<DecodedRecord>,
    lines: &Lines<'_>,
    around: &mut rank::Surroundings<'_>,
    format: &Format,
    at: usize,
    mut reading: format::Reading,
) {
    // A format that found a record has read at least this line, and no more lines than there are.
    let end = reading.end.clamp(at + 1, lines.len());
    around.identify(&mut reading.records, at, end);
    let origin = Origin::of(lines.tag(at), lines.get(at));
    records.extend(reading.records.into_iter().map(|record| DecodedRecord {
        format: format.name,
        lines: Some(lines.numbers(at, end)),
        origin: origin.clone(),
        ..record
    }));
}

/// Returns the records of bytes whose kind is given. The input is hex if it is text, else the bytes
/// themselves.
///
/// # Errors
/// - [`DecodeError::Empty`]: the input is empty, or text without hex.
/// - [`DecodeError::Size`]: entries of a fixed size are not complete.
pub fn bytes(
    input: &[u8],
    kind: BytesKind,
    options: Options,
) -> Result<Vec<DecodedRecord>, DecodeError> {
    let (bytes, format) = match as_text(input) {
        Some(text) => (hex_bytes(text, options.words), "hex"),
        None => (input.to_vec(), "binary"),
    };
    let records = kind.records(&bytes, options.addressing.unwrap_or_default())?;
    let records = records.into_iter().map(|record| DecodedRecord { format, ..record });
    let mut records: Vec<DecodedRecord> = records.collect();
    rank::rank(&mut records);
    Ok(join::join(join::once(records)))
}

/// Returns input that is text: UTF-8 without zero bytes, which memory dumps have. `None` for binary
/// input.
#[must_use]
pub fn as_text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok().filter(|text| !text.contains('\0'))
}
