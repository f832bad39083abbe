//! Device capabilities from verbs: numbers by the names of the header, flags in words.

use std::fmt;

use mlx5_sys::verbs::ibv_device_attr_ex;

use super::Context;
use crate::error::Result;

/// Every number that verbs report of a device, by its name in `ibv_device_attr` and
/// `ibv_device_attr_ex` (`infiniband/verbs.h`), members of structures with a dot: `max_qp`,
/// `rss_caps.rx_hash_function`. A kernel or library that does not know a number reports zero, too.
///
/// Its `Display` lists all, a line each, with the names of flags.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// let capabilities = context.verbs_capabilities()?;
/// // Every value that libibverbs and libmlx5 tell, by the name that their headers give it.
/// let (name, value) = capabilities.iter().next().ok_or("none")?;
/// assert_eq!(capabilities.get(name), Some(value));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_device_attr_ex", "mlx5dv_context"))]
#[derive(Clone, PartialEq, Eq)]
pub struct VerbsCapabilities {
    numbers: Vec<(&'static str, u64)>,
}

/// Bits of a field of flags, and their names.
type Bits = &'static [(u32, &'static str)];

/// `enum ibv_device_cap_flags`, and those of 64 bits
const DEVICE: Bits = &[
    (0, "RESIZE_MAX_WR"),
    (1, "BAD_PKEY_CNTR"),
    (2, "BAD_QKEY_CNTR"),
    (3, "RAW_MULTI"),
    (4, "AUTO_PATH_MIG"),
    (5, "CHANGE_PHY_PORT"),
    (6, "UD_AV_PORT_ENFORCE"),
    (7, "CURR_QP_STATE_MOD"),
    (8, "SHUTDOWN_PORT"),
    (9, "INIT_TYPE"),
    (10, "PORT_ACTIVE_EVENT"),
    (11, "SYS_IMAGE_GUID"),
    (12, "RC_RNR_NAK_GEN"),
    (13, "SRQ_RESIZE"),
    (14, "N_NOTIFY_CQ"),
    (17, "MEM_WINDOW"),
    (18, "UD_IP_CSUM"),
    (20, "XRC"),
    (21, "MEM_MGT_EXTENSIONS"),
    (23, "MEM_WINDOW_TYPE_2A"),
    (24, "MEM_WINDOW_TYPE_2B"),
    (25, "RC_IP_CSUM"),
    (26, "RAW_IP_CSUM"),
    (29, "MANAGED_FLOW_STEERING"),
    (34, "RAW_SCATTER_FCS"),
    (36, "PCI_WRITE_END_PADDING"),
];
/// `enum ibv_odp_general_caps`
const ON_DEMAND: Bits = &[(0, "SUPPORT"), (1, "SUPPORT_IMPLICIT")];
/// `enum ibv_odp_transport_cap_bits`
const ON_DEMAND_TRANSPORT: Bits =
    &[(0, "SEND"), (1, "RECV"), (2, "WRITE"), (3, "READ"), (4, "ATOMIC"), (5, "SRQ_RECV")];
/// `enum ibv_qp_type`
const QP_TYPES: Bits = &[(2, "RC"), (3, "UC"), (4, "UD"), (8, "RAW_PACKET"), (9, "XRC_SEND")];
/// `enum ibv_rx_hash_function_flags`
const HASHES: Bits = &[(0, "TOEPLITZ")];
/// `enum ibv_rx_hash_fields`
const HASHED: Bits = &[
    (0, "SRC_IPV4"),
    (1, "DST_IPV4"),
    (2, "SRC_IPV6"),
    (3, "DST_IPV6"),
    (4, "SRC_PORT_TCP"),
    (5, "DST_PORT_TCP"),
    (6, "SRC_PORT_UDP"),
    (7, "DST_PORT_UDP"),
    (8, "IPSEC_SPI"),
    (31, "INNER"),
];
/// `enum ibv_raw_packet_caps`
const RAW_PACKET: Bits =
    &[(0, "CVLAN_STRIPPING"), (1, "SCATTER_FCS"), (2, "IP_CSUM"), (3, "DELAY_DROP")];
/// `enum ibv_tm_cap_flags`
const TAGS: Bits = &[(0, "RC")];
/// `enum ibv_pci_atomic_op_size`
const ATOMIC_SIZES: Bits = &[(0, "4_BYTES"), (1, "8_BYTES"), (2, "16_BYTES")];

/// The fields that are flags.
const FLAGS: &[(&str, Bits)] = &[
    ("device_cap_flags", DEVICE),
    ("device_cap_flags_ex", DEVICE),
    ("odp_caps.general_caps", ON_DEMAND),
    ("odp_caps.rc_odp_caps", ON_DEMAND_TRANSPORT),
    ("odp_caps.uc_odp_caps", ON_DEMAND_TRANSPORT),
    ("odp_caps.ud_odp_caps", ON_DEMAND_TRANSPORT),
    ("xrc_odp_caps", ON_DEMAND_TRANSPORT),
    ("tso_caps.supported_qpts", QP_TYPES),
    ("rss_caps.supported_qpts", QP_TYPES),
    ("rss_caps.rx_hash_function", HASHES),
    ("rss_caps.rx_hash_fields_mask", HASHED),
    ("packet_pacing_caps.supported_qpts", QP_TYPES),
    ("raw_packet_caps", RAW_PACKET),
    ("tm_caps.flags", TAGS),
    ("pci_atomic_caps.fetch_add", ATOMIC_SIZES),
    ("pci_atomic_caps.swap", ATOMIC_SIZES),
    ("pci_atomic_caps.compare_swap", ATOMIC_SIZES),
];

/// Returns the names of the set bits, and a number for bits without a name.
pub(super) fn words(bits: Bits, value: u64) -> Vec<String> {
    let known = bits.iter().fold(0, |known, (bit, _)| known | 1u64 << bit);
    let named = bits.iter().filter(|(bit, _)| value >> bit & 1 != 0);
    let mut words: Vec<String> = named.map(|(_, name)| (*name).to_owned()).collect();
    if value & !known != 0 {
        words.push(format!("{:#x}", value & !known));
    }
    words
}

impl Context {
    /// Queries the device's capabilities by verbs. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias("ibv_query_device_ex", "mlx5dv_query_device"))]
    pub fn verbs_capabilities(&self) -> Result<VerbsCapabilities> {
        Ok(VerbsCapabilities::new(&self.extended_attributes()?))
    }
}

impl VerbsCapabilities {
    fn new(raw: &ibv_device_attr_ex) -> VerbsCapabilities {
        let first = &raw.orig_attr;
        let mut numbers: Vec<(&'static str, u64)> = Vec::new();
        macro_rules! signed {
            // Limits that do not fit their type come as negative numbers.
            ($($name:ident),*) => {
                numbers.extend([$((stringify!($name), u64::from(first.$name as u32))),*]);
            };
        }
        macro_rules! of {
            ($structure:ident: $($name:ident),*) => {
                numbers.extend([$((
                    concat!(stringify!($structure), ".", stringify!($name)),
                    u64::from(raw.$structure.$name),
                )),*]);
            };
        }
        numbers.extend([
            ("max_mr_size", first.max_mr_size),
            ("page_size_cap", first.page_size_cap),
            ("device_cap_flags", first.device_cap_flags.into()),
        ]);
        signed!(
            max_qp,
            max_qp_wr,
            max_sge,
            max_sge_rd,
            max_cq,
            max_cqe,
            max_mr,
            max_pd,
            max_qp_rd_atom,
            max_ee_rd_atom,
            max_res_rd_atom,
            max_qp_init_rd_atom,
            max_ee_init_rd_atom,
            atomic_cap,
            max_ee,
            max_rdd,
            max_mw,
            max_raw_ipv6_qp,
            max_raw_ethy_qp,
            max_mcast_grp,
            max_mcast_qp_attach,
            max_total_mcast_qp_attach,
            max_ah,
            max_fmr,
            max_map_per_fmr,
            max_srq,
            max_srq_wr,
            max_srq_sge,
            max_pkeys,
            local_ca_ack_delay
        );
        let on_demand = &raw.odp_caps.per_transport_caps;
        numbers.extend([
            ("odp_caps.general_caps", raw.odp_caps.general_caps),
            ("odp_caps.rc_odp_caps", on_demand.rc_odp_caps.into()),
            ("odp_caps.uc_odp_caps", on_demand.uc_odp_caps.into()),
            ("odp_caps.ud_odp_caps", on_demand.ud_odp_caps.into()),
            ("xrc_odp_caps", raw.xrc_odp_caps.into()),
            ("completion_timestamp_mask", raw.completion_timestamp_mask),
            ("hca_core_clock", raw.hca_core_clock),
            ("device_cap_flags_ex", raw.device_cap_flags_ex),
            ("max_wq_type_rq", raw.max_wq_type_rq.into()),
            ("raw_packet_caps", raw.raw_packet_caps.into()),
            ("max_dm_size", raw.max_dm_size),
        ]);
        of!(tso_caps: max_tso, supported_qpts);
        of!(rss_caps: supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size,
            rx_hash_fields_mask, rx_hash_function);
        of!(packet_pacing_caps: qp_rate_limit_min, qp_rate_limit_max, supported_qpts);
        of!(tm_caps: max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge);
        of!(cq_mod_caps: max_cq_count, max_cq_period);
        of!(pci_atomic_caps: fetch_add, swap, compare_swap);
        VerbsCapabilities { numbers }
    }

    /// All, in the order of the header but for what belongs together.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.numbers.iter().copied()
    }

    /// One by its name in the header; `None` if there is no such name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the flags that are set in a field, by the names of the header without its prefixes,
    /// with a number for bits that have none; `None` if the field does not have flags.
    pub fn flags(&self, name: &str) -> Option<Vec<String>> {
        let (_, bits) = FLAGS.iter().find(|(known, _)| *known == name)?;
        Some(words(bits, self.get(name)?))
    }
}

impl fmt::Display for VerbsCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let between = if at == 0 { "" } else { "\n" };
            match self.flags(name) {
                Some(flags) => write!(f, "{between}{name} = {value:#x}: {}", flags.join(" "))?,
                None => write!(f, "{between}{name} = {value}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for VerbsCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
