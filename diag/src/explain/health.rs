//! Syndromes of the health buffer, in which firmware reports its own failures.

use super::{Explanation, explanation};

/// The source of these: `mlx5_ifc.h`, `MLX5_INITIAL_SEG_HEALTH_SYNDROME_*`, and `health.c`,
/// `hsynd_str`.
pub const SOURCE: &str = "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/drivers/net/ethernet/mellanox/mlx5/core/health.c";

/// A syndrome of the health buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSyndrome {
    /// Its number.
    pub syndrome: u8,
    /// Its name in `mlx5_ifc.h`, without what all begin with.
    pub name: &'static str,
    /// The text that Linux's driver prints for it.
    pub words: &'static str,
    /// The meaning, and the cure.
    pub explanation: Explanation,
}

macro_rules! syndromes {
    ($($number:literal $name:ident $words:literal { $($explanation:tt)* })*) => {
        /// Every syndrome, in the order of numbers.
        pub const SYNDROMES: &[HealthSyndrome] = &[$(HealthSyndrome {
            syndrome: $number,
            name: stringify!($name),
            words: $words,
            explanation: explanation! { $($explanation)* },
        }),*];
    };
}

syndromes! {
    0x01 FW_INTERNAL_ERR "firmware internal error" {
        "The firmware has met an error of its own (an assert).";
        "an error of the firmware" => "update it; send the whole health report to the vendor";
    }
    0x07 DEAD_IRISC "irisc not responding" {
        "A processor on the HCA does not answer.";
        "an error of firmware or hardware" => "power cycle the HCA; update the firmware";
    }
    0x08 HW_FATAL_ERR "unrecoverable hardware error" {
        "The hardware has met an error that it cannot recover from.";
        "a defect, power or heat" => "power cycle; if it comes again, have the HCA replaced";
    }
    0x09 FW_CRC_ERR "firmware CRC error" {
        "The firmware in memory is damaged.";
        "a failed update, or a defect" => "burn the firmware again (mlxfwmanager, mstflint), power cycle";
    }
    0x0a ICM_FETCH_PCI_ERR "ICM fetch PCI error" {
        "The HCA could not read its memory in the host.";
        "errors of the PCIe link, or the IOMMU stopped the HCA"
            => "look for AER and IOMMU lines in the kernel's log; reseat the HCA";
    }
    0x0b ICM_PAGE_ERR "HW fatal error" {
        "A page of the HCA's memory in the host is not there.";
        "the driver took it back too early, or the firmware is wrong about it"
            => "update driver and firmware";
    }
    0x0c ASYNCHRONOUS_EQ_BUF_OVERRUN "async EQ buffer overrun" {
        "Events came faster than the driver took them.";
        "interrupts were held up for long" => "look for soft lockups in the kernel's log";
    }
    0x0d EQ_IN_ERR "EQ error" {
        "An event queue failed.";
        "the HCA could not write it" => "look for PCIe and IOMMU errors in the kernel's log";
    }
    0x0e EQ_INV "Invalid EQ referenced" {
        "An event was for an event queue that does not exist.";
        "an error of driver or firmware" => "update both";
    }
    0x0f FFSER_ERR "FFSER error" {
        "A memory of the HCA had an error (Linux gives no more than the name).";
        "a defect" => "power cycle; if it comes again, have the HCA replaced";
    }
    0x10 HIGH_TEMP_ERR "High temperature" {
        "The HCA is too hot.";
        "too little air, a fan, or an optical module" => "look at `sensors` or `mget_temp`; cool it";
    }
    0x12 ICM_PCI_POISONED_ERR "ICM fetch PCI data poisoned error" {
        "The HCA read memory of the host that was marked as damaged.";
        "an uncorrectable error of the host's memory" => "look for machine checks (EDAC) in the kernel's log";
    }
    0x13 TRUST_LOCKDOWN_ERR "Trust lockdown error" {
        "The HCA has locked itself because something is not trusted.";
        "firmware that is not signed or was tampered with" => "ask the vendor";
    }
}

/// The first word of a health report (`assert_var[0]`) of a BlueField whose firmware got no memory range
/// from its Arm side (NVIDIA's page on troubleshooting of BlueField).
pub(crate) const NO_RANGE: u64 = 0x1e;

/// The syndrome of that number.
#[must_use]
pub fn explain(syndrome: u8) -> Option<&'static HealthSyndrome> {
    SYNDROMES.iter().find(|entry| entry.syndrome == syndrome)
}

/// The syndrome for which Linux's driver prints these words.
#[must_use]
pub fn by_words(text: &str) -> Option<&'static HealthSyndrome> {
    SYNDROMES.iter().find(|entry| text.contains(entry.words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_kernel_log_are_recognized() {
        let line = "Health issue observed, Invalid EQ referenced, severity(3) ERROR:";
        assert_eq!(by_words(line).map(|entry| entry.syndrome), Some(0x0e));
    }

    #[test]
    fn syndromes_are_found_by_number_and_by_words() {
        for pair in SYNDROMES.windows(2) {
            assert!(pair[0].syndrome < pair[1].syndrome, "{pair:?}");
        }
        for entry in SYNDROMES {
            assert_eq!(explain(entry.syndrome), Some(entry));
            assert_eq!(by_words(&format!("observed, {}, severity", entry.words)), Some(entry));
            assert!(!entry.explanation.causes.is_empty());
        }
        assert_eq!(explain(0), None);
        assert_eq!(by_words("nothing"), None);
    }
}
