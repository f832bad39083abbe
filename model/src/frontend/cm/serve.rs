//! Commands: decoded, executed and answered.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::super::uverbs::process::errno::{Errno, Result};
use super::super::uverbs::process::user;
use super::abi::{self, command, event, qp_type};
use super::address::{self, Address, Place, place_of, place_of_gid};
use super::connect::Q_KEY;
use super::file::CmFile;
use super::state::{Contents, Id, Stage, State};
use crate::card::Link;
use crate::engine::Listening;
use crate::management::{ip, subnet};

/// Port spaces (`RDMA_PS_*`).
mod space {
    pub const IPOIB: u16 = 0x0002;
    pub const TCP: u16 = 0x0106;
    pub const UDP: u16 = 0x0111;
    pub const IB: u16 = 0x013f;
}

/// Options of `SET_OPTION`: level and name.
mod option {
    pub const TYPE_OF_SERVICE: (u32, u32) = (0, 0);
    pub const REUSE: (u32, u32) = (0, 1);
    pub const ONE_FAMILY: (u32, u32) = (0, 2);
    pub const ACK_TIMEOUT: (u32, u32) = (0, 3);
    pub const PATH: (u32, u32) = (1, 1);
}

/// Most requests that wait for a listener's program.
const BACKLOG: u32 = 1024;
/// Ports that are given to programs that ask for any.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;
/// Longest option.
const OPTION: usize = 4096;

/// A command's structure, and where its answer goes.
struct Command<'a> {
    file: &'a Arc<CmFile>,
    /// Returns the event channel behind a descriptor.
    channel: fn(i32) -> Option<Arc<CmFile>>,
    input: Vec<u8>,
    room: usize,
}

/// `write`: executes a command, and returns the bytes written. `channel` returns the event channel behind
/// another descriptor.
pub(in super::super) fn write(
    file: &Arc<CmFile>,
    from: u64,
    length: usize,
    channel: fn(i32) -> Option<Arc<CmFile>>,
) -> Result<usize> {
    const HEADER: usize = size_of::<abi::Header>();
    if length < HEADER {
        return Err(Errno::EINVAL);
    }
    let header: abi::Header = user::whole(&user::read(from, HEADER)?)?;
    let input = usize::from(header.input);
    if HEADER + input > length {
        return Err(Errno::EINVAL);
    }
    let input = user::read(from + HEADER as u64, input)?;
    let command = Command { file, channel, input, room: header.output.into() };
    command.execute(header.command)?;
    Ok(length)
}

impl Command<'_> {
    /// The structure; what an older library does not give counts as zero.
    fn input<T: FromBytes + IntoBytes>(&self) -> T {
        user::lenient(&self.input)
    }

    /// Runs with the state locked.
    fn locked<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.file.manager.lock())
    }

    /// Runs inside the engine with the state locked: messages are sent before it returns.
    fn entered<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.file.engine.enter(0, |_| work(&mut self.file.manager.lock()))
    }

    /// Writes an answer, cut to the length of the program's buffer. Fails below `least` bytes.
    fn answer(&self, to: u64, bytes: &[u8], least: usize) -> Result<()> {
        if self.room < least {
            return Err(Errno::ENOSPC);
        }
        user::write(to, &bytes[..bytes.len().min(self.room)])
    }

    fn word(&self, to: u64, value: u32) -> Result<()> {
        self.answer(to, &value.to_ne_bytes(), 4)
    }

    fn execute(&self, number: u32) -> Result<()> {
        let file = self.file.number;
        match number {
            command::CREATE_ID => self.create(&self.input()),
            command::DESTROY_ID => {
                let input: abi::DestroyId = self.input();
                let (reported, listening) = self.entered(|state| {
                    state.id(file, input.id)?;
                    Ok::<_, Errno>(state.destroy(input.id))
                })?;
                self.withdraw(listening);
                self.word(input.response, reported)
            }
            command::BIND_IP => {
                let input: abi::BindIp = self.input();
                self.bind(input.id, Address::decode(&input.addr)?.ok_or(Errno::EINVAL)?)
            }
            command::BIND => {
                let input: abi::Bind = self.input();
                let bytes = sized(&input.addr, input.addr_size)?;
                self.bind(input.id, Address::decode(bytes)?.ok_or(Errno::EINVAL)?)
            }
            command::RESOLVE_IP => {
                let input: abi::ResolveIp = self.input();
                let source = Address::decode(&input.src_addr)?;
                let destination = Address::decode(&input.dst_addr)?.ok_or(Errno::EINVAL)?;
                self.resolve_address(input.id, source, destination)
            }
            command::RESOLVE_ADDR => {
                let input: abi::ResolveAddr = self.input();
                let source = match input.src_size {
                    0 => None,
                    size => Address::decode(sized(&input.src_addr, size)?)?,
                };
                let destination = Address::decode(sized(&input.dst_addr, input.dst_size)?)?;
                self.resolve_address(input.id, source, destination.ok_or(Errno::EINVAL)?)
            }
            command::RESOLVE_ROUTE => {
                let input: abi::ResolveRoute = self.input();
                self.locked(|state| state.resolve_route(file, input.id))
            }
            command::QUERY_ROUTE => {
                let input: abi::Query = self.input();
                let reply = self.locked(|state| state.query_route(file, input.id))?;
                self.answer(input.response, reply.as_bytes(), size_of_val(&reply))
            }
            command::QUERY => {
                let input: abi::Query = self.input();
                let reply = self.locked(|state| state.query(file, input.id, input.option))?;
                // Paths fit as many as there is room for.
                self.answer(input.response, &reply, 8)
            }
            command::CONNECT => {
                let input: abi::Connect = self.input();
                self.entered(|state| state.connect(file, &input))
            }
            command::LISTEN => self.listen(&self.input()),
            command::ACCEPT => {
                let input: abi::Accept = self.input();
                self.entered(|state| state.accept(file, &input))
            }
            command::REJECT => {
                let input: abi::Reject = self.input();
                self.entered(|state| state.reject(file, &input))
            }
            command::DISCONNECT => {
                let input: abi::Disconnect = self.input();
                self.entered(|state| state.disconnect(file, input.id))
            }
            command::INIT_QP_ATTR => {
                let input: abi::InitQpAttr = self.input();
                let reply =
                    self.locked(|state| state.queue_pair(file, input.id, input.qp_state))?;
                self.answer(input.response, reply.as_bytes(), size_of_val(&reply))
            }
            command::GET_EVENT => self.get_event(&self.input()),
            command::SET_OPTION => self.set_option(&self.input()),
            number => self.execute_rare(number),
        }
    }

    /// The commands of groups, channels and notices.
    fn execute_rare(&self, number: u32) -> Result<()> {
        let file = self.file.number;
        match number {
            command::NOTIFY => {
                let input: abi::Notify = self.input();
                self.entered(|state| state.notify(file, &input))
            }
            command::JOIN_IP_MCAST => {
                let input: abi::JoinIp = self.input();
                let address = Address::decode(&input.addr)?.ok_or(Errno::EINVAL)?;
                let join = self.locked(|state| state.join(file, input.id, input.uid, address))?;
                self.word(input.response, join)
            }
            command::JOIN_MCAST => {
                let input: abi::Join = self.input();
                let bytes = sized(&input.addr, input.addr_size)?;
                let address = Address::decode(bytes)?.ok_or(Errno::EINVAL)?;
                let join = self.locked(|state| state.join(file, input.id, input.uid, address))?;
                self.word(input.response, join)
            }
            command::LEAVE_MCAST => {
                let input: abi::DestroyId = self.input();
                let reported = self.locked(|state| state.leave(file, input.id))?;
                self.word(input.response, reported)
            }
            command::MIGRATE_ID => {
                let input: abi::MigrateId = self.input();
                let from = (self.channel)(input.fd as i32).ok_or(Errno::EINVAL)?;
                let reported = self.locked(|state| state.migrate(input.id, from.number, file))?;
                self.word(input.response, reported)
            }
            command::RESOLVE_IB_SERVICE => {
                let input: abi::ResolveService = self.input();
                self.locked(|state| state.resolve_service(file, input.id))
            }
            command::WRITE_CM_EVENT => {
                let input: abi::WriteEvent = self.input();
                self.locked(|state| state.write_event(file, &input))
            }
            // Linux has a number for it, and nothing else.
            command::GET_OPTION => Err(Errno::ENOSYS),
            _ => Err(Errno::EINVAL),
        }
    }

    fn create(&self, input: &abi::CreateId) -> Result<()> {
        let kind = match input.ps {
            space::TCP => qp_type::RC,
            space::UDP | space::IPOIB => qp_type::UD,
            space::IB => input.qp_type,
            _ => return Err(Errno::EINVAL),
        };
        let mut id = Id::new(self.file.number, input.uid, input.ps, kind);
        if input.ps == space::UDP || input.ps == space::IB {
            id.q_key = Q_KEY;
        }
        let number = self.locked(|state| state.insert(id));
        self.word(input.response, number).inspect_err(|_| {
            self.locked(|state| state.destroy(number));
        })
    }

    /// Binds an id: to a port if the address is one, and to a service of its own.
    fn bind(&self, number: u32, address: Address) -> Result<()> {
        let file = self.file.number;
        let (service, reuse, place) = self.locked(|state| {
            let place = state.place_of_bound(&address)?;
            let id = state.id(file, number)?;
            let bound = if id.stage == Stage::Idle { Ok(()) } else { Err(Errno::EINVAL) };
            bound.map(|()| (id.service_of(&address), id.reuse, place))
        })?;
        let engine = &self.file.engine;
        let (port, reserved) = match service as u16 {
            0 => {
                let mut tries = EPHEMERAL.len();
                loop {
                    let draw = self.locked(|state| state.draw());
                    let port = EPHEMERAL.start + (draw % EPHEMERAL.len() as u64) as u16;
                    match engine.reserve(service | u64::from(port)) {
                        Ok(reserved) => break (port, reserved),
                        Err(error) if tries == 0 || error.kind() != ErrorKind::AddrInUse => {
                            return Err(errno_of(&error));
                        }
                        Err(_) => tries -= 1,
                    }
                }
            }
            port if reuse => (port, None),
            port => {
                let reserved = engine.reserve(service).map_err(|error| match error.kind() {
                    ErrorKind::AddrInUse => self.taken(&address, service),
                    _ => errno_of(&error),
                });
                (port, reserved?)
            }
        };
        self.locked(|state| {
            let id = state.id(file, number)?;
            id.stage = Stage::Bound;
            id.source = Some(address.with_port(port).exact());
            id.place = place;
            id.reserved = reserved;
            Ok(())
        })
    }

    /// Returns the error of binding to a service that is taken, as Linux does (`cma.c`,
    /// cma_check_port): where either side has a wildcard address, no address is left for the port.
    /// Addresses in other processes are not known here.
    fn taken(&self, address: &Address, service: u64) -> Errno {
        let has_wildcard = self.locked(|state| {
            let mut sources = state.sources().filter(|(id, _)| id.serves(service));
            sources.any(|(_, source)| source.is_wildcard())
        });
        if address.is_wildcard() || has_wildcard {
            Errno(libc::EADDRNOTAVAIL)
        } else {
            Errno(libc::EADDRINUSE)
        }
    }

    fn listen(&self, input: &abi::Listen) -> Result<()> {
        let file = self.file.number;
        if self.locked(|state| state.id(file, input.id).map(|id| id.stage))? == Stage::Idle {
            let any = SocketAddr::from(([0, 0, 0, 0], 0));
            self.bind(input.id, Address::Ip(any))?;
        }
        let engine = &self.file.engine;
        let (reserved, service) = self.locked(|state| {
            let id = state.id(file, input.id)?;
            if id.stage != Stage::Bound {
                return Err(Errno::EINVAL);
            }
            let source = id.source.ok_or(Errno::EINVAL)?;
            id.backlog = if input.backlog == 0 { BACKLOG } else { input.backlog.min(BACKLOG) };
            // From now on requests find it.
            id.stage = Stage::Listening;
            Ok((id.reserved.take(), id.service_of(&source)))
        })?;
        let reserved = reserved.map_or_else(|| engine.reserve(service), |own| Ok(Some(own)));
        let listening = reserved.and_then(|reserved| engine.listen(reserved));
        let unused = self.locked(|state| match (state.id(file, input.id), listening) {
            (Ok(id), Ok(listening)) => {
                id.listening = listening;
                Ok(None)
            }
            (Ok(id), Err(error)) => {
                id.stage = Stage::Bound;
                Err(errno_of(&error))
            }
            // Another thread has destroyed or moved the id meanwhile.
            (Err(_), Ok(listening)) => Ok(listening),
            (Err(error), Err(_)) => Err(error),
        })?;
        match unused {
            None => Ok(()),
            Some(unused) => {
                self.withdraw(vec![unused]);
                Err(Errno::ENOENT)
            }
        }
    }

    fn withdraw(&self, listening: Vec<Listening>) {
        for listening in listening {
            self.file.engine.withdraw(&listening);
        }
    }

    fn resolve_address(
        &self,
        number: u32,
        source: Option<Address>,
        destination: Address,
    ) -> Result<()> {
        let file = self.file.number;
        let stage = self.locked(|state| state.id(file, number).map(|id| id.stage))?;
        if let (Stage::Idle, Some(source)) = (stage, source) {
            self.bind(number, source)?;
        }
        self.locked(|state| state.resolve_address(file, number, destination))
    }

    fn get_event(&self, input: &abi::GetEvent) -> Result<()> {
        /// Bytes that libraries before the enhanced connection establishment have room for.
        const OLDEST: usize = size_of::<abi::EventReply>() - 12;
        if self.room < OLDEST {
            return Err(Errno::ENOSPC);
        }
        loop {
            if let Some(reply) = self.locked(|state| state.next_event(self.file.number)) {
                return self.answer(input.response, reply.as_bytes(), OLDEST);
            }
            if !self.locked(|state| state.has_file(self.file.number)) {
                return Err(Errno::EBADF);
            }
            self.file.wait()?;
        }
    }

    fn set_option(&self, input: &abi::SetOption) -> Result<()> {
        let length = input.optlen as usize;
        if length > OPTION {
            return Err(Errno::EINVAL);
        }
        let value = user::read(input.optval, length)?;
        let file = self.file.number;
        let byte = || <[u8; 1]>::try_from(&value[..]).map(|[byte]| byte).map_err(|_| Errno::EINVAL);
        let number = || {
            let bytes = <[u8; 4]>::try_from(&value[..]).map_err(|_| Errno::EINVAL)?;
            Ok::<_, Errno>(u32::from_ne_bytes(bytes))
        };
        self.locked(|state| {
            let id = state.id(file, input.id)?;
            match (input.level, input.optname) {
                option::TYPE_OF_SERVICE => id.type_of_service = byte()?,
                option::REUSE => id.reuse = number()? != 0,
                // A service has one listener, whatever the family of its address.
                option::ONE_FAMILY => drop(number()?),
                option::ACK_TIMEOUT => {
                    let timeout = byte()?;
                    if timeout > 31 || id.is_datagram() {
                        return Err(Errno::EINVAL);
                    }
                    id.ack_timeout = Some(timeout);
                }
                option::PATH => return state.set_path(file, input.id, &value),
                _ => return Err(Errno::ENOSYS),
            }
            Ok(())
        })
    }
}

impl State {
    /// Returns the port that an address belongs to; none for any address.
    fn place_of_bound(&self, address: &Address) -> Result<Option<Place>> {
        if address.is_any() {
            return Ok(None);
        }
        let place = match address {
            Address::Ip(address) => place_of(self.ports(), address),
            Address::Ib { gid, .. } => place_of_gid(self.ports(), gid),
        };
        place.map(Some).ok_or(Errno(libc::EADDRNOTAVAIL))
    }

    fn resolve_address(&mut self, file: u64, number: u32, destination: Address) -> Result<()> {
        let draw = self.draw();
        let id = self.id(file, number)?;
        if !matches!(id.stage, Stage::Idle | Stage::Bound) {
            return Err(Errno::EINVAL);
        }
        let source = id.source.unwrap_or_else(|| {
            let port = EPHEMERAL.start + (draw % EPHEMERAL.len() as u64) as u16;
            destination.any_like().with_port(port)
        });
        let bound = id.place.filter(|_| !source.is_any());
        let resolved = self.route(source, bound, destination);
        let Some(id) = self.known(number) else { return Err(Errno::ENOENT) };
        id.source = Some(source);
        id.destination = Some(destination);
        let Some((own, place, gid)) = resolved else {
            id.stage = Stage::Bound;
            self.report(number, event::ADDR_ERROR, -libc::ENODEV, &Contents::Nothing);
            return Ok(());
        };
        id.source = Some(own);
        id.place = Some(place);
        id.stage = Stage::AddressResolved;
        let path = self.peek(number).and_then(|id| self.path_to(id, gid));
        if let Some(id) = self.known(number) {
            id.path = path;
        }
        self.report(number, event::ADDR_RESOLVED, 0, &Contents::Nothing);
        Ok(())
    }

    /// Finds the sender's address and port, and the destination's GID.
    fn route(
        &self,
        source: Address,
        bound: Option<Place>,
        destination: Address,
    ) -> Option<(Address, Place, [u8; 16])> {
        match (source, destination) {
            (Address::Ip(own), Address::Ip(to)) => {
                let bound = bound.map(|place| (own, place));
                let (mut found, place, gid) = address::route(self.ports(), bound, &to)?;
                found.set_port(own.port());
                Some((Address::Ip(found), place, gid))
            }
            (Address::Ib { service, .. }, Address::Ib { gid, .. }) => {
                place_of_gid(self.ports(), &gid)?;
                let place = bound.or(Some(Place { card: 0, index: 0 }))?;
                Some((Address::Ib { gid: place.gid(self.ports()), service }, place, gid))
            }
            _ => None,
        }
    }

    fn resolve_route(&mut self, file: u64, number: u32) -> Result<()> {
        let id = self.id(file, number)?;
        if id.stage != Stage::AddressResolved {
            return Err(Errno::EINVAL);
        }
        id.stage = Stage::RouteResolved;
        if let (Some(path), Some(timeout)) = (&mut id.path, id.ack_timeout) {
            path.life_time = timeout.saturating_sub(1);
        }
        self.report(number, event::ROUTE_RESOLVED, 0, &Contents::Nothing);
        Ok(())
    }

    /// Asks the subnet's records for a service. There are none: no program can register one.
    fn resolve_service(&mut self, file: u64, number: u32) -> Result<()> {
        let id = self.id(file, number)?;
        let place = id.place.filter(|_| id.stage == Stage::Bound).ok_or(Errno::EINVAL)?;
        match self.ports().get(place.card).map(|port| port.link) {
            Some(Link::InfiniBand) => {
                self.report(number, event::ADDRINFO_ERROR, -libc::ENOENT, &Contents::Nothing);
                Ok(())
            }
            // Ethernet has no subnet administrator.
            Some(Link::Roce) => Err(Errno(libc::EOPNOTSUPP)),
            None => Err(Errno::EINVAL),
        }
    }

    /// Queues an event of a program's own, which may be for the library.
    fn write_event(&mut self, file: u64, input: &abi::WriteEvent) -> Result<()> {
        if !matches!(input.event, event::USER | event::INTERNAL) {
            return Err(Errno::EINVAL);
        }
        self.id(file, input.id)?;
        let contents = Contents::Argument(input.argument);
        self.report(input.id, input.event, input.status as i32, &contents);
        Ok(())
    }

    /// Sets the path of an id, which the program has found by itself.
    fn set_path(&mut self, file: u64, number: u32, value: &[u8]) -> Result<()> {
        /// `IB_PATH_PRIMARY`
        const PRIMARY: u32 = 1 << 1;
        if value.is_empty() || value.len() % size_of::<abi::PathData>() != 0 {
            return Err(Errno::EINVAL);
        }
        let data = value.chunks(size_of::<abi::PathData>()).map(user::lenient::<abi::PathData>);
        let primary = data.into_iter().find(|data| data.flags & PRIMARY != 0);
        let record = primary.ok_or(Errno::EINVAL)?.record;
        let path = subnet::Path::of_record(&record).ok_or(Errno::EINVAL)?;
        let id = self.id(file, number)?;
        if id.stage != Stage::AddressResolved {
            return Err(Errno::EINVAL);
        }
        id.stage = Stage::RouteResolved;
        id.path = Some(path);
        self.report(number, event::ROUTE_RESOLVED, 0, &Contents::Nothing);
        Ok(())
    }
}

impl Id {
    /// The service of an address in the id's port space.
    pub fn service_of(&self, address: &Address) -> u64 {
        match address {
            Address::Ip(address) => ip::service(self.space, address.port()),
            Address::Ib { service, .. } => service.0,
        }
    }

    /// Whether the id listens for a service.
    pub fn serves(&self, service: u64) -> bool {
        self.source.is_some_and(|source| self.service_of(&source) == service)
    }
}

/// An address of which a program says how long it is.
fn sized(bytes: &[u8; abi::STORAGE], size: u16) -> Result<&[u8]> {
    bytes.get(..size.into()).filter(|bytes| !bytes.is_empty()).ok_or(Errno::EINVAL)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EADDRINUSE))
}
