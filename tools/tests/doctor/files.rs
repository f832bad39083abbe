//! Machines as files: each fault is named with its cure, and nothing else is reported.

use std::fs;

use crate::findings::{check, report, says, too_wide, verdict, with};
use crate::machine::{CARD, DEVICE, Machine};
use crate::rig::{finish, json_has_shape, mlx5, text_has_shape, without};

#[test]
fn nothing_is_wrong_with_a_sound_machine() {
    let machine = Machine::sound();
    let report = report(&mut machine.doctor(&[]), 0);
    assert_eq!(with(&report, "warning"), [""; 0], "{report:#}");
    assert_eq!(with(&report, "unknown"), [""; 0], "{report:#}");
    let shown = |name: &str| check(&report, name)["found"].as_str().unwrap().to_owned();
    assert_eq!(shown("PCI link"), "8 GT/s x16");
    assert_eq!(shown("port 1 MTU"), "4096 bytes, as eth2 has 4200");
    assert!(shown("port 1 GIDs").starts_with("use 3 (192.0.2.1, RoCE v2, eth2)"));
    assert_eq!(shown("PCI requests"), "MaxReadReq 4096, MaxPayload 256, relaxed ordering on");
    json_has_shape("doctor-files", &report);

    let place = machine.root.to_str().unwrap();
    let text = finish(&mut machine.doctor(&[]), 0).out.replace(place, "FOLDER");
    text_has_shape("doctor-files", &text);
    let text = finish(&mut machine.doctor(&["-v"]), 0).out.replace(place, "FOLDER");
    text_has_shape("doctor-files-verbose", &text);
}

/// Breaks one thing: only the check of that name is not good any more, and says so.
#[track_caller]
fn breaks(
    name: &str,
    (verdict, found, cure): (&str, &str, &str),
    arguments: &[&str],
    change: impl FnOnce(&Machine),
) {
    let machine = Machine::sound();
    change(&machine);
    let status = i32::from(verdict == "broken");
    let report = report(&mut machine.doctor(arguments), status);
    says(&report, name, verdict, found, cure);
    for wrong in ["warning", "broken", "unknown"] {
        for other in with(&report, wrong) {
            assert_eq!(other, name, "{report:#}");
        }
    }
}

#[test]
fn a_card_without_its_driver_is_named() {
    let driver = format!("{CARD}/driver");
    breaks("driver", ("broken", "driven by vfio-pci", "vfio-pci/unbind"), &[], |machine| {
        machine.link(&driver, "../../../../bus/pci/drivers/vfio-pci");
    });
    breaks("driver", ("broken", "no driver", "modprobe mlx5_core"), &[], |machine| {
        machine.remove(&driver);
    });
}

#[test]
fn a_card_that_the_bus_does_not_have_is_missed() {
    let machine = Machine::sound();
    for path in ["sys/class/infiniband/mlx5_0", "sys/bus/pci/devices/0000:3b:00.0"] {
        machine.remove(path);
    }
    let report = report(&mut machine.doctor(&[]), 1);
    says(&report, "function", "broken", "no PCI function", "lspci -d 15b3:");
}

#[test]
fn a_link_that_came_up_badly_is_told_from_a_slow_slot() {
    breaks("PCI link", ("warning", "degraded: 8 GT/s x8", "reseat"), &[], |machine| {
        machine.put(&format!("{CARD}/current_link_width"), "8");
    });
    breaks("PCI link", ("warning", "all that the slot gives", "slot"), &[], |machine| {
        machine.put(&format!("{CARD}/current_link_width"), "8");
        machine.put("sys/devices/pci0000:3a/0000:3a:00.0/max_link_width", "8");
    });
}

#[test]
fn small_read_requests_and_translation_are_warned_of() {
    breaks(
        "PCI requests",
        ("warning", "MaxReadReq 128", "setpci -s 0000:3b:00.0"),
        &[],
        |machine| {
            machine.set_device_control(0x0930);
        },
    );
    breaks("IOMMU", ("warning", "translated (DMA-FQ)", "iommu=pt"), &[], |machine| {
        machine.put("sys/kernel/iommu_groups/12/type", "DMA-FQ");
    });
    // What only root may read is not called good.
    breaks("PCI requests", ("unknown", "64 bytes", "sudo lspci"), &[], |machine| {
        fs::write(machine.root.join(CARD).join("config"), [0; 64]).unwrap();
    });
}

#[test]
fn a_missing_module_is_named() {
    for module in ["mlx5_core", "mlx5_ib", "ib_uverbs"] {
        breaks(module, ("broken", "not loaded", &format!("modprobe {module}")), &[], |machine| {
            machine.remove(&format!("sys/module/{module}"));
        });
    }
    breaks("rdma_ucm", ("warning", "not loaded", "modprobe rdma_ucm"), &[], |machine| {
        machine.remove("sys/module/rdma_ucm");
    });
    let machine = Machine::sound();
    machine.remove("sys/module/mlx5_ib");
    machine.put(
        "lib/modules/6.1.0-21-amd64/modules.builtin",
        "kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko",
    );
    says(&report(&mut machine.doctor(&[]), 0), "mlx5_ib", "good", "part of the kernel", "");
}

#[test]
fn whom_the_kernel_shows_devices_is_told() {
    breaks(
        "network namespaces",
        ("warning", "exclusive", "rdma system set netns shared"),
        &[],
        |machine| {
            machine.put("sys/module/ib_core/parameters/netns_mode", "N");
        },
    );
    let limit = "sys/fs/cgroup/user.slice/rdma.max";
    breaks("rdma cgroup", ("broken", "hca_handle=0", "hca_handle=max"), &[], |machine| {
        machine.put(limit, "mlx5_0 hca_handle=0 hca_object=max");
    });
    breaks("rdma cgroup", ("warning", "hca_object=200", "hca_object=max"), &[], |machine| {
        machine.put(limit, "mlx5_1 hca_handle=0 hca_object=0\nmlx5_0 hca_handle=3 hca_object=200");
    });
}

#[test]
fn a_container_without_the_node_is_told_from_a_machine_without_it() {
    let node = "dev/infiniband/uverbs0";
    let container = "--device=/dev/infiniband";
    breaks("device node", ("broken", "missing in this container", container), &[], |machine| {
        machine.remove(node);
        machine.put(".dockerenv", "");
    });
    breaks(
        "device node",
        ("broken", "/dev/infiniband/uverbs0 is missing", "udevadm trigger"),
        &[],
        |machine| {
            machine.remove(node);
        },
    );
    breaks("permission", ("warning", "mode 0600", "chmod 0666"), &[], |machine| {
        machine.allow(node, 0o600);
    });
    breaks("rdma_cm node", ("warning", "missing", "modprobe rdma_ucm"), &[], |machine| {
        machine.remove("dev/infiniband/rdma_cm");
    });
}

#[test]
fn libraries_that_are_missing_are_told() {
    breaks(
        "provider",
        ("unknown", "no file of /etc/libibverbs.d", "ibverbs-providers"),
        &[],
        |machine| {
            machine.put("etc/libibverbs.d/mlx5.driver", "driver mlx4");
        },
    );
    breaks("libmlx5", ("unknown", "no libmlx5.so.1", "ibverbs-providers"), &[], |machine| {
        machine.remove("usr/lib64/libmlx5.so.1.24.44.0");
    });
}

#[test]
fn memory_that_holds_programs_up_is_warned_of() {
    breaks(
        "huge pages",
        ("warning", "0 of 512 pages of 2 MiB free", "vm.nr_hugepages"),
        &[],
        |machine| {
            machine.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0");
        },
    );
    breaks("transparent huge pages", ("warning", "always", "echo madvise"), &[], |machine| {
        machine.put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    });
    breaks("NUMA balancing", ("warning", "on", "kernel.numa_balancing=0"), &[], |machine| {
        machine.put("proc/sys/kernel/numa_balancing", "1");
    });
    breaks("fork", ("warning", "shares pinned pages", "RDMAV_FORK_SAFE"), &[], |machine| {
        machine.put("proc/sys/kernel/osrelease", "4.18.0-553.el8");
    });
}

#[test]
fn an_ethernet_port_is_down_for_its_interface() {
    let down = |machine: &Machine| {
        machine.put(&format!("{DEVICE}/ports/1/state"), "1: DOWN");
        machine.put(&format!("{DEVICE}/ports/1/phys_state"), "3: Disabled");
    };
    let set_up = "ip link set dev eth2 up";
    breaks("port 1 link", ("broken", "eth2 is administratively down", set_up), &[], |machine| {
        down(machine);
        machine.put("sys/class/net/eth2/flags", "0x1002");
    });
    breaks("port 1 link", ("broken", "eth2 has no carrier", "plug in the cable"), &[], |machine| {
        down(machine);
        machine.put("sys/class/net/eth2/carrier", "0");
    });
    breaks("port 1 MTU", ("warning", "512 bytes, as eth2 has 700", "mtu 4200"), &[], |machine| {
        machine.put("sys/class/net/eth2/mtu", "700");
    });
    breaks("port 1 errors", ("warning", "link_downed 3", "perfquery"), &[], |machine| {
        machine.put(&format!("{DEVICE}/ports/1/counters/link_downed"), "3");
    });
    breaks("port 1 losses", ("unknown", "lossless", "dcb pfc show dev eth2"), &[], |machine| {
        machine.remove("sys/class/net/eth2/ecn");
    });
}

#[test]
fn counters_that_speak_of_faults_are_warned_of() {
    let counted = |name: &str| format!("{DEVICE}/ports/1/hw_counters/{name}");
    breaks(
        "port 1 transport",
        ("warning", "rnr_nak_retry_err 7 (RNR NAKs", "too few receives"),
        &[],
        |machine| machine.put(&counted("rnr_nak_retry_err"), "7"),
    );
    let file = "sos_commands/networking/ethtool_-S_eth2";
    let printed = |discards| format!("NIC statistics:\n     rx_discards_phy: {discards}\n");
    breaks(
        "port 1 interface",
        ("warning", "rx_discards_phy 12", "slow receiver"),
        &[],
        |machine| machine.put(file, &printed(12)),
    );
    let machine = Machine::sound();
    machine.put(file, &printed(0));
    let report = report(&mut machine.doctor(&[]), 0);
    says(&report, "port 1 interface", "good", "1 counter, and it is zero", "");
    says(&report, "port 1 transport", "good", "2 counters, and all are zero", "");
}

#[test]
fn a_loss_that_healed_and_notifications_of_a_silent_peer_are_told() {
    let count = |machine: &Machine, name: &str, value: &str| {
        machine.put(&format!("{DEVICE}/ports/1/hw_counters/{name}"), value);
    };
    // It healed before a time-out, so nothing else has moved.
    breaks(
        "port 1 transport",
        ("warning", "roce_adp_retrans 9 (adaptive repetitions, the first sign", "PFC and ECN"),
        &[],
        |machine| {
            count(machine, "roce_adp_retrans", "9");
            count(machine, "local_ack_timeout_err", "0");
        },
    );
    // A peer that died, as on a ConnectX-6: 7 and 6 repetitions, of which the last was not sent.
    let machine = Machine::sound();
    for (name, value) in [
        ("roce_adp_retrans", "7"),
        ("local_ack_timeout_err", "6"),
        ("req_transport_retries_exceeded", "1"),
        ("rp_cnp_handled", "12"),
        ("np_cnp_sent", "0"),
    ] {
        count(&machine, name, value);
    }
    let silent = report(&mut machine.doctor(&[]), 0);
    says(&silent, "port 1 congestion", "good", "12 for repetitions of this port", "");
    says(&silent, "port 1 congestion", "good", "so no congestion", "");
    count(&machine, "rp_cnp_handled", "512");
    let congested = report(&mut machine.doctor(&[]), 0);
    says(&congested, "port 1 congestion", "good", "and 500 for congestion", "");
}

#[test]
fn the_time_until_a_dead_peer_is_noticed_is_that_of_the_link() {
    let machine = Machine::sound();
    let ethernet = report(&mut machine.doctor(&[]), 0);
    let found =
        "devices notice it after 3.66 s with timeout 14 and retry_cnt 7; 2.05 s with retry_cnt 0";
    says(&ethernet, "port 1 dead peer", "good", found, "");
    says(&ethernet, "port 1 dead peer", "good", "adaptive retransmission", "");
    machine.put(&format!("{DEVICE}/ports/1/link_layer"), "InfiniBand");
    // Without a LID, an InfiniBand port is not well: only this check is of interest.
    let printed = machine.doctor(&["--json"]).output().unwrap();
    let infiniband: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    let found =
        "devices notice it after 4.29 s with timeout 14 and retry_cnt 7; 0.54 s with retry_cnt 0";
    says(&infiniband["report"], "port 1 dead peer", "good", found, "");
}

#[test]
fn the_kernels_log_of_the_device_is_decoded() {
    let line = |address| {
        format!(
            "[    7.1] mlx5_core {address}: Detected insufficient power on the PCIe slot (27W)."
        )
    };
    breaks("kernel log", ("warning", "1 fault", "mlx5 decode"), &[], |machine| {
        machine.put("sos_commands/kernel/dmesg", &line("0000:3b:00.0"));
    });
    let machine = Machine::sound();
    machine.put("var/log/dmesg", &line("0000:5e:00.0"));
    says(&report(&mut machine.doctor(&[]), 0), "kernel log", "good", "no line about", "");
}

#[test]
fn virtual_functions_and_bonds_are_told() {
    let machine = Machine::sound();
    let sound = report(&mut machine.doctor(&[]), 0);
    says(&sound, "SR-IOV", "good", "no virtual functions, of at most 8", "");
    machine.put(&format!("{CARD}/sriov_numvfs"), "1");
    says(&report(&mut machine.doctor(&[]), 0), "SR-IOV", "good", "1 virtual function,", "");
    machine.link(&format!("{CARD}/physfn"), "../0000:3b:00.7");
    says(&report(&mut machine.doctor(&[]), 0), "SR-IOV", "good", "of 0000:3b:00.7", "");

    let bonded = |machine: &Machine, mode: &str| {
        machine.link("sys/class/net/eth2/master", "../bond0");
        machine.put("sys/class/net/bond0/bonding/mode", mode);
        machine.put("sys/class/net/bond0/bonding/slaves", "eth2 eth3");
    };
    bonded(&machine, "802.3ad 4");
    let joined = report(&mut machine.doctor(&[]), 0);
    says(&joined, "port 1 bond", "good", "bond0, mode 802.3ad, ports eth2 eth3", "");
    breaks("port 1 bond", ("warning", "not joined in this mode", "mode 802.3ad"), &[], |machine| {
        bonded(machine, "balance-rr 0");
    });
    breaks("port 1 bond", ("warning", "down: eth3", "dev eth3"), &[], |machine| {
        bonded(machine, "active-backup 1");
        machine.put("sys/class/net/eth3/operstate", "down");
    });
}

/// The driver's folder in debugfs.
const DEBUG: &str = "sys/kernel/debug/mlx5/0000:3b:00.0";

#[test]
fn what_the_driver_tells_in_debugfs_is_shown() {
    let machine = Machine::sound();
    let sound = report(&mut machine.doctor(&[]), 0);
    for name in ["LAG", "port 1 ECN"] {
        says(&sound, name, "not_applicable", "no such folder of debugfs", "");
    }
    for (file, value) in [
        ("cc_params/np_cnp_dscp", "48"),
        ("cc_params/np_min_time_between_cnps", "4"),
        ("cc_params/rp_max_rate", "0"),
        ("lag/state", "active"),
        ("lag/type", "roce"),
        ("lag/mapping", "1:1\n2:2"),
    ] {
        machine.put(&format!("{DEBUG}/{file}"), value);
    }
    let told = report(&mut machine.doctor(&[]), 0);
    let ecn =
        "notification point: cnp_dscp 48, min_time_between_cnps 4; reaction point: max_rate 0";
    says(&told, "port 1 ECN", "good", ecn, "");
    says(&told, "LAG", "good", "active; mapping 1:1 2:2; type roce", "");
    breaks("LAG", ("warning", "disabled, though bond0 is a bond", "grep -i lag"), &[], |machine| {
        machine.link("sys/class/net/eth2/master", "../bond0");
        machine.put("sys/class/net/bond0/bonding/mode", "802.3ad 4");
        machine.put("sys/class/net/bond0/bonding/slaves", "eth2");
        machine.put(&format!("{DEBUG}/lag/state"), "disabled");
    });
}

#[test]
fn debugfs_that_root_alone_may_read_is_told_so() {
    let machine = Machine::sound();
    machine.put(&format!("{DEBUG}/lag/state"), "active");
    machine.put(&format!("{DEBUG}/cc_params/np_cnp_dscp"), "48");
    machine.allow("sys/kernel/debug", 0);
    let doctor = machine.doctor(&["--json"]);
    let mut command = without("dac_override dac_read_search", &doctor);
    let report = finish(&mut command, 0).report();
    machine.allow("sys/kernel/debug", 0o755);
    for name in ["LAG", "port 1 ECN"] {
        says(&report, name, "unknown", "root alone reads debugfs", "sudo mlx5 doctor");
    }
}

#[test]
fn what_keeps_gpus_memory_away_is_warned_of() {
    let load = |machine: &Machine, modules: &[&str]| {
        for module in modules {
            machine.put(&format!("sys/module/{module}/refcnt"), "0");
        }
    };
    let both = ["nvidia", "nvidia_peermem"];
    breaks(
        "ACS",
        ("warning", "redirected by 0000:3a:00.0, and nvidia is loaded", "ECAP_ACS+6.w=0000"),
        &[],
        |machine| {
            machine.set_access_control(0x1d);
            load(machine, &both);
        },
    );
    breaks("GPU memory", ("warning", "nvidia_peermem is not", "modprobe"), &[], |machine| {
        load(machine, &both[..1]);
    });
    breaks("ACS", ("unknown", "by root alone", "sudo"), &[], |machine| {
        let bridge = "sys/devices/pci0000:3a/0000:3a:00.0/config";
        fs::write(machine.root.join(bridge), [0; 64]).unwrap();
    });
    let machine = Machine::sound();
    machine.set_access_control(0x1d);
    says(&report(&mut machine.doctor(&[]), 0), "ACS", "good", "no driver of a GPU", "");
    load(&machine, &both);
    machine.set_access_control(1);
    let sound = report(&mut machine.doctor(&[]), 0);
    says(&sound, "ACS", "good", "no bridge above redirects", "");
    says(&sound, "GPU memory", "good", "nvidia, by nvidia_peermem", "");
}

#[test]
fn a_limited_member_of_partitions_is_warned_of() {
    breaks(
        "port 1 P_Keys",
        ("warning", "0x7fff: a limited member", "partitions.conf"),
        &[],
        |machine| {
            machine.put(&format!("{DEVICE}/ports/1/pkeys/0"), "0x7fff");
        },
    );
}

#[test]
fn a_gid_of_the_wrong_version_is_named_with_the_right_one() {
    let right = "GID index 3";
    breaks("port 1 GID 2", ("warning", "RoCE v1", right), &["--gid-index", "2"], |_| {});
    breaks(
        "port 1 GID 2",
        ("broken", "2 (192.0.2.1, RoCE v1, eth2) is of RoCE v1, and RoCE v2 is asked for", right),
        &["--gid-index", "2", "--roce", "2"],
        |_| {},
    );
    breaks(
        "port 1 GID 3",
        ("broken", "and RoCE v1 is asked for", "GID index 2"),
        &["--gid-index", "3", "--roce", "1"],
        |_| {},
    );
    breaks("port 1 GID 9", ("broken", "is empty; in use: 0, 1, 2, 3", right), &["-g", "9"], |_| {});
    breaks("port 1 GID 99", ("broken", "beyond the table", right), &["-g", "99"], |_| {});
    let interface = ("broken", "the interface is down", "ip link set dev eth2 up");
    breaks("port 1 GID 3", interface, &["-g", "3"], |machine| {
        machine.put("sys/class/net/eth2/operstate", "down");
    });
    let machine = Machine::sound();
    says(&report(&mut machine.doctor(&["-g", "3"]), 0), "port 1 GID 3", "good", "192.0.2.1", "");
}

#[test]
fn a_gid_of_a_vlan_is_shown_with_its_number() {
    let of_vlan = |interface: &'static str, shown: &'static str, told: Option<&str>| {
        let machine = Machine::sound();
        machine.put(&format!("{DEVICE}/ports/1/gid_attrs/ndevs/3"), interface);
        machine.put(&format!("sys/class/net/{interface}/uevent"), "DEVTYPE=vlan\nIFINDEX=7");
        if let Some(told) = told {
            machine.put(&format!("proc/net/vlan/{interface}"), told);
        }
        says(&report(&mut machine.doctor(&["-g", "3"]), 0), "port 1 GID 3", "good", shown, "");
    };
    of_vlan("eth2.5", "RoCE v2, eth2.5, VLAN 5)", None);
    of_vlan("storage", "storage, VLAN 7)", Some("storage  VID: 7\t REORDER_HDR: 1"));
    of_vlan("storage", "storage, a VLAN)", None);
}

#[test]
fn a_copy_without_nodes_does_not_tell_how_many_there_are() {
    let without = "no sys/devices/system/node";
    breaks("NUMA node", ("unknown", without, "copy"), &[], |machine| {
        machine.remove("sys/devices/system/node");
    });
}

#[test]
fn a_table_without_the_version_says_so() {
    let only_v1 = |machine: &Machine| {
        for index in [1, 3] {
            machine.put(&format!("{DEVICE}/ports/1/gid_attrs/types/{index}"), "IB/RoCE v1");
        }
    };
    breaks("port 1 GIDs", ("warning", "none is of RoCE v2", "--roce 1"), &[], only_v1);
    breaks(
        "port 1 GIDs",
        ("broken", "none is of RoCE v2", "use RoCE v1 on both sides: GID index 2 here"),
        &["--roce", "2"],
        only_v1,
    );
    breaks("port 1 GIDs", ("warning", "link-local", "ip address add"), &[], |machine| {
        machine.put(&format!("{DEVICE}/ports/1/gid_attrs/types/3"), "IB/RoCE v1");
    });
}

#[test]
fn mtus_that_differ_are_warned_of() {
    let peer = |mtu| ["--peer-mtu", mtu];
    let cure = "-m 1024";
    breaks("port 1 peer's MTU", ("warning", "4096 here, 1024 there", cure), &peer("1024"), |_| {});
    let machine = Machine::sound();
    let same = report(&mut machine.doctor(&peer("4096")), 0);
    says(&same, "port 1 peer's MTU", "good", "4096 on both sides", "");
    let wrong = finish(&mut machine.doctor(&peer("1500")), 2);
    assert!(wrong.err.contains("256, 512, 1024"), "{}", wrong.err);
}

#[test]
fn a_processor_that_makes_latency_irregular_is_warned_of() {
    let cpu = "sys/devices/system/cpu";
    let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let performance = "cpupower frequency-set -g performance";
    breaks(
        "frequency",
        ("warning", "powersave on 1 of 8 CPUs, cpu5", performance),
        &[],
        |machine| {
            machine.put(&format!("{cpu}/cpu5/cpufreq/scaling_governor"), "powersave");
        },
    );
    breaks(
        "idle states",
        ("warning", "C6 is allowed, 133 µs", "cpupower idle-set"),
        &[],
        |machine| {
            machine.put(&format!("{cpu}/cpu0/cpuidle/state2/name"), "C6");
            machine.put(&format!("{cpu}/cpu0/cpuidle/state2/latency"), "133");
        },
    );
    breaks("clock source", ("warning", "hpet", "echo tsc"), &[], |machine| {
        machine.put(clock, "hpet");
    });
    breaks("counter", ("warning", "no nonstop_tsc", "invtsc"), &[], |machine| {
        machine.put("proc/cpuinfo", "flags : fpu constant_tsc");
    });
    breaks("counter", ("warning", "no constant_tsc", "invtsc"), &[], |machine| {
        machine.put("proc/cpuinfo", "flags : fpu tsc");
    });
    breaks("isolated CPUs", ("warning", "none", "isolcpus="), &[], |machine| {
        machine.put(&format!("{cpu}/isolated"), "");
    });
}

#[test]
fn a_process_on_the_other_node_is_warned_of() {
    let pin = "numactl --cpunodebind=1";
    breaks("NUMA node", ("warning", "(they are at node 0, distance 21)", pin), &[], |machine| {
        machine.put("proc/self/status", "Cpus_allowed_list:\t0-3");
    });
    breaks("NUMA node", ("warning", "2 of this process's 4 CPUs", pin), &[], |machine| {
        machine.put("proc/self/status", "Cpus_allowed_list:\t2-5");
    });
    breaks("NUMA node", ("warning", "does not tell the device's", "SRAT"), &[], |machine| {
        machine.put(&format!("{CARD}/numa_node"), "-1");
    });
    breaks(
        "interrupts",
        ("warning", "1 of them at CPUs of other nodes", "smp_affinity"),
        &[],
        |machine| {
            machine.put("proc/irq/65/effective_affinity_list", "0");
        },
    );
    breaks(
        "interrupts",
        ("warning", "irqbalance runs", "systemctl stop irqbalance"),
        &[],
        |machine| {
            machine.put("proc/817/comm", "irqbalance");
        },
    );
}

#[test]
fn a_port_that_is_not_asked_for_does_no_harm() {
    let machine = Machine::sound();
    for (name, text) in
        [("state", "1: DOWN"), ("phys_state", "2: Polling"), ("link_layer", "InfiniBand")]
    {
        machine.put(&format!("{DEVICE}/ports/2/{name}"), text);
    }
    let both = report(&mut machine.doctor(&[]), 0);
    says(&both, "port 2 link", "warning", "no signal", "cable");
    let second = report(&mut machine.doctor(&["--port", "2"]), 1);
    says(&second, "port 2 link", "broken", "no signal", "cable");
    let third = report(&mut machine.doctor(&["--port", "3"]), 1);
    says(&third, "port 3 link", "broken", "no port 3", "--port 1");
}

#[test]
fn all_devices_are_examined_and_the_verdicts_come_first() {
    let machine = Machine::sound();
    machine.add_idle_device();
    let printed = finish(&mut machine.doctor(&[]), 1);
    let mut lines = printed.out.lines();
    assert_eq!(
        lines.next(),
        Some("verdict: traffic cannot work on mlx5_1; it can on mlx5_0"),
        "{}",
        printed.out
    );
    for (mark, words) in [
        ("  ok       mlx5_0 ", "nothing was found that keeps traffic"),
        ("  BROKEN   mlx5_1 ", "PCI: driver; access: device node; ports: port 1 link"),
        ("  ok       machine ", "no fault"),
    ] {
        let line = lines.next().unwrap();
        assert!(line.starts_with(mark) && line.contains(words), "{line}");
    }
    let report = finish(machine.doctor(&["--json"]).env_remove("COLUMNS"), 1).report();
    let devices = report["devices"].as_array().unwrap();
    let told = |part: &serde_json::Value| {
        (part["device"].as_str().unwrap().to_owned(), part["traffic_possible"].as_bool().unwrap())
    };
    assert_eq!(
        devices.iter().map(told).collect::<Vec<_>>(),
        [("mlx5_0".to_owned(), true), ("mlx5_1".to_owned(), false)]
    );
    assert_eq!(report["machine"]["traffic_possible"], true);
    let links = report["checks"].as_array().unwrap().iter();
    let links = links.filter(|check| check["check"] == "port 1 link");
    assert_eq!(
        links.map(|check| check["device"].clone()).collect::<Vec<_>>(),
        ["mlx5_0", "mlx5_1"]
    );
    // A machine-wide check is made once.
    let forks = report["checks"].as_array().unwrap().iter();
    let forks: Vec<_> = forks.filter(|check| check["check"] == "fork").collect();
    assert!(matches!(forks[..], [fork] if fork["device"].is_null()), "{forks:?}");

    let one = finish(&mut machine.doctor(&["--device", "mlx5_0"]), 0);
    assert!(!one.out.contains("mlx5_1"), "{}", one.out);
}

#[test]
fn lines_are_as_wide_as_they_may_be() {
    let machine = Machine::sound();
    machine.remove("sys/class/net/eth2/ecn");
    let narrow = finish(machine.doctor(&["-v"]).env("COLUMNS", "80"), 0).out;
    assert_eq!(too_wide(&narrow, 80), [""; 0]);
    let whole = finish(machine.doctor(&["-v"]).env_remove("COLUMNS"), 0).out;
    assert!(whole.lines().any(|line| line.chars().count() > 80));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&narrow), words(&whole));
}

#[test]
fn another_device_can_be_asked_for() {
    let machine = Machine::sound();
    let missing = report(&mut machine.doctor(&["--device", "mlx5_7"]), 1);
    says(&missing, "function", "broken", "there are mlx5_0", "--device mlx5_0");
}

#[test]
fn a_folder_that_is_none_is_an_error() {
    let printed = finish(mlx5(&["doctor", "--root", "/nonexistent"]).env_remove("MLX5_MODEL"), 3);
    assert!(printed.err.contains("/nonexistent is no folder"), "{}", printed.err);
    finish(&mut mlx5(&["doctor", "--root", "/", "--model"]), 2);
}

#[test]
fn an_empty_folder_is_not_called_good() {
    let folder = std::env::temp_dir().join(format!("mlx5-doctor-empty-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let mut command = mlx5(&["doctor", "--root", folder.to_str().unwrap()]);
    let printed = finish(command.env_remove("MLX5_MODEL"), 0);
    assert!(verdict(&printed).contains("no message was sent"), "{}", printed.out);
    let report = report(&mut command, 0);
    assert_eq!(with(&report, "good"), ["IOMMU"; 0], "{report:#}");
    fs::remove_dir(&folder).unwrap();
}

/// Whatever stands in the files: no panic, and a status of the two.
#[test]
fn files_may_hold_anything() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words =
        ["", "-1", "0x", "99999999999999999999", "4: ACTIVE", "0-4294967295", "\u{fffd}", "["];
    for _ in 0..60 {
        let machine = Machine::sound();
        let mut folders = vec![machine.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() && random() % 4 == 0 {
                    let bytes: Vec<u8> = match random() % 3 {
                        0 => (0..random() % 80).map(|_| random() as u8).collect(),
                        1 => words[random() as usize % words.len()]
                            .repeat(1 + random() as usize % 3)
                            .into(),
                        _ => Vec::new(),
                    };
                    fs::write(entry.path(), bytes).unwrap();
                }
            }
        }
        let output =
            machine.doctor(&["--json", "-v", "-g", "2", "--peer-mtu", "512"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)) && said.is_empty(), "{said}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    }
}

#[test]
fn files_with_controls_of_a_terminal_do_it_no_harm() {
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r";
    let machine = Machine::sound();
    let place = format!("{DEVICE}/ports/1");
    for path in ["state", "phys_state", "link_layer", "rate", "lid"] {
        machine.put(&format!("{place}/{path}"), hostile);
    }
    machine.put(&format!("{DEVICE}/fw_ver"), hostile);
    for arguments in [&[][..], &["-v"], &["--json"]] {
        let output = machine.doctor(arguments).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains("]0;owned"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\r', '\u{202e}']), "{text:?}");
    }
}
