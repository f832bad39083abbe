//! Errors of commands: refused by the HCA, or withheld by the kernel.

use std::fmt;

use mlx5_sys::ifc::{Field, opcode, status};

use super::Errno;
use crate::ib::debug_as_display;

/// A field that was set in a command, with its value.
///
/// See the example on [`CommandError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    field: Field,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Sent {
    pub(crate) fn number(field: Field, value: u64) -> Sent {
        Sent { field, value: Value::Number(value) }
    }

    pub(crate) fn bytes(field: Field, bytes: &[u8]) -> Sent {
        Sent { field, value: Value::Bytes(bytes.to_vec()) }
    }

    /// Returns the field, as it lies in the command.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Returns its number; `None` if bytes were copied into it.
    pub fn value(&self) -> Option<u64> {
        match self.value {
            Value::Number(value) => Some(value),
            Value::Bytes(_) => None,
        }
    }

    /// Returns name and value, for maps.
    pub(crate) fn parts(&self) -> (impl fmt::Debug, impl fmt::Debug) {
        (Plain(self.field.path()), Plain(&self.value))
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.field.path(), self.value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(value @ 0..=9) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value:#x}"),
            Value::Bytes(bytes) => Hex(bytes).fmt(f),
        }
    }
}

/// Formats in `Debug` like in `Display`.
struct Plain<T>(T);

impl<T: fmt::Display> fmt::Debug for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The contents of a command, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    opcode: u16,
    op_mod: u16,
    sent: Vec<Sent>,
    /// The whole command, if no field was set by name.
    raw: Vec<u8>,
}

impl Asked {
    /// `raw` is the whole command, for one of which no field was set by name.
    pub(crate) fn new(opcode: u16, op_mod: u16, sent: Vec<Sent>, raw: &[u8]) -> Asked {
        let raw = if sent.is_empty() { raw.to_vec() } else { Vec::new() };
        Asked { opcode, op_mod, sent, raw }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sent.is_empty() {
            return write!(f, "sent: {}", Hex(&self.raw));
        }
        f.write_str("sent: ")?;
        for (at, sent) in self.sent.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{sent}")?;
        }
        Ok(())
    }
}

/// A command that the HCA refused.
///
/// The syndrome tells the vendor which of its checks failed. No complete list of them is public.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::Error;
/// use mlx5::devx::Command;
/// use mlx5::devx::ifc::{opcode, query_roce_address_in};
///
/// // No GID table is so long.
/// let query = Command::new(opcode::QUERY_ROCE_ADDRESS, query_roce_address_in::SIZE)
///     .set(query_roce_address_in::ROCE_ADDRESS_INDEX, 0xffffu32)
///     .reply(0x30);
/// let Err(Error::Refused(refused)) = query.query(&context) else {
///     return Err("not refused".into());
/// };
/// assert_eq!(refused.name(), Some("QUERY_ROCE_ADDRESS"));
/// assert_eq!(refused.sent()[0].value(), Some(0xffff)); // the field that was set
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CommandError {
    pub(crate) asked: Asked,
    pub(crate) status: u8,
    pub(crate) syndrome: u32,
}

impl CommandError {
    /// Returns its opcode.
    pub fn opcode(&self) -> u16 {
        self.asked.opcode
    }

    /// Returns its opcode's name, where that is known.
    pub fn name(&self) -> Option<&'static str> {
        opcode::name(self.asked.opcode)
    }

    /// Returns the opcode's modifier.
    pub fn op_mod(&self) -> u16 {
        self.asked.op_mod
    }

    /// Returns the status, one of [`ifc::status`](mlx5_sys::ifc::status).
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Returns the status's name, where that is known.
    pub fn status_name(&self) -> Option<&'static str> {
        status::name(self.status)
    }

    /// Returns which check failed, in the firmware's own numbers.
    pub fn syndrome(&self) -> u32 {
        self.syndrome
    }

    /// Returns the fields that were set by name, in the order in which they were.
    pub fn sent(&self) -> &[Sent] {
        &self.asked.sent
    }

    /// Returns why HCAs refuse the command with this syndrome, and what helps, if that is known.
    pub fn cause(&self) -> Option<&'static str> {
        Some(match (self.asked.opcode, self.syndrome) {
            // Measured on ConnectX-6: evidence E063.
            (opcode::ALLOC_Q_COUNTER, 0x89_75f1) => {
                "this firmware gives sets of counters to the kernel's driver alone: read the \
                 port's instead (hw_counters in sysfs, `PortCounters`), which count verbs queue pairs"
            }
            _ => return None,
        })
    }
}

impl std::error::Error for CommandError {}

debug_as_display!(CommandError);

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the HCA refused {}: ", Name(self.asked.opcode))?;
        match (status::name(self.status), status::words(self.status)) {
            (Some(name), Some(words)) => write!(f, "{words} ({name}, {:#x})", self.status)?,
            _ => write!(f, "unknown status {:#x}", self.status)?,
        }
        write!(f, ", syndrome {:#x}", self.syndrome)?;
        if let Some(cause) = self.cause() {
            write!(f, ": {cause}")?;
        }
        write!(f, "; {}", self.asked)
    }
}

/// A command that did not reach the HCA, or whose reply did not come back.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::Error;
/// use mlx5::devx::Command;
/// use mlx5::devx::ifc::{alloc_pd_in, opcode};
///
/// // `create` executes commands that make objects. The kernel does not execute them otherwise.
/// let command = Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE);
/// // SAFETY: the command names no object and no memory.
/// let Err(Error::Withheld(withheld)) = (unsafe { command.execute(&context) }) else {
///     return Err("executed".into());
/// };
/// assert_eq!(withheld.errno().name(), Some("EINVAL"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct WithheldCommand {
    pub(crate) asked: Asked,
    pub(crate) call: &'static str,
    pub(crate) errno: Errno,
}

impl WithheldCommand {
    /// Returns its opcode.
    pub fn opcode(&self) -> u16 {
        self.asked.opcode
    }

    /// Returns the C function that was called.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns the kernel's errno.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Returns the fields that were set by name, in the order in which they were.
    pub fn sent(&self) -> &[Sent] {
        &self.asked.sent
    }

    /// Returns why the kernel does so, and what helps, if that is known.
    pub fn cause(&self) -> Option<&'static str> {
        Some(match self.errno.0 {
            libc::EINVAL => {
                "the kernel passes those commands only that it knows to concern nobody but their \
                 user (drivers/infiniband/hw/mlx5/devx.c): general commands that only ask, commands \
                 that make an object, and those on an object that the call names by handle and the \
                 command by the same number. Before Linux 5.18 it says the same of what the HCA \
                 refused"
            }
            libc::EPERM | libc::EACCES => {
                "this user may not give it: it takes CAP_NET_RAW, and some objects CAP_SYS_RAWIO"
            }
            libc::EOPNOTSUPP => {
                "this context, kernel or libmlx5 gives no firmware commands: it takes an HCA whose \
                 firmware allows user contexts, and CAP_NET_RAW when the device is opened"
            }
            libc::EPROTONOSUPPORT | libc::ENOTTY => {
                "the kernel's driver does not know the call: it is older than it"
            }
            libc::EREMOTEIO => "the HCA refused it, and there was no room for its answer",
            libc::EAGAIN => {
                "too many answers are waited for on this channel: take some first, or make another"
            }
            libc::EBUSY => "another object still stands on it: destroy that first",
            libc::ENOMEM => "the kernel had no memory for it",
            libc::ENOSPC => "the reply is longer than the room given for it",
            libc::EFAULT => "the buffers were not readable, or not writable",
            libc::ETIMEDOUT => {
                "the HCA's firmware did not answer in time; look into the kernel's log"
            }
            _ if self.errno.is_device_gone() => {
                "the device is gone or in a fatal error; look into the kernel's log and reopen it"
            }
            _ => return None,
        })
    }
}

impl std::error::Error for WithheldCommand {}

debug_as_display!(WithheldCommand);

impl fmt::Display for WithheldCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, call, errno } = self;
        write!(f, "{call} did not execute {}: {errno}", Name(asked.opcode))?;
        if let Some(cause) = self.cause() {
            write!(f, ": {cause}")?;
        }
        write!(f, "; {asked}")
    }
}

/// An opcode that prints as its name, or as a number where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u16);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match opcode::name(self.0) {
            Some(name) => write!(f, "{name} ({:#x})", self.0),
            None => write!(f, "command {:#x}", self.0),
        }
    }
}

/// Formats bytes as hexadecimal words of four; at most the first 64 bytes.
pub(crate) struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(64)];
        for (at, byte) in shown.iter().enumerate() {
            let gap = if at > 0 && at % 4 == 0 { " " } else { "" };
            write!(f, "{gap}{byte:02x}")?;
        }
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} bytes more"),
        }
    }
}

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
