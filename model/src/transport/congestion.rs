//! Congestion: receivers tell senders of marked packets, and senders slow down.
//!
//! - On Ethernet (IBA 1.3, A17.9; RFC 3168), the network marks packets in the IP header. The receiver
//!   answers with a notification (CNP), as often as its port may.
//! - On InfiniBand (IBA 1.3, annex A10), switches set FECN. The responder of a reliable connection
//!   sets BECN in its next response.
//!
//! Either makes the sender's port reduce its rate towards that destination ([`Reaction`]). Requests leave
//! no faster than the rate. Responses are not limited.
//!
//! [`Reaction`]: crate::card::Reaction

use super::Parameters;
use crate::card::{Card, Destination, parameter};
use crate::object::Service;
use crate::wire::{Ecn, Header, MULTICAST, Opcode, Route, Tag};

/// Class of notifications.
const CLASS: u8 = (parameter::CNP_DSCP as u8) << 2;
/// Bytes after the BTH of a notification, all zero.
const RESERVED: usize = 16;

/// The reaction of a queue pair to congestion.
#[derive(Clone, Debug, Default)]
pub(super) struct Congestion {
    /// Whether the next response tells of congestion.
    echoes: bool,
    /// The destination that has told it of congestion last.
    told_by: Option<Destination>,
    /// The time at which the next request packet may leave.
    next: u64,
    /// The rate that it obeys, if that is limited.
    rate: Option<u64>,
}

impl Congestion {
    /// Looks at a packet that the queue pair accepts: tells the sender if it met congestion, and
    /// slows down if it tells of congestion itself. Returns whether it was a notification, which
    /// has no other content.
    pub fn look_at(&mut self, card: &mut Card, own: &Parameters, header: &Header) -> bool {
        if header.opcode == Opcode::CongestionNotification {
            card.congestion.handled += 1;
            self.slow_down(card, header);
            return true;
        }
        match header.route {
            Route::Ethernet { global, port: Some(_), .. } if global.met_congestion() => {
                card.congestion.marked += 1;
                // Many receivers' notifications would slow a multicast down too much.
                if header.destination != MULTICAST {
                    self.notify(card, own, header);
                }
            }
            Route::Ethernet { .. } => {}
            Route::InfiniBand { .. } => {
                self.echoes |= header.fecn && !header.opcode.is_response();
                if header.becn {
                    self.slow_down(card, header);
                }
            }
        }
        false
    }

    /// Sends a notification to the sender of a packet.
    fn notify(&mut self, card: &mut Card, own: &Parameters, header: &Header) {
        let sender = header.datagram.map_or(own.remote, |datagram| datagram.source);
        if !card.reaction.may_notify(card.clock.now()) {
            return;
        }
        card.congestion.sent += 1;
        let mut route = header.route.reverse();
        if let Route::Ethernet { global, tag, .. } = &mut route {
            global.traffic_class = CLASS | Ecn::NotCapable as u8;
            *tag = tag.map(|tag| Tag { priority: parameter::CNP_802P_PRIO as u8, ..tag });
        }
        let opcode = Opcode::CongestionNotification;
        let header = Header { becn: true, ..Header::new(route, opcode, own.p_key, sender, 0) };
        let Ok(frame) = header.frame(RESERVED, |_| Ok::<_, std::convert::Infallible>(()));
        card.respond(frame);
    }

    /// Slows the port down towards the sender of a packet.
    fn slow_down(&mut self, card: &mut Card, header: &Header) {
        let sender = header.route.reverse().destination();
        card.reaction.slow_down(sender, card.clock.now());
        self.told_by = Some(sender);
    }

    /// Sets BECN, if it is due, in the first response that was put into the outbox behind the first
    /// `before` packets.
    pub fn echo(&mut self, card: &mut Card, before: usize) {
        if self.echoes {
            if let Some(response) = card.outbox.get_mut(before) {
                Header::set_becn(card.identity.link, response);
                self.echoes = false;
            }
        }
    }

    /// Returns whether the queue pair's rate is limited. Then it sends one request packet in a turn
    /// and [pays](Self::pay) for it.
    pub fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Returns the time at which the next request packet may leave, if not now. A queue pair of
    /// datagrams obeys the rate towards the destination that has told it of congestion last.
    pub fn wait(&mut self, card: &mut Card, own: &Parameters) -> Option<u64> {
        if !card.reaction.is_limiting() {
            self.rate = None;
            return None;
        }
        let now = card.clock.now();
        let destination = match own.service {
            Service::Ud => self.told_by?,
            _ => own.route.destination(),
        };
        self.rate = card.reaction.rate(&destination, now);
        self.rate.and(Some(self.next)).filter(|next| now < *next)
    }

    /// Accounts for the requests that were put into the outbox behind the first `before` packets.
    pub fn pay(&mut self, card: &mut Card, own: &Parameters, before: usize) {
        let Some(rate) = self.rate else { return };
        let bytes: u64 = card.outbox.range(before..).map(|frame| frame.0.len() as u64).sum();
        self.next = self.next.max(card.clock.now()) + bytes * 1_000_000_000 / rate;
        let destination = self.told_by.filter(|_| own.service == Service::Ud);
        card.reaction.sent(&destination.unwrap_or(own.route.destination()), bytes);
    }
}
