//! Capabilities of the HCA as plain values: their groups, their values, and the error that says
//! which one is missing. The module `devx` queries them.

mod group;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use mlx5_sys::ifc::Field;

use crate::ib::debug_as_display;
pub use group::Group;

/// The groups that were queried; `None` for groups that the HCA does not have.
#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) groups: Mutex<BTreeMap<Group, Option<Arc<GroupValues>>>>,
}

/// The values of a group of capabilities.
///
/// `Display` lists all values that are not zero by name, one per line, with the maximum where it
/// differs.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::Group;
/// use mlx5::devx::ifc::cmd_hca_cap;
///
/// let general = context.capabilities().group(Group::General)?.ok_or("no such group")?;
/// // Each capability by name, with its value and its maximum.
/// let ports = general.iter().find(|capability| capability.field == cmd_hca_cap::NUM_PORTS);
/// assert!(ports.is_some_and(|ports| ports.current >= 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct GroupValues {
    pub(crate) group: Group,
    pub(crate) maximum: Box<[u8]>,
    pub(crate) current: Box<[u8]>,
}

/// A capability's name and values.
///
/// See the example on [`GroupValues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The field.
    pub field: Field,
    /// The function's current value.
    pub current: u64,
    /// The value that the HCA could be configured to have.
    pub maximum: u64,
}

impl GroupValues {
    /// Returns the group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns the function's current value.
    ///
    /// # Panics
    /// If the field is wider than 64 bits, or does not lie in a group.
    pub fn current(&self, field: Field) -> u64 {
        field.get(&self.current)
    }

    /// Returns the value that the HCA could be configured to have.
    ///
    /// # Panics
    /// If the field is wider than 64 bits, or does not lie in a group.
    pub fn maximum(&self, field: Field) -> u64 {
        field.get(&self.maximum)
    }

    /// Iterates over the capabilities of the group by name, including those of nested structures. A
    /// field wider than 64 bits comes in pieces.
    pub fn iter(&self) -> impl Iterator<Item = Capability> + '_ {
        let fields = self.group.layout().leaves();
        fields.into_iter().flat_map(Field::words).map(|field| Capability {
            field,
            current: self.current(field),
            maximum: self.maximum(field),
        })
    }
}

impl fmt::Display for GroupValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.group)?;
        for Capability { field, current, maximum } in self.iter() {
            if current == 0 && maximum == 0 {
                continue;
            }
            write!(f, "\n  {} = {current:#x}", field.path())?;
            if maximum != current {
                write!(f, " of {maximum:#x}")?;
            }
        }
        Ok(())
    }
}

debug_as_display!(GroupValues);

/// A capability that is needed and that the HCA lacks.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::Error;
/// use mlx5::devx::Group;
/// use mlx5::devx::ifc::cmd_hca_cap;
///
/// let capabilities = context.capabilities();
/// match capabilities.require(Group::General, cmd_hca_cap::DCT, "a DC target") {
///     Ok(()) => {}
///     Err(Error::NoCapability(missing)) => assert_eq!(missing.needed_by(), "a DC target"),
///     Err(other) => return Err(other.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct MissingCapability {
    pub(crate) device: String,
    pub(crate) group: Group,
    pub(crate) field: Field,
    pub(crate) least: u64,
    /// The current and the maximum value; `None` if the HCA does not have the group.
    pub(crate) has: Option<(u64, u64)>,
    pub(crate) needed_by: &'static str,
}

impl MissingCapability {
    /// Returns the group it is in.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns the capability.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Returns its value; `None` if the HCA does not have the group.
    pub fn current(&self) -> Option<u64> {
        self.has.map(|(current, _)| current)
    }

    /// Returns the least value that is needed.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// Returns what needs the capability.
    pub fn needed_by(&self) -> &'static str {
        self.needed_by
    }
}

impl std::error::Error for MissingCapability {}

impl fmt::Display for MissingCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, group, field, least, has, needed_by } = self;
        write!(f, "{device} cannot make or do {needed_by}: its capability {} of ", field.path())?;
        match has {
            None => {
                write!(f, "{group} is missing with the whole group")?;
                for (at, (claim, _)) in group.claims().iter().enumerate() {
                    let word = if at == 0 { ", as cmd_hca_cap says by" } else { " and" };
                    write!(f, "{word} {}", claim.path())?;
                }
                Ok(())
            }
            Some((current, maximum)) => {
                write!(f, "{group} is {current:#x} and would have to be {least:#x} at least; ")?;
                if maximum >= least {
                    write!(
                        f,
                        "the HCA itself could do {maximum:#x}: its configuration (mlxconfig) or the \
                         host has taken it away"
                    )
                } else {
                    f.write_str("this HCA or its firmware does not do it")
                }
            }
        }
    }
}

debug_as_display!(MissingCapability);

#[cfg(test)]
mod tests;
