//! Flows in the device's own format. A matcher says which header fields count. Its flows hold the
//! fields' values and lead to an Ethernet queue pair, or to a TIR or table that a program created by
//! command. Those of a matcher of sent packets lead out of the port, or to a table. Flows may change headers.

use mlx5_sys::ifc::opcode;

use super::super::driver::steering::{
    HeaderChanges, MATCH, MISC_2, Match, OUTER, PRIORITIES, Place,
};
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::super::tree::privilege;
use super::devx::object::Devx;
use super::file::{CommandFile, Object, Turn};
use super::flow::{self, Flow, Leading};
use super::flow_action::{self, FlowAction, table_kind};
use super::qp::Qp;
use crate::object::{NIC_RX, NIC_TX};

/// Which fields flows of it look at.
pub(crate) struct Matcher {
    criteria: Box<[u8; MATCH]>,
    priority: u32,
    /// Type of the table that its flows are in.
    kind: u8,
}

/// Bytes as the card's match parameters; what they do not reach is zero.
fn parameters(bytes: &[u8]) -> Result<[u8; MATCH]> {
    let mut whole = [0; MATCH];
    whole.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?.copy_from_slice(bytes);
    Ok(whole)
}

/// `FLOW_MATCHER_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    /// `IB_FLOW_ATTR_FLAGS_EGRESS`
    const EGRESS: u64 = 1 << 2;
    const FLAGS: u16 = 0x1004;
    const TABLE: u16 = 0x1005;
    let criteria = Box::new(parameters(&attributes.input(0x1001)?)?);
    let priority = attributes.number(0x1002)? as u32;
    // Refuses headers inside of tunnels and the like.
    if attributes.number(0x1003)? & !u64::from(OUTER | MISC_2) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let kind = match (attributes.has(TABLE), attributes.has(FLAGS)) {
        (true, true) => return Err(Errno::EINVAL),
        (true, false) => table_kind(attributes.number(TABLE)?)?,
        (false, _) => match attributes.number(FLAGS)? {
            0 => NIC_RX,
            EGRESS => NIC_TX,
            _ => return Err(Errno::EINVAL),
        },
    };
    if priority >= PRIORITIES {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    state.context()?;
    let handle = state.enter(Matcher { criteria, priority, kind });
    attributes.put_handle(0x1000, u64::from(handle))
}

impl Object for Matcher {
    fn turn(&self) -> Turn {
        Turn::Flows
    }

    fn destroy(&self, _file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

/// `CREATE_FLOW` of a matcher.
pub(crate) fn create_flow(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    /// `MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP`
    const DROP: u64 = 1 << 1;
    /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX`, `_OFFSET`
    const COUNTERS: u16 = 0x1007;
    const OFFSETS: u16 = 0x1008;
    privilege::check_raw()?;
    let value = parameters(&attributes.input(0x1001)?)?;
    let tag = attributes.has(0x1006).then(|| attributes.number(0x1006)).transpose()?;
    let (tag, flags) = (tag.map(|tag| tag as u32), attributes.number(0x1009)?);
    let drops = match flags {
        0 => false,
        DROP => true,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if tag.is_some_and(|tag| tag & !0xff_ffff != 0) {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    state.context()?;
    let matcher = attributes.handle(0x1004)?;
    let Matcher { criteria, priority, kind } = state.get::<Matcher>(matcher)?;
    let (priority, kind, matched) = (*priority, *kind, Match::masked(**criteria, value));
    let to_qp = attributes.optional_handle(0x1002)?;
    let to_object = attributes.optional_handle(0x1003)?;
    let (target, to) = match (to_qp, to_object, drops) {
        (Some(qp), None, false) if kind == NIC_RX => {
            let tir = state.get::<Qp>(qp)?.raw.as_ref().and_then(|raw| raw.tir);
            (Some(qp), Some(Place::Tir(tir.ok_or(Errno::EINVAL)?)))
        }
        (None, Some(object), false) => match state.get::<Devx>(object)?.created() {
            (opcode::CREATE_TIR, tir) if kind == NIC_RX => (Some(object), Some(Place::Tir(tir))),
            (opcode::CREATE_FLOW_TABLE, table) => (Some(object), Some(Place::Table(table))),
            _ => return Err(Errno::EINVAL),
        },
        (None, None, true) => (None, None),
        (None, None, false) if kind == NIC_TX => (None, Some(Place::Port)),
        _ => return Err(Errno::EINVAL),
    };
    let counter = attributes.has(COUNTERS).then(|| attributes.number(COUNTERS)).transpose()?;
    let counter = counter.map(|handle| handle as u32);
    let counted = match counter {
        Some(counter) => {
            // As many offsets as counters: one.
            if attributes.has(OFFSETS) && attributes.room(OFFSETS) != 4 {
                return Err(Errno::EINVAL);
            }
            Some(state.get::<Devx>(counter)?.counter(attributes.number(OFFSETS)? as u32)?)
        }
        None => None,
    };
    let headers = attributes.handles(0x1005)?;
    let mut changes = HeaderChanges::default();
    for handle in &headers {
        flow_action::add(&mut changes, *state.get::<FlowAction>(*handle)?)?;
    }
    let leading = Leading { to, counter: counted, changes };
    let id = flow::lead(file, vec![(kind, priority, matched)], tag, leading)?;
    let handle = state.enter(Flow { id, target, matcher: Some(matcher), counter, headers });
    attributes.put_handle(0x1000, u64::from(handle))
}
