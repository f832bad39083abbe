//! Transport interfaces for sending (TIS).

use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, create_tis_in, create_tis_out, modify_tis_bitmask, modify_tis_in, opcode, query_tis_in,
    query_tis_out, tisc,
};

use super::super::{Command, Object, TransportDomain};
use crate::error::{Error, Result};
use crate::verbs::Context;

/// A transport interface for sending (`CREATE_TIS`), through which an Ethernet send queue sends.
///
/// Clones are cheap and name the same interface. It is destroyed after its last clone, and the last
/// queue that uses it, are dropped.
///
/// See the example on [`Sq`](super::Sq).
#[doc(alias("MLX5_CMD_OP_CREATE_TIS", "MLX5_CMD_OP_DESTROY_TIS"))]
#[derive(Clone)]
pub struct Tis {
    object: Arc<Object>,
    number: u32,
}

/// The number of priorities: the upper three of the priority's four bits count.
const PRIORITIES: u8 = 8;

impl Tis {
    /// Creates an interface of a transport domain, with priority 0. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] if the command cannot be sent.
    pub fn new(domain: &TransportDomain) -> Result<Tis> {
        let command = Command::new(opcode::CREATE_TIS, create_tis_in::SIZE)
            .set(tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX), domain.number())
            .reply(create_tis_out::SIZE);
        // SAFETY: the TIS keeps its domain, and gives access to no memory.
        let mut object = unsafe { command.create(domain.context())? };
        object.keep(domain.clone());
        let number = object.reply().get(create_tis_out::TISN) as u32;
        Ok(Tis { object: Arc::new(object), number })
    }

    /// Returns its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the priority of its packets, 0 to 7. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn priority(&self) -> Result<u8> {
        let query = Command::new(opcode::QUERY_TIS, query_tis_in::SIZE)
            .set(query_tis_in::TISN, self.number)
            .reply(query_tis_out::SIZE);
        let reply = self.object.query(&query)?;
        Ok((reply.get(tisc::PRIO.within(query_tis_out::TIS_CONTEXT)) >> 1) as u8)
    }

    /// Sets the priority, 0 to 7 (Ethernet's, in VLAN tags and for the queues of the port). One
    /// call into the kernel.
    ///
    /// # Errors
    /// [`Error::Attribute`] for another value, [`Error::Refused`] by the HCA, [`Error::Withheld`]
    /// by the kernel.
    pub fn set_priority(&self, priority: u8) -> Result<()> {
        if priority >= PRIORITIES {
            let rule = "Ethernet has priorities 0 to 7";
            return Err(Error::attribute("priority", priority, rule));
        }
        let field = |field: Field| field.within(modify_tis_in::CTX);
        let command = Command::new(opcode::MODIFY_TIS, modify_tis_in::SIZE)
            .set(modify_tis_in::TISN, self.number)
            .set(modify_tis_bitmask::PRIO.within(modify_tis_in::BITMASK), 1u32)
            .set(field(tisc::PRIO), priority << 1);
        // SAFETY: the only selected field is the priority of packets.
        unsafe { self.object.modify(&command) }.map(|_| ())
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl fmt::Debug for Tis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tis")
            .field("number", &format_args!("{:#x}", self.number))
            .finish_non_exhaustive()
    }
}
