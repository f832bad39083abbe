//! Connections: started, answered and ended by the program, and by the peer.

use super::super::uverbs::process::errno::{Errno, Result};
use super::abi::{self, ConnParam, event, qp_type};
use super::address::{Address, Place, place_in_vlan, place_of_gid};
use super::attributes;
use super::state::{Contents, Id, Link, Stage, State};
use crate::card::Link as Wire;
use crate::engine::Neighbours;
use crate::management::connection::{RESPONSE_TIMEOUT, RETRIES};
use crate::management::ip::{self, Addresses};
use crate::management::message::{self, Reply, Request, Resolve, Resolved, room};
use crate::management::subnet::{Path, life_time};
use crate::management::{Connection, Event, Mad, Message, Reason, mad};
use crate::wire::route::HOPS;
use crate::wire::{Global, Route};

/// The delay of acknowledges that mlx5 devices report.
const ACK_DELAY: u8 = 16;
/// Q_Key of datagram services (`RDMA_UDP_QKEY`).
pub(super) const Q_KEY: u32 = 0x0123_4567;
/// Bits of a PSN.
const PSN: u32 = 0xff_ffff;

/// Returns the time-out of acknowledges on a path, as Linux computes it from the life time of
/// packets and the device's delay.
fn ack_timeout(life_time: u8) -> u8 {
    let timeout = life_time + 1;
    let timeout = if timeout >= ACK_DELAY {
        timeout + u8::from(ACK_DELAY >= timeout - 1)
    } else {
        ACK_DELAY + u8::from(timeout >= ACK_DELAY - 1)
    };
    timeout.min(31)
}

/// Returns the route of packets from a port on a path.
fn route_of(neighbours: &Neighbours, place: &Place, path: &Path) -> Route {
    let port = &neighbours.ports()[place.card];
    let global = Global {
        traffic_class: path.traffic_class,
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        source: path.source,
        destination: path.destination,
    };
    match port.link {
        Wire::Roce => Route::Ethernet {
            source: port.source_mac(place.index),
            destination: neighbours.address(&path.destination, port.entry(place.index).vlan),
            tag: port.tag(place.index, path.level),
            global,
            port: Some(0xc000),
        },
        Wire::InfiniBand => Route::InfiniBand {
            level: path.level,
            source: path.source_lid,
            destination: path.destination_lid,
            global: None,
        },
    }
}

/// Returns the private data that the program gave, after `header`.
fn private(param: &ConnParam, header: &[u8], room: usize) -> Result<Vec<u8>> {
    let own = &param.private_data[..usize::from(param.private_data_len)];
    let all = [header, own].concat();
    if all.len() > room { Err(Errno::EINVAL) } else { Ok(all) }
}

impl Id {
    /// The service that the id connects to.
    fn service(&self) -> Option<u64> {
        match self.destination? {
            Address::Ip(address) => Some(ip::service(self.space, address.port())),
            Address::Ib { service, .. } => Some(service.0),
        }
    }

    /// The header of private data, which only IP addresses have.
    fn header(&self) -> Vec<u8> {
        match (self.source, self.destination) {
            (Some(Address::Ip(source)), Some(Address::Ip(destination))) => {
                Addresses { source, destination: destination.ip() }.encode().to_vec()
            }
            _ => Vec::new(),
        }
    }
}

impl State {
    /// Returns the path from an id's port to a GID.
    pub fn path_to(&self, id: &Id, destination: [u8; 16]) -> Option<Path> {
        let place = id.place?;
        let port = self.ports().get(place.card)?;
        let there = place_of_gid(self.ports(), &destination);
        let destination_lid = there.map_or(0, |there| self.ports()[there.card].lid);
        let roce = port.link == Wire::Roce;
        Some(Path {
            source: place.gid(self.ports()),
            destination,
            source_lid: port.lid,
            destination_lid,
            p_key: 0xffff,
            level: if roce { id.type_of_service >> 5 } else { 0 },
            traffic_class: if roce { id.type_of_service } else { 0 },
            flow_label: 0,
            hop_limit: if roce { HOPS } else { 0 },
            // 1 is 256.
            mtu: (port.log_mtu() - 7) as u8,
            life_time: id
                .ack_timeout
                .map_or(life_time(port.link), |timeout| timeout.saturating_sub(1)),
        })
    }

    /// `CONNECT`.
    pub fn connect(&mut self, file: u64, command: &abi::Connect) -> Result<()> {
        let (now, transaction) = (self.now(), self.draw());
        let psn = self.draw() as u32 & PSN;
        let id = self.id(file, command.id)?;
        if id.stage != Stage::RouteResolved {
            return Err(Errno::EINVAL);
        }
        let (Some(path), Some(place), Some(service)) = (id.path, id.place, id.service()) else {
            return Err(Errno::EINVAL);
        };
        let (header, param) = (id.header(), &command.conn_param);
        let datagram = id.is_datagram();
        let kind = id.qp_type;
        let most = if datagram { room::RESOLVE } else { room::REQUEST };
        let private = private(param, &header, most)?;
        let local = self.communication_id(place.card)?;
        let port = &self.ports()[place.card];
        let route = route_of(&self.neighbours, &place, &path);
        let timeout = ack_timeout(path.life_time);
        let connection = if datagram {
            let resolve = Resolve { request: local, p_key: path.p_key, service, private };
            Connection::resolve(resolve, transaction, now)
        } else {
            let roce = port.link == Wire::Roce;
            let (transport, extended_transport) = match kind {
                qp_type::UC => (1, 0),
                qp_type::XRC_INI => (3, 1),
                _ => (0, 0),
            };
            let primary = message::Path {
                // The permissive LID, which says that there is none.
                local_lid: if roce { 0xffff } else { path.source_lid },
                remote_lid: if roce { 0xffff } else { path.destination_lid },
                local_gid: path.source,
                remote_gid: path.destination,
                flow_label: path.flow_label,
                rate: crate::management::subnet::RATE,
                traffic_class: path.traffic_class,
                hop_limit: path.hop_limit,
                level: path.level,
                subnet_local: path.hop_limit <= 1,
                ack_timeout: timeout,
            };
            let request = Request {
                local,
                service,
                guid: port.node_guid,
                q_key: 0,
                qp: param.qp_num,
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                remote_timeout: RESPONSE_TIMEOUT,
                transport,
                flow_control: param.flow_control != 0,
                psn,
                local_timeout: RESPONSE_TIMEOUT,
                retry_count: param.retry_count.min(7),
                p_key: path.p_key,
                mtu: path.mtu,
                rnr_retry_count: param.rnr_retry_count.min(7),
                max_retries: RETRIES,
                srq: param.srq != 0,
                extended_transport,
                primary,
                alternate: message::Path::default(),
                ece: command.ece.into(),
                private,
            };
            Connection::connect(request, transaction, now)
        };
        let owner = Some(command.id);
        let link =
            Link { connection, owner, card: place.card, route, p_key: path.p_key, timer: None };
        self.links.insert(local, link);
        let id = self.id(file, command.id)?;
        id.stage = Stage::Connecting;
        id.connection = Some(local);
        id.attributes.receive_psn = psn;
        id.attributes.mtu = path.mtu;
        id.attributes.retry_count = param.retry_count.min(7);
        id.attributes.timeout = timeout;
        id.attributes.responder_resources = param.responder_resources;
        id.attributes.initiator_depth = param.initiator_depth;
        self.settle(local);
        Ok(())
    }

    /// `ACCEPT`: answers a request or, without parameters, confirms a reply.
    pub fn accept(&mut self, file: u64, command: &abi::Accept) -> Result<()> {
        let now = self.now();
        let id = self.id(file, command.id)?;
        let local = id.connection.ok_or(Errno::EINVAL)?;
        let param = &command.conn_param;
        if param.valid == 0 {
            let link = self.links.get_mut(&local).ok_or(Errno::EINVAL)?;
            if !link.connection.establish(Vec::new()) {
                return Err(Errno::EINVAL);
            }
            self.id(file, command.id)?.stage = Stage::Connected;
            self.settle(local);
            return Ok(());
        }
        if id.is_datagram() {
            let private = private(param, &[], room::RESOLVED)?;
            let q_key = if param.qkey == 0 { Q_KEY } else { param.qkey };
            let resolved = Resolved { qp: param.qp_num, q_key, private, ..Resolved::default() };
            id.uid = command.uid;
            id.q_key = q_key;
            id.stage = Stage::Connected;
            return self.answer(local, |connection| connection.resolved(resolved, now));
        }
        let private = private(param, &[], room::REPLY)?;
        let target = id.qp_type == qp_type::XRC_TGT;
        let psn = id.attributes.receive_psn;
        id.uid = command.uid;
        id.attributes.responder_resources = param.responder_resources;
        id.attributes.initiator_depth = param.initiator_depth;
        let card = id.place.ok_or(Errno::EINVAL)?.card;
        let reply = Reply {
            qp: if target { 0 } else { param.qp_num },
            target: if target { param.qp_num } else { 0 },
            psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            ack_delay: ACK_DELAY,
            // There is no alternate path.
            failover: 1,
            flow_control: param.flow_control != 0,
            rnr_retry_count: param.rnr_retry_count.min(7),
            srq: target || param.srq != 0,
            guid: self.ports()[card].node_guid,
            ece: command.ece.into(),
            private,
            ..Reply::default()
        };
        self.answer(local, |connection| connection.accept(reply, now))
    }

    /// `REJECT`.
    pub fn reject(&mut self, file: u64, command: &abi::Reject) -> Result<()> {
        /// The reasons that a program may give: its own, and an unsupported vendor option.
        const REASONS: [u8; 2] = [Reason::CONSUMER.0 as u8, 35];
        let reason = if command.reason == 0 { REASONS[0] } else { command.reason };
        if !REASONS.contains(&reason) {
            return Err(Errno::EINVAL);
        }
        let now = self.now();
        let id = self.id(file, command.id)?;
        let local = id.connection.ok_or(Errno::EINVAL)?;
        let private = command.private_data[..usize::from(command.private_data_len)].to_vec();
        if id.is_datagram() {
            // Status 2: refused by the service.
            let resolved = Resolved { status: 2, private, ..Resolved::default() };
            return self.answer(local, |connection| connection.resolved(resolved, now));
        }
        if private.len() > room::REJECT {
            return Err(Errno::EINVAL);
        }
        let reason = Reason(reason.into());
        self.answer(local, |connection| connection.reject(reason, Vec::new(), private, now))
    }

    /// `DISCONNECT`. A connection that has ended already is no error.
    pub fn disconnect(&mut self, file: u64, number: u32) -> Result<()> {
        let (now, transaction) = (self.now(), self.draw());
        let id = self.id(file, number)?;
        if id.stage == Stage::Idle || id.is_datagram() {
            return Err(Errno::EINVAL);
        }
        let Some(local) = id.connection else { return Ok(()) };
        if let Some(link) = self.links.get_mut(&local) {
            link.connection.disconnect(transaction, now);
        }
        self.settle(local);
        Ok(())
    }

    /// `NOTIFY`: a packet has arrived on a connection whose peer has not confirmed.
    pub fn notify(&mut self, file: u64, command: &abi::Notify) -> Result<()> {
        /// `IB_EVENT_COMM_EST`
        const COMMUNICATION_ESTABLISHED: u32 = 4;
        let id = self.id(file, command.id)?;
        let Some(local) = id.connection else { return Err(Errno::EINVAL) };
        if command.event != COMMUNICATION_ESTABLISHED {
            return Ok(());
        }
        if let Some(link) = self.links.get_mut(&local) {
            link.connection.has_traffic();
        }
        self.settle(local);
        Ok(())
    }

    /// Answers the peer; `EINVAL` if the connection is in the wrong state.
    fn answer(&mut self, local: u32, how: impl FnOnce(&mut Connection) -> bool) -> Result<()> {
        let link = self.links.get_mut(&local).ok_or(Errno::EINVAL)?;
        let done = how(&mut link.connection);
        self.settle(local);
        if done { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Sends a connection's messages and reports its events.
    pub fn settle(&mut self, local: u32) {
        let Some(link) = self.links.get_mut(&local) else { return };
        while let Some(mad) = link.connection.take_message() {
            self.outbox.push_back((link.card, mad.frame(link.route, link.p_key)));
        }
        let events: Vec<Event> = std::iter::from_fn(|| link.connection.take_event()).collect();
        let (owner, due) = (link.owner, link.connection.deadline());
        if let Some(at) = link.timer {
            self.timers.remove(&(at, local));
        }
        self.timers.extend(due.map(|at| (at, local)));
        link.timer = due;
        if link.connection.phase == crate::management::Phase::Closed {
            self.links.remove(&local);
            if let Some(id) = owner.and_then(|owner| self.known(owner)) {
                id.connection = None;
            }
        }
        if let Some(owner) = owner {
            events.into_iter().for_each(|event| self.tell(owner, event));
        }
    }

    fn tell(&mut self, owner: u32, event: Event) {
        let Some(id) = self.known(owner) else { return };
        let nothing = Contents::Nothing;
        match event {
            Event::Replied(reply) => {
                let attributes = &mut id.attributes;
                attributes.remote_qp = if reply.qp == 0 { reply.target } else { reply.qp };
                attributes.send_psn = reply.psn;
                // What one side starts, the other serves.
                attributes.responder_resources = reply.initiator_depth;
                attributes.initiator_depth = reply.responder_resources;
                attributes.rnr_retry_count = reply.rnr_retry_count;
                let param = ConnParam {
                    qp_num: attributes.remote_qp,
                    srq: reply.srq.into(),
                    responder_resources: attributes.responder_resources,
                    initiator_depth: attributes.initiator_depth,
                    flow_control: reply.flow_control.into(),
                    rnr_retry_count: reply.rnr_retry_count,
                    ..ConnParam::default()
                };
                let contents = Contents::connection(param, &reply.private);
                self.report_with(owner, event::CONNECT_RESPONSE, 0, &contents, reply.ece.into());
            }
            Event::Established => {
                id.stage = Stage::Connected;
                self.report(owner, event::ESTABLISHED, 0, &nothing);
            }
            Event::Rejected(reject) => {
                id.stage = Stage::Ended;
                let contents = Contents::connection(ConnParam::default(), &reject.private);
                self.report(owner, event::REJECTED, reject.reason.0.into(), &contents);
            }
            Event::Unreachable => {
                id.stage = Stage::Ended;
                self.report(owner, event::UNREACHABLE, -libc::ETIMEDOUT, &nothing);
            }
            Event::Disconnected { answered } => {
                id.stage = Stage::Ended;
                let status = if answered { 0 } else { -libc::ETIMEDOUT };
                self.report(owner, event::DISCONNECTED, status, &nothing);
            }
            Event::TimeWaitExit => self.report(owner, event::TIMEWAIT_EXIT, 0, &nothing),
            Event::Resolved(resolved) if resolved.status == 0 => {
                id.stage = Stage::Connected;
                id.q_key = resolved.q_key;
                let (path, place) = (id.path, id.place);
                let to = path.zip(place).map(|(path, place)| self.destination(&path, &place));
                let (to, private) = (to.unwrap_or_default(), &resolved.private);
                let contents = Contents::datagram(resolved.qp, resolved.q_key, to, private);
                self.report(owner, event::ESTABLISHED, 0, &contents);
            }
            Event::Resolved(resolved) => {
                id.stage = Stage::Ended;
                let to = Default::default();
                let contents = Contents::datagram(0, 0, to, &resolved.private);
                self.report(owner, event::UNREACHABLE, resolved.status.into(), &contents);
            }
        }
    }

    /// Handles a datagram that has arrived at a device's port.
    pub fn arrived(&mut self, card: usize, route: &Route, mad: &Mad) {
        match &mad.message {
            Message::Request(request) => self.requested(card, route, mad, request),
            Message::Resolve(resolve) => self.asked(card, route, mad, resolve),
            message => {
                let mad::Addressee::Connection(local) = mad.addressee() else { return };
                let (now, sender) = (self.now(), message.sender());
                let peers = |link: &&mut Link| {
                    let known = link.connection.ids.remote;
                    known == 0 || sender.is_none_or(|sender| sender == 0 || sender == known)
                };
                if let Some(link) = self.links.get_mut(&local).filter(peers) {
                    link.connection.receive(mad, now);
                    self.settle(local);
                } else if let Message::Disconnect(disconnect) = message {
                    // This side has forgotten the connection.
                    let ids = message::Ids { local, remote: disconnect.ids.local };
                    let confirm = message::Confirm { ids, private: Vec::new() };
                    self.send(card, route, mad.transaction, Message::Disconnected(confirm));
                }
            }
        }
    }

    /// Sends a message that is of no connection, back on a route.
    pub fn send(&mut self, card: usize, route: &Route, transaction: u64, message: Message) {
        let frame = Mad { transaction, message }.frame(route.answer(), 0xffff);
        self.outbox.push_back((card, frame));
    }

    /// Refuses a request that is of no connection here.
    pub fn refuse(&mut self, card: usize, route: &Route, mad: &Mad, reason: Reason) {
        let message = match &mad.message {
            Message::Request(request) => Message::Reject(message::Reject {
                ids: message::Ids { local: 0, remote: request.local },
                message: 0,
                reason,
                information: Vec::new(),
                private: Vec::new(),
            }),
            // Status 1: service id not supported.
            Message::Resolve(resolve) => Message::Resolved(Resolved {
                request: resolve.request,
                status: 1,
                service: resolve.service,
                ..Resolved::default()
            }),
            _ => return,
        };
        self.send(card, route, mad.transaction, message);
    }

    /// A REQ has arrived.
    fn requested(&mut self, card: usize, route: &Route, mad: &Mad, request: &Request) {
        let (now, transaction) = (self.now(), self.draw());
        let from = |link: &Link| {
            link.connection.remote_guid == request.guid && !link.connection.is_datagram()
        };
        let repeats = |link: &Link| from(link) && link.connection.ids.remote == request.local;
        let known = self.links.iter().find(|(_, link)| repeats(link)).map(|(local, _)| *local);
        if let Some(local) = known {
            if let Some(link) = self.links.get_mut(&local) {
                link.connection.receive(mad, now);
            }
            return self.settle(local);
        }
        let stale = |link: &Link| {
            from(link) && link.connection.remote_qp == request.qp && !link.connection.has_ended()
        };
        let stale = self.links.iter().find(|(_, link)| stale(link)).map(|(local, _)| *local);
        if let Some(local) = stale.filter(|_| request.qp != 0) {
            if let Some(link) = self.links.get_mut(&local) {
                link.connection.is_stale(transaction, now);
            }
            self.settle(local);
            return self.refuse(card, route, mad, Reason::STALE);
        }
        let Some((listener, addresses)) = self.listener(request.service, &request.private) else {
            return self.refuse(card, route, mad, Reason::INVALID_SERVICE);
        };
        let kind = match (request.transport, request.extended_transport) {
            (1, _) => qp_type::UC,
            (3, 1) => qp_type::XRC_TGT,
            _ => qp_type::RC,
        };
        let Ok(local) = self.communication_id(card) else { return };
        let Some(child) = self.child(listener, card, route, kind, request.service, addresses)
        else {
            return;
        };
        let psn = self.draw() as u32 & PSN;
        let roce = self.ports()[card].link == Wire::Roce;
        let path = &request.primary;
        let turned = Path {
            source: path.remote_gid,
            destination: path.local_gid,
            source_lid: if roce { 0 } else { path.remote_lid },
            destination_lid: if roce { 0 } else { path.local_lid },
            p_key: request.p_key,
            level: path.level,
            traffic_class: path.traffic_class,
            flow_label: path.flow_label,
            hop_limit: path.hop_limit,
            mtu: request.mtu,
            life_time: path.ack_timeout.saturating_sub(1),
        };
        let connection = Connection::requested(local, mad.transaction, request);
        let (route, p_key) = (route.answer(), request.p_key);
        let owner = Some(child);
        self.links.insert(local, Link { connection, owner, card, route, p_key, timer: None });
        let Some(id) = self.known(child) else { return };
        id.connection = Some(local);
        id.path = Some(turned);
        id.attributes = super::state::Attributes {
            remote_qp: request.qp,
            receive_psn: psn,
            send_psn: request.psn,
            mtu: request.mtu,
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            timeout: path.ack_timeout,
        };
        let param = ConnParam {
            qp_num: request.qp,
            srq: request.srq.into(),
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            flow_control: request.flow_control.into(),
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            ..ConnParam::default()
        };
        let skip = if addresses.is_some() { ip::HEADER } else { 0 };
        let contents = Contents::connection(param, &request.private[skip..]);
        self.report_request(listener, child, &contents, request.ece.into());
    }

    /// A SIDR_REQ has arrived.
    fn asked(&mut self, card: usize, route: &Route, mad: &Mad, resolve: &Resolve) {
        let now = self.now();
        let back = route.answer();
        let repeats = |link: &Link| {
            let own = &link.connection;
            own.is_datagram() && own.ids.remote == resolve.request && link.route == back
        };
        let known = self.links.iter().find(|(_, link)| repeats(link)).map(|(local, _)| *local);
        if let Some(local) = known {
            if let Some(link) = self.links.get_mut(&local) {
                link.connection.receive(mad, now);
            }
            return self.settle(local);
        }
        let Some((listener, addresses)) = self.listener(resolve.service, &resolve.private) else {
            return self.refuse(card, route, mad, Reason::INVALID_SERVICE);
        };
        let service = resolve.service;
        let Ok(local) = self.communication_id(card) else { return };
        let Some(child) = self.child(listener, card, route, qp_type::UD, service, addresses) else {
            return;
        };
        let connection = Connection::asked(local, mad.transaction, resolve);
        let owner = Some(child);
        let link = Link { connection, owner, card, route: back, p_key: 0xffff, timer: None };
        self.links.insert(local, link);
        if let Some(id) = self.known(child) {
            id.connection = Some(local);
        }
        let skip = if addresses.is_some() { ip::HEADER } else { 0 };
        let to = Default::default();
        let contents = Contents::datagram(0, 0, to, &resolve.private[skip..]);
        self.report_request(listener, child, &contents, abi::Ece::default());
    }

    /// Finds the listener of a service, and the addresses in a request's private data.
    fn listener(&self, service: u64, private: &[u8]) -> Option<(u32, Option<Addresses>)> {
        let addresses = Addresses::decode(private);
        self.listeners().find_map(|(number, id)| match id.source? {
            Address::Ip(own) => {
                let to = addresses.as_ref()?.destination;
                let takes = ip::service(id.space, own.port()) == service && id.source?.takes(to);
                takes.then_some((number, addresses))
            }
            Address::Ib { service: (own, mask), .. } => {
                (own == service & mask).then_some((number, None))
            }
        })
    }

    /// Makes the id of a request that has arrived. Returns `None` if the program has not read as many
    /// requests as it lets wait; then the peer asks again.
    fn child(
        &mut self,
        listener: u32,
        card: usize,
        route: &Route,
        kind: u8,
        service: u64,
        addresses: Option<Addresses>,
    ) -> Option<u32> {
        let gid = match route {
            Route::Ethernet { global, .. } | Route::InfiniBand { global: Some(global), .. } => {
                global.destination
            }
            Route::InfiniBand { global: None, .. } => self.ports().get(card)?.entry(0).gid,
        };
        let place = place_in_vlan(self.ports(), &gid, route.vlan())?;
        let peer = match route.reverse() {
            Route::Ethernet { global, .. } | Route::InfiniBand { global: Some(global), .. } => {
                global.destination
            }
            Route::InfiniBand { destination, .. } => {
                self.ports().iter().find(|port| port.lid == destination)?.entry(0).gid
            }
        };
        let parent = self.known(listener)?;
        parent.backlog = parent.backlog.checked_sub(1)?;
        let mut id = Id::new(parent.file, 0, parent.space, kind);
        (id.type_of_service, id.ack_timeout) = (parent.type_of_service, parent.ack_timeout);
        (id.stage, id.place) = (Stage::Connecting, Some(place));
        id.q_key = Q_KEY;
        (id.source, id.destination) = match addresses {
            Some(addresses) => {
                let own = std::net::SocketAddr::new(addresses.destination, service as u16);
                (Some(Address::Ip(own)), Some(Address::Ip(addresses.source)))
            }
            None => (
                Some(Address::Ib { gid, service: (service, u64::MAX) }),
                Some(Address::Ib { gid: peer, service: (service, u64::MAX) }),
            ),
        };
        id.path = self.path_to(&id, peer);
        Some(self.insert(id))
    }

    /// Returns what address handles and queue pairs are given for a path.
    pub fn destination(&self, path: &Path, place: &Place) -> abi::AhAttr {
        attributes::destination(self.ports()[place.card].link, path, place.index)
    }
}
