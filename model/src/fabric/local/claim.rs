//! Claims of QP number prefixes: the sockets at which other processes reach this one.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use super::socket::{self, Fd};
use super::{Attached, IN_USE, MANAGEMENT, Network, RESERVED, Recipient, SQUATTED, Source};
use crate::identity::Identity;
use crate::wire::LinkAddress;

impl Network {
    /// Listens at the addresses of a device's port, which may have changed since the last call.
    pub(crate) fn attach(&mut self, card: usize, identity: &Identity) -> io::Result<()> {
        if self.ports.len() <= card {
            self.ports.resize_with(card + 1, Attached::default);
        }
        let port = &mut self.ports[card];
        if identity.addresses().eq(port.addresses.iter().copied()) {
            return Ok(());
        }
        let before: BTreeSet<LinkAddress> = port.addresses.drain(..).collect();
        port.addresses.extend(identity.addresses());
        let now: BTreeSet<LinkAddress> = identity.addresses().collect();
        let prefixes = port.prefixes.clone();
        self.sources.retain(|_, source| match source {
            Source::Listener { to: Recipient::Port(port, address), .. } if *port == card => {
                now.contains(address)
            }
            _ => true,
        });
        for address in now.difference(&before) {
            for prefix in prefixes.iter().chain([&MANAGEMENT]) {
                self.share(card, *address, *prefix)?;
            }
        }
        Ok(())
    }

    /// Claims a prefix of QP numbers for a device, at the addresses of its port.
    ///
    /// The name of a prefix is predictable, so another user may have bound it, even the names of
    /// all prefixes. Then this process claims a prefix whose name another user has bound. No other
    /// process of this user can have that name. The prefix gets a name with a random end instead.
    ///
    /// # Errors
    /// - Any error of creating and binding a local socket.
    /// - `AddrInUse` if no prefix is free.
    pub(crate) fn claim(&mut self, card: usize, identity: &Identity) -> io::Result<u16> {
        self.attach(card, identity)?;
        let mut addresses = self.ports[card].addresses.clone().into_iter();
        let Some(own) = addresses.next() else { return Err(ErrorKind::AddrNotAvailable.into()) };
        let (prefix, fd) = self.free_prefix(own)?;
        self.add(Source::Listener { fd, to: Recipient::Port(card, own) })?;
        self.ports[card].prefixes.push(prefix);
        for address in addresses.collect::<BTreeSet<_>>() {
            self.share(card, address, prefix)?;
        }
        Ok(prefix)
    }

    /// Binds the name of a prefix at an address that no other process has bound.
    fn free_prefix(&mut self, address: LinkAddress) -> io::Result<(u16, Fd)> {
        let start = self.random.draw() as u16;
        let mut in_use = 0;
        for prefix in (0..=u16::MAX).map(|step| start.wrapping_add(step)) {
            if RESERVED.contains(&prefix) {
                continue;
            }
            match socket::listen(&self.prefix_name(address, prefix)) {
                Ok(fd) => return Ok((prefix, fd)),
                Err(error) if error.kind() == ErrorKind::AddrInUse => in_use += 1,
                Err(error) => return Err(error),
            }
            if in_use == IN_USE {
                if let Some(claimed) = self.claim_squatted(address)? {
                    return Ok(claimed);
                }
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Listens for a prefix at an address under a name with a random end, which other processes may
    /// do as well: for the management queue pairs, and for a prefix that is claimed at the port's
    /// own address.
    fn share(&mut self, card: usize, address: LinkAddress, prefix: u16) -> io::Result<()> {
        let fd = self.listen_beside(address, prefix)?;
        self.add(Source::Listener { fd, to: Recipient::Port(card, address) })?;
        Ok(())
    }

    /// Binds the name of a prefix at an address with a random end.
    fn listen_beside(&self, address: LinkAddress, prefix: u16) -> io::Result<Fd> {
        let plain = self.prefix_name(address, prefix);
        socket::listen(&format!("{plain}.{}", socket::unguessable()?))
    }

    /// Claims a prefix whose name another user has bound, under a name with a random end.
    fn claim_squatted(&mut self, address: LinkAddress) -> io::Result<Option<(u16, Fd)>> {
        for _ in 0..SQUATTED {
            let prefix = self.random.draw() as u16;
            if RESERVED.contains(&prefix) {
                continue;
            }
            let plain = self.prefix_name(address, prefix);
            match socket::connect(&plain).map_err(|error| error.kind()) {
                Err(ErrorKind::PermissionDenied) => {}
                // The name is free by now, or its owner does not listen. Every process of this user
                // does listen.
                Err(ErrorKind::ConnectionRefused) => {
                    if let Ok(fd) = socket::listen(&plain) {
                        return Ok(Some((prefix, fd)));
                    }
                }
                _ => continue,
            }
            let fd = self.listen_beside(address, prefix)?;
            // If several processes of this user do this at the same time, each sees the others, and
            // all try other prefixes.
            let own = socket::names(&format!("{plain}."))?;
            let trusted = |end: &&String| socket::connect(&format!("{plain}.{end}")).is_ok();
            if own.iter().filter(trusted).count() <= 1 {
                return Ok(Some((prefix, fd)));
            }
        }
        Ok(None)
    }
}
