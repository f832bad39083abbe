//! The report as text.

use std::fmt;

use super::Report;
use super::capabilities::Capabilities;
use super::device::{Device, Open, Pci, Registers};
use super::physical;
use super::port::{Counters, Gid, Port};
use crate::columns::{columns, fold};
use crate::doctor::devx_cure;
use crate::output::counted;

/// Columns before a value. Lines that are folded go on below it.
const VALUE: usize = 14;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = columns();
        let whole = Whole(self).to_string();
        for (at, line) in whole.split('\n').enumerate() {
            let end = if at > 0 { "\n" } else { "" };
            write!(f, "{end}{}", fold(line, VALUE, columns))?;
        }
        Ok(())
    }
}

/// The report in lines of any width.
struct Whole<'a>(&'a Report);

impl fmt::Display for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Whole(report) = self;
        for (at, device) in report.devices.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write_device(f, device, report.verbose)?;
        }
        if !report.others.is_empty() {
            write!(f, "\n{}", others(&report.others))?;
        }
        Ok(())
    }
}

/// Names devices that the command does not query.
pub(super) fn others(names: &[String]) -> String {
    format!("not driven by libmlx5: {}", names.join(", "))
}

fn write_device(f: &mut fmt::Formatter<'_>, device: &Device, verbose: bool) -> fmt::Result {
    let Some(open) = &device.open else {
        let error = device.error.as_deref().unwrap_or_default();
        return write!(f, "{}: {error}", device.name);
    };
    write!(f, "{}: {}, firmware {}", device.name, open.product, open.firmware)?;
    match &open.board_id {
        Some(board) => write!(f, ", board {board}")?,
        None => write!(f, ", board not told")?,
    }
    write!(f, "\n  GUID        {}, {}", open.node_guid, device.node)?;
    if verbose {
        write!(
            f,
            "\n  system      {}; vendor {:#06x}, part {:#06x}, hardware version {}",
            open.system_image_guid, open.vendor_id, open.vendor_part_id, open.hardware_version
        )?;
    }
    match &open.pci {
        Some(pci) => write_pci(f, pci, verbose)?,
        None => write!(f, "\n  PCI         not told")?,
    }
    match &open.devx.reason {
        None => write!(f, "\n  commands    open to programs (DevX)")?,
        Some(reason) => {
            write!(f, "\n  commands    {reason}")?;
            let address = open.pci.as_ref().map(|pci| pci.address.as_str());
            write!(f, "\n              ! {}", devx_cure(address))?;
        }
    }
    write_registers(f, &open.registers, verbose)?;
    write!(f, "\n  events      {}", counted(open.completion_vectors.into(), "completion vector"))?;
    physical::write_device(f, open)?;
    physical::write_settings(f, open, verbose)?;
    for port in &open.ports {
        write_port(f, port, verbose)?;
    }
    physical::write_refused(f, open)?;
    if verbose {
        write_verbs(f, open)?;
    }
    match &open.capabilities {
        Some(capabilities) => write_capabilities(f, capabilities),
        None => Ok(()),
    }
}

fn write_pci(f: &mut fmt::Formatter<'_>, pci: &Pci, verbose: bool) -> fmt::Result {
    write!(f, "\n  PCI         {}", pci.address)?;
    if pci.virtual_function {
        write!(f, ", virtual function")?;
    }
    match &pci.link {
        Some(link) => write!(f, ", {} ({} Gbit/s)", link.text, link.mbps / 1000)?,
        None => write!(f, ", link not told")?,
    }
    match (&pci.device_limit, &pci.slot_limit) {
        (Some(device), Some(slot)) => {
            write!(f, "; the device could do {}, the slot {}", device.text, slot.text)?;
        }
        (Some(device), None) => {
            write!(f, "; the device could do {}, the slot's limit is unknown", device.text)?;
        }
        _ => {}
    }
    for remark in &pci.remarks {
        write!(f, "\n              ! {remark}")?;
    }
    match pci.numa_node {
        Some(node) => write!(f, "\n  near        NUMA node {node}")?,
        None => write!(f, "\n  near        NUMA node unknown")?,
    }
    if let Some(cpus) = &pci.local_cpus {
        write!(f, ", processors {cpus}")?;
    }
    if !pci.interfaces.is_empty() {
        write!(f, ", interfaces {}", pci.interfaces.join(" "))?;
    }
    if verbose {
        let slot = pci.slot.as_deref().unwrap_or("not told");
        write!(
            f,
            "\n  slot        {slot}, driver {}",
            pci.driver.as_deref().unwrap_or("not told")
        )?;
        match (pci.interrupts.first(), pci.interrupts.last()) {
            (Some(first), Some(last)) => {
                write!(f, "\n  interrupts  {} ({first}..{last})", pci.interrupts.len())?;
            }
            _ => write!(f, "\n  interrupts  none told")?,
        }
    }
    Ok(())
}

fn write_registers(
    f: &mut fmt::Formatter<'_>,
    registers: &Registers,
    verbose: bool,
) -> fmt::Result {
    let there: Vec<&str> = registers
        .kinds
        .iter()
        .filter(|kind| kind.available)
        .map(|kind| kind.kind.as_str())
        .collect();
    let there = if there.is_empty() { "none by command".to_owned() } else { there.join("; ") };
    write!(f, "\n  doorbells   {there}")?;
    if let Some(bytes) = registers.blue_flame_bytes {
        write!(f, "; the device has BlueFlame registers of {bytes} bytes")?;
    }
    if verbose {
        for kind in registers.kinds.iter().filter(|kind| !kind.available) {
            let reason = kind.reason.as_deref().unwrap_or_default();
            write!(f, "\n              not {}: {reason}", kind.kind)?;
        }
    }
    Ok(())
}

fn write_port(f: &mut fmt::Formatter<'_>, port: &Port, verbose: bool) -> fmt::Result {
    write!(
        f,
        "\n  port {}      {}, {} ({})",
        port.port, port.link_layer, port.state, port.physical_state_name
    )?;
    match port.mbps {
        0 => write!(f, ", speed not told")?,
        mbps => write!(
            f,
            ", {} Gbit/s ({})",
            f64::from(mbps) / 1000.0,
            counted(port.lanes.into(), "lane")
        )?,
    }
    write!(f, ", MTU {} of {}", port.active_mtu, port.max_mtu)?;
    if let Some(remark) = port.remark {
        write!(f, "\n              ! {remark}")?;
    }
    if port.link_layer == "InfiniBand" {
        write!(f, "\n    LID       {}, subnet manager's {}", port.lid, port.sm_lid)?;
    }
    if port.grh_required {
        write!(f, "\n    address   by GID alone: packets need a global route header")?;
    }
    physical::write_port(f, port, verbose)?;
    for gid in &port.gids {
        write_gid(f, gid)?;
    }
    if port.gids.is_empty() {
        write!(f, "\n    GID       none")?;
    }
    let keys: Vec<String> =
        port.pkeys.iter().map(|key| format!("{}: {:#06x}", key.index, key.pkey)).collect();
    write!(f, "\n    P_Keys    {}", keys.join(", "))?;
    if verbose {
        let set = port.capability_names.join(" ");
        write!(
            f,
            "\n    flags     {:#010x} {:#06x}: {set}",
            port.capabilities, port.capabilities2
        )?;
        write!(
            f,
            "\n    limits    message {} bytes, {}, {}, {}",
            port.max_message,
            counted(u64::from(port.gid_table_length), "GID"),
            counted(u64::from(port.pkey_table_length), "P_Key"),
            counted(u64::from(port.virtual_lanes), "virtual lane")
        )?;
        write!(
            f,
            "\n    subnet    LMC {}, SM's service level {}, timeout {}, init type {}",
            port.lid_mask_bits, port.sm_service_level, port.subnet_timeout, port.init_type_reply
        )?;
        write!(f, "\n    bad keys  P_Key {}, Q_Key {}", port.bad_pkeys, port.qkey_violations)?;
    }
    match &port.counters {
        Some(counters) => write_counters(f, counters),
        None => Ok(()),
    }
}

fn write_gid(f: &mut fmt::Formatter<'_>, gid: &Gid) -> fmt::Result {
    write!(f, "\n    GID {:<5} {}, {}", gid.index, gid.gid, gid.kind)?;
    match &gid.interface {
        Some(interface) => {
            let state = if interface.up { "up" } else { "down" };
            write!(f, ", {} ({state}", interface.name)?;
            if let Some(mtu) = interface.mtu {
                write!(f, ", MTU {mtu}")?;
            }
            write!(f, ")")
        }
        None if gid.kind == "IB" => Ok(()),
        None => write!(f, ", no network interface told"),
    }
}

fn write_counters(f: &mut fmt::Formatter<'_>, counters: &Counters) -> fmt::Result {
    if counters.port.is_empty() && counters.transport.is_empty() {
        write!(f, "\n    counters  none by the kernel")?;
    }
    for (name, value) in counters.port.iter().chain(&counters.transport) {
        write!(f, "\n    counters  {name} = {value}")?;
    }
    match &counters.vport {
        Ok(lines) => {
            for line in lines {
                write!(f, "\n    vport     {line}")?;
            }
        }
        Err(why) => write!(f, "\n    vport     {why}")?,
    }
    Ok(())
}

fn write_verbs(f: &mut fmt::Formatter<'_>, open: &Open) -> fmt::Result {
    write!(f, "\n  verbs:")?;
    for (name, value) in &open.verbs {
        match open.flags.get(name).and_then(|flags| flags.as_array()) {
            Some(flags) => {
                let words: Vec<&str> = flags.iter().filter_map(|flag| flag.as_str()).collect();
                let value = value.as_u64().unwrap_or(0);
                write!(f, "\n    {name} = {value:#x}")?;
                if !words.is_empty() {
                    write!(f, " ({})", words.join(" "))?;
                }
            }
            None => write!(f, "\n    {name} = {value}")?,
        }
    }
    Ok(())
}

fn write_capabilities(f: &mut fmt::Formatter<'_>, capabilities: &Capabilities) -> fmt::Result {
    for group in &capabilities.groups {
        write!(f, "\n  {} (group {:#x}):", group.group, group.number)?;
        for field in &group.fields {
            write!(f, "\n    {} = {:#x}", field.name, field.current)?;
            if field.maximum != field.current {
                write!(f, " of {:#x}", field.maximum)?;
            }
        }
    }
    for missing in &capabilities.missing {
        write!(f, "\n  {missing}: the device does not have it")?;
    }
    Ok(())
}
