//! Capabilities of the HCA by name.

use mlx5::devx::Group;
use mlx5::verbs::Context;
use serde::Serialize;

use crate::outcome::{Error, Result};

/// The requested groups.
#[derive(Debug, Serialize)]
pub(super) struct Capabilities {
    pub groups: Vec<Values>,
    /// Requested groups that the HCA does not have.
    pub missing: Vec<String>,
}

/// A group.
#[derive(Debug, Serialize)]
pub(super) struct Values {
    /// Its name in `mlx5_ifc.h`.
    pub group: &'static str,
    pub number: u16,
    pub fields: Vec<Value>,
}

/// A capability.
#[derive(Debug, Serialize)]
pub(super) struct Value {
    pub name: String,
    /// The value in force for the function.
    pub current: u64,
    /// The value that the HCA could be configured to.
    pub maximum: u64,
}

/// Returns whether `word` names the group: `roce_cap`, `roce`, `general`, or the number.
fn is_called(group: Group, word: &str) -> bool {
    let name = group.layout().name;
    let short = name.trim_end_matches("_cap").trim_end_matches("_caps");
    let variant = format!("{group:?}").to_lowercase();
    let number = word.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
    name == word || short == word || variant == word || number == Some(group.number())
}

/// Queries the HCA: for a group, for capabilities with the word in their names, or, for an empty
/// word, for all that are not zero.
pub(super) fn find(context: &Context, word: &str) -> Result<Capabilities> {
    let word = word.to_lowercase();
    let named: Vec<Group> =
        Group::ALL.iter().copied().filter(|group| is_called(*group, &word)).collect();
    let groups = if named.is_empty() { Group::ALL } else { &named };
    let mut found = Capabilities { groups: Vec::new(), missing: Vec::new() };
    for group in groups {
        let layout = group.layout().name;
        let Some(values) = context.capabilities().group(*group)? else {
            if !named.is_empty() {
                found.missing.push(group.to_string());
            }
            continue;
        };
        let fields: Vec<Value> = values
            .iter()
            .map(|one| Value {
                name: one.field.path().to_string(),
                current: one.current,
                maximum: one.maximum,
            })
            .filter(|value| {
                let told = value.current != 0 || value.maximum != 0;
                if word.is_empty() { told } else { !named.is_empty() || value.name.contains(&word) }
            })
            .collect();
        if !fields.is_empty() {
            found.groups.push(Values { group: layout, number: group.number(), fields });
        }
    }
    if found.groups.is_empty() && found.missing.is_empty() {
        let mut groups: Vec<&str> = Group::ALL.iter().map(|group| group.layout().name).collect();
        // Several groups may share a layout.
        groups.sort_unstable();
        groups.dedup();
        return Err(Error::Told(format!(
            "no capability has {word:?} in its name, and no group is called so; the groups are {}",
            groups.join(", ")
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_each_of_their_names() {
        for word in ["roce_cap", "roce", "0x4"] {
            let found: Vec<_> =
                Group::ALL.iter().filter(|group| is_called(**group, word)).collect();
            assert_eq!(found, [&Group::Roce], "{word}");
        }
        assert!(is_called(Group::General, "general") && is_called(Group::General, "cmd_hca_cap"));
        assert!(!Group::ALL.iter().any(|group| is_called(*group, "log_max_qp")));
    }
}
