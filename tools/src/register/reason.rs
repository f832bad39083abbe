//! Meanings of codes in registers of the link.
//!
//! Codes and names: mstflint's `register_access_table.adb` (PDDR) and `mlxlink_maps.cpp` (PPLM).

/// Returns what helps against a code of PDDR's troubleshooting page; `None` where nothing is wrong,
/// or the code says too little.
pub fn cure(code: u16) -> Option<&'static str> {
    Some(match code {
        1 | 1033 | 1034 => "switch the port on: `ip link set INTERFACE up`, or `ibportstate`",
        2..=4 | 38 | 39 | 60 | 69 => {
            "auto-negotiation fails: set the same speed and auto-negotiation on both ends"
        }
        5..=8 | 62..=66 => "link training fails: try another cable, then another port",
        9..=13 => "the two ends differ: set the same speed and FEC on both",
        14 => "the peer reports a fault: look at its end",
        15 | 17 | 42 | 48 | 49 | 52 | 57 | 70 => {
            "the signal is bad: clean and reseat the cable, then replace it"
        }
        16 | 24..=32 => "the cable does not carry this protocol or speed: use another one",
        1024 => "plug in the cable or module",
        1025 | 1027..=1029 => "the device does not support this cable or module: use another one",
        1026 | 1031 => "the cable or module has a short circuit: replace it",
        1030 => "the module is too hot: look at the airflow",
        1032 | 1035 | 1040 => {
            "the module gets too little power: look at the slot's power and the module's class"
        }
        1042 | 1047 | 1048 | 1050..=1053 => "the module failed: reseat it, then replace it",
        _ => return None,
    })
}

/// Returns the reason of the last loss of the link; `None` if there was none.
pub fn of_loss(code: u8) -> Option<String> {
    let known = match code {
        0 => return None,
        1 => "unknown",
        2 => "too many bit errors",
        3 => "loss of block lock",
        4 => "loss of alignment",
        5 => "loss of FEC synchronization",
        6 => "loss of PLL lock",
        7 => "FIFO overflow",
        9 => "too many minor errors",
        10 => "time-out of physical retransmission",
        11 => "heartbeat errors",
        12 => "credit watchdog of the link layer",
        13 => "integrity threshold of the link layer",
        14 => "buffer overrun of the link layer",
        15..=18 | 22 => "taken down by command",
        20 => "the peer reported a fault",
        21 => "the peer asked for it (TS1)",
        23 => "the cable was unplugged",
        24 => "the cable could not be accessed",
        25 => "the module was too hot",
        26 => "the module drew too much current",
        27 => "power budget",
        28..=31 | 39 => "recovery after errors",
        32..=34 | 36 | 37 => "taken down by the peer",
        35 => "the peer was too hot",
        43 => "too many recoveries of the link",
        47 => "too many symbol errors",
        50 => "a local fault",
        60 => "the module was reset, or went to low power",
        other => return Some(format!("reason {other}")),
    };
    Some(known.to_owned())
}

/// Returns the error correction of a mask with one bit; `None` for an empty mask.
pub fn correction(mask: u32) -> Option<String> {
    let bit = mask.checked_ilog2()?;
    Some(match bit {
        0 => "none".to_owned(),
        1 => "Firecode".to_owned(),
        2 => "RS(528,514)".to_owned(),
        3 => "low-latency RS(271,257)".to_owned(),
        4 => "interleaved quad RS(544,514)".to_owned(),
        5 => "interleaved quad RS(546,516) with PLR".to_owned(),
        6 => "interleaved RS(544,514)".to_owned(),
        7 => "RS(544,514)".to_owned(),
        8 => "interleaved octet RS(546,516) with PLR".to_owned(),
        9 => "low-latency RS(272,257+1)".to_owned(),
        10 => "interleaved low-latency RS(272,257+1)".to_owned(),
        11 => "interleaved RS(544,514) with PLR".to_owned(),
        12 => "RS(544,514) with PLR".to_owned(),
        13 => "low-latency RS(271,257) with PLR".to_owned(),
        14 => "low-latency RS(272,257+1) with PLR".to_owned(),
        other => format!("mode {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_link_have_meaning_and_cure() {
        assert_eq!(cure(0), None);
        assert!(cure(1024).unwrap().contains("plug in"));
        assert!(cure(1030).unwrap().contains("airflow"));
        assert_eq!(of_loss(0), None);
        assert_eq!(of_loss(23).unwrap(), "the cable was unplugged");
        assert_eq!(of_loss(200).unwrap(), "reason 200");
    }

    #[test]
    fn the_error_correction_is_the_bit_of_a_mask() {
        assert_eq!(correction(0), None);
        assert_eq!(correction(1).unwrap(), "none");
        assert_eq!(correction(1 << 7).unwrap(), "RS(544,514)");
        assert_eq!(correction(1 << 23).unwrap(), "mode 23");
    }
}
