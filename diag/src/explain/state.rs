//! States of ports, links, devlink's reporters and devices' objects, as tools print them.

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

/// What a listing says of a port.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// Its logical state as it is printed: "Down", "1: DOWN", "PORT_DOWN (1)".
    pub state: &'a str,
    /// Its physical state as it is printed: "Polling", "2: Polling", "DISABLED".
    pub physical: Option<&'a str>,
    /// Whether its link layer is Ethernet, if that is printed.
    pub is_ethernet: Option<bool>,
    /// Its LID.
    pub lid: Option<u16>,
    /// The LID of its subnet manager.
    pub subnet_manager: Option<u16>,
    /// Whether the node GUID of its device is 0.
    pub is_unnamed: bool,
}

/// A state of a port in which it carries no traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The state, in a few words.
    pub title: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// What to check first.
    pub check: &'static str,
}

const NO_MANAGER: PortState = PortState {
    title: "the link is up, and no subnet manager has set the port up",
    meaning: "An InfiniBand port gets its LID and becomes ACTIVE by a subnet manager. Until then it carries no traffic of verbs.",
    check: "does a subnet manager run in this fabric (`sminfo`, `opensm` on one host or switch)? Two hosts cable to \
            cable need one too. Its log tells why it does not set this port up",
};

const NOT_SET_UP: PortState = PortState {
    title: "the link is up, and the subnet manager has not set the port up",
    meaning: "The port knows a subnet manager, which gives it a LID and makes it ACTIVE. Until then it carries no traffic of \
              verbs.",
    check: "a virtual function: does it have GUIDs and the policy `Follow` or `Up` (`ip link set INTERFACE vf N node_guid …, \
            port_guid …, state auto`), and does the subnet manager know virtual ports (virt_enabled of opensm)? Else look \
            at the subnet manager's log",
};

const UNMANAGED: PortState = PortState {
    title: "the port is ACTIVE and has no LID",
    meaning: "The port's LID is 0 or 65535: none was assigned, so other ports cannot address it.",
    check: "look at the subnet manager's log; after a restart of it, `ibstat` again",
};

const UNNAMED: PortState = PortState {
    title: "the device has no node GUID",
    meaning: "The node GUID is 0. librdmacm knows devices by it, and leaves this one out: connections by addresses fail.",
    check: "a virtual function: give it GUIDs (`ip link set INTERFACE vf N node_guid …, port_guid …`, or node and port of \
            /sys/class/infiniband/DEVICE/device/sriov/N), then bind its driver anew",
};

const DISABLED: PortState = PortState {
    title: "the port is disabled",
    meaning: "The port does not try to bring its link up: it was switched off on this side.",
    check: "Ethernet: `ip link set INTERFACE up`, and does the interface have its driver? InfiniBand: `ibportstate -D 0 PORT \
            enable`; `mlxlink -d DEVICE -a UP`",
};

const POLLING: PortState = PortState {
    title: "the port looks for a partner and finds none",
    meaning: "The port is switched on and receives no signal that it can use.",
    check: "is a cable plugged in at both ends, and the other port switched on? Are both of one kind, InfiniBand or \
            Ethernet (`mlxconfig -d DEVICE q | grep LINK_TYPE`)? `mlxlink -d DEVICE -m` shows cable and reason",
};

const TRAINING: PortState = PortState {
    title: "the link is not trained",
    meaning: "The port has found a partner, and speed, width or the lanes are not agreed on, or it recovers from errors.",
    check: "`mlxlink -d DEVICE -m` shows the reason; then another cable or module, and the speeds of both ends",
};

const DOWN: PortState = PortState {
    title: "the port is down",
    meaning: "The port carries no traffic.",
    check: "`ibstat` shows the physical state; Ethernet: `ip link set INTERFACE up`; `mlxlink -d DEVICE -m` shows cable and reason",
};

const DOWN_ETHERNET: PortState = PortState {
    title: "the link is up, and the port is down",
    meaning: "The state of a RoCE port follows its network interface, which is not up or has no carrier.",
    check: "`ip link set INTERFACE up`; `ip link` shows LOWER_UP and a bond that the interface may be part of",
};

const ARMED: PortState = PortState {
    title: "the port is ARMED and not yet ACTIVE",
    meaning: "The subnet manager has set the port up and did not take the last step.",
    check: "wait for some seconds; then look at the subnet manager's log, and for another subnet manager",
};

/// Returns what hinders a port; `None` if nothing does.
#[must_use]
pub fn port(port: &Port<'_>) -> Option<&'static PortState> {
    let state = port.state.to_ascii_lowercase();
    let physical = port.physical.unwrap_or_default().to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| physical.contains(word));
    let no_lid = |lid: Option<u16>| matches!(lid, Some(0 | u16::MAX));
    if port.is_unnamed {
        return Some(&UNNAMED);
    }
    let is_active =
        state.split(|letter: char| !letter.is_ascii_alphabetic()).any(|word| word == "active");
    let is_up = has(&["linkup", "link_up", "link up"]);
    if is_active {
        // A RoCE port has no LID, and says so in other ways.
        let lidless = no_lid(port.lid) && no_lid(port.subnet_manager);
        let unmanaged = port.is_ethernet == Some(false) && lidless;
        return unmanaged.then_some(&UNMANAGED);
    }
    Some(match port.is_ethernet {
        _ if state.contains("arm") => &ARMED,
        Some(true) if is_up => &DOWN_ETHERNET,
        _ if state.contains("init") || is_up => match port.subnet_manager {
            Some(lid) if !no_lid(Some(lid)) => &NOT_SET_UP,
            _ => &NO_MANAGER,
        },
        _ if has(&["disabled", "sleep"]) => &DISABLED,
        _ if has(&["polling"]) => &POLLING,
        _ if has(&["training", "configuration", "recovery", "linkerror", "link_error"]) => {
            &TRAINING
        }
        _ if state.contains("down") => &DOWN,
        _ => return None,
    })
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

    /// Explains a port that carries no traffic.
    #[must_use]
    pub fn port(port: &PortState) -> ExplainedCode {
        Self::state(port.title.to_owned(), port.meaning.to_owned(), port.check)
    }

    /// Explains interfaces of ports that are down.
    #[must_use]
    pub fn interfaces() -> ExplainedCode {
        let meaning = "ibdev2netdev shows the state of network interfaces, and not of ports. An InfiniBand port \
                       without IPoIB is ACTIVE for verbs while its interface is down. A RoCE port needs its interface up.";
        Self::state(
            "interfaces".to_owned(),
            meaning.to_owned(),
            "`ibstat` or `rdma link` shows the ports' own states; RoCE: `ip link set INTERFACE up`, then look at the cable",
        )
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
        let of = |state, physical, is_ethernet, lid| {
            let is_unnamed = false;
            let managed =
                Port { state, physical, is_ethernet, lid, subnet_manager: lid, is_unnamed };
            port(&managed).copied()
        };
        for (printed, physical, ethernet, lid, expected) in [
            ("Down", Some("Polling"), Some(false), Some(u16::MAX), Some(POLLING)),
            ("1: DOWN", Some("3: Disabled"), Some(true), None, Some(DISABLED)),
            ("PORT_DOWN (1)", None, Some(false), Some(0), Some(DOWN)),
            ("Initializing", Some("LinkUp"), Some(false), Some(u16::MAX), Some(NO_MANAGER)),
            ("Down", Some("LinkUp"), None, Some(u16::MAX), Some(NO_MANAGER)),
            ("Down", Some("LinkUp"), Some(false), Some(1), Some(NOT_SET_UP)),
            ("DOWN", Some("LINK_UP"), Some(true), None, Some(DOWN_ETHERNET)),
            ("PORT_ARMED (3)", None, Some(false), Some(2), Some(ARMED)),
            ("Active", Some("LinkUp"), Some(false), Some(0), Some(UNMANAGED)),
            ("Active", Some("LinkUp"), Some(true), Some(0), None),
            ("ACTIVE", Some("LINK_UP"), None, Some(4), None),
            ("Down", Some("LinkErrorRecovery"), None, None, Some(TRAINING)),
        ] {
            assert_eq!(of(printed, physical, ethernet, lid), expected, "{printed} {physical:?}");
        }
        assert_eq!(link(2).map(|status| status.opcode), Some(2));
        assert_eq!((link(999), reporter("x")), (None, None));
    }
}
