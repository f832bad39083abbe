//! Capabilities of the HCA: QUERY_HCA_CAP, by group and by name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use mlx5_sys::ifc::{Field, opcode, query_hca_cap_in, query_hca_cap_out};

use super::command::Command;
use crate::error::{Error, Result};
use crate::ib::capability::{Group, GroupValues, MissingCapability};
use crate::verbs::Context;

/// The capabilities of an HCA. Each group is queried once and kept with the context.
///
/// ```no_run
/// use mlx5::devx::Group;
/// use mlx5::devx::ifc::{cmd_hca_cap, roce_cap};
///
/// let context = mlx5::verbs::Context::open_first()?;
/// let capabilities = context.capabilities();
/// capabilities.require(Group::General, cmd_hca_cap::DCT, "a DC target")?;
/// if let Some(roce) = capabilities.group(Group::Roce)? {
///     println!("{} GIDs", roce.current(roce_cap::ROCE_ADDRESS_TABLE_SIZE));
/// }
/// # Ok::<(), mlx5::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Capabilities<'a> {
    context: &'a Context,
}

impl Context {
    /// Returns the capabilities of the HCA. They are queried at the first use.
    #[doc(alias = "MLX5_CMD_OP_QUERY_HCA_CAP")]
    pub fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { context: self }
    }
}

impl Capabilities<'_> {
    /// Returns a group with all its values; `None` if the general capabilities say that the HCA
    /// does not have the group. Two or three calls into the kernel at the first use, none later.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel, for the query of this
    /// group or of the general capabilities.
    pub fn group(&self, group: Group) -> Result<Option<Arc<GroupValues>>> {
        if let Some(known) = self.known(group) {
            return Ok(known);
        }
        let claims = group.claims();
        let claimed = claims.is_empty()
            || match self.group(Group::General)? {
                Some(general) => {
                    claims.iter().any(|(field, mask)| general.current(*field) & mask != 0)
                }
                None => false,
            };
        let values = match claimed {
            true => Some(Arc::new(GroupValues {
                group,
                maximum: self.ask(group, 0)?,
                current: self.ask(group, 1)?,
            })),
            false => None,
        };
        self.cache().insert(group, values.clone());
        Ok(values)
    }

    /// Returns the current value of a capability; `None` if the HCA does not have its group.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel, for the query of this
    /// group or of the general capabilities.
    ///
    /// # Panics
    /// If the field is wider than 64 bits.
    pub fn current(&self, group: Group, field: Field) -> Result<Option<u64>> {
        Ok(self.group(group)?.map(|values| values.current(field)))
    }

    /// Checks that a capability is not zero. `needed_by` names in errors what needs the capability.
    ///
    /// # Errors
    /// - [`Error::NoCapability`] if the value is too small, or the HCA does not have the group.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel, for the query of this
    ///   group or of the general capabilities.
    ///
    /// # Panics
    /// If the field is wider than 64 bits.
    pub fn require(&self, group: Group, field: Field, needed_by: &'static str) -> Result<()> {
        self.require_at_least(group, field, 1, needed_by).map(|_| ())
    }

    /// Checks that a capability is at least `least`, and returns its value.
    ///
    /// # Errors
    /// - [`Error::NoCapability`] if the value is too small, or the HCA does not have the group.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel, for the query of this
    ///   group or of the general capabilities.
    ///
    /// # Panics
    /// If the field is wider than 64 bits.
    pub fn require_at_least(
        &self,
        group: Group,
        field: Field,
        least: u64,
        needed_by: &'static str,
    ) -> Result<u64> {
        let values = self.group(group)?;
        let has = values.as_ref().map(|values| (values.current(field), values.maximum(field)));
        match has {
            Some((current, _)) if current >= least => Ok(current),
            _ => Err(Error::NoCapability(Box::new(MissingCapability {
                device: self.context.name(),
                group,
                field,
                least,
                has,
                needed_by,
            }))),
        }
    }

    fn known(&self, group: Group) -> Option<Option<Arc<GroupValues>>> {
        self.cache().get(&group).cloned()
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, BTreeMap<Group, Option<Arc<GroupValues>>>> {
        self.context.inner.capabilities.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the maximum (0) or the current (1) values of a group.
    fn ask(&self, group: Group, current: u16) -> Result<Box<[u8]>> {
        let reply = Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE)
            .op_mod(group.number() << 1 | current)
            .reply(query_hca_cap_out::SIZE)
            .query(self.context)?;
        Ok(reply.bytes(query_hca_cap_out::CAPABILITY).into())
    }
}
