//! States of links, devlink's reporters and devices' objects, as tools print them.

use super::{ExplainedCode, Knowledge};

/// A status opcode of a link (register PDDR).
///
/// The opcodes are those of Linux's `mlxsw/reg.h` and `spectrum_ethtool.c`, for the same register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Its number.
    pub opcode: u64,
    /// Its meaning in a few words.
    pub words: &'static str,
    /// What to check first.
    pub check: &'static str,
}

const OTHER_END: &str = "is the other end up, and does it negotiate too? Compare speeds and auto negotiation (`mlxlink -d DEVICE`)";
const FEC: &str = "set the same FEC and speed at both ends (`mlxlink -d DEVICE --fec`, the switch)";
const CABLE: &str =
    "reseat the cable or module, clean the fibre, then exchange it (`mlxlink -d DEVICE -m`)";

macro_rules! statuses {
    ($($opcode:literal $words:literal $check:expr;)*) => {
        const LINKS: &[LinkStatus] =
            &[$(LinkStatus { opcode: $opcode, words: $words, check: $check }),*];
    };
}

statuses! {
    0 "no issue was observed" "nothing: if the link is down, look at the other end";
    1 "the port was closed by a command" "bring it up (`ip link set INTERFACE up`, `mlxlink -d DEVICE -a UP`)";
    2 "auto negotiation found no partner" OTHER_END;
    3 "auto negotiation: the partner did not acknowledge" OTHER_END;
    4 "auto negotiation: the exchange of pages failed" OTHER_END;
    5 "link training: no frame lock" CABLE;
    6 "link training took too long" CABLE;
    7 "link training: the partner is not ready" OTHER_END;
    8 "link training was not completed" CABLE;
    9 "no lock of blocks" FEC;
    10 "no lock of alignment markers" FEC;
    11 "no alignment of lanes" FEC;
    12 "no lock of FC-FEC" FEC;
    13 "no lock of RS-FEC" FEC;
    14 "the other end reports a fault" "look at the other end: it receives nothing, or badly";
    15 "the signal is bad" CABLE;
    16 "the cable is not supported at this speed" "use a cable of the card's list, or a lower speed";
    17 "many physical errors" CABLE;
    32 "the cable does not support the speed" "use another cable, or a lower speed";
    36 "no partner was found at a forced speed" OTHER_END;
    38 "the FEC of both ends differs" FEC;
    39 "both ends have no common mode" OTHER_END;
    1024 "no cable is plugged in" "plug it in until it clicks";
    1027 "the cable or module is not supported" "use a module of the card's list";
    1029 "the module's memory cannot be read" CABLE;
    1030 "the module is too hot" "raise the fan speed";
    1031 "the module has an error" CABLE;
    1032 "the module needs more power than the port gives" "use a module of a lower power class";
}

/// Returns the status of this opcode.
#[must_use]
pub fn link(opcode: u64) -> Option<&'static LinkStatus> {
    LINKS.iter().find(|status| status.opcode == opcode)
}

/// A health reporter of devlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// Its name.
    pub name: &'static str,
    /// What it reports.
    pub reports: &'static str,
    /// What to check first.
    pub check: &'static str,
}

const REPORTERS: &[Reporter] = &[
    Reporter {
        name: "fw",
        reports: "Firmware reported an error that it survived (a syndrome of the health buffer).",
        check: "look for the health report in the kernel's log; `devlink health diagnose DEVICE reporter fw`",
    },
    Reporter {
        name: "fw_fatal",
        reports: "Firmware or hardware failed for good, and the driver recovered the device or gave it up.",
        check: "look for the first health line in the kernel's log; `devlink health dump show DEVICE reporter fw_fatal`",
    },
    Reporter {
        name: "tx",
        reports: "A send queue of the network interface failed or stood still, and was recovered.",
        check: "look for \"TX timeout\" and error CQEs in the kernel's log; `devlink health diagnose DEVICE reporter tx`",
    },
    Reporter {
        name: "rx",
        reports: "A receive queue of the network interface failed or stood still, and was recovered.",
        check: "look for error CQEs in the kernel's log; `devlink health diagnose DEVICE reporter rx`",
    },
    Reporter {
        name: "vnic",
        reports: "Counters of the function's virtual port.",
        check: "`devlink health diagnose DEVICE reporter vnic`, and give its output to mlx5 decode",
    },
];

/// Returns a reporter of this name.
#[must_use]
pub fn reporter(name: &str) -> Option<&'static Reporter> {
    REPORTERS.iter().find(|reporter| reporter.name == name)
}

impl ExplainedCode {
    fn state(code: String, meaning: String, check: &'static str) -> ExplainedCode {
        let (name, source, causes) = (None, None, Vec::new());
        let knowledge = Knowledge::Named;
        ExplainedCode { code, name, meaning, knowledge, source, causes, check: Some(check) }
    }

    /// Explains the status of a link.
    #[must_use]
    pub fn link(status: &LinkStatus) -> ExplainedCode {
        let code = format!("status opcode {}", status.opcode);
        Self::state(code, format!("The port says: {}.", status.words), status.check)
    }

    /// Explains errors of a health reporter.
    #[must_use]
    pub fn reporter(reporter: &Reporter) -> ExplainedCode {
        let code = format!("reporter {}", reporter.name);
        Self::state(code, reporter.reports.to_owned(), reporter.check)
    }

    /// Explains a large number of open contexts.
    #[must_use]
    pub fn contexts() -> ExplainedCode {
        let meaning = "Each opening of a device takes UAR pages, and the device's BAR has some thousands. With so \
                       many contexts, creations of CQs and queue pairs fail with ENOMEM or EINVAL.";
        Self::state(
            "open contexts".to_owned(),
            meaning.to_owned(),
            "which processes hold them: `rdma resource show ctx`; open a device once in a process; a larger \
             PF_LOG_BAR_SIZE (mlxconfig) gives more pages",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_stands_once_and_has_a_check() {
        for pair in LINKS.windows(2) {
            assert!(pair[0].opcode < pair[1].opcode, "{pair:?}");
        }
        assert!(REPORTERS.iter().all(|known| reporter(known.name) == Some(known)));
        assert_eq!(link(2).map(|status| status.opcode), Some(2));
        assert_eq!((link(999), reporter("x")), (None, None));
    }
}
