//! Claims of QP number prefixes: the sockets at which other processes reach this one.

use std::io::{self, ErrorKind};

use super::socket::{self, Fd};
use super::{Attached, IN_USE, MANAGEMENT, Network, RESERVED, Recipient, SQUATTED, Source};
use crate::identity::Identity;
use crate::wire::LinkAddress;

impl Network {
    /// Listens at the addresses of a device's port, which may have changed since the last call.
    ///
    /// # Errors
    /// Any error of creating and binding a local socket. The next call tries again.
    pub(crate) fn attach(&mut self, card: usize, identity: &Identity) -> io::Result<()> {
        if self.ports.len() <= card {
            self.ports.resize_with(card + 1, Attached::default);
        }
        let port = &mut self.ports[card];
        if !port.addresses.iter().all(|address| identity.has_address(*address)) {
            port.addresses.retain(|address| identity.has_address(*address));
            self.sources.retain(|_, source| match source {
                Source::Listener { to: Recipient::Port(port, address), .. } if *port == card => {
                    identity.has_address(*address)
                }
                _ => true,
            });
        }
        for address in identity.addresses() {
            let port = &self.ports[card];
            if port.addresses.contains(&address) {
                continue;
            }
            // All or none, since an address with an error is tried again.
            let prefixes = port.prefixes.iter().chain([&MANAGEMENT]);
            let listeners: io::Result<Vec<Fd>> =
                prefixes.map(|prefix| self.listen_beside(address, *prefix)).collect();
            for fd in listeners? {
                self.add(Source::Listener { fd, to: Recipient::Port(card, address) })?;
            }
            self.ports[card].addresses.insert(address);
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
        let own = identity.own_address();
        let (prefix, fd) = self.free_prefix(own)?;
        let others = self.ports[card].addresses.iter().filter(|address| **address != own);
        let others: io::Result<Vec<_>> =
            others.map(|address| Ok((*address, self.listen_beside(*address, prefix)?))).collect();
        for (address, fd) in others?.into_iter().chain([(own, fd)]) {
            self.add(Source::Listener { fd, to: Recipient::Port(card, address) })?;
        }
        self.ports[card].prefixes.push(prefix);
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

    /// Binds the name of a prefix at an address with a random end. Other processes may do the same:
    /// for the management queue pairs. A prefix that was claimed at the port's own address is this
    /// process's at its other addresses, too.
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
