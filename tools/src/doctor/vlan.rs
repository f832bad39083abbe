//! The VLAN of a network interface.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::tree::Tree;

/// The VLAN of an interface that tags its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlan(
    /// Its number, from 1 to 4094. `None` if the files do not tell it.
    pub Option<u16>,
);

impl Vlan {
    /// Returns the VLAN of an interface. `None` if its packets have no tag. The kernel shows the number to
    /// root alone. For other users the interface's usual name has it: `eth0.5`, `vlan5`.
    pub fn of(tree: &Tree, interface: &str) -> Option<Vlan> {
        let about = tree.read(&format!("sys/class/net/{interface}/uevent"))?;
        about.lines().find(|line| *line == "DEVTYPE=vlan")?;
        let told = tree.read(&format!("proc/net/vlan/{interface}"));
        let told = told.as_deref().and_then(|text| text.split_once("VID: "));
        let told = told.and_then(|(_, rest)| rest.split_whitespace().next());
        let named = interface.rsplit_once('.').map(|(_, number)| number);
        let number = told.or(named).or(interface.strip_prefix("vlan"));
        let number = number.and_then(|text| text.parse().ok());
        Some(Vlan(number.filter(|number| (1..=4094).contains(number))))
    }
}

impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "VLAN {number}"),
            None => f.write_str("a VLAN"),
        }
    }
}
