//! Registers of the link's physical layer, the module in the cage, the sensors and the PCI link.
//!
//! Behind the port is an active optical cable of 5 m in a QSFP28 cage. The link has no bit errors.

use mlx5_sys::ifc::{
    mcia_reg, mpein_reg, mtcap_reg, mtmp_reg, mtutc_reg, pddr_link_down_info_page, pddr_reg,
    pddr_troubleshooting_page, phys_layer_statistical_cntrs, pmlp_reg, pplm_reg, slrg_reg,
};

use super::{Access, fixed, port, read_only};
use crate::card::{Card, Link, PortState};
use crate::command::Refusal;
use module::{CELSIUS, MODULE, eeprom};

mod module;

/// Lanes of the port.
const LANES: u64 = 4;

/// Returns whether bits arrive at the port.
fn is_linked(card: &Card) -> bool {
    card.port_state.physical() == PortState::Active.physical()
}

/// PMLP: all lanes belong to module 0.
pub fn lane_mapping(_: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    port(data, pmlp_reg::LOCAL_PORT)?;
    fixed(access, data, &[pmlp_reg::WIDTH], &[(pmlp_reg::WIDTH, LANES)])
}

/// PPLM: the error correction in use, as a bit of a mask.
pub fn correction(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    /// RS(271,257), of HDR.
    const LOW_LATENCY: u64 = 1 << 3;
    /// RS(544,514), of 200GBASE-R.
    const STANDARD: u64 = 1 << 7;
    port(data, pplm_reg::LOCAL_PORT)?;
    read_only(access)?;
    let mode = match (is_linked(card), card.identity.link) {
        (false, _) => 0,
        (true, Link::InfiniBand) => LOW_LATENCY,
        (true, Link::Roce) => STANDARD,
    };
    pplm_reg::FEC_MODE_ACTIVE.set(data, mode);
    Ok(())
}

/// SLRG: the grade of a lane's receiver.
pub fn grade(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use slrg_reg as r;
    /// Serializers of 16 nm, whose layout this is.
    const VERSION: u64 = 3;
    const HDR: u64 = 6;
    port(data, r::LOCAL_PORT)?;
    read_only(access)?;
    if r::LANE.get(data) >= LANES {
        return Err(Refusal::RegisterValue);
    }
    let linked = is_linked(card);
    let shown = |value| if linked { value } else { 0 };
    r::VERSION.set(data, VERSION);
    r::STATUS.set(data, shown(1));
    r::GRADE_LANE_SPEED.set(data, HDR);
    r::GRADE.set(data, shown(9000));
    Ok(())
}

/// PDDR: why there is no link, and what the module is.
pub fn diagnosis(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use pddr_reg as r;
    /// Pages.
    const TROUBLE: u64 = 1;
    const LINK_DOWN: u64 = 6;
    port(data, r::LOCAL_PORT)?;
    read_only(access)?;
    let number = r::PAGE_SELECT.get(data);
    let page = &mut data[r::PAGE_DATA.bytes()];
    page.fill(0);
    match number {
        TROUBLE => trouble(card.port_state, page),
        LINK_DOWN => link_down(card.port_state, page),
        _ => return Err(Refusal::RegisterValue),
    }
    Ok(())
}

/// The page of why the link went down last.
fn link_down(state: PortState, page: &mut [u8]) {
    let reason = match state {
        // Down by a command of management.
        PortState::Disabled => 22,
        // Unplugged.
        PortState::Polling => 23,
        _ => 0,
    };
    pddr_link_down_info_page::LOCAL_REASON_OPCODE.set(page, reason);
}

/// The page of the state of the link, as a number and a text.
fn trouble(state: PortState, page: &mut [u8]) {
    let (code, text) = match state {
        PortState::Disabled => (1, "The port is closed by command."),
        PortState::Polling => (1024, "Cable is unplugged"),
        _ => (0, "No issue was observed"),
    };
    pddr_troubleshooting_page::STATUS_OPCODE.set(page, code);
    let start = pddr_troubleshooting_page::STATUS_MESSAGE.bytes().start;
    page[start..start + text.len()].copy_from_slice(text.as_bytes());
}

/// PPCNT, group 0x16: bits, and their errors, of which there are none.
pub fn bit_errors(octets: u64, counters: &mut [u8]) {
    use phys_layer_statistical_cntrs as c;
    /// How firmware writes that no error was counted: 15e-255.
    const NONE: (u64, u64) = (15, 255);
    c::PHY_RECEIVED_BITS.set(counters, octets * 8);
    for (factor, magnitude) in [
        (c::RAW_BER_COEF, c::RAW_BER_MAGNITUDE),
        (c::EFFECTIVE_BER_COEF, c::EFFECTIVE_BER_MAGNITUDE),
    ] {
        factor.set(counters, NONE.0);
        magnitude.set(counters, NONE.1);
    }
}

/// MCIA: bytes of the module's memory.
pub fn module_memory(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use mcia_reg as r;
    /// The address of the memory on the module's bus.
    const BUS_ADDRESS: u64 = 0x50;
    /// Status: nothing is in the cage; the module did not answer.
    const EMPTY: u64 = 3;
    const NO_ANSWER: u64 = 9;
    read_only(access)?;
    if r::MODULE.get(data) != MODULE {
        return Err(Refusal::RegisterValue);
    }
    let (offset, length) = (r::DEVICE_ADDRESS.get(data), r::DATA_SIZE.get(data));
    let content = &mut data[r::DWORDS.bytes()];
    content.fill(0);
    let (from, to) = (offset as usize, (offset + length) as usize);
    let known = r::I2C_DEVICE_ADDRESS.get(data) == BUS_ADDRESS && r::PAGE_NUMBER.get(data) == 0;
    let status = match eeprom().get(from..to) {
        _ if !card.plugged => EMPTY,
        Some(bytes) if known && bytes.len() <= r::DWORDS.bytes().len() => {
            data[r::DWORDS.bytes()][..bytes.len()].copy_from_slice(bytes);
            0
        }
        _ => NO_ANSWER,
    };
    r::STATUS.set(data, status);
    Ok(())
}

/// MTCAP: one sensor, in the chip.
pub fn sensors(_: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    read_only(access)?;
    mtcap_reg::SENSOR_COUNT.set(data, 1);
    mtcap_reg::SENSOR_MAP.set(data, 1);
    Ok(())
}

/// MTMP: the temperature at a sensor, in eighths of a degree Celsius.
pub fn temperature(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use mtmp_reg as r;
    /// Sensors from this number on are those of modules.
    const MODULES: u64 = 64;
    const CHIP: u64 = 0;
    read_only(access)?;
    let (now, limit, name) = match r::SENSOR_INDEX.get(data) {
        CHIP => (45, 105, *b"asic\0\0\0\0"),
        MODULES if card.plugged => (u64::from(CELSIUS), 70, *b"module0\0"),
        _ => return Err(Refusal::RegisterValue),
    };
    r::TEMPERATURE.set(data, now * 8);
    r::MTE.set(data, 1);
    r::MAX_TEMPERATURE.set(data, (now + 2) * 8);
    r::TEMPERATURE_THRESHOLD_HI.set(data, limit * 8);
    r::SENSOR_NAME.set(data, u64::from_be_bytes(name));
    Ok(())
}

/// MTUTC. Times are counts of the internal timer (`time_stamp_mode` of 0): queues have those in real-time
/// format only where they are made for it. The PTP clock was never set, and is not.
pub fn clock(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    const SECOND: u64 = 1_000_000_000;
    read_only(access)?;
    let now = card.clock.now();
    let values = [(mtutc_reg::UTC_SEC, now / SECOND), (mtutc_reg::UTC_NSEC, now % SECOND)];
    data.fill(0);
    values.iter().for_each(|(field, value)| field.set(data, *value));
    Ok(())
}

/// MPEIN: the PCI link, 16 lanes of 16 GT/s, as the function's configuration space says.
pub fn pci_link(_: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use mpein_reg as r;
    /// 16 GT/s and the slower ones, as bits of a mask.
    const SPEEDS: u64 = 0b1_0111;
    const FASTEST: u64 = 0b1_0000;
    /// 512 bytes, as a power of two from 128 on.
    const BYTES_512: u64 = 2;
    read_only(access)?;
    if [r::DEPTH, r::PCIE_INDEX, r::NODE].iter().any(|field| field.get(data) != 0) {
        return Err(Refusal::RegisterValue);
    }
    for (field, value) in [
        (r::LINK_WIDTH_ENABLED, 16),
        (r::LINK_SPEED_ENABLED, SPEEDS),
        (r::LINK_WIDTH_ACTIVE, 16),
        (r::LINK_SPEED_ACTIVE, FASTEST),
        (r::LINK_PEER_MAX_SPEED, FASTEST),
        (r::MAX_READ_REQUEST_SIZE, BYTES_512),
        (r::MAX_PAYLOAD_SIZE, BYTES_512),
        // Enough power, and how much.
        (r::PWR_STATUS, 1),
        (r::PCI_POWER, 75),
    ] {
        field.set(data, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
