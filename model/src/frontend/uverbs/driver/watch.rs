//! Ports on interfaces of the machine follow their addresses.

use super::super::process::thread;
use super::super::tree::discovery::{Discovery, Offer, discovery};
use super::running::Running;
use crate::fabric::udp::{Changes, Interface};
use crate::private::complain;

/// Starts a thread that, as long as the process lives, gives each port the addresses of its interface, now and after each change.
pub(super) fn start() {
    let Discovery::On(offer) = discovery() else { return };
    if offer.interfaces.is_empty() {
        return;
    }
    match Changes::subscribe() {
        Ok(changes) => thread(move || follow(offer, &changes)),
        Err(error) => complain!("the ports do not follow addresses of interfaces: {error}"),
    }
}

fn follow(offer: &Offer, changes: &Changes) {
    let Some(running) = Running::current() else { return };
    loop {
        for (index, interface) in offer.interfaces.iter().enumerate() {
            look(running, index, interface);
        }
        if let Err(error) = changes.wait() {
            complain!("the ports do not follow addresses of interfaces any more: {error}");
            return;
        }
    }
}

/// Gives a port the addresses of its interface.
fn look(running: &Running, index: usize, interface: &Interface) {
    let addresses = match interface.addresses() {
        Ok(addresses) => addresses,
        // The next change is another occasion.
        Err(error) => return tracing::warn!(%error, "the interfaces cannot be listed"),
    };
    // Linux removes the default GID with the interface.
    let default = addresses.as_ref().and_then(|_| interface.default_gid());
    let addresses = addresses.unwrap_or_default();
    running.engine.set_addresses(index, &addresses.own);
    if let Err(error) = running.change_addresses(index, default, |known| *known = addresses) {
        tracing::warn!(errno = error.0, "a port does not follow its interface");
    }
}
