//! Firmware commands: bytes, with the names of what was set in them.

use std::fmt;

use mlx5_sys::dv::mlx5dv_devx_general_cmd;
use mlx5_sys::ifc::{Field, cmd_in, cmd_out, opcode};

use super::judge::judge;
use crate::error::{Devx, Error, Hex, Name, Result, Sent};
use crate::verbs::Context;

/// Shortest command and shortest reply that the kernel takes: the header of an object.
const SHORTEST: usize = 16;
/// The longest of both: lengths are told to the kernel in 16 bits.
const LONGEST: usize = u16::MAX as usize;

/// Commands that the kernel takes from contexts without DevX as well (`devx.c` in Linux 6.1).
const ANYONES: [u16; 3] =
    [opcode::QUERY_HCA_CAP, opcode::QUERY_HCA_VPORT_CONTEXT, opcode::QUERY_ESW_VPORT_CONTEXT];

/// A firmware command that is being put together.
///
/// Big-endian, as [`ifc`](super::ifc) lays it out; all zero but for what is set. What is set is
/// remembered by name, for the error of a refusal. A value that does not fit its field is an error
/// of the call that executes the command, and so is a field outside of the command.
///
/// ```no_run
/// use mlx5::devx::Command;
/// use mlx5::devx::ifc::{opcode, query_adapter_in, query_adapter_out, query_adapter_param_block};
///
/// let context = mlx5::verbs::Context::open_first()?;
/// let query = Command::new(opcode::QUERY_ADAPTER, query_adapter_in::SIZE)
///     .reply(query_adapter_out::SIZE);
/// let reply = query.query(&context)?;
/// let vendor = query_adapter_param_block::VSD_VENDOR_ID
///     .within(query_adapter_out::QUERY_ADAPTER_STRUCT);
/// println!("made by {:#06x}", reply.get(vendor));
/// # Ok::<(), mlx5::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is done before it is executed"]
pub struct Command {
    bytes: Vec<u8>,
    reply: usize,
    sent: Vec<Sent>,
    wrong: Option<Wrong>,
}

/// The reason why a command cannot be sent.
#[derive(Clone)]
struct Wrong {
    attribute: &'static str,
    value: String,
    rule: String,
}

impl Command {
    /// Creates a command of `size` bytes, all zero except the opcode. Its reply has 16 bytes.
    pub fn new(opcode: u16, size: usize) -> Command {
        let mut bytes = vec![0; size.max(cmd_in::COMMAND.bytes().start)];
        cmd_in::OPCODE.set(&mut bytes, opcode.into());
        Command { bytes, reply: SHORTEST, sent: Vec::new(), wrong: None }
    }

    /// Creates any command from `bytes`, as the HCA is to see them, except for the user context's
    /// number, which the kernel writes into bytes 2 and 3.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Command {
        Command { bytes: bytes.into(), reply: SHORTEST, sent: Vec::new(), wrong: None }
    }

    /// Sets the size of the reply in bytes, including the header of 16.
    pub fn reply(mut self, bytes: usize) -> Command {
        self.reply = bytes;
        self
    }

    /// Sets the modifier of the opcode.
    pub fn op_mod(self, modifier: u16) -> Command {
        self.set(cmd_in::OP_MOD, modifier)
    }

    /// Sets a field of at most 64 bits; one of a nested structure by
    /// [`Field::within`](mlx5_sys::ifc::Field::within).
    #[doc(alias = "DEVX_SET")]
    pub fn set(mut self, field: Field, value: impl Into<u64>) -> Command {
        let value = value.into();
        let fits = field.width() >= 64 || value >> field.width() == 0;
        if field.width() > 64 || !fits {
            let rule = format!("{} of {} has {} bits", field.path(), self.name(), field.width());
            self.complain(field, format!("{value:#x}"), rule);
        } else if self.holds(field, 0) {
            field.set(&mut self.bytes, value);
            self.sent.push(Sent::number(field, value));
        }
        self
    }

    /// Sets several fields of the structure that lies at `outer`.
    pub fn fields<V: Into<u64>>(
        self,
        outer: Field,
        fields: impl IntoIterator<Item = (Field, V)>,
    ) -> Command {
        fields
            .into_iter()
            .fold(self, |command, (field, value)| command.set(field.within(outer), value))
    }

    /// Copies bytes into a field that begins on a byte, such as a GID, a list, or a whole context.
    /// The rest of the field is unchanged.
    pub fn bytes(mut self, field: Field, bytes: &[u8]) -> Command {
        if field.bit_offset() % 8 != 0 || bytes.len() * 8 > field.width() {
            let rule = format!("{} of {} has {} bits", field.path(), self.name(), field.width());
            self.complain(field, format!("{} bytes", bytes.len()), rule);
        } else if self.holds(field, bytes.len()) {
            let start = field.bit_offset() / 8;
            self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
            self.sent.push(Sent::bytes(field, bytes));
        }
        self
    }

    /// Appends 64-bit words: lists of pages, entries of tables.
    pub fn tail(mut self, words: impl IntoIterator<Item = u64>) -> Command {
        for word in words {
            self.bytes.extend(word.to_be_bytes());
        }
        self
    }

    /// Appends bytes.
    pub fn tail_bytes(mut self, bytes: &[u8]) -> Command {
        self.bytes.extend(bytes);
        self
    }

    /// Returns its opcode; 0 if it is too short to have one.
    pub fn opcode(&self) -> u16 {
        let start = self.bytes.first_chunk::<2>();
        start.map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }

    /// Returns its opcode's name, or number.
    pub fn name(&self) -> Name {
        Name(self.opcode())
    }

    /// Returns the size of the reply in bytes.
    pub fn reply_size(&self) -> usize {
        self.reply
    }

    /// Returns the bytes of the command so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the fields that were set by name.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Executes a query command. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the opcode is not a query
    ///   ([`is_query`](mlx5_sys::ifc::opcode::is_query)), or lets the HCA write memory (flow
    ///   counters with `dump_to_memory`), or the command cannot be sent.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context can execute capability queries only.
    #[doc(alias = "mlx5dv_devx_general_cmd")]
    pub fn query(&self, context: &Context) -> Result<Reply> {
        self.check_query()?;
        // SAFETY: the check above says that the command changes no object and gives the HCA access
        // to no memory.
        unsafe { self.execute(context) }
    }

    /// Executes a general command, which belongs to no object. One call into the kernel.
    ///
    /// [`query`](Self::query) is the safe form for query commands.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the command cannot be sent.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context can execute capability queries only.
    ///
    /// # Safety
    /// - The command gives the HCA no access to memory that a Rust reference covers, that is freed
    ///   while the access lasts, or in which a queue of this crate has its ring or doorbell record.
    /// - The command does not change the state, the counters or the memory of a queue that this
    ///   crate posts to or polls.
    #[doc(alias = "mlx5dv_devx_general_cmd")]
    pub unsafe fn execute(&self, context: &Context) -> Result<Reply> {
        self.run(context, "mlx5dv_devx_general_cmd", |command, reply| {
            // SAFETY: the context is open, and both buffers live through the call and have the
            // lengths that are passed.
            unsafe {
                mlx5dv_devx_general_cmd(
                    context.as_raw().as_ptr(),
                    command.as_ptr().cast(),
                    command.len(),
                    reply.as_mut_ptr().cast(),
                    reply.len(),
                )
            }
        })
    }

    /// Passes the bytes, and a buffer for the reply, to `call`, which returns an errno or 0. Turns
    /// the outcome into a reply or an error.
    pub(super) fn run(
        &self,
        context: &Context,
        call: &'static str,
        make: impl FnOnce(&[u8], &mut [u8]) -> libc::c_int,
    ) -> Result<Reply> {
        self.check(context)?;
        let mut reply = vec![0; self.reply];
        let result = make(&self.bytes, &mut reply);
        judge(self, call, result, &reply)?;
        Ok(Reply { bytes: reply })
    }

    /// Fails unless the command is a query whose answer is in its reply alone.
    pub(super) fn check_query(&self) -> Result<()> {
        if !opcode::is_query(self.opcode()) {
            let rule = "safe queries take commands that only ask (QUERY_*): send others by the \
                        unsafe execute, create or modify";
            return Err(Error::attribute("opcode", self.name(), rule));
        }
        if self.dumps_counters() {
            let rule = "safe queries let the HCA write no memory: send this one by the unsafe \
                        execute";
            return Err(Error::attribute("dump_to_memory", 1, rule));
        }
        Ok(())
    }

    /// Returns whether the HCA writes flow counters to memory that the command names. Linux's header
    /// does not have this field of QUERY_FLOW_COUNTER; DPDK's `mlx5_prm.h` does.
    fn dumps_counters(&self) -> bool {
        let flags = self.bytes.get(0x18).copied().unwrap_or(0);
        self.opcode() == opcode::QUERY_FLOW_COUNTER && flags & 0x40 != 0
    }

    /// Checks that the command can be sent.
    pub(super) fn check(&self, context: &Context) -> Result<()> {
        let anyones = ANYONES.contains(&self.opcode());
        if let (devx @ Devx::Refused(_), false) = (context.devx(), anyones) {
            return Err(Error::NoDevx { device: context.name(), why: devx });
        }
        if let Some(Wrong { attribute, value, rule }) = &self.wrong {
            return Err(Error::attribute(attribute, value, rule.clone()));
        }
        for (attribute, length) in [("command", self.bytes.len()), ("reply", self.reply)] {
            if !(SHORTEST..=LONGEST).contains(&length) {
                let rule = format!("commands and replies have {SHORTEST} to {LONGEST} bytes");
                return Err(Error::attribute(attribute, format_args!("{length} bytes"), rule));
            }
        }
        Ok(())
    }

    /// Returns whether the command is long enough for a field, or for `length` bytes at its place.
    fn holds(&mut self, field: Field, length: usize) -> bool {
        let bits = if length == 0 { field.width() } else { length * 8 };
        let needed = (field.bit_offset() + bits).div_ceil(8);
        let holds = needed <= self.bytes.len();
        if !holds {
            let rule = format!("{} has {} bytes", self.name(), self.bytes.len());
            self.complain(field, format!("at byte {:#x}", field.bit_offset() / 8), rule);
        }
        holds
    }

    /// Remembers the first mistake in the command.
    fn complain(&mut self, field: Field, value: String, rule: String) {
        let attribute = field.name().unwrap_or("field");
        self.wrong.get_or_insert(Wrong { attribute, value, rule });
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        f.debug_map().entries(self.sent.iter().map(Sent::parts)).finish()
    }
}

/// The HCA's reply to an executed command.
///
/// See the example on [`Command`].
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// Creates a reply from the bytes of the HCA.
    pub(super) fn new(bytes: Vec<u8>) -> Reply {
        Reply { bytes }
    }

    /// Returns a field of at most 64 bits. For a field of a nested structure, use
    /// [`Field::within`](mlx5_sys::ifc::Field::within).
    ///
    /// # Panics
    /// If the field is wider, or lies outside of what [`Command::reply`] asked for.
    #[doc(alias = "DEVX_GET")]
    pub fn get(&self, field: Field) -> u64 {
        field.get(&self.bytes)
    }

    /// Returns the bytes of a field that begins and ends on a byte, such as a nested structure.
    ///
    /// # Panics
    /// If it does not, or lies outside of what [`Command::reply`] asked for.
    pub fn bytes(&self, field: Field) -> &[u8] {
        &self.bytes[field.bytes()]
    }

    /// Returns the whole reply, with status and syndrome, which are zero.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the whole reply.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").field(&Hex(&self.bytes)).finish()
    }
}

/// Returns status and syndrome of a reply; both are zero for an executed command.
pub(super) fn outcome(reply: &[u8]) -> (u8, u32) {
    let whole = reply.len() >= cmd_out::SYNDROME.bytes().end;
    let field = |field: Field| if whole { field.get(reply) as u32 } else { 0 };
    (field(cmd_out::STATUS) as u8, field(cmd_out::SYNDROME))
}
