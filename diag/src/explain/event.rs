//! Lines of Linux's driver about the device, its power, its modules and its link.

use super::{Explanation, events, explanation};

/// A kind of line of Linux's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// Texts that the line has, all of them. The first one begins the message.
    pub tokens: &'static [&'static str],
    /// The event, in a few words.
    pub title: &'static str,
    /// The meaning, and the cure.
    pub explanation: Explanation,
}

impl KernelEvent {
    /// Returns the text that begins the message.
    pub(crate) fn begins(&self) -> &'static str {
        self.tokens.first().copied().unwrap_or_default()
    }
}

/// Returns the kind of a line; `None` if it is none of these.
#[must_use]
pub fn find(line: &str) -> Option<&'static KernelEvent> {
    EVENTS.iter().find(|event| event.tokens.iter().all(|token| line.contains(token)))
}

/// Returns the kind of an asynchronous event of verbs that a program reports; `None` if the text
/// after "async event" names none.
#[must_use]
pub fn find_async(text: &str) -> Option<&'static KernelEvent> {
    let lower = text.to_ascii_lowercase();
    ASYNC_EVENTS.iter().find(|event| event.tokens.iter().all(|token| lower.contains(token)))
}

/// Declares the event of a line whose numbers a decoder reads.
macro_rules! event {
    ($(#[$meta:meta])* $name:ident $title:literal { $($explanation:tt)* }) => {
        $(#[$meta])*
        pub(crate) const $name: KernelEvent =
            KernelEvent { tokens: &[], title: $title, explanation: explanation! { $($explanation)* } };
    };
}

event! {
    /// Syndrome 1 of a CQ.
    CQ_OVERRUN "a completion queue overran" {
        "A completion came when the queue was full. The queue and all its queue pairs fail.";
        "more requests and receives may complete than the queue has entries"
            => "make the CQ as long as all signaled requests and receives of its queues together; `rdma resource show cq` names its owner";
    }
}
event! {
    /// Syndrome 2 of a CQ.
    CQ_ACCESS "a completion queue's memory was not accessible" {
        "The HCA was refused access to the queue's memory. The queue and all its queue pairs fail.";
        "the queue's memory was unmapped or is not the device's to write"
            => "look for IOMMU lines in the kernel's log, and whether the program frees or forks over the queue's memory";
    }
}
event! {
    /// Any other syndrome of a CQ.
    CQ_OTHER "a completion queue failed" {
        "The HCA could not write a completion, for a reason that is not publicly documented. All its queue pairs fail.";
    }
}
event! {
    /// An error event for a CQ of a network interface.
    CQ_OF_INTERFACE "a completion queue of a network interface failed" {
        "The queue is the driver's own, and no program's. Its channel stands still until the interface is reset.";
        "the driver used its queue wrongly: the line with the syndrome just before tells overrun or access"
            => "update the kernel; `ip link set INTERFACE down`, then up, makes the queue anew";
    }
}

events! {
    /// Asynchronous events by the words of `ibv_event_type_str`, in lower case, and of UCX.
    ASYNC_EVENTS:
    ["port error"] "a port went down" {
        "The port left the state ACTIVE: requests are repeated until their retries are used up.";
        "the link went down: cable, module, switch, or somebody took it down" => "look for module and link lines in the kernel's log; `mlxlink -d DEVICE`";
        "the subnet manager took the port out" => "look at the subnet manager's log";
    }
    ["port active"] "a port came up" {
        "The port is in the state ACTIVE.";
        "nothing is wrong" => "if this alternates with port errors, look for the cable or the module";
    }
    ["dct", "access"] "a target of dynamic connections refused a request" {
        "A peer's request failed on memory of this process, or the target's key was wrong.";
        "a wrong rkey or address, or a region that was deregistered" => "look at the peer's completion: it names address and rkey";
    }
    ["local access violation"] "a queue pair was refused access to memory" {
        "A peer's request, or a receive, named memory that it may not use. The queue pair is in error.";
        "a wrong rkey or address, or missing remote rights" => "look at the peer's completion: it names address and rkey";
        "the region was deregistered too early" => "agree about the end of its use before";
        "the two ends use different path MTUs" => "give both hosts' interfaces one MTU";
    }
    ["invalid request"] "a queue pair received an invalid request" {
        "A peer's request was not allowed on this queue pair, which is in error now.";
        "the queue pair lacks the right for READ, WRITE or atomics" => "set qp_access_flags when it is moved to INIT";
        "more READs in flight than max_dest_rd_atomic" => "raise it, or lower the peer's max_rd_atomic";
    }
    ["srq catastrophic"] "a shared receive queue failed" {
        "No receive of it can be used any more.";
        "a receive WQE that the HCA cannot read" => "look for the first completion with an error";
    }
    ["work queue catastrophic"] "a queue pair failed" {
        "The HCA could not report an error as a completion. The queue pair is in error.";
        "the CQ overflowed or failed" => "make the CQ as long as all queues that use it together";
        "a WQE that the HCA cannot read" => "post no more than the ring holds";
    }
    ["cq error"] "a completion queue failed" {
        "The queue overflowed, or the HCA cannot write it. All its queue pairs fail.";
        "more requests outstanding than the CQ has entries" => "make the CQ as long as all queues that use it together";
    }
    ["local catastrophic"] "the HCA failed" {
        "Every queue of the device fails.";
        "a health error or a reset of the HCA" => "look for health lines in the kernel's log";
    }
    ["last wqe reached"] "a queue pair on a shared receive queue is drained" {
        "The queue pair is in error and takes no more receives.";
        "the connection was closed or failed" => "look for its first completion with an error";
    }
    ["gid table change"] "the GID table changed" {
        "Addresses of the port's interface were added or removed.";
        "an address or a VLAN was changed" => "programs that remember a GID index have to look it up again";
    }
    ["lid change"] "the port's LID changed" {
        "The subnet manager gave the port another LID: connections to the old one fail.";
        "the subnet manager was restarted or replaced" => "connect anew; look at its log";
    }
}

events! {
    /// Every kind of line of Linux's driver, more specific ones before others.
    EVENTS:
    ["Detected insufficient power on the PCIe slot"] "the PCIe slot gives too little power" {
        "The slot advertises less power than card and modules need; ports may stay down.";
        "the slot is configured for, or capable of, 25 W only, and the modules need more"
            => "put the card into a slot of 75 W, or look for the slot's power limit in the BIOS";
        "a riser or an auxiliary power cable is missing or loose" => "reseat it";
        "the module in the port takes more power than the slot has" => "use a passive cable or a module of a lower power class";
    }
    ["PCIe slot power capability was not advertised"] "the PCIe slot does not say how much power it gives" {
        "The card assumes 25 W. Modules that need more may be refused.";
        "the BIOS does not set the slot's power limit" => "update the BIOS; harmless with passive cables";
    }
    ["Port module event[error]", "High Temperature"] "a module is too hot" {
        "The module in the port reported high temperature and may be shut down.";
        "too little air through the card or the cage" => "raise the fan speed; `mlxlink -d DEVICE -m` shows the module's temperature";
        "a defective module" => "exchange it";
    }
    ["Port module event[error]", "Power budget exceeded"] "a module needs more power than the port gives" {
        "The module's power class is above the port's budget, so the module is off.";
        "an optical module of a higher class than card or slot allow" => "use a module or cable from the card's list";
    }
    ["Port module event[error]", "Bus stuck"] "a module's management bus is stuck" {
        "The I2C bus of the cage does not move: data is shorted.";
        "a defective or half inserted module or cable" => "reseat it; exchange it if that does not help";
    }
    ["Port module event[error]", "No EEPROM"] "a module's memory cannot be read" {
        "The module did not answer when its EEPROM was read.";
        "a half inserted or defective module" => "reseat it; exchange it if that does not help";
    }
    ["Port module event[error]", "Unknown identifier"] "a module is of an unknown kind" {
        "The EEPROM names a kind of module that the firmware does not know.";
        "the firmware is older than the module" => "update the firmware, or use a supported module";
    }
    ["Port module event[error]", "part number"] "a module is not on the list of allowed ones" {
        "Firmware allows only some part numbers on this card.";
        "the module is of another vendor" => "use a module from the card's list";
    }
    ["Port module event[error]", "ower"] "a port was powered down for lack of power" {
        "The slot's power does not suffice for the port's module.";
        "the slot gives, or advertises, too little power" => "see the lines about the PCIe slot's power; use another slot";
    }
    ["Port module event[error]"] "a module or cable has an error" {
        "The module of the port reported an error; the text says which.";
        "a defective, unsupported or half inserted module or cable" => "reseat it; exchange it; `mlxlink -d DEVICE -m` shows it";
    }
    ["Port module event", "Cable unplugged"] "a cable was unplugged" {
        "No module is in the port any more.";
        "the cable was pulled, or its connector is loose" => "plug it in until it clicks";
    }
    ["Port module event", "Cable plugged"] "a cable was plugged in" {
        "The port has a module and it is enabled.";
        "nothing is wrong" => "if the link stays down, look at the other end and at speed and FEC";
    }
    ["Port module event", "Cable error"] "a cable has an error" {
        "The module of the port reported an error.";
        "a defective or unsupported module or cable" => "reseat it, then exchange it";
    }
    ["High temperature on sensors"] "the HCA is too hot" {
        "A sensor of the HCA is above its threshold.";
        "too little air: a fan, a blanking plate, a cable in the way" => "look at `sensors` or `mget_temp -d DEVICE`; raise the fan speed";
    }
    ["reached miss count"] "the HCA's health counter stands still" {
        "Firmware did not count on for several polls (2 s each): it hangs, or the HCA does not answer on PCIe.";
        "an error of the firmware" => "look for a health report in the next lines; update the firmware";
        "the PCIe link is gone" => "look for AER, hotplug and \"all ones\" lines; reseat the card";
    }
    ["Fatal error ", " detected"] "the HCA reported a fatal error" {
        "The driver saw a fatal state in the health buffer or on PCIe and starts recovery.";
        "an error of firmware or hardware" => "the health report in the next lines has the syndrome";
        "the HCA is gone from PCIe (1: no answer)" => "look for PCIe AER and hotplug lines before it";
    }
    ["in pre-initializing state, aborting"] "the firmware does not start" {
        "After a reset the firmware stayed in pre-initialization for longer than the driver waits.";
        "the firmware image is damaged, or an update was interrupted" => "burn it again (`flint -d DEVICE -i IMAGE burn`), then power cycle";
        "the HCA hangs" => "power off the host with its standby power, not only reboot";
        "a DPU whose own system is still starting" => "wait until it is up, then load the driver again";
    }
    ["in initializing state, aborting"] "the firmware does not start" {
        "The firmware stayed in initialization for longer than the driver waits.";
        "the HCA hangs or its firmware is damaged" => "power cycle; burn the firmware again";
        "a virtual function whose physical function's driver is not ready" => "load the driver of the physical function first";
    }
    ["Waiting for FW pre-initialization"] "the firmware has not started yet" {
        "The driver waits for the firmware, with the time that is left.";
        "a DPU that starts, or firmware that hangs" => "if it ends in a time-out: power cycle; burn the firmware again";
    }
    ["Waiting for FW initialization"] "the firmware has not started yet" {
        "The driver waits for the firmware, with the time that is left.";
        "firmware that starts slowly or hangs" => "if it ends in a time-out: power cycle; burn the firmware again";
    }
    ["recovered after timeout"] "a command was answered without its interrupt" {
        "Firmware had answered; the driver found the answer after the time limit, by polling.";
        "the interrupt of the command's event queue was lost or masked" => "look at /proc/interrupts and irqbalance; in a guest, at the host's interrupt remapping";
    }
    ["Command completion arrived after timeout"] "a command was answered too late" {
        "Firmware answered after the driver had given the command up.";
        "the firmware is overloaded or hangs at times" => "look for health lines; update the firmware";
    }
    ["async reg mr failed"] "a memory key could not be made" {
        "The driver makes keys in advance; the command was refused or had no memory (-12).";
        "the HCA's memory keys are used up" => "look at `rdma resource show mr`; close programs that register much; restart their jobs";
        "the command was refused" => "the syndrome of CREATE_MKEY in the lines around says why";
    }
    ["Async event for bogus resource"] "an event for an object that is gone" {
        "The HCA reported an event of a queue that the driver has already destroyed.";
        "a program ended while its queues failed" => "harmless; look at the program's own errors";
    }
    ["flow steering can't"] "a steering rule or table could not be removed" {
        "The command that removes it was refused or not answered.";
        "a command failed before, or the device is being reset" => "look for the first refused command or health line";
    }
    ["modify QP ", " to RESET failed"] "a queue pair could not be moved to RESET" {
        "The command was refused or not answered, so the queue pair stays allocated.";
        "the function was reset or taken away" => "look for the first refused command, FLR or health line";
    }
    ["query_mcia_reg failed"] "a module's memory cannot be read" {
        "Firmware refused to read the EEPROM of the module.";
        "no module is in the port, or it does not answer" => "reseat it; `ethtool -m` shows it when it does";
        "the firmware hangs" => "look for command time-outs";
    }
    ["enable hca failed", "mlx5"] "the driver could not start the device" {
        "The command ENABLE_HCA was refused or not answered.";
        "an earlier line has the reason" => "look at the first error line of this device";
    }
    ["health recovery failed"] "the HCA could not be recovered" {
        "The driver tried to bring the device back after a health error and failed.";
        "the HCA or its PCIe link does not answer" => "look for the first health line; power cycle";
    }
    ["failed to create async EQ", "mlx5"] "the driver could not make its event queues" {
        "A command for an event queue was refused.";
        "driver and firmware do not fit, or a capability was misread" => "look at the refused command before it; update the firmware or the kernel";
    }
    ["PCIe Bus Error: severity=Uncorrectable", "mlx5"] "PCIe reported an uncorrectable error" {
        "The link or a device on it failed a transaction.";
        "a bad slot, riser or card" => "reseat the card; try another slot; look at `lspci -vv` (UESta)";
        "the HCA was reset or hangs" => "look for health lines";
    }
    ["PCIe Bus Error: severity=Correct", "mlx5"] "PCIe corrected an error" {
        "The link repeated a transaction. Data is not harmed; many of these cost speed.";
        "a marginal slot, riser or connector" => "reseat the card; watch the rate in `lspci -vv` (CESta)";
    }
    ["Port module event", "absent"] "a port has no module" {
        "No module is in the cage.";
        "the port is not used" => "plug a module in, or ignore it";
    }
    ["NETDEV WATCHDOG", "mlx5"] "a transmit queue stands still" {
        "The kernel's packets were not completed for several seconds.";
        "an interrupt was lost, or its processor was busy" => "\"Recovered … eqes\" in the next lines says so; look at /proc/interrupts and for soft lockups";
        "the link does not take packets: pause frames from the switch" => "look at `ethtool -S` for rx_pause and tx_pause storms";
        "the HCA or its firmware hangs" => "look for command time-outs and health lines";
    }
    ["TX timeout detected"] "a transmit queue stands still" {
        "mlx5e found a queue whose packets were not completed, and starts to recover it.";
        "an interrupt was lost, or its processor was busy" => "\"Recovered … eqes\" in the next lines says so";
        "the HCA or its firmware hangs" => "look for command time-outs and health lines";
    }
    ["TX timeout on queue"] "a transmit queue stands still" {
        "The line has the numbers of queue and CQ, and how far producer and consumer are.";
        "an interrupt was lost, or its processor was busy" => "\"Recovered … eqes\" says so";
        "the HCA or its firmware hangs" => "look for command time-outs and health lines";
    }
    ["Recovered ", " EQEs on"] "events were found that no interrupt had announced" {
        "The driver polled the commands' event queue and found answers: their interrupt was lost or late.";
        "the interrupt's processor was busy or the interrupt is masked" => "look at /proc/interrupts, irqbalance and soft lockups";
    }
    ["Recovered ", " eqes on EQ"] "events were found that no interrupt had announced" {
        "The driver polled an event queue and found events: their interrupt was lost or late.";
        "the interrupt's processor was busy or the interrupt is masked" => "look at /proc/interrupts, irqbalance and soft lockups";
    }
    ["failed reclaiming pages"] "the HCA does not give pages back" {
        "Firmware refused or did not answer when the driver took host memory back.";
        "a command timed out before" => "look for the first command time-out or health line";
    }
    ["page allocation failure", "mlx5"] "the kernel has no memory for the driver" {
        "An allocation of the driver failed.";
        "memory is fragmented or used up" => "raise vm.min_free_kbytes; look for the memory's users; smaller rings (`ethtool -G`)";
    }
    ["give_pages"] "the HCA asked for pages and did not get them" {
        "The firmware's own memory in the host could not be supplied.";
        "the host or the function has too little memory, or the command failed" => "look for allocation failures and command errors before it";
    }
    ["No done completion"] "a command was not answered" {
        "Firmware did not answer a command within the time limit.";
        "the firmware hangs" => "look for health lines; update the firmware; reset the device (`devlink dev reload`)";
        "the event's interrupt was lost" => "\"Recovered\" in the next lines says so; look at /proc/interrupts";
    }
    ["mlx5_load_one failed"] "the driver could not start the device" {
        "The start-up of the device ended with an error.";
        "an earlier line has the reason: firmware does not answer, a command was refused, or memory" => "look at the first error line of this device";
        "driver and firmware are too far apart in age" => "update the firmware, or use a newer kernel";
    }
    ["probe", "failed with error", "mlx5"] "the driver could not start the device" {
        "The driver gave the device up, with an errno: -110 time-out, -12 memory, -22 a refused command, -5 input/output.";
        "an earlier line has the reason" => "look at the first error line of this device";
    }
    ["handle_hca_cap", "failed"] "the device's capabilities could not be set" {
        "The first commands of the driver were refused.";
        "driver and firmware are too far apart in age" => "update the firmware, or use a newer kernel's driver";
    }
    ["pci_err_detected"] "the PCIe bus reported an error of the device" {
        "The kernel's PCIe error recovery has stopped the device and resets it.";
        "a bad PCIe link: card, slot, riser" => "look at the AER lines; reseat the card; try another slot";
    }
    ["health recovery flow aborted"] "the device could not be recovered" {
        "The driver gave its recovery up.";
        "the HCA does not answer on PCIe, or recovers too often" => "power cycle; look for the first health line";
    }
    ["device's health compromised"] "the HCA's health is compromised" {
        "The driver found the device in a bad state.";
        "an error of firmware or hardware" => "the health report in the next lines has the syndrome";
    }
    ["handling bad device here"] "the driver takes the device out of service" {
        "A health error is handled: all queues fail, and the device is reset.";
        "an error of firmware or hardware" => "the health report before it has the syndrome";
    }
    ["available PCIe bandwidth, limited by", "mlx5"] "the PCIe link is slower than the card" {
        "The slot or a bridge before it has fewer lanes or a lower speed than the card.";
        "the card is in a slot of fewer lanes, or the link trained down" => "`mlx5 doctor`, `lspci -vv` (LnkSta); another slot; reseat";
    }
    ["PCIe width is lower than device's capability"] "the PCIe link is slower than the card" {
        "The slot or a bridge before it has fewer lanes than the card. `x0` in the next line: no link is seen, as within a virtual machine.";
        "the card is in a slot of fewer lanes, or the link trained down" => "`mlx5 doctor`, `lspci -vv` (LnkSta); another slot; reseat";
    }
    ["mlx5_core", "Error cqe on cqn 0x"] "a request of a network interface failed" {
        "The line is not complete: the syndrome and the queue are left out.";
        "the PCIe slot of the card was stopped or reset" => "look for AER and DPC lines (`containment event`) before it";
        "a frame that the HCA does not take" => "take the whole line, and the \"WQE DUMP\" after it";
    }
    ["CQ overrun on", "mlx5"] "a completion queue overflowed" {
        "The HCA had a completion and the queue was full; its queue pairs fail.";
        "more requests outstanding than the CQ has entries" => "make the CQ as long as all queues that use it together";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_found_by_its_own_tokens() {
        for event in EVENTS {
            let line = format!("mlx5_core 0000:01:00.0: {} x", event.tokens.join(" x "));
            let found = find(&line).unwrap_or_else(|| panic!("{line}"));
            // A more specific event may stand before.
            assert_eq!(found.tokens[0], event.tokens[0], "{line}");
            assert!(!event.explanation.causes.is_empty());
        }
        assert_eq!(find("mlx5_core 0000:01:00.0: firmware version: 16.35.2000"), None);
        for event in ASYNC_EVENTS {
            let found = find_async(&event.tokens.join(" ")).expect(event.title);
            assert_eq!(found, event);
            assert!(!event.explanation.causes.is_empty());
        }
        assert_eq!(find_async("all is well"), None);
    }
}
