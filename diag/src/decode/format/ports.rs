//! The ports of HCAs as listed by `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link` and `ibdev2netdev`.
//!
//! Fields stand one in a line ("Physical state: Polling", "phys state: 2: Polling", "state: PORT_DOWN
//! (1)") behind a line with the device, or all in one line of `rdma link`.

use crate::explain::ExplainedCode;
use crate::explain::state::{self, Port};

use super::super::lines::Lines;
use super::super::record::{DecodedRecord, RecordKind};
use super::{Format, Reading};

/// The format of these listings.
pub(super) const FORMAT: Format = Format {
    name: "ports",
    reads: "ibstat, ibstatus, ibv_devinfo, rdma link, ibdev2netdev: the states of a port (\"State: Down\", \"Physical state: Polling\")",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 512;

/// Most lines of a listing of interfaces.
const MOST: usize = 4096;

/// Other lines between the fields of one port.
const APART: usize = 16;

/// Lines between a device and the first state of its port: `ibv_devinfo -v` lists capabilities there.
const BEFORE: usize = 160;

/// Fields of ports in lower case, with their names in records.
const FIELDS: [(&str, &str); 15] = [
    (NODE_GUID, NODE_GUID),
    ("state", "state"),
    ("physical state", "physical state"),
    ("phys state", "physical state"),
    ("phys_state", "physical state"),
    ("rate", "rate"),
    ("base lid", "LID"),
    ("port_lid", "LID"),
    ("sm lid", "LID of the subnet manager"),
    ("sm_lid", "LID of the subnet manager"),
    ("link layer", "link layer"),
    ("link_layer", "link layer"),
    ("active_mtu", "active MTU"),
    ("active_width", "active width"),
    ("active_speed", "active speed"),
];

/// A field of a device, of which only a value of 0 is kept.
const NODE_GUID: &str = "node_guid";

/// A line of a listing.
enum Line<'a> {
    /// The name of a device.
    Device(&'a str),
    /// The number of a port.
    Port(&'a str),
    /// A field of a port: its name in records, and its value.
    Field(&'static str, &'a str),
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    if let Some(record) = of_rdma_link(line) {
        return Some(Reading::to(at, vec![record]));
    }
    if let Some(reading) = interfaces(lines, at) {
        return Some(reading);
    }
    match parse(line)? {
        // A listing may be cut off before its first state.
        Line::Field("state" | "physical state" | NODE_GUID, _) => {}
        Line::Field(..) => return None,
        _ => {}
    }
    let (mut device, mut number) = (None, None);
    let mut fields: Vec<(&str, &str)> = Vec::new();
    let has = |fields: &[(&str, &str)], name: &str| fields.iter().any(|(known, _)| *known == name);
    let mut own = Vec::new();
    let (mut end, mut next) = (at, at);
    while next < lines.len() && next <= end + if has(&fields, "state") { APART } else { BEFORE } {
        let found = Some(lines.get(next)).filter(|line| line.len() <= LONGEST).and_then(parse);
        // Another port begins with a device, with a number, or with a field that is there already.
        match found {
            Some(Line::Device(name)) if next == at => device = Some(name),
            Some(Line::Port(found)) if number.is_none() && !has(&fields, "state") => {
                number = Some(found);
            }
            Some(Line::Field(name, value)) if !has(&fields, name) => fields.push((name, value)),
            Some(_) => break,
            None => {
                next += 1;
                continue;
            }
        }
        own.push(next);
        end = next;
        next += 1;
    }
    let value =
        |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let is_known = match value("state") {
        Some(state) => is_state(state),
        None => has(&fields, NODE_GUID) || value("physical state").is_some_and(is_physical),
    };
    if !is_known {
        return None;
    }
    let named = || {
        (at.saturating_sub(BEFORE)..at).rev().find_map(|line| match parse(lines.get(line)) {
            Some(Line::Device(name)) => Some(name),
            _ => None,
        })
    };
    let device = device.or_else(named);
    let mut port = DecodedRecord::new(RecordKind::State, "");
    port.field_if("device", device).field_if("port", number);
    for (name, value) in fields {
        port.field(name, value);
    }
    // Links of other kinds have states, too.
    let physical = port.value("physical state").is_some_and(is_physical);
    if device.is_none() && number.is_none() && !physical {
        return None;
    }
    Some(Reading::of(&own, end, vec![judged(port)?]))
}

/// Returns whether a value is a state of a port: "Down", "1: DOWN", "PORT_DOWN (1)".
fn is_state(value: &str) -> bool {
    let words = value.split(|letter: char| !letter.is_ascii_alphanumeric());
    let known =
        ["active", "down", "init", "initializing", "initialize", "initialized", "arm", "armed"];
    words.into_iter().any(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Returns whether a value is a physical state of a port: "Polling", "2: Polling", "LINK_UP".
fn is_physical(value: &str) -> bool {
    let plain: String = value.chars().filter(char::is_ascii_alphabetic).collect();
    let known = [
        "sleep",
        "polling",
        "disabled",
        "portconfigurationtraining",
        "linkup",
        "linkerrorrecovery",
        "phytest",
        "noneavailable",
    ];
    known.contains(&plain.to_ascii_lowercase().as_str())
}

/// Reads the lines of ibdev2netdev: "mlx5_0 port 1 ==> ibp26s0 (Down)".
fn interfaces(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let of = |line: &str| -> Option<(String, String, bool)> {
        let (port, rest) = line.split_once("==>")?;
        // "-v" has address and kind before the device's name, and more behind the number.
        let words: Vec<&str> = port.split_ascii_whitespace().take(64).collect();
        let at = words.iter().position(|word| *word == "port").filter(|at| *at > 0)?;
        let (device, number) = (words[at - 1], words.get(at + 1)?);
        number.parse::<u8>().ok()?;
        let device = words.iter().take(at).find(|word| word.starts_with("mlx")).unwrap_or(&device);
        let mut rest = rest.split_ascii_whitespace();
        let (interface, state) = (rest.next()?, rest.next()?);
        let is_down = state == "(Down)";
        (is_down || state == "(Up)")
            .then(|| (format!("{device}/{number}"), format!("{interface} {state}"), is_down))
    };
    let mut found = Vec::new();
    let mut end = at;
    while let Some(line) = of(lines.get(end)).filter(|_| end < lines.len() && end < at + MOST) {
        found.push(line);
        end += 1;
    }
    let down = found.iter().filter(|(.., is_down)| *is_down).count();
    let mut record = DecodedRecord::new(
        RecordKind::State,
        match down {
            0 => "all interfaces of the ports are up".to_owned(),
            _ => format!("{down} of {} interfaces are down", found.len()),
        },
    );
    for (port, interface, _) in &found {
        record.field(port.as_str(), interface.as_str());
    }
    if down > 0 {
        record.findings.push(ExplainedCode::interfaces());
    }
    end.checked_sub(1).filter(|_| !found.is_empty()).map(|last| Reading::to(last, vec![record]))
}

/// Reads a line of a listing.
fn parse(line: &str) -> Option<Line<'_>> {
    // A listing may be an item of a list, or part of a diff.
    let text = line.trim_start_matches(['+', '-']).trim();
    let quoted = |rest: &'static str| {
        text.strip_prefix(rest).map(|rest| rest.split('\'').next().unwrap_or(rest))
    };
    if let Some(rest) = quoted("Infiniband device '") {
        return Some(Line::Device(rest));
    }
    if let Some(rest) = quoted("CA '").or_else(|| text.strip_prefix("hca_id:").map(str::trim)) {
        return Some(Line::Device(rest));
    }
    let number = text.strip_prefix("Port ").and_then(|rest| rest.strip_suffix(':'));
    let number = number.or_else(|| text.strip_prefix("port:").map(str::trim));
    if let Some(number) = number.filter(|number| number.parse::<u8>().is_ok()) {
        return Some(Line::Port(number));
    }
    let (name, value) = text.split_once(':')?;
    // mlxlink fills names with blanks.
    if name.ends_with(' ') {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let (_, field) = FIELDS.iter().find(|(known, _)| *known == lower)?;
    let is_zero = |value: &str| value.bytes().all(|digit| matches!(digit, b'0' | b':' | b'x'));
    if *field == NODE_GUID && !is_zero(value.trim()) {
        return None;
    }
    Some(Line::Field(field, value.trim()))
}

/// Reads "link mlx5_0/1 state DOWN physical_state DISABLED netdev eth2", and the form of older versions:
/// "1/1: mlx5_0/1: subnet_prefix … lid 4 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP".
fn of_rdma_link(line: &str) -> Option<DecodedRecord> {
    let after = |token: &str| {
        line.split_once(token).and_then(|(_, rest)| rest.split_ascii_whitespace().next())
    };
    let (before, _) = line.split_once(" state ")?;
    // "link mlx5_0/1 …", and "1/1: mlx5_0/1: …" of older versions.
    let head = before.split_ascii_whitespace().next()?;
    let is_index = head.starts_with(|first: char| first.is_ascii_digit()) && head.contains('/');
    if head != "link" && !is_index {
        return None;
    }
    let physical = after(" physical_state ")?;
    let mut record = DecodedRecord::new(RecordKind::State, "");
    let place = before.split([' ', ':']).rfind(|word| {
        word.split_once('/')
            .is_some_and(|(name, _)| name.starts_with(|first: char| first.is_ascii_alphabetic()))
    });
    if let Some((device, port)) = place.and_then(|place| place.split_once('/')) {
        record.field("device", device).field("port", port);
    }
    record.field_if("state", after(" state "));
    record.field("physical state", physical);
    record.field_if("LID", after(" lid "));
    record.field_if("LID of the subnet manager", after(" sm_lid "));
    record.field_if("interface", after(" netdev "));
    // Ports of InfiniBand have these, and may have an interface, too.
    if line.contains(" subnet_prefix ") {
        record.field("link layer", "InfiniBand");
    }
    judged(record).filter(|record| is_state(record.value("state").unwrap_or_default()))
}

/// Returns the record with what its states say; `None` if it is no port's.
fn judged(mut record: DecodedRecord) -> Option<DecodedRecord> {
    let value = |name: &str| record.value(name).map(str::to_owned);
    let is_unnamed = value(NODE_GUID).is_some();
    let state = match value("state") {
        Some(state) => state,
        // A listing may be cut off before it.
        None if is_unnamed || value("physical state").is_some() => String::new(),
        None => return None,
    };
    let (physical, layer) = (value("physical state"), value("link layer"));
    if physical.is_none() && layer.is_none() && record.value("LID").is_none() && !is_unnamed {
        return None;
    }
    let number = |text: String| match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.split(' ').next().and_then(|digits| digits.parse().ok()),
    };
    let port = Port {
        state: &state,
        physical: physical.as_deref(),
        // `rdma link` names the interface of RoCE alone.
        is_ethernet: layer
            .map(|layer| layer.contains("Ethernet"))
            .or_else(|| record.value("interface").map(|_| true)),
        lid: value("LID").and_then(number),
        subnet_manager: value("LID of the subnet manager").and_then(number),
        is_unnamed,
    };
    let place = match (record.value("device"), record.value("port")) {
        (Some(device), Some(port)) => format!("{device}/{port}"),
        (Some(device), None) => device.to_owned(),
        (None, Some(port)) => port.to_owned(),
        (None, None) => String::new(),
    };
    let place = if place.is_empty() { "the port".to_owned() } else { format!("port {place}") };
    let found = state::port(&port);
    if state.is_empty() && found.is_none() {
        return None;
    }
    record.title = match found {
        Some(found) => format!("{place}: {}", found.title),
        None => format!("{place} is {state}"),
    };
    record.findings.extend(found.map(ExplainedCode::port));
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_listings_are_read_and_those_of_mlxlink_are_not() {
        let read = |line| match parse(line) {
            Some(Line::Field(name, value)) => format!("{name}={value}"),
            Some(Line::Device(name)) => format!("device {name}"),
            Some(Line::Port(number)) => format!("port {number}"),
            None => String::new(),
        };
        for (line, found) in [
            ("CA 'mlx5_0'", "device mlx5_0"),
            ("Infiniband device 'mlx5_1' port 1 status:", "device mlx5_1"),
            ("hca_id:\tmlx5_2", "device mlx5_2"),
            ("\tPort 1:", "port 1"),
            ("\t\tport:\t1", "port 1"),
            ("\t\tState: Down", "state=Down"),
            ("\tphys state:\t 3: Disabled", "physical state=3: Disabled"),
            ("State                           : Active", ""),
            ("-\t\tPhysical state: Polling", "physical state=Polling"),
            ("Port GUID: 0x1", ""),
        ] {
            assert_eq!(read(line), found, "{line}");
        }
    }
}
