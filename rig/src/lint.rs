//! Runs the lint on every send ring that a test examines.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use mlx5::diag::lint::{Facts, Finding, Lint, Severity, Transport};
use mlx5::diag::text::{Addressing, SendWqe};
use mlx5_sys::verbs::{ibv_qp, ibv_qp_attr_mask, ibv_qp_type, ibv_query_qp};

use super::verbs::QpMemory;

/// By the ring's address: how far it was looked at, and what test looks at.
static LOOKED: Mutex<Option<HashMap<usize, Looked>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Looked {
    lint: Lint,
    wqes: u32,
    /// Whether suspicious but valid WQEs are accepted.
    lenient: bool,
}

fn with<R>(what: impl FnOnce(&mut HashMap<usize, Looked>) -> R) -> R {
    let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
    what(looked.get_or_insert_default())
}

fn record(memory: &QpMemory) -> u16 {
    let [.., high, low] = memory.record();
    u16::from_be_bytes([high, low])
}

/// Returns the facts of a queue pair that verbs know.
///
/// # Safety
/// The queue pair is alive.
unsafe fn facts(qp: NonNull<ibv_qp>) -> Option<Facts> {
    // SAFETY: the caller keeps the queue pair alive.
    let (kind, number) = unsafe { (qp.as_ref().qp_type, qp.as_ref().qp_num) };
    let transport = match kind {
        ibv_qp_type::IBV_QPT_RC => Transport::Rc,
        ibv_qp_type::IBV_QPT_UC => Transport::Uc,
        ibv_qp_type::IBV_QPT_UD => Transport::Ud,
        ibv_qp_type::IBV_QPT_XRC_SEND => Transport::Xrc,
        ibv_qp_type::IBV_QPT_RAW_PACKET => Transport::RawPacket,
        ibv_qp_type::IBV_QPT_DRIVER => Transport::Dci,
        _ => return None,
    };
    let mut attributes = MaybeUninit::zeroed();
    let mut made = MaybeUninit::zeroed();
    let mask = ibv_qp_attr_mask::IBV_QP_CAP.0 as i32;
    // SAFETY: it is alive; zeros are valid in these C structures.
    let made = unsafe {
        let (attributes, made) = (attributes.as_mut_ptr(), made.as_mut_ptr());
        assert_eq!(ibv_query_qp(qp.as_ptr(), attributes, mask, made), 0);
        *made
    };
    Some(Facts {
        qpn: Some(number),
        max_sge: Some(made.cap.max_send_sge),
        max_inline: Some(made.cap.max_inline_data),
        signal_all: made.sq_sig_all != 0,
        ..Facts::new(transport)
    })
}

/// Starts checking the WQEs that are posted from now on.
///
/// # Safety
/// The queue pair is alive.
pub unsafe fn begin(qp: NonNull<ibv_qp>, memory: &QpMemory) {
    // SAFETY: the caller upholds the same conditions.
    let Some(facts) = (unsafe { facts(qp) }) else { return };
    let lint = Lint::at(facts, record(memory));
    with(|looked| looked.insert(memory.dv.sq.buf.addr(), Looked { lint, wqes: 0, lenient: false }));
}

/// Looks at what was posted since.
pub fn go_on(memory: &QpMemory, ring: &[u8]) {
    let at = memory.dv.sq.buf.addr();
    let Some(before) = with(|looked| looked.get(&at).copied()) else { return };
    let (record, facts) = (record(memory), *before.lint.facts());
    let posted = before.lint.next().map_or(0, |next| record.wrapping_sub(next));
    if usize::from(posted) > ring.len() / 64 {
        // More than a lap of WQEs, most of which are overwritten.
        let lint = Lint::at(facts, record);
        with(|looked| looked.insert(at, Looked { lint, ..before }));
        return;
    }
    let (mut lint, mut findings) = (before.lint, Vec::new());
    let wqes = before.wqes
        + lint.ring(ring, Some(record), &mut |finding| {
            if !before.lenient || finding.severity() == Severity::Defect {
                findings.push(finding);
            }
        });
    with(|looked| looked.insert(at, Looked { lint, wqes, ..before }));
    assert!(findings.is_empty(), "{}", tell(facts.transport, ring, &findings));
    assert_eq!(lint.next(), Some(record), "all that was posted was looked at");
}

/// Accepts suspicious WQEs in this queue, where they are intended.
pub fn be_lenient(memory: &QpMemory) {
    with(|looked| {
        if let Some(looked) = looked.get_mut(&memory.dv.sq.buf.addr()) {
            looked.lenient = true;
        }
    });
}

/// How many WQEs of a ring were looked at.
pub fn looked_at(memory: &QpMemory) -> u32 {
    with(|looked| looked.get(&memory.dv.sq.buf.addr()).map_or(0, |looked| looked.wqes))
}

/// Findings with their WQEs.
pub fn tell(transport: Transport, ring: &[u8], findings: &[Finding]) -> String {
    let addressing = match transport {
        Transport::Rc | Transport::Uc => Addressing::Connected,
        Transport::Ud | Transport::Dci => Addressing::Datagram,
        Transport::Xrc => Addressing::Xrc,
        Transport::RawPacket => Addressing::Ethernet,
    };
    let mut text = String::new();
    for finding in findings {
        let at = usize::from(finding.wqe) * 64 % ring.len();
        let wqe: Vec<u8> = ring[at..].iter().chain(&ring[..at]).copied().collect();
        text += &format!("{finding}\n{}\n", SendWqe::new(&wqe, addressing));
    }
    text
}
