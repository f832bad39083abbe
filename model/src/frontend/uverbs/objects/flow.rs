//! Flows: the rules for frames that an Ethernet queue pair receives. Each flow becomes entries in
//! the device's flow tables: one table for everything the port receives, and one for each kind of
//! sniffer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use mlx5_sys::ifc::{
    Field, create_flow_group_in, create_flow_group_out, create_flow_table_in,
    create_flow_table_out, delete_fte_in, delete_fte_out, dest_format_struct,
    destroy_flow_group_in, destroy_flow_group_out, flow_context, flow_table_context,
    fte_match_param, fte_match_set_lyr_2_4 as outer, opcode, set_flow_table_root_in,
    set_flow_table_root_out, set_fte_in, set_fte_out,
};

use super::super::driver::command::Command;
use super::super::process::errno::{Errno, Result};
use super::super::process::lock;
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;
use super::super::tree::privilege;
use super::file::{CommandFile, Object};
use super::qp::Qp;
use crate::object::{NIC_RX, SNIFFER_RX, SNIFFER_TX};

/// Bytes that headers are compared as.
pub(in super::super) const MATCH: usize = fte_match_param::SIZE;
/// log2 of entries that one priority may have.
const LOG_SLOTS: u32 = 12;
/// Priorities that flows may ask for; behind them, what takes all that is multicast, and all.
pub(super) const PRIORITIES: u32 = 16;
const MULTICAST: u32 = PRIORITIES;
const ALL: u32 = PRIORITIES + 1;
/// log2 of entries of a table: room for every priority.
const LOG_SIZE: u32 = LOG_SLOTS + 5;

/// A flow of a file.
pub(in super::super) struct Flow {
    pub id: u64,
    /// Handle of the queue pair, or of the program's own object, that it leads to; none if it drops.
    pub target: Option<u32>,
    /// Handle of the matcher that it was made of, if it was.
    pub matcher: Option<u32>,
}

/// The tables and rules that the process's flows have created in a device.
#[derive(Default)]
pub(in super::super) struct Flows {
    /// Tables by type.
    tables: BTreeMap<u8, u32>,
    rules: Vec<Rule>,
}

/// The criteria that a packet has to match, and their values.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Match {
    criteria: [u8; MATCH],
    value: [u8; MATCH],
}

impl Default for Match {
    fn default() -> Self {
        Self { criteria: [0; MATCH], value: [0; MATCH] }
    }
}

impl Match {
    /// Keeps the values of the fields that count, and clears the others.
    pub fn masked(criteria: [u8; MATCH], mut value: [u8; MATCH]) -> Self {
        value.iter_mut().zip(criteria).for_each(|(value, mask)| *value &= mask);
        Self { criteria, value }
    }

    fn set(&mut self, field: Field, value: u64, mask: u64) {
        let field = field.within(fte_match_param::OUTER_HEADERS);
        let all = if field.width() == 64 { u64::MAX } else { (1 << field.width()) - 1 };
        field.set(&mut self.criteria, mask & all);
        field.set(&mut self.value, value & mask & all);
    }

    fn set_bytes(&mut self, field: Field, value: &[u8], mask: &[u8]) {
        let end = field.within(fte_match_param::OUTER_HEADERS).bytes().end;
        let place = end - value.len()..end;
        self.criteria[place.clone()].copy_from_slice(mask);
        for (to, (value, mask)) in self.value[place].iter_mut().zip(value.iter().zip(mask)) {
            *to = value & mask;
        }
    }
}

/// An entry of a table.
struct Rule {
    kind: u8,
    index: u32,
    group: u32,
    matched: Match,
    /// The tag in CQEs, if the first flow gave one.
    tag: Option<u32>,
    drops: bool,
    /// Flows and the TIRs that they lead to.
    destinations: Vec<(u64, u32)>,
}

/// Kinds of flows (`enum ib_flow_attr_type`).
const NORMAL: u32 = 0;
const ALL_DEFAULT: u32 = 1;
const MC_DEFAULT: u32 = 2;
const SNIFFER: u32 = 3;

/// `CREATE_FLOW`, extended.
pub(in super::super) fn create(file: &CommandFile, request: &Request) -> Result<()> {
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
        return Err(Errno::EOPNOTSUPP);
    }
    privilege::check_raw()?;
    // The size does not include the bytes before the flow itself.
    let specs = core.get(SPECS..SPECS + size).ok_or(Errno::EINVAL)?;
    if u32::from(priority) >= PRIORITIES || port != 1 {
        return Err(Errno::EINVAL);
    }
    let (matched, tag, drops) = specification(specs, count)?;
    let special = kind != NORMAL;
    if special && (count != 0 || drops) {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    state.context()?;
    let tir = state.get::<Qp>(handle)?.raw.as_ref().and_then(|raw| raw.tir).ok_or(Errno::EINVAL)?;
    let id = next();
    let mut flows = lock(file.function().flows());
    let mut add = |table: u8, priority: u32, matched: Match| {
        let rule = Rule {
            kind: table,
            index: priority << LOG_SLOTS,
            group: 0,
            matched,
            tag,
            drops,
            destinations: vec![(id, tir)],
        };
        flows.add(file, rule)
    };
    let added = match kind {
        NORMAL => add(NIC_RX, priority.into(), matched),
        ALL_DEFAULT => add(NIC_RX, ALL, Match::default()),
        MC_DEFAULT => {
            let mut multicast = Match::default();
            multicast.set(outer::DMAC_47_16, 1 << 24, 1 << 24);
            add(NIC_RX, MULTICAST, multicast)
        }
        SNIFFER => {
            add(SNIFFER_RX, 0, Match::default()).and_then(|()| add(SNIFFER_TX, 0, Match::default()))
        }
        _ => Err(Errno::EINVAL),
    };
    if let Err(error) = added {
        let _ = flows.remove(file, id);
        return Err(error);
    }
    drop(flows);
    let handle = state.enter(Object::Flow(Flow { id, target: Some(handle), matcher: None }));
    request.reply(&[0u32.to_ne_bytes(), handle.to_ne_bytes()].concat())
}

/// A number that no flow has had.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Leads what is received and matches to a TIR, or drops it; completions call it by the tag. The
/// number of the flow.
pub(super) fn lead(
    file: &CommandFile,
    priority: u32,
    matched: Match,
    (tag, drops): (Option<u32>, bool),
    tir: u32,
) -> Result<u64> {
    let id = next();
    let index = priority << LOG_SLOTS;
    let destinations = vec![(id, tir)];
    let rule = Rule { kind: NIC_RX, index, group: 0, matched, tag, drops, destinations };
    let mut flows = lock(file.function().flows());
    if let Err(error) = flows.add(file, rule) {
        let _ = flows.remove(file, id);
        return Err(error);
    }
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

/// Decodes a list of specifications to a match, the tag for CQEs if there is one, and whether packets
/// are dropped.
fn specification(mut specs: &[u8], count: u8) -> Result<(Match, Option<u32>, bool)> {
    /// `enum ib_flow_spec_type`
    const ETHERNET: u32 = 0x20;
    const V4: u32 = 0x30;
    const V6: u32 = 0x31;
    const TCP: u32 = 0x40;
    const UDP: u32 = 0x41;
    const TAG: u32 = 0x1000;
    const DROP: u32 = 0x1001;
    /// Type and size.
    const HEADER: usize = 8;
    let mut matched = Match::default();
    let (mut tag, mut drops) = (None, false);
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
            matched.set(field, value, mask);
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
                    matched.set(outer::CVLAN_TAG, 1, 1);
                }
            }
            (V4, _) => {
                set(outer::IP_PROTOCOL, 8, 1, 0);
                set(outer::IP_DSCP, 9, 1, 2);
                set(outer::IP_ECN, 9, 1, 0);
                set(outer::TTL_HOPLIMIT, 10, 1, 0);
                matched.set_bytes(outer::SRC_IPV4_SRC_IPV6, &value[..4], &mask[..4]);
                matched.set_bytes(outer::DST_IPV4_DST_IPV6, &value[4..8], &mask[4..8]);
                matched.set(outer::IP_VERSION, 4, 0xf);
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
                matched.set_bytes(outer::SRC_IPV4_SRC_IPV6, &value[..16], &mask[..16]);
                matched.set_bytes(outer::DST_IPV4_DST_IPV6, &value[16..32], &mask[16..32]);
                matched.set(outer::IP_VERSION, 6, 0xf);
            }
            (TCP | UDP, _) => {
                let (source, destination, protocol) = if kind == TCP {
                    (outer::TCP_SPORT, outer::TCP_DPORT, 6)
                } else {
                    (outer::UDP_SPORT, outer::UDP_DPORT, 17)
                };
                set(destination, 0, 2, 0);
                set(source, 2, 2, 0);
                matched.set(outer::IP_PROTOCOL, protocol, 0xff);
            }
            (TAG, 8) => {
                let given = u32::from_ne_bytes([spec[0], spec[1], spec[2], spec[3]]);
                if given & !0xff_ffff != 0 {
                    return Err(Errno::EINVAL);
                }
                tag = Some(given);
            }
            (DROP, 0) => drops = true,
            (TAG | DROP, _) => return Err(Errno::EINVAL),
            _ => return Err(Errno::EOPNOTSUPP),
        }
    }
    Ok((matched, tag, drops))
}

impl Flows {
    /// The table of a type, made when first asked for.
    fn table(&mut self, file: &CommandFile, kind: u8) -> Result<u32> {
        if let Some(table) = self.tables.get(&kind) {
            return Ok(*table);
        }
        let function = file.function();
        let (input, output) = (create_flow_table_in::SIZE, create_flow_table_out::SIZE);
        let mut command = Command::new(opcode::CREATE_FLOW_TABLE, input, output);
        command.set(create_flow_table_in::TABLE_TYPE, kind);
        let size = flow_table_context::LOG_SIZE.within(create_flow_table_in::FLOW_TABLE_CONTEXT);
        command.set(size, LOG_SIZE);
        let number = create_flow_table_out::TABLE_ID.get(&function.run(command)?) as u32;
        let (input, output) = (set_flow_table_root_in::SIZE, set_flow_table_root_out::SIZE);
        let mut command = Command::new(opcode::SET_FLOW_TABLE_ROOT, input, output);
        command.set(set_flow_table_root_in::TABLE_TYPE, kind);
        command.set(set_flow_table_root_in::TABLE_ID, number);
        function.run(command)?;
        self.tables.insert(kind, number);
        Ok(number)
    }

    /// Adds a rule at the first free index from its own on, or a destination to the one that is the
    /// same.
    fn add(&mut self, file: &CommandFile, mut rule: Rule) -> Result<()> {
        let table = self.table(file, rule.kind)?;
        let priority = rule.index >> LOG_SLOTS;
        let of_priority =
            |other: &&mut Rule| other.kind == rule.kind && other.index >> LOG_SLOTS == priority;
        let same =
            self.rules.iter_mut().filter(of_priority).find(|other| other.matched == rule.matched);
        if let Some(same) = same {
            // Linux (`fs_core.c`, check_conflicting_ftes): a rule without a tag takes the first one's.
            let retagged = rule.tag.is_some_and(|tag| tag != same.tag.unwrap_or(0));
            if retagged || same.drops != rule.drops {
                return Err(Errno::EEXIST);
            }
            same.destinations.append(&mut rule.destinations);
            let set = same.set(file, table, true);
            if set.is_err() {
                same.destinations.pop();
            }
            return set;
        }
        let taken = |index: u32| {
            self.rules.iter().any(|other| other.kind == rule.kind && other.index == index)
        };
        let slots = rule.index..rule.index + (1 << LOG_SLOTS);
        rule.index = slots.into_iter().find(|index| !taken(*index)).ok_or(Errno::ENOMEM)?;
        let (input, output) = (create_flow_group_in::SIZE, create_flow_group_out::SIZE);
        let mut command = Command::new(opcode::CREATE_FLOW_GROUP, input, output);
        command.set(create_flow_group_in::TABLE_TYPE, rule.kind);
        command.set(create_flow_group_in::TABLE_ID, table);
        command.set(create_flow_group_in::START_FLOW_INDEX, rule.index);
        command.set(create_flow_group_in::END_FLOW_INDEX, rule.index);
        // The outer headers, if any field of them is matched.
        let matches = rule.matched.criteria.iter().any(|byte| *byte != 0);
        command.set(create_flow_group_in::MATCH_CRITERIA_ENABLE, u32::from(matches));
        command.bytes()[create_flow_group_in::MATCH_CRITERIA.bytes()]
            .copy_from_slice(&rule.matched.criteria);
        rule.group = create_flow_group_out::GROUP_ID.get(&file.function().run(command)?) as u32;
        if let Err(error) = rule.set(file, table, false) {
            rule.destroy_group(file, table)?;
            return Err(error);
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Takes a flow out of every rule that leads to it.
    fn remove(&mut self, file: &CommandFile, id: u64) -> Result<()> {
        let mut index = 0;
        while index < self.rules.len() {
            let rule = &mut self.rules[index];
            let before = rule.destinations.len();
            rule.destinations.retain(|(flow, _)| *flow != id);
            let table = self.tables.get(&rule.kind).copied().ok_or(Errno::EINVAL)?;
            if rule.destinations.is_empty() {
                let (input, output) = (delete_fte_in::SIZE, delete_fte_out::SIZE);
                let mut command = Command::new(opcode::DELETE_FLOW_TABLE_ENTRY, input, output);
                command.set(delete_fte_in::TABLE_TYPE, rule.kind);
                command.set(delete_fte_in::TABLE_ID, table);
                command.set(delete_fte_in::FLOW_INDEX, rule.index);
                file.function().run(command)?;
                rule.destroy_group(file, table)?;
                self.rules.swap_remove(index);
                continue;
            }
            if rule.destinations.len() != before {
                rule.set(file, table, true)?;
            }
            index += 1;
        }
        Ok(())
    }
}

impl Rule {
    fn set(&self, file: &CommandFile, table: u32, again: bool) -> Result<()> {
        /// `MLX5_FLOW_CONTEXT_ACTION_DROP`, `_FWD_DEST`; `MLX5_FLOW_DESTINATION_TYPE_TIR`
        const DROP: u64 = 2;
        const FORWARD: u64 = 4;
        const TIR: u64 = 2;
        let mut command =
            Command::new(opcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE, set_fte_out::SIZE);
        command.set(set_fte_in::OP_MOD, u32::from(again));
        command.set(set_fte_in::TABLE_TYPE, self.kind);
        command.set(set_fte_in::TABLE_ID, table);
        command.set(set_fte_in::FLOW_INDEX, self.index);
        let mut context = |field: Field, value: u64| {
            command.set(field.within(set_fte_in::FLOW_CONTEXT), value);
        };
        context(flow_context::GROUP_ID, self.group.into());
        context(flow_context::FLOW_TAG, self.tag.unwrap_or(0).into());
        context(flow_context::ACTION, if self.drops { DROP } else { FORWARD });
        let list: &[(u64, u32)] = if self.drops { &[] } else { &self.destinations };
        context(flow_context::DESTINATION_LIST_SIZE, list.len() as u64);
        let value = flow_context::MATCH_VALUE.within(set_fte_in::FLOW_CONTEXT);
        command.bytes()[value.bytes()].copy_from_slice(&self.matched.value);
        for (_, tir) in list {
            let mut entry = [0; dest_format_struct::SIZE];
            dest_format_struct::DESTINATION_TYPE.set(&mut entry, TIR);
            dest_format_struct::DESTINATION_ID.set(&mut entry, (*tir).into());
            command.bytes().extend_from_slice(&entry);
        }
        file.function().run(command).map(|_| ())
    }

    fn destroy_group(&self, file: &CommandFile, table: u32) -> Result<()> {
        let (input, output) = (destroy_flow_group_in::SIZE, destroy_flow_group_out::SIZE);
        let mut command = Command::new(opcode::DESTROY_FLOW_GROUP, input, output);
        command.set(destroy_flow_group_in::TABLE_TYPE, self.kind);
        command.set(destroy_flow_group_in::TABLE_ID, table);
        command.set(destroy_flow_group_in::GROUP_ID, self.group);
        file.function().run(command).map(|_| ())
    }
}

/// A flow goes.
pub(super) fn destroy(file: &CommandFile, flow: &Flow) -> Result<()> {
    lock(file.function().flows()).remove(file, flow.id)
}

/// `FLOW_DESTROY`.
pub(in super::super) fn destroy_handle(
    file: &CommandFile,
    attributes: &mut Attributes,
) -> Result<()> {
    let handle = attributes.handle(0)?;
    let mut state = file.state();
    state.context()?;
    state.remove(handle, |flow: &Flow| destroy(file, flow))
}
