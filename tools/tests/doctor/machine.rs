//! A machine as files: a sound one with an HCA on Ethernet, in which a test breaks one thing.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The card's folder.
pub const CARD: &str = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
/// Its RDMA device's.
pub const DEVICE: &str = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0";

const GIDS: [(&str, &str); 4] = [
    ("fe80:0000:0000:0000:bace:f6ff:fe12:3456", "IB/RoCE v1"),
    ("fe80:0000:0000:0000:bace:f6ff:fe12:3456", "RoCE v2"),
    ("0000:0000:0000:0000:0000:ffff:c000:0201", "IB/RoCE v1"),
    ("0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2"),
];

/// A folder of such files, removed when it is dropped.
pub struct Machine {
    pub root: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A leftover temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Machine {
    /// One with nothing wrong.
    pub fn sound() -> Machine {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mlx5-doctor-{}-{number}", std::process::id());
        let machine = Machine { root: std::env::temp_dir().join(name) };
        machine.add_card();
        machine.add_device();
        machine.add_system();
        machine
    }

    fn add_card(&self) {
        let above = "sys/devices/pci0000:3a/0000:3a:00.0";
        for (folder, speed) in [(above, "16.0 GT/s PCIe"), (CARD, "8.0 GT/s PCIe")] {
            self.put(&format!("{folder}/max_link_speed"), speed);
            self.put(&format!("{folder}/max_link_width"), "16");
        }
        for (name, text) in [
            ("vendor", "0x15b3"),
            ("device", "0x1017"),
            ("numa_node", "1"),
            ("local_cpulist", "4-7"),
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("sriov_numvfs", "0"),
            ("sriov_totalvfs", "8"),
            ("msi_irqs/64", "msix"),
            ("msi_irqs/65", "msix"),
        ] {
            self.put(&format!("{CARD}/{name}"), text);
        }
        self.set_device_control(0x5930);
        self.put(&format!("{above}/vendor"), "0x8086");
        self.set_access_control(0);
        self.link("sys/bus/pci/devices/0000:3b:00.0", &format!("../../../../{CARD}"));
        self.link(&format!("{CARD}/driver"), "../../../../bus/pci/drivers/mlx5_core");
        self.link(&format!("{CARD}/iommu_group"), "../../../../kernel/iommu_groups/12");
        self.put("sys/kernel/iommu_groups/12/type", "identity");
    }

    /// Device Control of the card's PCI Express capability.
    pub fn set_device_control(&self, value: u16) {
        let mut config = vec![0; 256];
        (config[0x34], config[0x60]) = (0x60, 0x10);
        config[0x68..0x6a].copy_from_slice(&value.to_le_bytes());
        fs::write(self.root.join(CARD).join("config"), config).unwrap();
    }

    /// ACS Control of the bridge above the card.
    pub fn set_access_control(&self, value: u16) {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
        config[0x106..0x108].copy_from_slice(&value.to_le_bytes());
        fs::write(self.root.join("sys/devices/pci0000:3a/0000:3a:00.0/config"), config).unwrap();
    }

    fn add_device(&self) {
        self.link("sys/class/infiniband/mlx5_0", &format!("../../../{DEVICE}"));
        self.link(&format!("{DEVICE}/device"), "../../../0000:3b:00.0");
        self.put(&format!("{DEVICE}/fw_ver"), "16.35.2000");
        self.put(&format!("{DEVICE}/board_id"), "MT_0000000012");
        for (name, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "Ethernet"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("lid", "0x0"),
            ("pkeys/0", "0xffff"),
            ("counters/symbol_error", "0"),
            ("counters/link_downed", "0"),
            ("hw_counters/out_of_sequence", "0"),
            ("hw_counters/rnr_nak_retry_err", "0"),
            ("hw_counters/lifespan", "10"),
        ] {
            self.put(&format!("{DEVICE}/ports/1/{name}"), text);
        }
        for index in 0..16 {
            let (gid, kind) = GIDS.get(index).copied().unwrap_or((EMPTY, ""));
            self.put(&format!("{DEVICE}/ports/1/gids/{index}"), gid);
            if index < GIDS.len() {
                self.put(&format!("{DEVICE}/ports/1/gid_attrs/types/{index}"), kind);
                self.put(&format!("{DEVICE}/ports/1/gid_attrs/ndevs/{index}"), "eth2");
            }
        }
        for (name, text) in
            [("flags", "0x1003"), ("carrier", "1"), ("mtu", "4200"), ("operstate", "up")]
        {
            self.put(&format!("sys/class/net/eth2/{name}"), text);
        }
        self.put("sys/class/net/eth2/ecn/roce_np/enable/3", "1");
        self.put("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
        for node in ["uverbs0", "rdma_cm"] {
            self.put(&format!("dev/infiniband/{node}"), "");
            self.allow(&format!("dev/infiniband/{node}"), 0o666);
        }
    }

    /// Adds a second device, `mlx5_1`, whose port is not connected.
    pub fn add_idle_device(&self) {
        let card = format!("{}1", CARD.trim_end_matches('0'));
        for (name, text) in [("vendor", "0x15b3"), ("device", "0x1017"), ("numa_node", "1")] {
            self.put(&format!("{card}/{name}"), text);
        }
        let device = format!("{card}/infiniband/mlx5_1");
        self.link("sys/class/infiniband/mlx5_1", &format!("../../../{device}"));
        self.link(&format!("{device}/device"), "../../../0000:3b:00.1");
        for (name, text) in
            [("state", "1: DOWN"), ("phys_state", "2: Polling"), ("link_layer", "InfiniBand")]
        {
            self.put(&format!("{device}/ports/1/{name}"), text);
        }
    }

    fn add_system(&self) {
        for module in ["mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_cm", "rdma_ucm"] {
            self.put(&format!("sys/module/{module}/refcnt"), "1");
        }
        let cpu = "sys/devices/system/cpu";
        for number in 0..8 {
            self.put(&format!("{cpu}/cpu{number}/cpufreq/scaling_governor"), "performance");
        }
        let node = "sys/devices/system/node";
        let sizes = "sys/kernel/mm/hugepages/hugepages-2048kB";
        for (path, text) in [
            ("sys/module/ib_core/parameters/netns_mode".to_owned(), "Y"),
            (format!("{cpu}/cpu0/cpuidle/state0/name"), "POLL"),
            (format!("{cpu}/cpu0/cpuidle/state0/latency"), "0"),
            (format!("{cpu}/cpu0/cpuidle/state1/name"), "C1E"),
            (format!("{cpu}/cpu0/cpuidle/state1/latency"), "10"),
            (format!("{cpu}/cpuidle/current_driver"), "intel_idle"),
            (format!("{cpu}/isolated"), "6-7"),
            (format!("{cpu}/nohz_full"), "6-7"),
            (format!("{cpu}/smt/active"), "0"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned(), "tsc"),
            (format!("{node}/node0/cpulist"), "0-3"),
            (format!("{node}/node0/distance"), "10 21"),
            (format!("{node}/node1/cpulist"), "4-7"),
            (format!("{node}/node1/distance"), "21 10"),
            (format!("{sizes}/nr_hugepages"), "512"),
            (format!("{sizes}/free_hugepages"), "500"),
            ("sys/kernel/mm/transparent_hugepage/enabled".to_owned(), "always [madvise] never"),
            ("proc/cpuinfo".to_owned(), "flags\t\t: fpu tsc constant_tsc nonstop_tsc"),
            ("proc/mounts".to_owned(), "none /dev/hugepages hugetlbfs rw 0 0"),
            ("proc/self/status".to_owned(), "Cpus_allowed_list:\t4-7\nCapEff:\t0000000000000000"),
            ("proc/self/cgroup".to_owned(), "0::/user.slice"),
            ("proc/sys/kernel/osrelease".to_owned(), "6.1.0-21-amd64"),
            ("proc/sys/kernel/numa_balancing".to_owned(), "0"),
            ("proc/irq/64/effective_affinity_list".to_owned(), "4"),
            ("proc/irq/65/effective_affinity_list".to_owned(), "5"),
            ("proc/1/comm".to_owned(), "systemd"),
            ("usr/lib64/libibverbs.so.1.14.44.0".to_owned(), ""),
            ("usr/lib64/libmlx5.so.1.24.44.0".to_owned(), ""),
            ("usr/lib64/libibverbs/libmlx5-rdmav34.so".to_owned(), ""),
            ("etc/libibverbs.d/mlx5.driver".to_owned(), "driver mlx5"),
        ] {
            self.put(&path, text);
        }
    }

    /// Writes a file.
    pub fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Makes a symbolic link.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // What is there goes: a link can be made anew.
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    /// Sets permissions.
    pub fn allow(&self, path: &str, mode: u32) {
        fs::set_permissions(self.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Takes a file or folder away.
    pub fn remove(&self, path: &str) {
        let path = self.root.join(path);
        match path.symlink_metadata().unwrap().is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }

    /// `mlx5 doctor` on it. The model is not asked for.
    pub fn doctor(&self, arguments: &[&str]) -> Command {
        let mut command = crate::rig::mlx5(&["doctor", "--root"]);
        command.arg(&self.root).args(arguments).env_remove("MLX5_MODEL");
        command
    }
}

/// An entry of a GID table that is not in use.
const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
