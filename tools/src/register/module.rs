//! The cable or module of a port: its identity, and its monitors (DDM).
//!
//! MCIA reads the module's memory. Offsets are those of SFF-8636 (QSFP), CMIS (QSFP-DD, OSFP) and
//! SFF-8472 (SFP).

use mlx5::devx::ifc::{mcia_reg, pmlp_reg};
use serde::Serialize;

use super::{Registers, Told};

/// A cable or module.
#[derive(Debug, PartialEq, Serialize)]
pub struct Module {
    /// The form: `QSFP28`.
    pub form: &'static str,
    /// The standard that lays its memory out.
    pub standard: &'static str,
    pub vendor: String,
    pub part: String,
    pub revision: String,
    pub serial: String,
    /// Laser or copper.
    pub technology: Option<&'static str>,
    /// The length of a cable.
    pub metres: Option<f64>,
    /// The monitors; `None` for a cable without any.
    pub monitors: Option<Monitors>,
}

/// What a module measures.
#[derive(Debug, PartialEq, Serialize)]
pub struct Monitors {
    pub celsius: f64,
    pub volts: f64,
    /// By lane. Empty where the module's page of lanes cannot be read.
    pub lanes: Vec<Lane>,
}

/// The optics of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lane {
    pub received_milliwatts: f64,
    pub sent_milliwatts: f64,
    pub bias_milliamperes: f64,
}

impl Lane {
    /// Returns a power in dBm; `None` for no light.
    pub fn dbm(milliwatts: f64) -> Option<f64> {
        (milliwatts > 0.0).then(|| 10.0 * milliwatts.log10())
    }
}

/// Addresses on the module's bus: of all modules, and of an SFP's monitors.
const MEMORY: u64 = 0x50;
const SFP_MONITORS: u64 = 0x51;
/// Bytes of lower memory, and of a page.
const HALF: u64 = 128;

/// A reader of 128 bytes: bus address, page, and offset, which is 0 or 128.
type Read<'a> = &'a dyn Fn(u64, u64, u64) -> Result<Vec<u8>, String>;

impl Registers<'_> {
    /// Reads the module of a port.
    pub fn module(&self, port: u8) -> Told<Module> {
        self.find_module(port).into()
    }

    fn find_module(&self, port: u8) -> Result<Module, String> {
        let lanes = self.read(0x5002, pmlp_reg::SIZE, &[(pmlp_reg::LOCAL_PORT, port.into())])?;
        // The module's number is the lowest byte of a lane's mapping.
        let number = pmlp_reg::LANE0_MODULE_MAPPING.get(&lanes) & 0xff;
        Module::of(&|address, page, offset| self.half(number, address, page, offset))
    }

    fn half(&self, module: u64, address: u64, page: u64, offset: u64) -> Result<Vec<u8>, String> {
        use mcia_reg as r;
        /// Bytes that every firmware reads at once.
        const CHUNK: u64 = 32;
        let mut bytes = Vec::new();
        for from in (offset..offset + HALF).step_by(CHUNK as usize) {
            let set = [
                (r::MODULE, module),
                (r::I2C_DEVICE_ADDRESS, address),
                (r::PAGE_NUMBER, page),
                (r::DEVICE_ADDRESS, from),
                (r::DATA_SIZE, CHUNK),
            ];
            let mcia = self.read(0x9014, r::SIZE, &set)?;
            match r::STATUS.get(&mcia) {
                0 => bytes.extend(&mcia[r::DWORDS.bytes()][..CHUNK as usize]),
                status => return Err(failure(status)),
            }
        }
        Ok(bytes)
    }
}

/// Returns the meaning of MCIA's status.
fn failure(status: u64) -> String {
    match status {
        1 => "the module's memory does not answer".to_owned(),
        2 | 4 => "the device does not support this module".to_owned(),
        3 => "no module is plugged in".to_owned(),
        9 => "the module's bus reports an error".to_owned(),
        0x10 => "the module is disabled".to_owned(),
        other => format!("the module cannot be read, status {other}"),
    }
}

impl Module {
    fn of(read: Read<'_>) -> Result<Module, String> {
        let lower = read(MEMORY, 0, 0)?;
        let identifier = lower.first().copied().unwrap_or(0);
        match identifier {
            0x03 => sfp("SFP", &lower, read),
            0x0c => qsfp("QSFP", &lower, read),
            0x0d => qsfp("QSFP+", &lower, read),
            0x11 => qsfp("QSFP28", &lower, read),
            0x18 => cmis("QSFP-DD", &lower, read),
            0x19 => cmis("OSFP", &lower, read),
            0x1a => cmis("SFP-DD", &lower, read),
            0x1b => cmis("DSFP", &lower, read),
            0x1e => cmis("QSFP with CMIS", &lower, read),
            other => Err(format!("modules of type {other:#x} are not known")),
        }
    }
}

/// SFF-8636.
fn qsfp(form: &'static str, lower: &[u8], read: Read<'_>) -> Result<Module, String> {
    let page = read(MEMORY, 0, HALF)?;
    let technology = page[147 - 128] >> 4;
    let lanes = (0..4).map(|lane| Lane {
        received_milliwatts: milliwatts(lower, 34 + 2 * lane),
        bias_milliamperes: milliamperes(lower, 42 + 2 * lane),
        sent_milliwatts: milliwatts(lower, 50 + 2 * lane),
    });
    Ok(Module {
        form,
        standard: "SFF-8636",
        vendor: ascii(&page[20..36]),
        part: ascii(&page[40..56]),
        revision: ascii(&page[56..58]),
        serial: ascii(&page[68..84]),
        technology: technology_name(technology),
        metres: Some(f64::from(page[146 - 128])).filter(|metres| *metres > 0.0),
        monitors: monitors(technology, lower, 22, 26, lanes.collect()),
    })
}

/// CMIS. The lanes are on page 0x11, which flat memory does not have.
fn cmis(form: &'static str, lower: &[u8], read: Read<'_>) -> Result<Module, String> {
    const LANES: u64 = 0x11;
    let page = read(MEMORY, 0, HALF)?;
    let technology = page[212 - 128];
    let is_flat = lower[2] & 0x80 != 0;
    let lanes = if is_flat { Vec::new() } else { read(MEMORY, LANES, HALF)? };
    let lanes = match lanes.is_empty() {
        true => Vec::new(),
        false => (0..8)
            .map(|lane| Lane {
                sent_milliwatts: milliwatts(&lanes, 26 + 2 * lane),
                bias_milliamperes: milliamperes(&lanes, 42 + 2 * lane),
                received_milliwatts: milliwatts(&lanes, 58 + 2 * lane),
            })
            .collect(),
    };
    let length = page[202 - 128];
    let unit = [0.1, 1.0, 10.0, 100.0][usize::from(length >> 6)];
    Ok(Module {
        form,
        standard: "CMIS",
        vendor: ascii(&page[1..17]),
        part: ascii(&page[20..36]),
        revision: ascii(&page[36..38]),
        serial: ascii(&page[38..54]),
        technology: technology_name(technology),
        metres: Some(f64::from(length & 0x3f) * unit).filter(|metres| *metres > 0.0),
        monitors: monitors(technology, lower, 14, 16, lanes),
    })
}

/// SFF-8472.
fn sfp(form: &'static str, lower: &[u8], read: Read<'_>) -> Result<Module, String> {
    const PASSIVE: u8 = 1 << 2;
    const MONITORED: u8 = 1 << 6;
    let monitors = match lower[92] & MONITORED {
        0 => None,
        _ => Some(read(SFP_MONITORS, 0, 0)?),
    };
    Ok(Module {
        form,
        standard: "SFF-8472",
        vendor: ascii(&lower[20..36]),
        part: ascii(&lower[40..56]),
        revision: ascii(&lower[56..60]),
        serial: ascii(&lower[68..84]),
        technology: (lower[8] & PASSIVE != 0).then_some("passive copper"),
        metres: Some(f64::from(lower[18])).filter(|metres| *metres > 0.0),
        monitors: monitors.map(|bytes| Monitors {
            celsius: celsius(&bytes, 96),
            volts: volts(&bytes, 98),
            lanes: vec![Lane {
                bias_milliamperes: milliamperes(&bytes, 100),
                sent_milliwatts: milliwatts(&bytes, 102),
                received_milliwatts: milliwatts(&bytes, 104),
            }],
        }),
    })
}

/// The monitors, unless the technology is passive copper.
fn monitors(
    technology: u8,
    lower: &[u8],
    temperature: usize,
    voltage: usize,
    lanes: Vec<Lane>,
) -> Option<Monitors> {
    let (celsius, volts) = (celsius(lower, temperature), volts(lower, voltage));
    (!matches!(technology, 0xa | 0xb)).then_some(Monitors { celsius, volts, lanes })
}

fn technology_name(code: u8) -> Option<&'static str> {
    Some(match code {
        0 => "850 nm VCSEL",
        1 => "1310 nm VCSEL",
        2 => "1550 nm VCSEL",
        3 => "1310 nm FP laser",
        4 => "1310 nm DFB laser",
        5 => "1550 nm DFB laser",
        6 => "1310 nm EML",
        7 => "1550 nm EML",
        9 => "1490 nm DFB laser",
        0xa => "passive copper",
        0xb => "passive copper, equalized",
        0xc..=0xf => "active copper",
        0x10 => "tunable C-band laser",
        0x11 => "tunable L-band laser",
        0x12..=0x14 => "active copper, linear",
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    word.map_or(0, u16::from_be_bytes)
}

/// In units of 1/256 °C, with a sign.
fn celsius(bytes: &[u8], at: usize) -> f64 {
    f64::from(word(bytes, at) as i16) / 256.0
}

/// In units of 100 µV.
fn volts(bytes: &[u8], at: usize) -> f64 {
    f64::from(word(bytes, at)) / 10_000.0
}

/// In units of 0.1 µW.
fn milliwatts(bytes: &[u8], at: usize) -> f64 {
    f64::from(word(bytes, at)) / 10_000.0
}

/// In units of 2 µA.
fn milliamperes(bytes: &[u8], at: usize) -> f64 {
    f64::from(word(bytes, at)) / 500.0
}

/// Text that blanks fill up.
fn ascii(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches([' ', '\0']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bus address, page and offset of 128 bytes, and pieces of them by place.
    type Half<'a> = (u64, u64, u64, &'a [(usize, &'a [u8])]);

    /// A module whose memory is these bytes, by bus address, page and offset.
    fn module(halves: &[Half<'_>]) -> Result<Module, String> {
        Module::of(&|address, page, offset| {
            let found =
                halves.iter().find(|half| (half.0, half.1, half.2) == (address, page, offset));
            let (.., pieces) = found.ok_or_else(|| format!("no page {page:#x} at {address:#x}"))?;
            let mut bytes = vec![0; 128];
            for (at, piece) in *pieces {
                bytes[*at..at + piece.len()].copy_from_slice(piece);
            }
            Ok(bytes)
        })
    }

    #[test]
    fn a_qsfp_with_optics_is_read_as_sff_8636_says() {
        let lower: &[(usize, &[u8])] =
            &[(0, &[0x11]), (22, &[0xff, 0x80]), (26, &[0x80, 0xe8]), (34, &[0x27, 0x10])];
        let page: &[(usize, &[u8])] =
            &[(18, &[30, 0x40]), (20, b"ACME            "), (40, b"X-1"), (68, b"S1  ")];
        let module = module(&[(0x50, 0, 0, lower), (0x50, 0, 128, page)]).unwrap();
        assert_eq!((module.form, module.standard), ("QSFP28", "SFF-8636"));
        assert_eq!((&*module.vendor, &*module.part, &*module.serial), ("ACME", "X-1", "S1"));
        assert_eq!((module.technology, module.metres), (Some("1310 nm DFB laser"), Some(30.0)));
        let monitors = module.monitors.unwrap();
        assert_eq!((monitors.celsius, monitors.volts), (-0.5, 3.3));
        assert_eq!(monitors.lanes[0].received_milliwatts, 1.0);
        assert_eq!(Lane::dbm(monitors.lanes[0].received_milliwatts), Some(0.0));
        assert_eq!(Lane::dbm(monitors.lanes[1].received_milliwatts), None);
    }

    #[test]
    fn passive_copper_has_no_monitors() {
        let halves: [Half<'_>; 2] =
            [(0x50, 0, 0, &[(0, &[0x0d])]), (0x50, 0, 128, &[(19, &[0xa0])])];
        let module = module(&halves).unwrap();
        assert_eq!((module.technology, module.monitors), (Some("passive copper"), None));
    }

    #[test]
    fn an_osfp_is_read_as_cmis_says() {
        let lower: &[(usize, &[u8])] = &[(0, &[0x19]), (14, &[40, 0]), (16, &[0x80, 0xe8])];
        let page: &[(usize, &[u8])] = &[(1, b"ACME  "), (20, b"P"), (74, &[0x45]), (84, &[6])];
        let lanes: &[(usize, &[u8])] = &[(26 + 14, &[0x27, 0x10]), (42, &[0, 250])];
        let all = [(0x50, 0, 0, lower), (0x50, 0, 128, page), (0x50, 0x11, 128, lanes)];
        let module = module(&all).unwrap();
        assert_eq!((module.form, module.standard, module.metres), ("OSFP", "CMIS", Some(5.0)));
        let monitors = module.monitors.unwrap();
        assert_eq!((monitors.celsius, monitors.lanes.len()), (40.0, 8));
        assert_eq!(monitors.lanes[7].sent_milliwatts, 1.0);
        assert_eq!(monitors.lanes[0].bias_milliamperes, 0.5);
    }

    #[test]
    fn an_sfp_has_its_monitors_at_another_address() {
        let lower: &[(usize, &[u8])] = &[(0, &[3]), (20, b"ACME"), (92, &[0x40])];
        let other: &[(usize, &[u8])] = &[(96, &[25, 0]), (104, &[0, 10])];
        let sfp = module(&[(0x50, 0, 0, lower), (0x51, 0, 0, other)]).unwrap();
        let monitors = sfp.monitors.unwrap();
        assert_eq!((monitors.celsius, monitors.lanes[0].received_milliwatts), (25.0, 0.001));
        assert!(module(&[(0x50, 0, 0, &[(0, &[0xee])])]).unwrap_err().contains("0xee"));
    }
}
