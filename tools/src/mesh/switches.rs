//! Which switch a port is at: by a file that names the members of each switch.

use std::collections::BTreeMap;
use std::path::Path;

use super::facts::Facts;
use crate::outcome::{Error, Result};

/// The switches by their members: LIDs, MAC addresses, and names of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches(BTreeMap<String, String>);

impl Switches {
    /// Reads a file: a switch a line, `leaf1: 12 0x1f c17 b8:3f:d2:00:00:01`. A member is a LID, a MAC
    /// address or a host.
    ///
    /// # Errors
    /// Returns which file cannot be read, or which line is wrong.
    pub fn read(file: &Path) -> Result<Switches> {
        let what = format!("--switches {}", file.display());
        let text = std::fs::read_to_string(file)
            .map_err(|error| Error::File { what: what.clone(), error })?;
        Switches::parse(&text).map_err(|wrong| Error::Usage(format!("{what}, {wrong}")))
    }

    fn parse(text: &str) -> Result<Switches, String> {
        let mut all = BTreeMap::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            // Addresses of members have colons, too.
            let end = line.find(": ").or_else(|| line.find(":\t"));
            let (switch, members) =
                end.map(|end| (&line[..end], &line[end + 2..])).ok_or_else(|| {
                    format!(
                        "line {}: a switch and its members, such as `leaf1: c1 c2 0x1f`",
                        at + 1
                    )
                })?;
            for member in members.split_whitespace() {
                let name = of_lid(member).unwrap_or_else(|| member.to_lowercase());
                let other = all.insert(name, switch.to_owned()).filter(|other| other != switch);
                if let Some(other) = other {
                    return Err(format!("line {}: {member} is a member of {other}, too", at + 1));
                }
            }
        }
        Ok(Switches(all))
    }

    /// Returns the switch of a port, by LID, MAC address or host.
    #[must_use]
    pub fn of(&self, facts: &Facts) -> Option<String> {
        let lid = (facts.lid != 0).then(|| format!("lid {}", facts.lid));
        let mac = facts.mac.as_ref().map(|mac| mac.to_lowercase());
        let names = [lid, mac, Some(facts.host.to_lowercase())];
        names.into_iter().flatten().find_map(|name| self.0.get(&name).cloned())
    }
}

fn of_lid(member: &str) -> Option<String> {
    let lid: u16 = match member.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok()?,
        None => member.parse().ok()?,
    };
    Some(format!("lid {lid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_lid_address_or_host() {
        let text = "leaf1: 12 0x1f   # two ports\n\nleaf2: B8:3F:D2:00:00:01 c17\n";
        let switches = Switches::parse(text).unwrap();
        let facts = |lid, mac: Option<&str>, host: &str| Facts {
            lid,
            mac: mac.map(str::to_owned),
            ..Facts::without_device(Some(host), None, String::new())
        };
        let of = |facts: &Facts| switches.of(facts);
        assert_eq!(of(&facts(31, None, "x")).as_deref(), Some("leaf1"));
        assert_eq!(of(&facts(12, None, "c17")).as_deref(), Some("leaf1"));
        assert_eq!(of(&facts(0, Some("b8:3f:d2:00:00:01"), "x")).as_deref(), Some("leaf2"));
        assert_eq!(of(&facts(0, None, "c17")).as_deref(), Some("leaf2"));
        assert_eq!(of(&facts(7, None, "c18")), None);
        assert!(Switches::parse("leaf1 12").unwrap_err().contains("line 1"));
    }
}
