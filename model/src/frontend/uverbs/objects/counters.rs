//! Counters of verbs. Each is a counter of the card that counts the packets of flows, and says at which
//! place of a program's array its packets and its bytes are wanted.

use mlx5_sys::ifc::{
    alloc_flow_counter_in, alloc_flow_counter_out, dealloc_flow_counter_in,
    dealloc_flow_counter_out, opcode, query_flow_counter_in, query_flow_counter_out,
    traffic_counter,
};

use super::super::driver::command::Command;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::ioctl::Attributes;
use super::file::{CommandFile, Object, State, Turn};

/// Counters of verbs.
#[derive(Default)]
pub(crate) struct Counters {
    /// The card's counter, from the first flow on.
    number: Option<u32>,
    /// What the program wants where, as its first flow said.
    wanted: Vec<Wanted>,
}

/// `struct mlx5_ib_flow_counters_desc`
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// `IB_COUNTER_PACKETS` or `IB_COUNTER_BYTES`
    counted: u32,
    /// Its place in the array.
    index: u32,
}

/// The values of `counted`.
const PACKETS: u32 = 0;
const BYTES: u32 = 1;

/// Reads what the driver's structure of a flow (`struct mlx5_ib_create_flow`) wants of counters; `None` if
/// it wants nothing.
pub(super) fn description(driver: &[u8]) -> Result<Option<Vec<Wanted>>> {
    const HEADER: usize = 8;
    const DATA: usize = 16;
    /// `MAX_COUNTERS_NUM` of Linux's `counters.c`
    const MOST: usize = u16::MAX as usize / 8;
    if driver.is_empty() {
        return Ok(None);
    }
    let word = |at: usize| -> Result<u32> {
        let bytes = driver.get(at..at + 4).ok_or(Errno::EINVAL)?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if driver.len() < HEADER {
        return Err(Errno::EOPNOTSUPP);
    }
    let entries = word(0)? as usize;
    if entries > 1 {
        return Err(Errno::EINVAL);
    }
    let known = HEADER + entries * DATA;
    if driver.get(known..).unwrap_or_default().iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    if entries == 0 {
        return Ok(None);
    }
    let address = u64::from(word(8)?) | u64::from(word(12)?) << 32;
    let count = word(16)? as usize;
    if count > MOST {
        return Err(Errno::EINVAL);
    }
    let bytes = user::read(address, count * 8)?;
    let half = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let wanted = bytes
        .chunks_exact(8)
        .map(|pair| Wanted { counted: half(pair), index: half(&pair[4..]) })
        .collect();
    Ok(Some(wanted))
}

/// Has counters count a flow that is about to be created. Returns the number of the card's counter.
pub(super) fn count(
    file: &CommandFile,
    state: &mut State,
    handle: u32,
    description: Option<Vec<Wanted>>,
) -> Result<u32> {
    // What was wanted is forgotten with the last flow.
    let used = state.is_used(handle);
    let counters = state.get_mut::<Counters>(handle).map_err(|_| Errno::EINVAL)?;
    if !used {
        counters.wanted.clear();
    }
    match description {
        Some(_) if !counters.wanted.is_empty() => return Err(Errno::EINVAL),
        Some(wanted) if wanted.iter().any(|wanted| wanted.counted > BYTES) => {
            return Err(Errno::EINVAL);
        }
        Some(wanted) => counters.wanted = wanted,
        None if counters.wanted.is_empty() => return Err(Errno::EINVAL),
        None => {}
    }
    if let Some(number) = counters.number {
        return Ok(number);
    }
    let (input, output) = (alloc_flow_counter_in::SIZE, alloc_flow_counter_out::SIZE);
    let reply = file.function().run(Command::new(opcode::ALLOC_FLOW_COUNTER, input, output))?;
    let number = alloc_flow_counter_out::FLOW_COUNTER_ID.get(&reply) as u32;
    counters.number = Some(number);
    Ok(number)
}

/// `COUNTERS_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let mut state = file.state();
    state.context()?;
    let handle = state.enter(Counters::default());
    attributes.put_handle(0, u64::from(handle))
}

/// `COUNTERS_READ`: adds each counter to its place in an array of zeros.
pub(crate) fn read(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    /// `IB_UVERBS_READ_COUNTERS_PREFER_CACHED`
    const CACHED: u64 = 1;
    let mut state = file.state();
    state.context()?;
    let handle = attributes.handle(0)?;
    let used = state.is_used(handle);
    let counters = state.get_mut::<Counters>(handle)?;
    let room = attributes.room(1);
    if !used || attributes.number(2)? & !CACHED != 0 || room % 8 != 0 {
        return Err(Errno::EINVAL);
    }
    let number = counters.number.ok_or(Errno::EINVAL)?;
    let [packets, bytes] = counted(file, number)?;
    let mut array = vec![0u64; room / 8];
    for wanted in &counters.wanted {
        let place = array.get_mut(wanted.index as usize).ok_or(Errno::EINVAL)?;
        let value = if wanted.counted == PACKETS { packets } else { bytes };
        *place = place.wrapping_add(value);
    }
    let array: Vec<u8> = array.into_iter().flat_map(u64::to_ne_bytes).collect();
    attributes.put(1, &array)
}

/// Packets and bytes of a counter of the card.
fn counted(file: &CommandFile, number: u32) -> Result<[u64; 2]> {
    let room = query_flow_counter_out::SIZE + traffic_counter::SIZE;
    let mut command = Command::new(opcode::QUERY_FLOW_COUNTER, query_flow_counter_in::SIZE, room);
    command.set(query_flow_counter_in::FLOW_COUNTER_ID, number);
    let reply = file.function().run(command)?;
    let shown = reply.get(query_flow_counter_out::SIZE..room).ok_or(Errno::EINVAL)?;
    Ok([traffic_counter::PACKETS.get(shown), traffic_counter::OCTETS.get(shown)])
}

impl Object for Counters {
    fn turn(&self) -> Turn {
        Turn::Users
    }

    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        if let Some(number) = self.number {
            let (input, output) = (dealloc_flow_counter_in::SIZE, dealloc_flow_counter_out::SIZE);
            let mut command = Command::new(opcode::DEALLOC_FLOW_COUNTER, input, output);
            command.set(dealloc_flow_counter_in::FLOW_COUNTER_ID, number);
            file.function().run(command)?;
        }
        Ok(Vec::new())
    }
}
