//! Settings for a program that has the model linked in.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::driver::poll;
use super::driver::running::Running;
use super::tree::config::{Mode, can_trap};
use super::tree::discovery::{Discovery, discovery};
use super::tree::netdev::Netdev;
use crate::card::{Card, CounterSets, Timeouts};
use crate::fabric::udp::Addresses;
use crate::fault::{Faults, RuleError, Tally};
use crate::wire::gid;

/// Set by [`set_mode`]; 0 where the environment decides.
static MODE: AtomicU8 = AtomicU8::new(0);

/// Why a mode cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stores to registers cannot be trapped on this processor or under valgrind; use Mode::Polled"
)]
pub struct Unavailable;

/// Sets how stores to registers are noticed, for every device this process opens from now on.
/// Devices that are open keep theirs.
///
/// # Errors
/// [`Unavailable`] for [`Mode::Trapped`] on processors other than x86-64 and arm64, and under valgrind.
pub fn set_mode(mode: Mode) -> Result<(), Unavailable> {
    let value = match mode {
        Mode::Trapped if !can_trap() => return Err(Unavailable),
        Mode::Trapped => 1,
        Mode::Polled => 2,
        Mode::Manual => 3,
    };
    MODE.store(value, Ordering::Release);
    Ok(())
}

/// How stores are noticed on devices that are opened now.
pub(super) fn mode() -> Mode {
    match (MODE.load(Ordering::Acquire), discovery()) {
        (1, _) => Mode::Trapped,
        (2, _) => Mode::Polled,
        (3, _) => Mode::Manual,
        (_, Discovery::On(offer)) => offer.config.mode,
        _ => Mode::Polled,
    }
}

/// Lets the cards execute everything that was posted since the last call to the devices that this
/// thread opened in [`Mode::Manual`]. Devices that other threads opened are theirs to run, so tests that
/// a process runs at the same time do not disturb each other.
///
/// Doorbells of several posts before one call count as one, like the last of them: a card looks
/// at the doorbell records anyway. Costs nothing for devices in other modes.
pub fn run() {
    if let Some(running) = Running::current() {
        poll::run(&running.registers);
    }
}

/// Whether devices that this process finds are the model's. Decides now if it was not decided yet:
/// see the variables in the crate's documentation.
pub fn offered() -> bool {
    matches!(discovery(), Discovery::On(_))
}

/// Returns the profile of the model's devices and where its values are from, as `profile cx6dx, sourced`.
/// `None` if devices that this process finds are not the model's. Decides now if it was not decided yet.
pub fn profile() -> Option<&'static str> {
    match discovery() {
        Discovery::On(offer) => Some(offer.config.profile.summary()),
        Discovery::Off | Discovery::Refused(_) => None,
    }
}

/// Returns why the model offers no device although the environment asks for it: a sentence with the
/// variable and the cure. `None` if it offers devices, or was not asked to. Decides now if it was not
/// decided yet.
pub fn refusal() -> Option<&'static str> {
    match discovery() {
        Discovery::Refused(reason) => Some(reason),
        Discovery::Off | Discovery::On(_) => None,
    }
}

/// Plugs in the cable of this process' slice of a device's port, or pulls it: programs get
/// `IBV_EVENT_PORT_ACTIVE` or `IBV_EVENT_PORT_ERR`, see the port's state, and lose packets while it is
/// down. Returns whether there is such a device, and this process has opened one.
pub fn set_port(device: usize, up: bool) -> bool {
    with_card(device, |card| card.set_port(up)).is_some()
}

/// Why the addresses of a port cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FixedAddresses {
    /// The port is one of InfiniBand.
    #[error("a port of InfiniBand has no IP address; set MLX5_MODEL_LINK=roce")]
    InfiniBand,
    /// The port is on an interface of the machine, and follows its addresses.
    #[error(
        "the port follows the addresses of {0}; change those: `ip address add ADDRESS/24 dev {0}`"
    )]
    Interface(&'static str),
    /// There is no such VLAN.
    #[error("VLAN {0} does not exist; a VLAN has a number from 1 to 4094")]
    Vlan(u16),
}

/// Sets the IP addresses of this process' slice of a RoCE port that is on no interface of the machine,
/// in place of its earlier ones: its GID table has entries of RoCE v1 and v2 for each, at the places that
/// Linux gives them, and those of the default GID. Programs get `IBV_EVENT_GID_CHANGE` for each entry
/// that is added or removed. Addresses that find no free entry are left out. A forked child that opens the
/// device begins with the first addresses again. Returns whether there is such a device, and this process
/// has opened one.
///
/// # Errors
/// [`FixedAddresses`] if the port has no such addresses.
pub fn set_addresses(device: usize, addresses: &[IpAddr]) -> Result<bool, FixedAddresses> {
    let own = gids(addresses);
    change_addresses(device, |_, known| known.own = own)
}

/// Sets the IP addresses that this process' slice of a RoCE port has in a VLAN, as [`set_addresses`] does
/// for those without a VLAN: in the place of the VLAN's earlier ones. Their packets have the VLAN's tag. The
/// entries of the GID table are those of an interface on top of the port's, as `mlx5view0.5` for VLAN 5 of
/// the first device. It is there as long as it has addresses. A link-local address is one of them only if
/// it is in the list.
///
/// # Errors
/// [`FixedAddresses`] if the port has no such addresses, or the number is that of no VLAN.
pub fn set_vlan_addresses(
    device: usize,
    vlan: u16,
    addresses: &[IpAddr],
) -> Result<bool, FixedAddresses> {
    if !(1..=4094).contains(&vlan) {
        return Err(FixedAddresses::Vlan(vlan));
    }
    let gids = gids(addresses);
    change_addresses(device, |own, known| {
        known.vlans.retain(|known| known.id != vlan);
        if !gids.is_empty() {
            known.vlans.push(own.vlan(vlan, gids));
            known.vlans.sort_by_key(|vlan| vlan.index);
        }
    })
}

fn gids(addresses: &[IpAddr]) -> Vec<[u8; 16]> {
    addresses.iter().map(|ip| gid::of_ip(*ip)).collect()
}

/// Changes the addresses of a port that is on no interface of the machine.
fn change_addresses(
    device: usize,
    change: impl FnOnce(&Netdev, &mut Addresses),
) -> Result<bool, FixedAddresses> {
    let Some(running) = Running::current() else { return Ok(false) };
    let Some(function) = running.functions.get(device) else { return Ok(false) };
    let own = match &function.device.netdev {
        None => return Err(FixedAddresses::InfiniBand),
        Some(netdev) if !netdev.is_view => return Err(FixedAddresses::Interface(&netdev.name)),
        Some(netdev) => netdev,
    };
    let default = function.device.default_gid;
    Ok(running.change_addresses(device, default, |known| change(own, known)).is_ok())
}

/// Sets the rules for faults of a device that this process has opened, and of the frames of its
/// port, in place of the earlier ones: those of this function or of `MLX5_MODEL_FAULTS`. The text is
/// that of the variable; the empty text ends all faults. Times count from now on. Frames that earlier
/// rules delay pass now. Returns whether there is such a device, and this process has opened one.
///
/// # Errors
/// If the text is no list of rules.
pub fn set_faults(device: usize, rules: &str) -> Result<bool, RuleError> {
    let faults: Faults = rules.parse()?;
    Ok(with_card(device, |card| card.set_faults(&faults, device)).is_some())
}

/// Sets the law of transport timers on this process' slice of a device, in place of that of
/// `MLX5_MODEL_TIMEOUTS`. Queue pairs take it when they next move to another state. Returns whether
/// there is such a device, and this process has opened one.
///
/// Tests that only need a peer to be given up soon set [`Timeouts::SPECIFICATION`].
pub fn set_timeouts(device: usize, timeouts: Timeouts) -> bool {
    with_card(device, |card| card.set_timeouts(timeouts)).is_some()
}

/// Sets whether programs get sets of queue counters on this process' slice of a device, in place of
/// `MLX5_MODEL_COUNTER_SETS`. Returns whether there is such a device, and this process has opened one.
pub fn set_counter_sets(device: usize, sets: CounterSets) -> bool {
    with_card(device, |card| card.set_counter_sets(sets)).is_some()
}

/// Returns what each rule for faults has done at a device since the rules were set, in the order of
/// the rules. Empty if there are none, or this process has opened no device.
pub fn fault_tallies(device: usize) -> Vec<Tally> {
    with_card(device, |card| card.fault_tallies()).unwrap_or_default()
}

fn with_card<R>(device: usize, work: impl FnOnce(&mut Card) -> R) -> Option<R> {
    Some(Running::current()?.functions.get(device)?.enter(work))
}
