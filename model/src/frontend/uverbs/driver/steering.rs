//! Flow tables of a device: one for everything the port receives, one for all that Ethernet queues send, and
//! one for each kind of sniffer. Flows of all files become entries in them.

use std::collections::BTreeMap;

use mlx5_sys::ifc::{
    Field, create_flow_group_in, create_flow_group_out, create_flow_table_in,
    create_flow_table_out, delete_fte_in, delete_fte_out, dest_format_struct,
    destroy_flow_group_in, destroy_flow_group_out, flow_context, flow_counter_list,
    flow_table_context, fte_match_param, opcode, set_flow_table_root_in, set_flow_table_root_out,
    set_fte_in, set_fte_out,
};

use super::super::process::errno::{Errno, Result};
use super::command::Command;
use crate::object::{NIC_RX, NIC_TX};

/// Executes a command on the device.
pub(crate) type Run<'a> = &'a dyn Fn(Command) -> Result<Vec<u8>>;

/// Bytes that headers are compared as.
pub(crate) const MATCH: usize = fte_match_param::SIZE;
/// Bits of `match_criteria_enable`: outer headers, and parameters with the registers of metadata.
pub(crate) const OUTER: u32 = 1;
pub(crate) const MISC_2: u32 = 8;
/// log2 of entries that one priority may have.
pub(crate) const LOG_SLOTS: u32 = 12;
/// Priorities that flows may ask for; behind them, what takes all that is multicast, and all.
pub(crate) const PRIORITIES: u32 = 16;
pub(crate) const MULTICAST: u32 = PRIORITIES;
pub(crate) const ALL: u32 = PRIORITIES + 1;
/// log2 of entries of a table: room for every priority.
const LOG_SIZE: u32 = LOG_SLOTS + 5;

/// The tables and rules that the process's flows have created in a device.
#[derive(Default)]
pub(crate) struct Flows {
    /// Tables by type.
    tables: BTreeMap<u8, u32>,
    rules: Vec<Rule>,
}

/// The criteria that a packet has to match, and their values.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Match {
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

    /// Returns `match_criteria_enable`: a bit for each group of fields of which one is matched.
    fn enabled(&self) -> u32 {
        let groups =
            [(fte_match_param::OUTER_HEADERS, OUTER), (fte_match_param::MISC_PARAMETERS_2, MISC_2)];
        let matched = |group: Field| self.criteria[group.bytes()].iter().any(|byte| *byte != 0);
        groups.into_iter().filter(|(group, _)| matched(*group)).map(|(_, bit)| bit).sum()
    }

    pub fn set(&mut self, field: Field, value: u64, mask: u64) {
        let field = field.within(fte_match_param::OUTER_HEADERS);
        let all = if field.width() == 64 { u64::MAX } else { (1 << field.width()) - 1 };
        field.set(&mut self.criteria, mask & all);
        field.set(&mut self.value, value & mask & all);
    }

    pub fn set_bytes(&mut self, field: Field, value: &[u8], mask: &[u8]) {
        let end = field.within(fte_match_param::OUTER_HEADERS).bytes().end;
        let place = end - value.len()..end;
        self.criteria[place.clone()].copy_from_slice(mask);
        for (to, (value, mask)) in self.value[place].iter_mut().zip(value.iter().zip(mask)) {
            *to = value & mask;
        }
    }
}

/// Where a flow leads packets to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tir(u32),
    /// A table that a program created by command.
    Table(u32),
    /// Out of the port.
    Port,
}

/// Changes of flows to the headers of packets, by contexts of the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderChanges {
    /// Context of changed headers.
    pub modify: Option<u32>,
    /// Context of reformatting.
    pub reformat: Option<u32>,
    /// Whether a tunnel around an Ethernet frame is taken off.
    pub decapsulates: bool,
}

/// What a flow does with the packets that its rule matches.
#[derive(Clone, Copy)]
pub(crate) struct Action {
    /// Number of the flow.
    pub flow: u64,
    /// `None` if it drops them.
    pub to: Option<Place>,
    /// The counter that counts them, if one does.
    pub counter: Option<u32>,
}

/// An entry of a table.
pub(crate) struct Rule {
    pub kind: u8,
    pub index: u32,
    pub group: u32,
    pub matched: Match,
    /// The tag in CQEs, if the first flow gave one.
    pub tag: Option<u32>,
    /// Its changes to the packets.
    pub changes: HeaderChanges,
    /// The flows that share it. All of them drop packets, or none does.
    pub actions: Vec<Action>,
}

impl Flows {
    /// The table of a type, made when first asked for.
    fn table(&mut self, run: Run<'_>, kind: u8) -> Result<u32> {
        if let Some(table) = self.tables.get(&kind) {
            return Ok(*table);
        }
        let (input, output) = (create_flow_table_in::SIZE, create_flow_table_out::SIZE);
        let mut command = Command::new(opcode::CREATE_FLOW_TABLE, input, output);
        command.set(create_flow_table_in::TABLE_TYPE, kind);
        let mut context = |field: Field, value: u32| {
            command.set(field.within(create_flow_table_in::FLOW_TABLE_CONTEXT), value);
        };
        context(flow_table_context::LOG_SIZE, LOG_SIZE);
        // Linux allows what the device offers (`fs.c`, _get_flow_table).
        context(flow_table_context::REFORMAT_EN, u32::from(matches!(kind, NIC_RX | NIC_TX)));
        context(flow_table_context::DECAP_EN, u32::from(kind == NIC_RX));
        let number = create_flow_table_out::TABLE_ID.get(&run(command)?) as u32;
        let (input, output) = (set_flow_table_root_in::SIZE, set_flow_table_root_out::SIZE);
        let mut command = Command::new(opcode::SET_FLOW_TABLE_ROOT, input, output);
        command.set(set_flow_table_root_in::TABLE_TYPE, kind);
        command.set(set_flow_table_root_in::TABLE_ID, number);
        run(command)?;
        self.tables.insert(kind, number);
        Ok(number)
    }

    /// Adds a rule at the first free index from its own on, or a destination to the one that is the
    /// same.
    pub fn add(&mut self, run: Run<'_>, mut rule: Rule) -> Result<()> {
        let table = self.table(run, rule.kind)?;
        let priority = rule.index >> LOG_SLOTS;
        let of_priority =
            |other: &&mut Rule| other.kind == rule.kind && other.index >> LOG_SLOTS == priority;
        let same =
            self.rules.iter_mut().filter(of_priority).find(|other| other.matched == rule.matched);
        if let Some(same) = same {
            // Linux (`fs_core.c`, check_conflicting_ftes): a rule without a tag takes the first one's, and
            // one with another tag is refused.
            let retagged = rule.tag.is_some_and(|tag| tag != same.tag.unwrap_or(0));
            // Rules with other actions are refused, too (check_conflicting_actions).
            let drops = |rule: &Rule| rule.places().is_empty();
            if retagged || drops(same) != drops(&rule) || same.changes != rule.changes {
                return Err(Errno::EEXIST.because(format_args!(
                    "ibv_create_flow refused: another flow matches the same packets, with another tag or action"
                )));
            }
            let before = same.actions.len();
            same.actions.append(&mut rule.actions);
            let set = same.set(run, table, true);
            if set.is_err() {
                same.actions.truncate(before);
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
        command.set(create_flow_group_in::MATCH_CRITERIA_ENABLE, rule.matched.enabled());
        command.bytes()[create_flow_group_in::MATCH_CRITERIA.bytes()]
            .copy_from_slice(&rule.matched.criteria);
        rule.group = create_flow_group_out::GROUP_ID.get(&run(command)?) as u32;
        if let Err(error) = rule.set(run, table, false) {
            rule.destroy_group(run, table)?;
            return Err(error);
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Takes a flow out of every rule that leads to it.
    pub fn remove(&mut self, run: Run<'_>, id: u64) -> Result<()> {
        let mut index = 0;
        while index < self.rules.len() {
            let rule = &mut self.rules[index];
            let before = rule.actions.len();
            rule.actions.retain(|action| action.flow != id);
            let table = self.tables.get(&rule.kind).copied().ok_or(Errno::EINVAL)?;
            if rule.actions.is_empty() {
                let (input, output) = (delete_fte_in::SIZE, delete_fte_out::SIZE);
                let mut command = Command::new(opcode::DELETE_FLOW_TABLE_ENTRY, input, output);
                command.set(delete_fte_in::TABLE_TYPE, rule.kind);
                command.set(delete_fte_in::TABLE_ID, table);
                command.set(delete_fte_in::FLOW_INDEX, rule.index);
                run(command)?;
                rule.destroy_group(run, table)?;
                self.rules.swap_remove(index);
                continue;
            }
            if rule.actions.len() != before {
                rule.set(run, table, true)?;
            }
            index += 1;
        }
        Ok(())
    }
}

/// Each value once, in order.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

impl Rule {
    /// Where it leads to. Flows to the same place share one destination (`fs_core.c`,
    /// find_flow_rule), as they share a counter.
    fn places(&self) -> Vec<Place> {
        distinct(self.actions.iter().filter_map(|action| action.to))
    }

    fn set(&self, run: Run<'_>, table: u32, again: bool) -> Result<()> {
        /// `MLX5_FLOW_CONTEXT_ACTION_ALLOW`, `_DROP`, `_FWD_DEST`, `_COUNT`, `_PACKET_REFORMAT`,
        /// `_DECAP`, `_MOD_HDR`
        const ALLOW: u64 = 1;
        const DROP: u64 = 2;
        const FORWARD: u64 = 4;
        const COUNT: u64 = 8;
        const REFORMAT: u64 = 0x10;
        const DECAP: u64 = 0x20;
        const MODIFY: u64 = 0x40;
        /// `MLX5_FLOW_DESTINATION_TYPE_FLOW_TABLE`, `_TIR`
        const TABLE: u64 = 1;
        const TIR: u64 = 2;
        /// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`: action, tag, destinations and counters.
        const ALL_PARTS: u32 = 0xf;
        let places = self.places();
        let counters = distinct(self.actions.iter().filter_map(|action| action.counter));
        let mut command =
            Command::new(opcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE, set_fte_out::SIZE);
        command.set(set_fte_in::OP_MOD, u32::from(again));
        command.set(set_fte_in::MODIFY_ENABLE_MASK, if again { ALL_PARTS } else { 0 });
        command.set(set_fte_in::TABLE_TYPE, self.kind);
        command.set(set_fte_in::TABLE_ID, table);
        command.set(set_fte_in::FLOW_INDEX, self.index);
        let mut context = |field: Field, value: u64| {
            command.set(field.within(set_fte_in::FLOW_CONTEXT), value);
        };
        context(flow_context::GROUP_ID, self.group.into());
        context(flow_context::FLOW_TAG, self.tag.unwrap_or(0).into());
        let HeaderChanges { modify, reformat, decapsulates } = self.changes;
        let forward = match places[..] {
            [] => DROP,
            [Place::Port] => ALLOW,
            _ => FORWARD,
        };
        let others = [
            (COUNT, !counters.is_empty()),
            (MODIFY, modify.is_some()),
            (REFORMAT, reformat.is_some()),
            (DECAP, decapsulates),
        ];
        let others = others.into_iter().filter(|(_, has)| *has).map(|(action, _)| action);
        context(flow_context::ACTION, forward | others.sum::<u64>());
        context(flow_context::MODIFY_HEADER_ID, modify.unwrap_or(0).into());
        context(flow_context::PACKET_REFORMAT_ID, reformat.unwrap_or(0).into());
        let listed = places.iter().filter(|place| **place != Place::Port).count();
        context(flow_context::DESTINATION_LIST_SIZE, listed as u64);
        context(flow_context::FLOW_COUNTER_LIST_SIZE, counters.len() as u64);
        let value = flow_context::MATCH_VALUE.within(set_fte_in::FLOW_CONTEXT);
        command.bytes()[value.bytes()].copy_from_slice(&self.matched.value);
        for place in places {
            let (kind, number) = match place {
                Place::Tir(number) => (TIR, number),
                Place::Table(number) => (TABLE, number),
                Place::Port => continue,
            };
            let mut entry = [0; dest_format_struct::SIZE];
            dest_format_struct::DESTINATION_TYPE.set(&mut entry, kind);
            dest_format_struct::DESTINATION_ID.set(&mut entry, number.into());
            command.bytes().extend_from_slice(&entry);
        }
        for number in counters {
            let mut entry = [0; flow_counter_list::SIZE];
            flow_counter_list::FLOW_COUNTER_ID.set(&mut entry, number.into());
            command.bytes().extend_from_slice(&entry);
        }
        run(command).map(|_| ())
    }

    fn destroy_group(&self, run: Run<'_>, table: u32) -> Result<()> {
        let (input, output) = (destroy_flow_group_in::SIZE, destroy_flow_group_out::SIZE);
        let mut command = Command::new(opcode::DESTROY_FLOW_GROUP, input, output);
        command.set(destroy_flow_group_in::TABLE_TYPE, self.kind);
        command.set(destroy_flow_group_in::TABLE_ID, table);
        command.set(destroy_flow_group_in::GROUP_ID, self.group);
        run(command).map(|_| ())
    }
}
