//! Counters of a port, as the kernel shows them.

use std::path::Path;

use super::{names, number};

/// The counters of a port by the names of their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounters {
    /// Counters of the port (`counters`): what all processes and the kernel sent and received. Data
    /// counts in words of four bytes.
    pub port: Vec<(String, u64)>,
    /// Counters of the transport (`hw_counters`): retries, NAKs and the like.
    pub transport: Vec<(String, u64)>,
}

impl PortCounters {
    /// The counters of port `port` of the device whose folder of the class `infiniband` is
    /// `device`. Opens some dozens of files; the kernel asks the HCA for many of them. Empty where
    /// the kernel shows none.
    pub fn read(device: &Path, port: u8) -> PortCounters {
        port_counters(&device.join(format!("ports/{port}")))
    }
}

/// The counters in a port's folder.
fn port_counters(port: &Path) -> PortCounters {
    let read = |folder: &str| {
        let folder = port.join(folder);
        let counter = |name: String| number(folder.join(&name)).map(|value| (name, value));
        // Some are for writing: how long what is shown may be kept.
        names(&folder).into_iter().filter(|name| name != "lifespan").filter_map(counter).collect()
    };
    PortCounters { port: read("counters"), transport: read("hw_counters") }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counters_come_by_name() {
        let folder = std::env::temp_dir().join(format!("mlx5-counters-{}", std::process::id()));
        for name in ["counters", "hw_counters"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("counters/port_xmit_data"), "18446744073709551615\n").unwrap();
        fs::write(folder.join("counters/VL15_dropped"), "N/A (no PMA)\n").unwrap();
        fs::write(folder.join("hw_counters/out_of_sequence"), "3\n").unwrap();
        fs::write(folder.join("hw_counters/lifespan"), "10\n").unwrap();
        let counters = port_counters(&folder);
        assert_eq!(counters.port, [("port_xmit_data".to_owned(), u64::MAX)]);
        assert_eq!(counters.transport, [("out_of_sequence".to_owned(), 3)]);
        assert_eq!(port_counters(&folder.join("none")), PortCounters::default());
        fs::remove_dir_all(&folder).unwrap();
    }
}
