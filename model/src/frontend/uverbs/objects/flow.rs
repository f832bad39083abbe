//! Flows: the rules for frames that an Ethernet queue pair receives. Each flow becomes entries in
//! the device's flow tables.

use std::sync::atomic::{AtomicU64, Ordering};

use mlx5_sys::ifc::{Field, fte_match_set_lyr_2_4 as outer};

use super::super::driver::steering::{
    ALL, Action, HeaderChanges, LOG_SLOTS, MULTICAST, Match, PRIORITIES, Place, Rule,
};
use super::super::process::errno::{Errno, Result};
use super::super::request::legacy::Request;
use super::super::tree::privilege;
use super::counters;
use super::file::{CommandFile, Object, Turn};
use super::qp::Qp;
use crate::object::{NIC_RX, SNIFFER_RX, SNIFFER_TX};

/// A flow of a file.
pub(crate) struct Flow {
    pub id: u64,
    /// Handle of the queue pair, or of the program's own object, that it leads to; none if it drops.
    pub target: Option<u32>,
    /// Handle of the matcher that it was made of, if it was.
    pub matcher: Option<u32>,
    /// Handle of what counts it: counters of verbs, or a counter that the program made by command.
    pub counter: Option<u32>,
    /// Handles of its actions on headers.
    pub headers: Vec<u32>,
}

/// Kinds of flows (`enum ib_flow_attr_type`).
const NORMAL: u32 = 0;
const ALL_DEFAULT: u32 = 1;
const MC_DEFAULT: u32 = 2;
const SNIFFER: u32 = 3;

/// `CREATE_FLOW`, extended.
pub(crate) fn create(file: &CommandFile, request: &Request) -> Result<()> {
    /// Offsets in `ib_uverbs_create_flow`.
    const SPECS: usize = 24;
    let core = &request.core;
    let half = |at: usize| u16::from_ne_bytes([core[at], core[at + 1]]);
    if core.len() < SPECS {
        return Err(Errno::ENOSPC);
    }
    let (mask, handle, kind) = (request.word(0)?, request.word(4)?, request.word(8)?);
    let (size, priority, count, port) = (usize::from(half(12)), half(14), core[16], core[19]);
    let flags = request.word(20)?;
    if mask != 0 || flags != 0 {
        return Err(Errno::EOPNOTSUPP.because(format_args!(
            "ibv_create_flow refused: comp_mask is {mask:#x} and flags {flags:#x}, and the device has none of them"
        )));
    }
    privilege::check_raw()?;
    // The size does not include the bytes before the flow itself.
    let specs = core.get(SPECS..SPECS + size).ok_or(Errno::EINVAL)?;
    if u32::from(priority) >= PRIORITIES || port != 1 {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_create_flow refused: priority is {priority} of {PRIORITIES}, and port {port}; the device has port 1"
        )));
    }
    let Specification { matched, tag, drops, counters } = specification(specs, count)?;
    if kind != NORMAL && count != 0 {
        return Err(Errno::EINVAL);
    }
    let description = counters::description(&request.driver)?;
    let mut state = file.state();
    state.context()?;
    let tir = state.get::<Qp>(handle)?.raw.as_ref().and_then(|raw| raw.tir).ok_or_else(|| {
        Errno::EINVAL.because(format_args!(
            "ibv_create_flow refused: flows need a raw packet queue pair with a receive queue"
        ))
    })?;
    let counter = counters
        .map(|counters| counters::count(file, &mut state, counters, description))
        .transpose()?;
    let entries = match kind {
        NORMAL => vec![(NIC_RX, priority.into(), matched)],
        ALL_DEFAULT => vec![(NIC_RX, ALL, Match::default())],
        MC_DEFAULT => {
            let mut multicast = Match::default();
            multicast.set(outer::DMAC_47_16, 1 << 24, 1 << 24);
            vec![(NIC_RX, MULTICAST, multicast)]
        }
        SNIFFER => vec![(SNIFFER_RX, 0, Match::default()), (SNIFFER_TX, 0, Match::default())],
        _ => return Err(Errno::EINVAL),
    };
    let to = (!drops).then_some(Place::Tir(tir));
    let leading = Leading { to, counter, changes: HeaderChanges::default() };
    let id = lead(file, entries, tag, leading)?;
    let (target, headers) = (Some(handle), Vec::new());
    let flow = Flow { id, target, matcher: None, counter: counters, headers };
    let handle = state.enter(flow);
    request.reply(&[0u32.to_ne_bytes(), handle.to_ne_bytes()].concat())
}

/// What happens to packets that match a flow.
pub(super) struct Leading {
    /// Where they go; `None` if they are dropped.
    pub to: Option<Place>,
    /// The card's counter that counts them.
    pub counter: Option<u32>,
    /// The changes to their headers.
    pub changes: HeaderChanges,
}

/// Leads what matches; completions call it by the tag. Each entry has its table, its priority there and
/// what it matches. Returns the number of the flow.
pub(super) fn lead(
    file: &CommandFile,
    entries: Vec<(u8, u32, Match)>,
    tag: Option<u32>,
    Leading { to, counter, changes }: Leading,
) -> Result<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut rules = entries.into_iter().map(|(kind, priority, matched)| Rule {
        kind,
        index: priority << LOG_SLOTS,
        group: 0,
        matched,
        tag,
        changes,
        actions: vec![Action { flow: id, to, counter }],
    });
    file.function().steer(|flows, run| {
        let added = rules.try_for_each(|rule| flows.add(run, rule));
        added.inspect_err(|_| {
            let _ = flows.remove(run, id);
        })
    })?;
    Ok(id)
}

/// Bytes of the longest filter of a header.
const FILTER: usize = 40;

/// Splits a specification into value and mask, each of `known` bytes, as Linux does: the caller's may
/// be shorter, since libibverbs has older forms (8 of 12 bytes for IPv4). What it has beyond them must
/// not count.
fn filter(spec: &[u8], known: usize) -> Result<([u8; FILTER], [u8; FILTER])> {
    let half = spec.len() / 2;
    let (value, mask) = (&spec[..half], &spec[half..2 * half]);
    if half == 0 || mask.iter().skip(known).any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    let filled = |bytes: &[u8]| {
        let mut whole = [0; FILTER];
        let taken = half.min(known);
        whole[..taken].copy_from_slice(&bytes[..taken]);
        whole
    };
    Ok((filled(value), filled(mask)))
}

/// What a list of specifications asks for.
#[derive(Default)]
struct Specification {
    matched: Match,
    /// The tag for CQEs.
    tag: Option<u32>,
    drops: bool,
    /// Handle of the counters.
    counters: Option<u32>,
}

fn specification(mut specs: &[u8], count: u8) -> Result<Specification> {
    /// `enum ib_flow_spec_type`
    const ETHERNET: u32 = 0x20;
    const V4: u32 = 0x30;
    const V6: u32 = 0x31;
    const TCP: u32 = 0x40;
    const UDP: u32 = 0x41;
    const TAG: u32 = 0x1000;
    const DROP: u32 = 0x1001;
    const COUNT: u32 = 0x1003;
    /// Type and size.
    const HEADER: usize = 8;
    let mut asked = Specification::default();
    for _ in 0..count {
        let header = specs.get(..HEADER).ok_or(Errno::EINVAL)?;
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[4], header[5]]));
        let spec = specs.get(HEADER..size).ok_or(Errno::EINVAL)?;
        specs = &specs[size..];
        let known = match kind {
            ETHERNET => 16,
            V4 => 12,
            V6 => 40,
            TCP | UDP => 4,
            _ => 0,
        };
        let (value, mask) =
            if known > 0 { filter(spec, known)? } else { ([0; FILTER], [0; FILTER]) };
        let number = |bytes: &[u8], at: usize, n: usize| {
            bytes[at..at + n].iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let mut set = |field: Field, at: usize, n: usize, shift: u32| {
            let (value, mask) = (number(&value, at, n) >> shift, number(&mask, at, n) >> shift);
            asked.matched.set(field, value, mask);
        };
        match (kind, spec.len()) {
            (ETHERNET, _) => {
                set(outer::DMAC_47_16, 0, 4, 0);
                set(outer::DMAC_15_0, 4, 2, 0);
                set(outer::SMAC_47_16, 6, 4, 0);
                set(outer::SMAC_15_0, 10, 2, 0);
                set(outer::ETHERTYPE, 12, 2, 0);
                if number(&mask, 14, 2) != 0 {
                    set(outer::FIRST_PRIO, 14, 2, 13);
                    set(outer::FIRST_CFI, 14, 2, 12);
                    set(outer::FIRST_VID, 14, 2, 0);
                    asked.matched.set(outer::CVLAN_TAG, 1, 1);
                }
            }
            (V4, _) => {
                set(outer::IP_PROTOCOL, 8, 1, 0);
                set(outer::IP_DSCP, 9, 1, 2);
                set(outer::IP_ECN, 9, 1, 0);
                set(outer::TTL_HOPLIMIT, 10, 1, 0);
                asked.matched.set_bytes(outer::SRC_IPV4_SRC_IPV6, &value[..4], &mask[..4]);
                asked.matched.set_bytes(outer::DST_IPV4_DST_IPV6, &value[4..8], &mask[4..8]);
                asked.matched.set(outer::IP_VERSION, 4, 0xf);
            }
            (V6, _) => {
                // The flow label is not among the outer headers.
                if number(&mask, 32, 4) != 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                set(outer::IP_PROTOCOL, 36, 1, 0);
                set(outer::IP_DSCP, 37, 1, 2);
                set(outer::IP_ECN, 37, 1, 0);
                set(outer::TTL_HOPLIMIT, 38, 1, 0);
                asked.matched.set_bytes(outer::SRC_IPV4_SRC_IPV6, &value[..16], &mask[..16]);
                asked.matched.set_bytes(outer::DST_IPV4_DST_IPV6, &value[16..32], &mask[16..32]);
                asked.matched.set(outer::IP_VERSION, 6, 0xf);
            }
            (TCP | UDP, _) => {
                let (source, destination, protocol) = if kind == TCP {
                    (outer::TCP_SPORT, outer::TCP_DPORT, 6)
                } else {
                    (outer::UDP_SPORT, outer::UDP_DPORT, 17)
                };
                set(destination, 0, 2, 0);
                set(source, 2, 2, 0);
                asked.matched.set(outer::IP_PROTOCOL, protocol, 0xff);
            }
            (TAG, 8) => {
                let given = u32::from_ne_bytes([spec[0], spec[1], spec[2], spec[3]]);
                if given & !0xff_ffff != 0 {
                    return Err(Errno::EINVAL);
                }
                asked.tag = Some(given);
            }
            (DROP, 0) => asked.drops = true,
            // One for each flow.
            (COUNT, 8) if asked.counters.is_none() => {
                asked.counters = Some(u32::from_ne_bytes([spec[0], spec[1], spec[2], spec[3]]));
            }
            (TAG | DROP | COUNT, _) => {
                return Err(Errno::EINVAL.because(format_args!(
                    "ibv_create_flow refused: an action of type {kind:#x} has the wrong size, or is there twice"
                )));
            }
            _ => {
                return Err(Errno::EOPNOTSUPP.because(format_args!(
                    "ibv_create_flow refused: the device does not match by headers of type {kind:#x} (IBV_FLOW_SPEC_*)"
                )));
            }
        }
    }
    Ok(asked)
}

impl Object for Flow {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        let single = [self.target, self.matcher, self.counter].into_iter().flatten();
        single.chain(self.headers.iter().copied()).for_each(each);
    }

    fn turn(&self) -> Turn {
        Turn::Flows
    }

    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        file.function().steer(|flows, run| flows.remove(run, self.id))?;
        Ok(Vec::new())
    }
}
