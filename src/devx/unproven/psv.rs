//! PSVs: numbers of signatures that the HCA keeps while data passes.

use std::fmt;

use mlx5_sys::ifc::{create_psv_in, create_psv_out, opcode};

use crate::devx::{Command, Domain, Object};
use crate::error::Result;
use crate::verbs::Context;

/// A signature object (PSV, `CREATE_PSV`). A key for protected data needs one for the data in
/// memory and one for the data on the wire.
///
/// An HCA can make up to four at once. The kernel has one made at a time, so that each can be freed
/// alone.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::devx::unproven::Psv;
///
/// let psv = Psv::new(&pd)?;
/// assert!(psv.number() < 1 << 24); // `SignedBlocks::psv`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "MLX5_CMD_OP_CREATE_PSV")]
pub struct Psv {
    object: Object,
    number: u32,
}

impl Psv {
    /// Creates a new PSV. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
    /// - [`Error::Attribute`](crate::Error::Attribute) if the command cannot be sent.
    pub fn new(pd: &impl Domain) -> Result<Psv> {
        let command = Command::new(opcode::CREATE_PSV, create_psv_in::SIZE)
            .set(create_psv_in::NUM_PSV, 1u32)
            .set(create_psv_in::PD, pd.number()?)
            .reply(create_psv_out::SIZE);
        // SAFETY: the PSV keeps its domain, and lies in the HCA's own memory.
        let mut object = unsafe { command.create(pd.context())? };
        object.keep(pd.keep());
        let number = object.reply().get(create_psv_out::PSV0_INDEX) as u32;
        Ok(Psv { object, number })
    }

    /// Returns its number, by which WQEs name it. 24 bits.
    pub fn number(&self) -> u32 {
        self.number
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

impl fmt::Debug for Psv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psv")
            .field("number", &format_args!("{:#x}", self.number))
            .finish_non_exhaustive()
    }
}
