//! The PCI function of a device.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{names, number, text};

/// A PCI function, by its folder in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    folder: PathBuf,
}

/// Speed and width of a PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciLink {
    /// Megatransfers per second of one lane: 2,500, 5,000, 8,000 …
    pub lane_mts: u32,
    /// Lanes.
    pub lanes: u8,
}

impl PciLink {
    /// From what sysfs says: `16.0 GT/s PCIe`, or `16 GT/s` in older kernels, and the number of
    /// lanes. `None` where either is unknown, as in many virtual machines.
    fn parse(speed: &str, width: &str) -> Option<PciLink> {
        let (rate, unit) = speed.split_once(' ')?;
        let (whole, tenths) = rate.split_once('.').unwrap_or((rate, "0"));
        let whole: u32 = whole.parse().ok()?;
        let tenths: u32 = tenths.get(..1)?.parse().ok()?;
        let lanes = width.parse().ok().filter(|lanes| *lanes != 0)?;
        let lane_mts = whole.checked_mul(1000)?.checked_add(tenths * 100)?;
        unit.starts_with("GT/s").then_some(PciLink { lane_mts, lanes })
    }

    /// Returns the bandwidth of one direction in Mbit/s. The line's encoding is subtracted (8 of 10
    /// bits up to 5 GT/s, 128 of 130 up to 32, 242 of 256 bytes of a flit at 64). Packet headers,
    /// which take a tenth or more, are not.
    pub fn mbps(&self) -> u32 {
        let lane = u64::from(self.lane_mts);
        let lane = match self.lane_mts {
            0..=5_000 => lane * 8 / 10,
            5_001..=32_000 => lane * 128 / 130,
            _ => lane * 242 / 256,
        };
        u32::try_from(lane * u64::from(self.lanes)).unwrap_or(u32::MAX)
    }

    /// Returns the fastest link that both this and another support.
    pub fn common(&self, other: &PciLink) -> PciLink {
        PciLink { lane_mts: self.lane_mts.min(other.lane_mts), lanes: self.lanes.min(other.lanes) }
    }
}

impl fmt::Display for PciLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenths) = (self.lane_mts / 1000, self.lane_mts % 1000 / 100);
        write!(f, "{whole}.{tenths} GT/s x{}", self.lanes)
    }
}

impl PciFunction {
    /// The one that a device's folder of the class `infiniband` leads to; `None` where there is
    /// none.
    pub fn of(device: &Path) -> Option<PciFunction> {
        let folder = device.join("device").canonicalize().ok()?;
        PciFunction::at(folder)
    }

    /// The one whose folder this is, resolved.
    fn at(folder: PathBuf) -> Option<PciFunction> {
        let name = folder.file_name()?.to_str()?;
        // domain:bus:slot.function
        let address = name.split(':').count() == 3 && name.contains('.');
        address.then_some(PciFunction { folder })
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns its address: `0000:3b:00.0`.
    pub fn address(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns how its link runs now.
    pub fn link(&self) -> Option<PciLink> {
        self.link_of("current")
    }

    /// Returns how its link could run at most.
    pub fn link_limit(&self) -> Option<PciLink> {
        self.link_of("max")
    }

    fn link_of(&self, which: &str) -> Option<PciLink> {
        let read = |what: &str| text(self.folder.join(format!("{which}_link_{what}")));
        PciLink::parse(&read("speed")?, &read("width")?)
    }

    /// Returns the port that it is plugged into: a root port's or a switch's function. `None` if it
    /// is part of the root complex, or the machine is a virtual one that shows none.
    pub fn slot(&self) -> Option<PciFunction> {
        PciFunction::at(self.folder.parent()?.to_owned())
    }

    /// Returns the driver that is bound to it.
    pub fn driver(&self) -> Option<String> {
        let driver = std::fs::read_link(self.folder.join("driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    }

    /// Vendor and device.
    pub fn ids(&self) -> Option<(u16, u16)> {
        let id = |name: &str| {
            let text = text(self.folder.join(name))?;
            u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        Some((id("vendor")?, id("device")?))
    }

    /// Returns whether it is a virtual function of another.
    pub fn is_virtual(&self) -> bool {
        self.folder.join("physfn").exists()
    }

    /// Returns the NUMA node whose memory is near; `None` on machines with one, or where it is not
    /// told.
    pub fn numa_node(&self) -> Option<u32> {
        number(self.folder.join("numa_node"))
    }

    /// Returns the processors that are near, as the kernel lists them: `0-7,16-23`.
    pub fn local_cpus(&self) -> Option<String> {
        text(self.folder.join("local_cpulist"))
    }

    /// Returns its interrupts (MSI-X) by number.
    pub fn interrupts(&self) -> Vec<u32> {
        let names = names(self.folder.join("msi_irqs"));
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns its network interfaces by name.
    pub fn interfaces(&self) -> Vec<String> {
        names(self.folder.join("net"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_are_read_as_kernels_write_them() {
        let link = |speed, width| PciLink::parse(speed, width);
        let (lane_mts, lanes) = (16_000, 8);
        assert_eq!(link("16.0 GT/s PCIe", "8"), Some(PciLink { lane_mts, lanes }));
        assert_eq!(link("16 GT/s", "8"), Some(PciLink { lane_mts, lanes }));
        assert_eq!(link("2.5 GT/s PCIe", "1").unwrap().to_string(), "2.5 GT/s x1");
        for (speed, width) in
            [("Unknown", "63"), ("Unknown speed", "8"), ("8.0 GT/s PCIe", "0"), ("8. GT/s", "1")]
        {
            assert_eq!(link(speed, width), None, "{speed} {width}");
        }
        // PCI Express Base Specification: 985 MB/s a lane at 8 GT/s, 250 MB/s at 2.5.
        assert_eq!(link("8.0 GT/s PCIe", "1").unwrap().mbps() / 8, 984);
        assert_eq!(link("2.5 GT/s PCIe", "1").unwrap().mbps() / 8, 250);
    }

    #[test]
    fn a_function_knows_its_slot_and_its_place() {
        let root = std::env::temp_dir().join(format!("mlx5-pci-{}", std::process::id()));
        let port = root.join("pci0000:3a/0000:3a:00.0");
        let card = port.join("0000:3b:00.0");
        fs::create_dir_all(card.join("msi_irqs")).unwrap();
        fs::create_dir_all(card.join("net/eth7")).unwrap();
        fs::create_dir_all(root.join("mlx5_0")).unwrap();
        std::os::unix::fs::symlink(&card, root.join("mlx5_0/device")).unwrap();
        let write = |folder: &Path, name: &str, text: &str| {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        };
        for (name, text) in [
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "8"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("numa_node", "1"),
            ("local_cpulist", "8-15"),
            ("vendor", "0x15b3"),
            ("device", "0x101b"),
            ("msi_irqs/41", "msix"),
            ("msi_irqs/9", "msix"),
        ] {
            write(&card, name, text);
        }
        write(&port, "max_link_speed", "8.0 GT/s PCIe");
        write(&port, "max_link_width", "8");
        let function = PciFunction::of(&root.join("mlx5_0")).unwrap();
        assert_eq!(function.address(), "0000:3b:00.0");
        let slot = function.slot().unwrap();
        let could = function.link_limit().unwrap().common(&slot.link_limit().unwrap());
        assert_eq!(Some(could), function.link());
        assert_eq!((function.numa_node(), function.ids()), (Some(1), Some((0x15b3, 0x101b))));
        assert_eq!(function.local_cpus().as_deref(), Some("8-15"));
        assert_eq!(function.interrupts(), [9, 41]);
        assert_eq!(function.interfaces(), ["eth7"]);
        assert!(!function.is_virtual());
        // The root complex is no slot.
        assert_eq!(slot.slot(), None);
        fs::write(card.join("numa_node"), "-1\n").unwrap();
        assert_eq!(function.numa_node(), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
