//! Firmware commands as the kernel's driver issues them.

use mlx5_sys::ifc::opcode;
use mlx5_sys::ifc::{Field, cmd_hca_cap, cmd_in, cmd_out, query_hca_cap_in, query_hca_cap_out};

use super::super::process::errno::{Errno, Result};
use crate::card::Card;
use crate::transport::Unanswered;

/// A command that is being put together.
pub(crate) struct Command {
    input: Vec<u8>,
    reply: usize,
}

impl Command {
    /// A command of `size` bytes, all zero but for the opcode, that is answered by `reply` bytes.
    pub fn new(opcode: u16, size: usize, reply: usize) -> Self {
        let mut input = vec![0; size];
        cmd_in::OPCODE.set(&mut input, u64::from(opcode));
        Self { input, reply }
    }

    /// Sets a field.
    ///
    /// # Panics
    /// If the value does not fit.
    pub fn set(&mut self, field: Field, value: impl Into<u64>) {
        field.set(&mut self.input, value.into());
    }

    /// Everything so far.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.input
    }

    /// Appends a page list.
    pub fn pages(&mut self, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.input.extend(page.to_be_bytes());
        }
    }

    /// Executes the command. A refusal becomes the errno that the kernel derives from its status.
    pub fn run(self, card: &mut Card) -> Result<Vec<u8>> {
        let mut reply = vec![0; self.reply];
        submit(card, &self.input, &mut reply)?;
        match status(cmd_out::STATUS.get(&reply) as u8) {
            None => Ok(reply),
            Some(errno) => {
                tracing::debug!(
                    opcode = cmd_in::OPCODE.get(&self.input),
                    status = cmd_out::STATUS.get(&reply),
                    syndrome = cmd_out::SYNDROME.get(&reply),
                    "the card refused a command"
                );
                Err(errno)
            }
        }
    }
}

/// Gives a card a command and waits for its reply, as the kernel's driver does: no longer than the
/// card may take, and not at all after a fatal error.
pub(crate) fn submit(card: &mut Card, input: &[u8], reply: &mut [u8]) -> Result<()> {
    let opcode = cmd_in::OPCODE.get(input) as u16;
    match card.command_faults(opcode) {
        Ok(()) => {
            card.execute(input, reply);
            Ok(())
        }
        Err(Unanswered::TimedOut) => Err(Errno::ETIMEDOUT),
        // The driver frees what is its own (`mlx5_internal_err_ret_value` of mlx5_core).
        Err(Unanswered::Stopped) if is_undoing(opcode) => {
            reply.fill(0);
            Ok(())
        }
        Err(Unanswered::Stopped) => Err(Errno::ENOLINK),
    }
}

/// Whether a command frees or stops what another has made.
fn is_undoing(code: u16) -> bool {
    const PREFIXES: [&str; 6] = ["DESTROY_", "DEALLOC_", "DELETE_", "DETACH_", "DRAIN_", "QP_2"];
    let name = opcode::name(code).unwrap_or_default();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Translates a command's status to an errno as the kernel does (`mlx5_core`, status by status).
fn status(status: u8) -> Option<Errno> {
    Some(match status {
        0x00 => return None,
        // Bad operation, parameter, resource, resource state, index, QP state, packet, size.
        0x02 | 0x03 | 0x05 | 0x09 | 0x0a | 0x10 | 0x30 | 0x40 => Errno::EINVAL,
        0x06 => Errno::EBUSY,
        0x08 => Errno::ENOMEM,
        0x0f => Errno::EAGAIN,
        // Internal error, bad system state, bad input or output length, and what is not known.
        _ => Errno::EIO,
    })
}

/// Current general device capabilities.
pub(crate) struct Caps(Vec<u8>);

impl Caps {
    /// Asks a card.
    pub fn query(card: &mut Card) -> Result<Self> {
        let mut command =
            Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE, query_hca_cap_out::SIZE);
        // General device capabilities (0), current values (1).
        command.set(query_hca_cap_in::OP_MOD, 1u32);
        let reply = command.run(card)?;
        Ok(Self(reply[query_hca_cap_out::CAPABILITY.bytes()].to_vec()))
    }

    /// A field of `cmd_hca_cap`.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.0) as u32
    }

    /// Two to the power of a field.
    pub fn power(&self, field: Field) -> u32 {
        1u32.checked_shl(self.get(field)).unwrap_or(1 << 31)
    }

    /// Whether a flag is set.
    pub fn has(&self, field: Field) -> bool {
        self.get(field) != 0
    }

    /// Bytes of a BlueFlame register: two halves.
    pub fn blueflame(&self) -> u32 {
        self.power(cmd_hca_cap::LOG_BF_REG_SIZE)
    }
}
