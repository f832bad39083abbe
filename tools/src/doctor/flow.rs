//! The flow control of a network interface, in words.

use super::{congestion, dcb, ethtool};

/// The flow control of an interface; `None` for what the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Priorities with priority flow control.
    pub(crate) priorities: Option<String>,
    /// Directions with pause frames of the whole link.
    pub(crate) pause: Option<String>,
}

/// Asks the kernel for the flow control of an interface.
pub(crate) fn flow_control(interface: &str) -> Flow {
    let mask = dcb::ask(interface).ok().and_then(|dcb| dcb.flow_control);
    Flow {
        priorities: mask.map(of_mask),
        pause: ethtool::pause(interface).ok().map(|pause| of_pause(pause).to_owned()),
    }
}

fn of_mask(mask: u8) -> String {
    let on: Vec<u8> = (0..8).filter(|bit| mask >> bit & 1 != 0).collect();
    if on.is_empty() { "off".to_owned() } else { format!("on for {}", congestion::shown(&on)) }
}

fn of_pause(pause: ethtool::Pause) -> &'static str {
    match (pause.receives, pause.sends) {
        (true, true) => "receive and send",
        (true, false) => "receive alone",
        (false, true) => "send alone",
        (false, false) => "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_control_is_named_by_priority_and_direction() {
        assert_eq!(of_mask(0), "off");
        assert_eq!(of_mask(0b1000), "on for priority 3");
        let pause = |receives, sends| of_pause(ethtool::Pause { receives, sends });
        assert_eq!(pause(true, false), "receive alone");
        assert_eq!(pause(false, false), "off");
        assert_eq!(flow_control("no such interface"), Flow::default());
    }
}
