//! Text of what only access registers tell: temperatures, link, module.

use std::fmt;

use super::device::Open;
use super::port::Port;
use crate::register::link::Link;
use crate::register::module::{Lane, Module};

/// Writes the temperatures, and what is wrong with the PCI link.
pub(super) fn write_device(f: &mut fmt::Formatter<'_>, open: &Open) -> fmt::Result {
    for sensor in open.temperatures.known().into_iter().flatten() {
        write!(f, "\n  temperature {} {:.1} °C", sensor.name, sensor.celsius)?;
        if let Some(highest) = sensor.highest {
            write!(f, ", highest {highest:.1}")?;
        }
        if let Some(limit) = sensor.limit {
            write!(f, ", limit {limit:.1}")?;
            if sensor.celsius >= limit {
                write!(f, "\n              ! too hot: look at the airflow")?;
            }
        }
    }
    let Some(link) = open.pci_link.known() else { return Ok(()) };
    let speed = |megatransfers: Option<u32>| match megatransfers {
        Some(megatransfers) => format!("{:.1} GT/s", f64::from(megatransfers) / 1000.0),
        None => "no speed told".to_owned(),
    };
    let (now, most) = (speed(link.megatransfers), speed(link.megatransfers_at_most));
    write!(f, "\n  PCI (fw)    {now} x{} of {most} x{}", link.lanes, link.lanes_at_most)?;
    if link.peer_megatransfers.is_some() {
        write!(f, ", the slot at most {}", speed(link.peer_megatransfers))?;
    }
    write!(f, "; payload {} bytes, read request {}", link.payload, link.read_request)?;
    if let Some(watts) = link.watts {
        write!(f, ", {watts} W offered")?;
    }
    if link.is_slow() {
        write!(f, "\n              ! both ends of the PCI link could do more: reseat the device")?;
    }
    if link.too_little_power {
        write!(f, "\n              ! the slot offers too little power: use another slot")?;
    }
    Ok(())
}

/// Writes the settings in flash: all, or the few that decide what programs can do.
pub(super) fn write_settings(
    f: &mut fmt::Formatter<'_>,
    open: &Open,
    verbose: bool,
) -> fmt::Result {
    const FIRST: [&str; 4] = ["uctx_en", "cqe_compression", "sriov_en", "total_vfs"];
    let Some(settings) = open.settings.known() else { return Ok(()) };
    let shown = |name: &str| verbose || FIRST.contains(&name);
    let words = settings.0.iter().filter(|(name, _)| shown(name));
    let words: Vec<String> = words.map(|(name, value)| format!("{name} {value}")).collect();
    write!(f, "\n  in flash    {}", words.join(", "))?;
    match settings.of("uctx_en") {
        Some(0) => write!(f, "\n              ! UCTX_EN is off: programs may not give commands"),
        _ => Ok(()),
    }
}

/// Writes the link and the module of a port.
pub(super) fn write_port(f: &mut fmt::Formatter<'_>, port: &Port, verbose: bool) -> fmt::Result {
    write_link(f, &port.link)?;
    if verbose {
        write_receivers(f, &port.link)?;
    }
    match port.module.known() {
        Some(module) => write_module(f, module, verbose),
        None => Ok(()),
    }
}

fn write_link(f: &mut fmt::Formatter<'_>, link: &Link) -> fmt::Result {
    if let Some(diagnosis) = link.diagnosis.known() {
        write!(f, "\n    link      {}", diagnosis.text)?;
        if diagnosis.code != 0 {
            write!(f, " (code {})", diagnosis.code)?;
        }
        if let Some(cure) = diagnosis.cure {
            write!(f, "\n              ! {cure}")?;
        }
    }
    if let Some(down) = link.last_down.known() {
        for (side, reason) in [("here", &down.local), ("at the peer", &down.remote)] {
            if let Some(reason) = reason {
                write!(f, "\n    last down {reason} ({side})")?;
            }
        }
    }
    if let Some(Some(correction)) = link.correction.known() {
        write!(f, "\n    FEC       {correction}")?;
    }
    if let Some(errors) = link.bit_errors.known() {
        write!(f, "\n    BER       {} raw, ", Rate(errors.raw))?;
        write!(f, "{} after FEC; {} symbol errors", Rate(errors.effective), errors.symbol_errors)?;
    }
    Ok(())
}

fn write_receivers(f: &mut fmt::Formatter<'_>, link: &Link) -> fmt::Result {
    for receiver in link.receivers.known().into_iter().flatten() {
        let Some(grade) = receiver.grade else { continue };
        write!(f, "\n    lane {}    grade {grade}", receiver.lane)?;
        if let Some(nanometres) = receiver.nanometres {
            write!(f, " on the scale of {nanometres} nm")?;
        }
        if let Some([upper, middle, lower]) = receiver.eyes {
            write!(f, ", eyes {upper} {middle} {lower}")?;
        }
    }
    Ok(())
}

fn write_module(f: &mut fmt::Formatter<'_>, module: &Module, verbose: bool) -> fmt::Result {
    let Module { form, vendor, part, revision, serial, .. } = module;
    write!(f, "\n    module    {form}, {vendor} {part} revision {revision}, serial {serial}")?;
    if let Some(metres) = module.metres {
        write!(f, ", {metres} m")?;
    }
    if let Some(technology) = module.technology {
        write!(f, ", {technology}")?;
    }
    let Some(monitors) = &module.monitors else { return Ok(()) };
    write!(f, "\n    monitors  {:.1} °C, {:.2} V", monitors.celsius, monitors.volts)?;
    let least = |of: fn(&Lane) -> f64| monitors.lanes.iter().map(of).reduce(f64::min);
    if let Some(received) = least(|lane| lane.received_milliwatts) {
        write!(f, ", weakest lane receives {}", Power(received))?;
    }
    if let Some(sent) = least(|lane| lane.sent_milliwatts) {
        write!(f, ", sends {}", Power(sent))?;
    }
    for (number, lane) in monitors.lanes.iter().enumerate().filter(|_| verbose) {
        let (received, sent) = (Power(lane.received_milliwatts), Power(lane.sent_milliwatts));
        let bias = lane.bias_milliamperes;
        write!(f, "\n      lane {number}  receives {received}, sends {sent}, bias {bias:.1} mA")?;
    }
    Ok(())
}

/// Writes what no way told, each reason once.
pub(super) fn write_refused(f: &mut fmt::Formatter<'_>, open: &Open) -> fmt::Result {
    let mut refused: Vec<(&str, Vec<String>)> = Vec::new();
    let mut all: Vec<(String, Option<&str>)> = vec![
        ("temperatures".to_owned(), open.temperatures.refused()),
        ("PCI link".to_owned(), open.pci_link.refused()),
        ("settings in flash".to_owned(), open.settings.refused()),
    ];
    for port in &open.ports {
        let link = &port.link;
        for (what, reason) in [
            ("state", link.state.refused()),
            ("diagnosis", link.diagnosis.refused()),
            ("last loss of link", link.last_down.refused()),
            ("FEC", link.correction.refused()),
            ("BER", link.bit_errors.refused()),
            ("receivers", link.receivers.refused()),
            ("module", port.module.refused()),
        ] {
            all.push((format!("port {} {what}", port.port), reason));
        }
    }
    for (what, reason) in all {
        let Some(reason) = reason else { continue };
        match refused.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(what),
            None => refused.push((reason, vec![what])),
        }
    }
    for (reason, names) in refused {
        write!(f, "\n  not told    {}: {reason}", names.join(", "))?;
    }
    Ok(())
}

/// A bit error rate.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 { write!(f, "none") } else { write!(f, "{:.0e}", self.0) }
    }
}

/// A power of light.
struct Power(f64);

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Lane::dbm(self.0) {
            Some(dbm) => write!(f, "{:.2} mW ({dbm:.1} dBm)", self.0),
            None => write!(f, "no light"),
        }
    }
}
