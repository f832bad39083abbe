//! Automatic path migration (IBA 1.3, 17.2.8): a connection moves to its alternate path when the
//! first one fails, when software requests it, or when the peer has moved.
//!
//! Both sides have to be ready. A side that was given an alternate path clears the migration bit in
//! every packet (REARM). A side that sees the peer's bit clear is ready to move (ARMED). A side
//! that has moved sets the bit again (MIGRATED), which moves the peer.

use mlx5_sys::ifc::qpc;

use super::Rc;
use crate::card::Card;
use crate::object::Service;
use crate::queue::QpEvent;
use crate::transport::{Outcome, Parameters};
use crate::wire::Header;

/// Migration state of a connection (`mlx5_ifc.h`, `MLX5_QPC_PM_STATE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Both sides are ready to move.
    Armed,
    /// This side is ready; of the peer nothing is known.
    Rearm,
    /// There is no other path, or it was taken.
    Migrated,
}

impl Migration {
    /// The state that a context says; what has no alternate path does not move.
    pub fn of(service: Service, code: u32) -> Self {
        match code {
            0 if matches!(service, Service::Rc | Service::Xrc) => Self::Armed,
            1 if matches!(service, Service::Rc | Service::Xrc) => Self::Rearm,
            _ => Self::Migrated,
        }
    }

    fn code(self) -> u64 {
        match self {
            Self::Armed => 0,
            Self::Rearm => 1,
            Self::Migrated => 3,
        }
    }
}

impl Rc {
    /// Follows the request of a packet's migration bit, before the packet is examined further.
    pub(super) fn follow(&mut self, card: &mut Card, own: &Parameters, header: &Header) {
        match (own.migration, header.migrated) {
            (Migration::Rearm, false) if own.is_peer(&header.route) => {
                self.set_migration(card, own.number, Migration::Armed);
            }
            (Migration::Armed, true) => {
                if own.leads_back(&header.route) {
                    self.migrate(card, own.number);
                } else if !self.told_of_migration {
                    self.told_of_migration = true;
                    card.port.hold(Outcome::Event(own.number, QpEvent::PathMigrationFailed));
                }
            }
            _ => {}
        }
    }

    /// Moves to the alternate path, where every request may be tried as often as if it was new, and
    /// tells software.
    pub(in crate::transport) fn migrate(&mut self, card: &mut Card, qp: u32) {
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            let alternate = object.context[qpc::SECONDARY_ADDRESS_PATH.bytes()].to_vec();
            object.context[qpc::PRIMARY_ADDRESS_PATH.bytes()].copy_from_slice(&alternate);
        }
        self.set_migration(card, qp, Migration::Migrated);
        if let Some(own) = self.parameters {
            self.requester.start_again(&own);
        }
        card.port.hold(Outcome::Event(qp, QpEvent::PathMigrated));
    }

    fn set_migration(&mut self, card: &mut Card, qp: u32, to: Migration) {
        let Some(object) = card.objects.qps.get_mut(&qp) else { return };
        qpc::PM_STATE.set(&mut object.context[..], to.code());
        self.parameters = Some(Parameters::of(object, &card.identity));
        self.told_of_migration = false;
    }

    /// Whether the requester, which has tried often enough, may try the alternate path instead.
    pub(super) fn may_migrate(&self) -> bool {
        self.parameters.is_some_and(|own| own.migration == Migration::Armed)
    }
}
