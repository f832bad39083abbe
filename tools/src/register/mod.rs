//! Reads access registers: what the firmware knows of the link, the module, the sensors and the PCI
//! link, and no verbs call tells.
//!
//! There are three ways, tried in order: ACCESS_REGISTER_USER over DevX, which the kernel passes to
//! the firmware; ACCESS_REG over DevX, which Linux's driver withholds; and ACCESS_REG over fwctl
//! ([`fwctl`]). Which registers the firmware opens to user contexts is not published, so each
//! register is asked for by each way until one answers.

mod fwctl;
pub mod link;
pub mod module;
mod reason;
pub mod sensor;
pub mod settings;

use mlx5::Error;
use mlx5::devx::Command;
use mlx5::devx::ifc::{Field, access_register_in, access_register_out, opcode};
use mlx5::verbs::{Context, Devx};
use serde::Serialize;

use fwctl::Fwctl;

/// A value, or why it is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Told<T> {
    /// The value.
    Known(T),
    /// The refusals of all ways.
    Refused {
        /// In words.
        refused: String,
    },
}

impl<T> Told<T> {
    /// Returns the value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Told::Known(value) => Some(value),
            Told::Refused { .. } => None,
        }
    }

    /// Returns why it is not known.
    pub fn refused(&self) -> Option<&str> {
        match self {
            Told::Known(_) => None,
            Told::Refused { refused } => Some(refused),
        }
    }
}

impl<T> From<Result<T, String>> for Told<T> {
    fn from(result: Result<T, String>) -> Told<T> {
        match result {
            Ok(value) => Told::Known(value),
            Err(refused) => Told::Refused { refused },
        }
    }
}

/// The registers of an opened device.
pub struct Registers<'a> {
    context: &'a Context,
    fwctl: Result<Fwctl, String>,
}

impl<'a> Registers<'a> {
    /// Finds the ways to the device's registers.
    pub fn new(context: &'a Context) -> Registers<'a> {
        Registers { context, fwctl: Fwctl::find(&context.sysfs_path()) }
    }

    /// Reads the register `number` of `size` bytes, with these fields of it set.
    ///
    /// # Errors
    /// Why each way failed, in words.
    fn read(&self, number: u16, size: usize, set: &[(Field, u64)]) -> Result<Vec<u8>, String> {
        let reply = match self.by_devx(opcode::ACCESS_REGISTER_USER, number, size, set) {
            Ok(reply) => reply,
            Err(user) => self.by_others(number, size, set).map_err(|others| match user {
                Some(user) => format!("{user}; {others}"),
                None => others,
            })?,
        };
        let start = access_register_out::REGISTER_DATA.bytes().start;
        let content = reply.get(start..start + size);
        content.map(<[u8]>::to_vec).ok_or_else(|| "the reply is too short".to_owned())
    }

    /// Reads by DevX. The error is `None` where the context has no DevX.
    fn by_devx(
        &self,
        opcode: u16,
        number: u16,
        size: usize,
        set: &[(Field, u64)],
    ) -> Result<Vec<u8>, Option<String>> {
        if self.context.devx() != Devx::Open {
            return Err(None);
        }
        // SAFETY: op_mod 1 reads a register: the command changes nothing, and gives the HCA access
        // to no memory.
        let executed = unsafe { command(opcode, number, size, set).execute(self.context) };
        executed.map(|reply| reply.into_bytes()).map_err(|error| Some(refusal(&error)))
    }

    fn by_others(&self, number: u16, size: usize, set: &[(Field, u64)]) -> Result<Vec<u8>, String> {
        let driver = match self.by_devx(opcode::ACCESS_REG, number, size, set) {
            Ok(reply) => return Ok(reply),
            Err(driver) => driver,
        };
        let ask = command(opcode::ACCESS_REG, number, size, set);
        let fwctl = match &self.fwctl {
            Ok(fwctl) => match fwctl.execute(ask.as_bytes(), ask.reply_size()) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            },
            Err(absent) => absent.clone(),
        };
        let devx = driver.unwrap_or_else(|| self.context.devx().to_string());
        Err(format!("{devx}; {fwctl}"))
    }
}

/// The command that reads a register.
fn command(opcode: u16, number: u16, size: usize, set: &[(Field, u64)]) -> Command {
    /// The modifier of reads.
    const READ: u16 = 1;
    let mut content = vec![0; size];
    for (field, value) in set {
        field.set(&mut content, *value);
    }
    let start = access_register_in::REGISTER_DATA.bytes().start;
    Command::new(opcode, start)
        .op_mod(READ)
        .set(access_register_in::REGISTER_ID, number)
        .tail_bytes(&content)
        .reply(access_register_out::REGISTER_DATA.bytes().start + size)
}

/// The refusal in a few words.
pub fn refusal(error: &Error) -> String {
    match error {
        Error::Refused(error) => format!(
            "the firmware refuses {} with {} (syndrome {:#x})",
            error.name().unwrap_or("the command"),
            error.status_name().unwrap_or("a status without a name"),
            error.syndrome()
        ),
        Error::Withheld(command) => format!(
            "the kernel withholds {} ({})",
            opcode::name(command.opcode()).unwrap_or("the command"),
            command.errno()
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use mlx5::devx::ifc::{cmd_in, mtmp_reg};

    use super::*;

    #[test]
    fn a_register_is_read_with_its_fields_set() {
        let set = [(mtmp_reg::SENSOR_INDEX, 64)];
        let read = command(opcode::ACCESS_REG, 0x900a, mtmp_reg::SIZE, &set);
        let bytes = read.as_bytes();
        assert_eq!((bytes.len(), read.reply_size()), (0x30, 0x30));
        assert_eq!(cmd_in::OP_MOD.get(bytes), 1, "1 reads, 0 writes");
        assert_eq!(access_register_in::REGISTER_ID.get(bytes), 0x900a);
        assert_eq!(bytes[0x12..0x14], [0, 64]);
    }
}
