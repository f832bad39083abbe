//! Errors of commands: refused by the HCA, or withheld by the kernel.

use std::fmt;

use mlx5_sys::ifc::{Field, cmd_in, opcode, status};

use super::command::{Command, Hex, Name, outcome};
use crate::verbs::{Errno, Error, Result};

/// A field that was set in a command, with its value.
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
    pub(super) fn number(field: Field, value: u64) -> Sent {
        Sent { field, value: Value::Number(value) }
    }

    pub(super) fn bytes(field: Field, bytes: &[u8]) -> Sent {
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
    pub(super) fn parts(&self) -> (impl fmt::Debug, impl fmt::Debug) {
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
struct Asked {
    opcode: u16,
    op_mod: u16,
    sent: Vec<Sent>,
    /// The whole command, if no field was set by name.
    raw: Vec<u8>,
}

impl Asked {
    fn of(command: &Command) -> Asked {
        let bytes = command.as_bytes();
        let op_mod = match bytes.len() >= cmd_in::OP_MOD.bytes().end {
            true => cmd_in::OP_MOD.get(bytes) as u16,
            false => 0,
        };
        let sent = command.sent().to_vec();
        let raw = if sent.is_empty() { bytes.to_vec() } else { Vec::new() };
        Asked { opcode: command.opcode(), op_mod, sent, raw }
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
/// The syndrome tells the vendor which of its checks failed; no list of them is public.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandError {
    asked: Asked,
    status: u8,
    syndrome: u32,
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
}

impl std::error::Error for CommandError {}

impl fmt::Debug for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the card refused {}: ", Name(self.asked.opcode))?;
        match (status::name(self.status), status::words(self.status)) {
            (Some(name), Some(words)) => write!(f, "{words} ({name}, {:#x})", self.status)?,
            _ => write!(f, "unknown status {:#x}", self.status)?,
        }
        write!(f, ", syndrome {:#x}; {}", self.syndrome, self.asked)
    }
}

/// A command that did not reach the HCA, or whose reply did not come back.
#[derive(Clone, PartialEq, Eq)]
pub struct WithheldCommand {
    asked: Asked,
    call: &'static str,
    errno: Errno,
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
                 command by the same number. Before Linux 5.18 it says the same of what the card \
                 refused"
            }
            libc::EPERM | libc::EACCES => {
                "this user may not give it: it takes CAP_NET_RAW, and some objects CAP_SYS_RAWIO"
            }
            libc::EOPNOTSUPP => {
                "this context, kernel or libmlx5 gives no firmware commands: it takes a card whose \
                 firmware allows user contexts, and CAP_NET_RAW when the device is opened"
            }
            libc::EPROTONOSUPPORT | libc::ENOTTY => {
                "the kernel's driver does not know the call: it is older than it"
            }
            libc::EREMOTEIO => "the card refused it, and there was no room for its answer",
            libc::EAGAIN => {
                "too many answers are waited for on this channel: take some first, or make another"
            }
            libc::EBUSY => "another object still stands on it: destroy that first",
            libc::ENOMEM => "the kernel had no memory for it",
            libc::ENOSPC => "the reply is longer than the room given for it",
            libc::EFAULT => "the buffers were not readable, or not writable",
            libc::ETIMEDOUT => {
                "the card's firmware did not answer in time; look into the kernel's log"
            }
            libc::EIO | libc::ENODEV | libc::ENXIO => {
                "the device is gone or in a fatal error; look into the kernel's log and reopen it"
            }
            _ => return None,
        })
    }
}

impl std::error::Error for WithheldCommand {}

impl fmt::Debug for WithheldCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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

/// Tells executed commands from those that the HCA refused and those that the kernel withheld.
/// libmlx5 may turn a refusal into an errno of its own, so the reply is checked first.
pub(super) fn judge(
    command: &Command,
    call: &'static str,
    result: libc::c_int,
    reply: &[u8],
) -> Result<()> {
    let (status, syndrome) = outcome(reply);
    if status != 0 {
        let asked = Asked::of(command);
        return Err(Error::Refused(Box::new(CommandError { asked, status, syndrome })));
    }
    let errno = match result {
        0 => return Ok(()),
        errno if errno > 0 => Errno(errno),
        _ => Errno::last(),
    };
    Err(withheld(command, call, errno))
}

/// Returns the error of a call without a reply of the HCA.
pub(super) fn withheld(command: &Command, call: &'static str, errno: Errno) -> Error {
    Error::Withheld(Box::new(WithheldCommand { asked: Asked::of(command), call, errno }))
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{ads, create_qp_in, qpc};

    use super::*;

    fn command() -> Command {
        Command::new(opcode::CREATE_QP, create_qp_in::SIZE)
            .set(create_qp_in::WQ_UMEM_ID, 7u32)
            .fields(create_qp_in::QPC, [(qpc::PD, 0x12u32), (qpc::MTU, 5)])
            .set(ads::SL.within(qpc::PRIMARY_ADDRESS_PATH).within(create_qp_in::QPC), 3u8)
            .bytes(
                ads::RGID_RIP.within(qpc::PRIMARY_ADDRESS_PATH).within(create_qp_in::QPC),
                &[0xfe, 0x80, 0, 0, 1],
            )
    }

    #[test]
    fn a_refusal_says_what_was_sent_and_why_it_was_refused() {
        let reply = [3, 0, 0, 0, 0, 0x5c, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0];
        let error = judge(&command(), "mlx5dv_devx_obj_create", 5, &reply).unwrap_err();
        let Error::Refused(refused) = &error else { panic!("{error}") };
        assert_eq!((refused.opcode(), refused.status(), refused.syndrome()), (0x500, 3, 0x5c0203));
        assert_eq!(refused.status_name(), Some("BAD_PARAM_ERR"));
        assert_eq!(refused.name(), Some("CREATE_QP"));
        assert_eq!(
            error.to_string(),
            "the card refused CREATE_QP (0x500): bad parameter (BAD_PARAM_ERR, 0x3), syndrome \
             0x5c0203; sent: wq_umem_id = 7, qpc.pd = 0x12, qpc.mtu = 5, \
             qpc.primary_address_path.sl = 3, qpc.primary_address_path.rgid_rip = fe800000 01"
        );
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn what_the_kernel_withholds_is_told_from_what_the_card_refuses() {
        for (errno, cure) in [
            (libc::EINVAL, "devx.c"),
            (libc::EPERM, "CAP_NET_RAW"),
            (libc::EOPNOTSUPP, "user contexts"),
            (libc::EAGAIN, "take some first"),
            (libc::EIO, "kernel's log"),
        ] {
            let error = judge(&command(), "mlx5dv_devx_obj_create", errno, &[0; 16]).unwrap_err();
            let Error::Withheld(withheld) = &error else { panic!("{error}") };
            assert_eq!(withheld.errno(), Errno(errno));
            assert_eq!(withheld.sent()[0].value(), Some(7));
            let text = error.to_string();
            for part in ["CREATE_QP (0x500)", "mlx5dv_devx_obj_create", cure, "qpc.mtu = 5"] {
                assert!(text.contains(part), "{part:?} is missing in {text:?}");
            }
            assert_eq!(error.errno(), Some(Errno(errno)));
        }
    }

    #[test]
    fn a_raw_command_is_shown_as_it_is() {
        let command = Command::from_bytes([0x0b, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
        let error = judge(&command, "mlx5dv_devx_general_cmd", 0, &[0xee; 16]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("command 0xb01"), "{text}");
        assert!(text.contains("unknown status 0xee"), "{text}");
        assert!(text.contains("sent: 0b010000 00000009 00000000 00000000"), "{text}");
    }
}
