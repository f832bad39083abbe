//! Claims of QP number prefixes: the sockets at which other processes reach this one.

use std::io::{self, ErrorKind};

use super::socket::{self, Fd};
use super::{IN_USE, Network, RESERVED, Recipient, SQUATTED, Source};

impl Network {
    /// Claims a prefix of QP numbers for a device.
    ///
    /// The name of a prefix is predictable, so another user may have bound it, even the names of
    /// all prefixes. Then this process claims a prefix whose name another user has bound. No other
    /// process of this user can have that name. The prefix gets a name with a random end instead.
    pub(crate) fn claim(&mut self, card: usize) -> io::Result<u16> {
        let start = self.random.draw() as u16;
        let mut in_use = 0;
        for number in (0..=u16::MAX).map(|step| start.wrapping_add(step)) {
            if RESERVED.contains(&number) {
                continue;
            }
            match socket::listen(&self.name(&format!("{number:04x}"))) {
                Ok(fd) => return self.claimed(number, card, fd),
                Err(error) if error.kind() == ErrorKind::AddrInUse => in_use += 1,
                Err(error) => return Err(error),
            }
            if in_use == IN_USE {
                if let Some((number, fd)) = self.claim_squatted()? {
                    return self.claimed(number, card, fd);
                }
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    fn claimed(&mut self, number: u16, card: usize, fd: Fd) -> io::Result<u16> {
        self.add(Source::Listener { fd, to: Recipient::Card(card) })?;
        Ok(number)
    }

    /// Claims a prefix whose name another user has bound, under a name with a random end.
    fn claim_squatted(&mut self) -> io::Result<Option<(u16, Fd)>> {
        for _ in 0..SQUATTED {
            let number = self.random.draw() as u16;
            if RESERVED.contains(&number) {
                continue;
            }
            let plain = self.name(&format!("{number:04x}"));
            match socket::connect(&plain).map_err(|error| error.kind()) {
                Err(ErrorKind::PermissionDenied) => {}
                // The name is free by now, or its owner does not listen. Every process of this user
                // does listen.
                Err(ErrorKind::ConnectionRefused) => {
                    if let Ok(fd) = socket::listen(&plain) {
                        return Ok(Some((number, fd)));
                    }
                }
                _ => continue,
            }
            let fd = socket::listen(&format!("{plain}.{}", socket::unguessable()?))?;
            // If several processes of this user do this at the same time, each sees the others, and
            // all try other prefixes.
            let own = socket::names(&format!("{plain}."))?;
            let trusted = |end: &&String| socket::connect(&format!("{plain}.{end}")).is_ok();
            if own.iter().filter(trusted).count() <= 1 {
                return Ok(Some((number, fd)));
            }
        }
        Ok(None)
    }
}
