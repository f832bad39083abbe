//! Every error that the model reports, on every transport. The bytes of the CQE and of the send
//! queue go through `mlx5 decode --json`. The output must agree with libmlx5's `ibv_poll_cq` and
//! with this driver's poll of that CQE.
//!
//! Both read one CQ: the driver first, and then libmlx5, whose own consumer index is still at the
//! start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::ptr::NonNull;

use mlx5::cqe::{Completion, Failure, QueueKind};
use mlx5::ring::{CqReader, Queues};
use mlx5_sys::verbs::{ibv_cq, ibv_qp, ibv_wc_status};
use serde_json::Value;

use crate::errors_frames::frames;
use crate::errors_reliable::{dynamic, extended, reliable};
use crate::errors_shared::shared;
use crate::errors_unreliable::unreliable;
use crate::rig::{Printed, mlx5};
use ::rig::verbs::{CqMemory, QpMemory, poll};
use ::rig::wait;

/// Says to the process that it is the one to provoke the errors of that link.
const CHILD: &str = "MLX5_DECODE_ERRORS";

/// The HCA's report on a request: its queue, its status, and the operation by its PRM name.
pub type Expected = (QueueKind, ibv_wc_status::Type, Option<&'static str>);

/// A failed request of a send queue.
pub const fn send(status: ibv_wc_status::Type, operation: &'static str) -> Expected {
    (QueueKind::Send, status, Some(operation))
}

/// A failed receive.
pub const fn receive(status: ibv_wc_status::Type) -> Expected {
    (QueueKind::Receive, status, None)
}

/// The results from one CQ of a case: the failures that the driver polled.
pub struct Polled {
    cq: NonNull<ibv_cq>,
    failures: Vec<Failure>,
}

/// Polls failures, as many as are expected; what succeeds before them is passed over.
pub fn failures<Q: Queues + ?Sized>(
    cq: NonNull<ibv_cq>,
    completions: &mut CqReader,
    queues: &mut Q,
    count: usize,
) -> Polled {
    let mut failures = Vec::new();
    while failures.len() < count {
        if let Completion::Failed(failure) = wait(completions, queues) {
            failures.push(failure);
        }
    }
    Polled { cq, failures }
}

/// Like [`failures`], for failures that were already polled.
pub fn polled(cq: NonNull<ibv_cq>, failures: Vec<Failure>) -> Polled {
    Polled { cq, failures }
}

/// The statuses that were seen, each with the cases that showed it.
#[derive(Default)]
pub struct Seen(BTreeMap<&'static str, BTreeSet<String>>);

impl Seen {
    /// Holds a case: what `mlx5 decode` says of its CQEs to what everybody else says. `queues` are the
    /// queue pairs whose send queues the WQEs are in, and are alive.
    pub fn hold(
        &mut self,
        name: &str,
        transport: &str,
        ends: &[Polled],
        queues: &[NonNull<ibv_qp>],
        expected: &[Expected],
    ) {
        let mut dump = String::new();
        let (mut told, mut qpns) = (Vec::new(), Vec::new());
        for end in ends {
            // SAFETY: the case keeps the CQ alive.
            let memory = unsafe { CqMemory::new(end.cq) };
            for slot in 0..memory.dv.cqe_cnt as usize {
                let entry = memory.entry(slot);
                let entry = &entry[entry.len() - 64..];
                if matches!(entry[63] >> 4, 0xd | 0xe) {
                    rows(&mut dump, entry);
                }
            }
            let mut words = Vec::new();
            // SAFETY: the case keeps the CQ alive, and the driver does not poll it again.
            while let Some(wc) = unsafe { poll(end.cq) }.expect("it can be polled") {
                if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
                    words.push((wc.status, wc.vendor_err, wc.qp_num));
                }
            }
            let own: Vec<_> = end
                .failures
                .iter()
                .zip(&words)
                .map(|(failure, (_, _, number))| {
                    // Of receives of frames the card names the RQ, and the driver the QP that has it.
                    let is_frame = transport == "eth" && failure.queue == QueueKind::Receive;
                    let qpn = if is_frame { *number } else { failure.qpn };
                    (failure.status.wc_status(), u32::from(failure.vendor_error), qpn)
                })
                .collect();
            assert_eq!(own, words, "{name}: the driver and libmlx5");
            assert_eq!(end.failures.len(), words.len(), "{name}: {words:?}");
            qpns.extend(words.iter().map(|(_, _, number)| *number));
            told.extend(end.failures.iter().copied());
        }
        for qp in queues {
            // SAFETY: the case keeps the queue pair alive.
            let dv = unsafe { QpMemory::new(*qp) }.dv;
            let length = (dv.sq.wqe_cnt * dv.sq.stride) as usize;
            // SAFETY: the ring is as long, and no code writes it: its requests have failed.
            let ring = unsafe { std::slice::from_raw_parts(dv.sq.buf.cast::<u8>(), length) };
            writeln!(dump, "MLX5 Error SQ: at [0x1], len={length}").expect("memory");
            for (row, bytes) in ring.chunks(16).enumerate() {
                write!(dump, "{:08X}:", row * 16).expect("memory");
                for byte in bytes {
                    write!(dump, " {byte:02X}").expect("memory");
                }
                dump.push_str(" | ................\n");
            }
        }

        let mut records = decoded(&dump, transport);
        let all = records.clone();
        records.retain(|record| record["kind"] == "cqe");
        let found: Vec<_> = told.iter().map(|it| (it.queue, it.status.wc_status())).collect();
        let wanted: Vec<_> = expected.iter().map(|(queue, status, _)| (*queue, *status)).collect();
        assert_eq!(found, wanted, "{name}: {told:?}");
        let count: u64 = records.iter().map(|it| it["times"].as_u64().expect("a number")).sum();
        assert_eq!(count, told.len() as u64, "{name}: {dump}\n{all:#?}");
        assert_eq!(records.len(), told.len(), "{name}: {all:#?}");
        for (at, ((record, failure), (queue, _, operation))) in
            records.iter().zip(&told).zip(expected).enumerate()
        {
            let field = |name| field(record, name);
            let status = failure.status;
            assert_eq!(field("status"), Some(status.name()), "{name}: {record:#}");
            let vendor = format!("{:#04x}", failure.vendor_error);
            assert_eq!(field("vendor code"), Some(&*vendor), "{name}");
            assert_eq!(field("QP"), Some(&*format!("{:#x}", qpns[at])), "{name}");
            let index = format!("{:#06x}", failure.wqe_index);
            assert_eq!(field("WQE"), Some(&*index), "{name}");
            assert_eq!(field("operation"), *operation, "{name}");
            let side = match queue {
                QueueKind::Send => "send queue",
                QueueKind::Receive => "receive queue",
            };
            assert_eq!(field("queue"), Some(side), "{name}");
            assert!(record["findings"][0]["causes"][0]["cure"].is_string(), "{name}: {record:#}");
            self.0.entry(status.name()).or_default().insert(name.to_owned());
            // The WQE that failed is in the memory of the send queue.
            if let (Some(operation), false) = (operation, queues.is_empty()) {
                let place = record["wqe"].as_u64().unwrap_or_else(|| panic!("{name}: {all:#?}"));
                let wqe = &all[place as usize - 1];
                let title = wqe["title"].as_str().expect("text");
                assert!(title.starts_with(operation), "{name}: {title} of {operation}");
                assert_eq!(self::field(wqe, "QP"), field("QP"), "{name}");
            }
        }
    }
}

/// Formats a CQE as rows of words, as libmlx5 prints CQEs.
fn rows(dump: &mut String, entry: &[u8]) {
    dump.push_str("mlx5: host: got completion with error:\n");
    for row in entry.chunks(16) {
        let words: Vec<String> = row
            .chunks(4)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        writeln!(dump, "{}", words.join(" ")).expect("memory");
    }
}

/// Returns the command's output for a dump.
fn decoded(dump: &str, transport: &str) -> Vec<Value> {
    let mut command = mlx5(&["decode", "--json", "--transport", transport]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(dump.as_bytes()).expect("it reads");
    let printed = Printed::from(child.wait_with_output().expect("it ends"));
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    printed.report()["records"].as_array().expect("records").clone()
}

fn field<'a>(record: &'a Value, name: &str) -> Option<&'a str> {
    let fields = record["fields"].as_array().expect("fields");
    fields.iter().find(|field| field["name"] == name)?["value"].as_str()
}

/// Runs the test of that name in a process of its own, on the model with that link.
fn on_link(test: &str, link: &str) {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, link)
        .env("MLX5_MODEL", "always")
        .env("MLX5_MODEL_LINK", link)
        .output()
        .expect("it starts");
    let (out, err) =
        (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}");
}

/// Statuses of `enum ibv_wc_status` that the model's card reports, but for those of which docs/testing.md
/// says that no program brings them about.
const STATUSES: [&str; 12] = [
    "IBV_WC_LOC_ACCESS_ERR",
    "IBV_WC_LOC_LEN_ERR",
    "IBV_WC_LOC_PROT_ERR",
    "IBV_WC_LOC_QP_OP_ERR",
    "IBV_WC_MW_BIND_ERR",
    "IBV_WC_REM_ABORT_ERR",
    "IBV_WC_REM_ACCESS_ERR",
    "IBV_WC_REM_INV_REQ_ERR",
    "IBV_WC_REM_OP_ERR",
    "IBV_WC_RETRY_EXC_ERR",
    "IBV_WC_RNR_RETRY_EXC_ERR",
    "IBV_WC_WR_FLUSH_ERR",
];

#[test]
fn errors_of_every_transport_are_decoded_as_they_were_reported() {
    if std::env::var_os(CHILD).is_none() {
        return on_link(
            "errors::errors_of_every_transport_are_decoded_as_they_were_reported",
            "infiniband",
        );
    }
    let mut seen = Seen::default();
    reliable(&mut seen);
    extended(&mut seen);
    dynamic(&mut seen);
    unreliable(&mut seen);
    shared(&mut seen);
    let statuses: Vec<&str> = seen.0.keys().copied().collect();
    assert_eq!(statuses, STATUSES, "{:#?}", seen.0);
}

#[test]
fn errors_of_frames_are_decoded_as_they_were_reported() {
    if std::env::var_os(CHILD).is_none() {
        return on_link("errors::errors_of_frames_are_decoded_as_they_were_reported", "roce");
    }
    let mut seen = Seen::default();
    frames(&mut seen);
    let statuses: Vec<&str> = seen.0.keys().copied().collect();
    let expected = [
        "IBV_WC_LOC_LEN_ERR",
        "IBV_WC_LOC_PROT_ERR",
        "IBV_WC_LOC_QP_OP_ERR",
        "IBV_WC_WR_FLUSH_ERR",
    ];
    assert_eq!(statuses, expected, "{:#?}", seen.0);
}
