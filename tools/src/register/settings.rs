//! Settings in flash, which count from the next start of the firmware on: register MNVDA.
//!
//! Only the groups that Linux's driver knows (`lib/nv_param.c`) have a public layout. `mlxconfig` shows
//! all, by a description of each firmware.

use mlx5::devx::ifc::{
    Field, mnvda_reg, nv_global_pci_cap as cap, nv_global_pci_conf as pci,
    nv_sw_offload_conf as offload,
};
use serde::{Serialize, Serializer};

use super::{Registers, Told};

/// A group of settings of the whole device: its number, its bytes, and its fields by the kernel's
/// names.
struct Group {
    number: u64,
    size: usize,
    fields: &'static [(&'static str, Field)],
}

const GROUPS: [Group; 3] = [
    Group {
        number: 0x10a,
        size: offload::SIZE,
        fields: &[
            ("uctx_en", offload::UCTX_EN),
            ("cqe_compression", offload::CQE_COMPRESSION),
            ("pci_atomic_mode", offload::PCI_ATOMIC_MODE),
            ("ar_enable", offload::AR_ENABLE),
            ("sr_enable", offload::SR_ENABLE),
            ("mkey_by_name", offload::MKEY_BY_NAME),
            ("one_qp_per_recovery", offload::ONE_QP_PER_RECOVERY),
            ("log_max_outstanding_wqe", offload::LOG_MAX_OUTSTANDING_WQE),
            ("log_tx_psn_win", offload::LOG_TX_PSN_WIN),
            ("vf_migration", offload::VF_MIGRATION),
            ("ptp_cyc2realtime", offload::PTP_CYC2REALTIME),
            ("vector_calc_disable", offload::VECTOR_CALC_DISABLE),
            ("prio_tag_required_en", offload::PRIO_TAG_REQUIRED_EN),
            ("ip_over_vxlan_en", offload::IP_OVER_VXLAN_EN),
            ("ip_over_vxlan_port", offload::IP_OVER_VXLAN_PORT),
            ("tunnel_ecn_copy_offload_disable", offload::TUNNEL_ECN_COPY_OFFLOAD_DISABLE),
            ("tunnel_udp_entropy_proto_disable", offload::TUNNEL_UDP_ENTROPY_PROTO_DISABLE),
            ("esw_fdb_ipv4_ttl_modify_enable", offload::ESW_FDB_IPV4_TTL_MODIFY_ENABLE),
            ("lro_log_timeout0", offload::LRO_LOG_TIMEOUT0),
            ("lro_log_timeout1", offload::LRO_LOG_TIMEOUT1),
            ("lro_log_timeout2", offload::LRO_LOG_TIMEOUT2),
            ("lro_log_timeout3", offload::LRO_LOG_TIMEOUT3),
        ],
    },
    Group {
        number: 0x80,
        size: pci::SIZE,
        fields: &[
            ("sriov_en", pci::SRIOV_EN),
            ("total_vfs", pci::TOTAL_VFS),
            ("per_pf_total_vf", pci::PER_PF_TOTAL_VF),
        ],
    },
    Group {
        number: 0x81,
        size: cap::SIZE,
        fields: &[
            ("sriov_support", cap::SRIOV_SUPPORT),
            ("max_vfs_per_pf", cap::MAX_VFS_PER_PF),
            ("per_pf_total_vf_supported", cap::PER_PF_TOTAL_VF_SUPPORTED),
        ],
    },
];

/// Settings by the kernel's names.
#[derive(Debug)]
pub struct Settings(pub Vec<(&'static str, u64)>);

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Settings {
    /// Returns a value by its name.
    pub fn of(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

impl Registers<'_> {
    /// Reads the settings of all known groups.
    pub fn settings(&self) -> Told<Settings> {
        self.groups().map(Settings).into()
    }

    fn groups(&self) -> Result<Vec<(&'static str, u64)>, String> {
        let mut values = Vec::new();
        for Group { number, size, fields } in &GROUPS {
            let set = [(mnvda_reg::PARAMETER_INDEX, *number), (mnvda_reg::LENGTH, *size as u64)];
            let register = self.read(0x9024, mnvda_reg::SIZE, &set)?;
            let content = &register[mnvda_reg::CONFIGURATION_ITEM_DATA.bytes()];
            values.extend(fields.iter().map(|(name, field)| (*name, field.get(content))));
        }
        Ok(values)
    }
}
