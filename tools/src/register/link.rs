//! The link of a port: why it is down, its error correction, its bit errors, its receivers.
//!
//! Sources of the layouts: `mlx5_ifc.h` of Linux 6.1, and mstflint's `register_access_table.adb`
//! where the header has none. Names of FEC modes: mstflint's `mlxlink_maps.cpp`.

use mlx5::devx::ifc::{
    Field, paos_reg, pddr_link_down_info_page, pddr_reg, pddr_troubleshooting_page,
    phys_layer_statistical_cntrs, pmlp_reg, ppcnt_reg, pplm_reg, slrg_7nm, slrg_reg,
};
use serde::Serialize;

use super::reason;
use super::{Registers, Told};

/// What the firmware knows of a port's link.
#[derive(Debug, Serialize)]
pub struct Link {
    /// Whether the port is switched on, and whether it has a link.
    pub state: Told<State>,
    /// What keeps the link down, if anything does.
    pub diagnosis: Told<Diagnosis>,
    /// Why the link went down last.
    pub last_down: Told<LastDown>,
    /// Forward error correction in use; `None` without a link.
    pub correction: Told<Option<String>>,
    pub bit_errors: Told<BitErrors>,
    /// Receivers, by lane.
    pub receivers: Told<Vec<Receiver>>,
}

/// PAOS.
#[derive(Debug, Serialize)]
pub struct State {
    pub switched_on: bool,
    pub linked: bool,
}

/// PDDR, the troubleshooting page.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    pub code: u16,
    /// The firmware's text.
    pub text: String,
    /// What helps, if the code is known.
    pub cure: Option<&'static str>,
}

/// PDDR, the page of the last loss of the link.
#[derive(Debug, Serialize)]
pub struct LastDown {
    /// This side's reason.
    pub local: Option<String>,
    /// The peer's reason.
    pub remote: Option<String>,
}

/// PPCNT, the statistics of the physical layer.
#[derive(Debug, Serialize)]
pub struct BitErrors {
    /// Milliseconds that the counters cover.
    pub milliseconds: u64,
    pub received_bits: u64,
    pub corrected_bits: u64,
    /// Errors that the correction left.
    pub symbol_errors: u64,
    /// Bit error rate before the correction; 0 where none was counted.
    pub raw: f64,
    /// Bit error rate after the correction.
    pub effective: f64,
}

/// SLRG, for a lane.
#[derive(Debug, PartialEq, Serialize)]
pub struct Receiver {
    pub lane: u64,
    /// The generation of the serializer in nanometres: others grade by other scales.
    pub nanometres: Option<u8>,
    /// The grade, or the figure of merit; `None` where the firmware has measured none.
    pub grade: Option<u64>,
    /// Upper, middle and lower eye, where the generation tells them.
    pub eyes: Option<[u64; 3]>,
}

impl Registers<'_> {
    /// Reads all registers of a port's link.
    pub fn link(&self, port: u8) -> Link {
        Link {
            state: self.state(port).into(),
            diagnosis: self.diagnosis(port).into(),
            last_down: self.last_down(port).into(),
            correction: self.correction(port).into(),
            bit_errors: self.bit_errors(port).into(),
            receivers: self.receivers(port).into(),
        }
    }

    fn state(&self, port: u8) -> Result<State, String> {
        /// `MLX5_PORT_UP`.
        const UP: u64 = 1;
        use paos_reg as r;
        let paos = self.read(0x5006, r::SIZE, &[(r::LOCAL_PORT, port.into())])?;
        Ok(State {
            switched_on: r::ADMIN_STATUS.get(&paos) == UP,
            linked: r::OPER_STATUS.get(&paos) == UP,
        })
    }

    /// Reads a page of PDDR.
    fn page(&self, port: u8, page: u64) -> Result<Vec<u8>, String> {
        use pddr_reg as r;
        let set = [(r::LOCAL_PORT, port.into()), (r::PAGE_SELECT, page)];
        Ok(self.read(0x5031, r::SIZE, &set)?[r::PAGE_DATA.bytes()].to_vec())
    }

    fn diagnosis(&self, port: u8) -> Result<Diagnosis, String> {
        use pddr_troubleshooting_page as p;
        let page = self.page(port, 1)?;
        let code = p::STATUS_OPCODE.get(&page) as u16;
        Ok(Diagnosis {
            code,
            text: text(&page[p::STATUS_MESSAGE.bytes()]),
            cure: reason::cure(code),
        })
    }

    fn last_down(&self, port: u8) -> Result<LastDown, String> {
        use pddr_link_down_info_page as p;
        let page = self.page(port, 6)?;
        let of = |field: Field| reason::of_loss(field.get(&page) as u8);
        Ok(LastDown { local: of(p::LOCAL_REASON_OPCODE), remote: of(p::REMOTE_REASON_OPCODE) })
    }

    fn correction(&self, port: u8) -> Result<Option<String>, String> {
        use pplm_reg as r;
        let pplm = self.read(0x5023, r::SIZE, &[(r::LOCAL_PORT, port.into())])?;
        Ok(reason::correction(r::FEC_MODE_ACTIVE.get(&pplm) as u32))
    }

    fn bit_errors(&self, port: u8) -> Result<BitErrors, String> {
        /// The group of the counters (`device.h`, `MLX5_PHYSICAL_LAYER_STATISTICAL_GROUP`).
        const GROUP: u64 = 0x16;
        use ppcnt_reg as r;
        let set = [(r::LOCAL_PORT, port.into()), (r::GRP, GROUP)];
        let ppcnt = self.read(0x5008, r::SIZE, &set)?;
        Ok(BitErrors::of(&ppcnt[r::COUNTER_SET.bytes()]))
    }

    fn receivers(&self, port: u8) -> Result<Vec<Receiver>, String> {
        /// The most lanes that a port has.
        const LANES: u64 = 8;
        let lanes = self.read(0x5002, pmlp_reg::SIZE, &[(pmlp_reg::LOCAL_PORT, port.into())])?;
        let lanes = pmlp_reg::WIDTH.get(&lanes).min(LANES);
        (0..lanes).map(|lane| self.receiver(port, lane)).collect()
    }

    fn receiver(&self, port: u8, lane: u64) -> Result<Receiver, String> {
        use slrg_reg as r;
        let set = [(r::LOCAL_PORT, port.into()), (r::LANE, lane)];
        Ok(Receiver::of(lane, &self.read(0x5028, r::SIZE, &set)?))
    }
}

impl BitErrors {
    fn of(counters: &[u8]) -> BitErrors {
        use phys_layer_statistical_cntrs as c;
        let of = |field: Field| field.get(counters);
        BitErrors {
            milliseconds: of(c::TIME_SINCE_LAST_CLEAR),
            received_bits: of(c::PHY_RECEIVED_BITS),
            corrected_bits: of(c::PHY_CORRECTED_BITS),
            symbol_errors: of(c::PHY_SYMBOL_ERRORS),
            raw: rate(of(c::RAW_BER_COEF), of(c::RAW_BER_MAGNITUDE)),
            effective: rate(of(c::EFFECTIVE_BER_COEF), of(c::EFFECTIVE_BER_MAGNITUDE)),
        }
    }
}

impl Receiver {
    fn of(lane: u64, slrg: &[u8]) -> Receiver {
        use slrg_7nm as seven;
        let page = slrg.get(4..).unwrap_or_default();
        let measured = slrg_reg::STATUS.get(slrg) == 1;
        let (nanometres, grade, eyes) = match slrg_reg::VERSION.get(slrg) {
            0 => (Some(40), Some(slrg_reg::GRADE.get(slrg)), None),
            1 => (Some(28), Some(slrg_reg::GRADE.get(slrg)), None),
            3 => (Some(16), Some(slrg_reg::GRADE.get(slrg)), None),
            4 => {
                let eyes = [seven::UPPER_EYE, seven::MID_EYE, seven::LOWER_EYE];
                let eyes = eyes.map(|eye| eye.get(page));
                (Some(7), Some(seven::LAST_FOM.get(page)), Some(eyes))
            }
            // Later layouts are not read.
            _ => (None, None, None),
        };
        let grade = grade.filter(|_| measured);
        Receiver { lane, nanometres, grade, eyes: eyes.filter(|_| measured) }
    }
}

/// A rate that the firmware writes as factor and power of ten. 15e-255 stands for none.
fn rate(factor: u64, magnitude: u64) -> f64 {
    match magnitude {
        255 => 0.0,
        _ => factor as f64 * 10f64.powi(-(magnitude as i32)),
    }
}

/// Text up to its NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_bit_errors_have_factor_and_power() {
        use phys_layer_statistical_cntrs as c;
        let mut counters = [0; c::SIZE];
        for (field, value) in [
            (c::RAW_BER_COEF, 3),
            (c::RAW_BER_MAGNITUDE, 9),
            (c::EFFECTIVE_BER_COEF, 15),
            (c::EFFECTIVE_BER_MAGNITUDE, 255),
            (c::PHY_SYMBOL_ERRORS, 1 << 40),
        ] {
            field.set(&mut counters, value);
        }
        let errors = BitErrors::of(&counters);
        assert!((errors.raw / 3e-9 - 1.0).abs() < 1e-9, "{}", errors.raw);
        assert_eq!((errors.effective, errors.symbol_errors), (0.0, 1 << 40));
    }

    #[test]
    fn a_receiver_is_graded_by_the_scale_of_its_generation() {
        let mut slrg = [0; slrg_reg::SIZE];
        slrg_reg::STATUS.set(&mut slrg, 1);
        slrg_reg::VERSION.set(&mut slrg, 4);
        slrg_7nm::LAST_FOM.set(&mut slrg[4..], 77);
        slrg_7nm::UPPER_EYE.set(&mut slrg[4..], 33);
        let receiver = Receiver::of(2, &slrg);
        let expected =
            Receiver { lane: 2, nanometres: Some(7), grade: Some(77), eyes: Some([33, 0, 0]) };
        assert_eq!(receiver, expected);
        slrg_reg::VERSION.set(&mut slrg, 9);
        assert_eq!(Receiver::of(0, &slrg).grade, None, "an unknown layout is not read");
        slrg_reg::VERSION.set(&mut slrg, 3);
        slrg_reg::STATUS.set(&mut slrg, 0);
        assert_eq!(Receiver::of(0, &slrg).grade, None, "nothing was measured");
    }
}
