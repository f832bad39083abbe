//! Objects that a program creates by DevX commands. Each is destroyed with its handle.

use mlx5_sys::ifc::{
    Field, alloc_flow_counter_in, cmd_in, create_mkey_in, create_psv_in, drain_dct_in, mkc, opcode,
    set_fte_in,
};

use super::super::file::{CommandFile, Object, Turn};
use super::kinds::{KINDS, Kind};
use crate::frontend::uverbs::driver::command::submit;
use crate::frontend::uverbs::process::errno::{Errno, Result};
use crate::frontend::uverbs::process::lock;
use crate::frontend::uverbs::request::ioctl::Attributes;

/// Shortest reply: status and syndrome.
const SHORTEST: usize = 8;

/// Bytes of a creating command that have all fields which the destroying one repeats.
const LONGEST_REPEATED: usize = 0x40;

/// Counters of flows that the lowest size of a bulk stands for (`devx.c`).
const BULK_UNIT: u32 = 128;

/// `MLX5_MKC_ACCESS_MODE_KLMS`, `_KSM`
const KLMS: u64 = 2;
const KSM: u64 = 3;

/// An object by number, of a kind that programs may make.
pub(crate) struct Devx {
    kind: &'static Kind,
    number: u64,
    /// The command that destroys it.
    destroy: Vec<u8>,
    /// Counters of flows that the creating command asked for as a bulk.
    bulk: u32,
}

impl Devx {
    /// Returns the creating command and the number, which name it in events.
    pub fn created(&self) -> (u16, u32) {
        (self.kind.create, self.number as u32)
    }

    /// Returns the number of a counter of flows: its own, or that of one of its bulk.
    pub fn counter(&self, offset: u32) -> Result<u32> {
        if self.kind.create != opcode::ALLOC_FLOW_COUNTER || (offset != 0 && offset >= self.bulk) {
            return Err(Errno::EINVAL);
        }
        Ok(self.number as u32 + offset)
    }
}

/// Executes a command for a user context. What the card answers goes back as it is; a refusal is
/// EREMOTEIO, and the program reads status and syndrome itself.
fn run(file: &CommandFile, uid: u16, mut command: Vec<u8>, room: usize) -> (Result<()>, Vec<u8>) {
    command[2..4].copy_from_slice(&uid.to_be_bytes());
    let mut reply = vec![0; room.max(SHORTEST)];
    let done = file.function().enter(|card| submit(card, &command, &mut reply));
    // MLX5_CMD_STAT_OK
    let done = done.and_then(|()| if reply[0] == 0 { Ok(()) } else { Err(Errno::EREMOTEIO) });
    (done, reply)
}

/// `DEVX_OBJ_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let mut command = attributes.input(0x1001)?;
    if command.len() < cmd_in::SIZE {
        return Err(Errno::EINVAL);
    }
    let code = cmd_in::OPCODE.get(&command) as u16;
    let kind = KINDS.iter().find(|kind| kind.create == code).ok_or(Errno::EINVAL)?;
    // An entry is created by the command that changes others.
    if code == opcode::SET_FLOW_TABLE_ENTRY
        && (command.len() < set_fte_in::SIZE || set_fte_in::OP_MOD.get(&command) != 0)
    {
        return Err(Errno::EINVAL);
    }
    // Several at once would be several objects behind one handle.
    if kind.create == opcode::CREATE_PSV
        && (command.len() < create_psv_in::SIZE || create_psv_in::NUM_PSV.get(&command) != 1)
    {
        return Err(Errno::EINVAL);
    }
    if kind.create == opcode::CREATE_MKEY {
        if command.len() < create_mkey_in::SIZE {
            return Err(Errno::EINVAL);
        }
        let context =
            |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY).get(&command);
        let mode = context(mkc::ACCESS_MODE_4_2) << 2 | context(mkc::ACCESS_MODE_1_0);
        // Pages are bus addresses. Programs name them by their registrations, or not at all.
        if !matches!(mode, KLMS | KSM) {
            create_mkey_in::MKEY_UMEM_VALID.set(&mut command, 1);
        }
    }
    for field in kind.by_umem {
        if command.len() * 8 < field.bit_offset() + field.width() {
            return Err(Errno::EINVAL);
        }
        field.set(&mut command, 1);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    if uid == 0 {
        return Err(Errno::EINVAL);
    }
    // The device refuses a command that is too short for its fields.
    let mut whole = command.clone();
    whole.resize(whole.len().max(LONGEST_REPEATED), 0);
    let (made, mut reply) = run(file, uid, command, attributes.room(0x1002));
    attributes.put(0x1002, &reply)?;
    made?;
    reply.resize(reply.len().max(0x20), 0);
    let number = kind.number(&whole, &reply);
    let destroy = kind.destroying(&whole, number);
    let bulk = match code {
        opcode::ALLOC_FLOW_COUNTER => {
            BULK_UNIT * alloc_flow_counter_in::FLOW_COUNTER_BULK.get(&whole) as u32
        }
        _ => 0,
    };
    let handle = state.enter(Devx { kind, number, destroy, bulk });
    attributes.put_handle(0x1000, u64::from(handle))
}

impl Object for Devx {
    fn turn(&self) -> Turn {
        self.kind.turn
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        if self.kind.create == opcode::CREATE_DCT {
            // First the target is drained: it accepts no new connections.
            let mut command = vec![0; drain_dct_in::SIZE];
            drain_dct_in::OPCODE.set(&mut command, opcode::DRAIN_DCT.into());
            drain_dct_in::DCTN.set(&mut command, self.number);
            run(file, uid, command, 0x10).0?;
        }
        run(file, uid, self.destroy.clone(), 0x10).0?;
        lock(file.function().listeners()).subscriptions.forget(self.created());
        Ok(Vec::new())
    }
}
