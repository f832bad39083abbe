//! Temperatures of the device, and its PCI link as the firmware sees it.

use mlx5::devx::ifc::{mpein_reg, mtcap_reg, mtmp_reg};
use serde::Serialize;

use super::link::text;
use super::{Registers, Told};

/// A temperature.
#[derive(Debug, Serialize)]
pub struct Sensor {
    pub name: String,
    pub celsius: f64,
    /// The highest since the maximum was reset, if the sensor keeps one.
    pub highest: Option<f64>,
    /// The temperature at which the firmware warns.
    pub limit: Option<f64>,
}

/// MPEIN.
#[derive(Debug, Serialize)]
pub struct PciLink {
    /// Megatransfers per second of a lane, as it runs and at most, and at most at the other end.
    pub megatransfers: Option<u32>,
    pub megatransfers_at_most: Option<u32>,
    pub peer_megatransfers: Option<u32>,
    pub lanes: u8,
    pub lanes_at_most: u8,
    /// The largest payload of a packet, in bytes.
    pub payload: u32,
    /// The largest read request, in bytes.
    pub read_request: u32,
    /// Watts that the slot offers, if it reports any.
    pub watts: Option<u32>,
    /// Whether the slot offers too little power.
    pub too_little_power: bool,
}

impl Registers<'_> {
    /// Reads the temperatures of the chip. Those of modules are in their own memory.
    pub fn temperatures(&self) -> Told<Vec<Sensor>> {
        self.sensors().into()
    }

    fn sensors(&self) -> Result<Vec<Sensor>, String> {
        let map = mtcap_reg::SENSOR_MAP.get(&self.read(0x9009, mtcap_reg::SIZE, &[])?);
        let there = (0..64u64).filter(|sensor| map >> sensor & 1 != 0);
        there.map(|sensor| self.sensor(sensor)).collect()
    }

    fn sensor(&self, index: u64) -> Result<Sensor, String> {
        use mtmp_reg as r;
        let mtmp = self.read(0x900a, r::SIZE, &[(r::SENSOR_INDEX, index)])?;
        // Eighths of a degree, with a sign.
        let celsius = |field: mlx5::devx::ifc::Field| f64::from(field.get(&mtmp) as i16) / 8.0;
        let name = text(&r::SENSOR_NAME.get(&mtmp).to_be_bytes());
        let keeps_highest = r::MTE.get(&mtmp) == 1;
        Ok(Sensor {
            name: if name.is_empty() { format!("sensor {index}") } else { name },
            celsius: celsius(r::TEMPERATURE),
            highest: keeps_highest.then(|| celsius(r::MAX_TEMPERATURE)),
            limit: Some(celsius(r::TEMPERATURE_THRESHOLD_HI)).filter(|limit| *limit > 0.0),
        })
    }

    /// Reads the PCI link of the device itself.
    pub fn pci_link(&self) -> Told<PciLink> {
        self.read(0x9050, mpein_reg::SIZE, &[]).map(|mpein| PciLink::of(&mpein)).into()
    }
}

impl PciLink {
    /// Returns whether it runs slower, or on fewer lanes, than both ends could. What lanes the slot
    /// has is not told.
    pub fn is_slow(&self) -> bool {
        let both = self.megatransfers_at_most.min(self.peer_megatransfers);
        let slower = both.is_some() && self.megatransfers < both;
        slower || self.lanes < self.lanes_at_most
    }

    fn of(mpein: &[u8]) -> PciLink {
        use mpein_reg as r;
        /// The slot reports that its power does not suffice.
        const INSUFFICIENT: u64 = 2;
        let size = |field: mlx5::devx::ifc::Field| 128 << field.get(mpein).min(5);
        let watts = r::PCI_POWER.get(mpein) as u32;
        PciLink {
            megatransfers: fastest(r::LINK_SPEED_ACTIVE.get(mpein)),
            megatransfers_at_most: fastest(r::LINK_SPEED_ENABLED.get(mpein)),
            peer_megatransfers: fastest(r::LINK_PEER_MAX_SPEED.get(mpein)),
            lanes: r::LINK_WIDTH_ACTIVE.get(mpein) as u8,
            lanes_at_most: r::LINK_WIDTH_ENABLED.get(mpein) as u8,
            payload: size(r::MAX_PAYLOAD_SIZE),
            read_request: size(r::MAX_READ_REQUEST_SIZE),
            watts: (watts > 0).then_some(watts),
            too_little_power: r::PWR_STATUS.get(mpein) == INSUFFICIENT,
        }
    }
}

/// The fastest speed of a mask, in megatransfers per second.
fn fastest(mask: u64) -> Option<u32> {
    Some(match mask.checked_ilog2()? {
        0 => 2_500,
        1 => 5_000,
        2 => 8_000,
        4 => 16_000,
        5 => 32_000,
        6 => 64_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_link_without_enough_power_is_told() {
        use mpein_reg as r;
        let mut mpein = [0; r::SIZE];
        for (field, value) in [
            (r::LINK_SPEED_ACTIVE, 1 << 2),
            (r::LINK_SPEED_ENABLED, 0b11_0111),
            (r::LINK_WIDTH_ACTIVE, 8),
            (r::LINK_WIDTH_ENABLED, 16),
            (r::MAX_PAYLOAD_SIZE, 2),
            (r::PWR_STATUS, 2),
        ] {
            field.set(&mut mpein, value);
        }
        let link = PciLink::of(&mpein);
        assert_eq!((link.megatransfers, link.megatransfers_at_most), (Some(8_000), Some(32_000)));
        assert_eq!((link.peer_megatransfers, link.lanes, link.payload), (None, 8, 512));
        assert!(link.too_little_power && link.watts.is_none());
        assert!(link.is_slow(), "8 of 16 lanes");
        r::LINK_WIDTH_ACTIVE.set(&mut mpein, 16);
        assert!(!PciLink::of(&mpein).is_slow(), "the slot's speed is not told");
        r::LINK_PEER_MAX_SPEED.set(&mut mpein, 1 << 4);
        assert!(PciLink::of(&mpein).is_slow(), "8 of 16 GT/s");
        r::LINK_PEER_MAX_SPEED.set(&mut mpein, 1 << 2);
        assert!(!PciLink::of(&mpein).is_slow(), "the slot limits it");
    }
}
