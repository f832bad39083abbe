//! The transport's state of a queue pair.

use std::any::Any;

use mlx5_sys::ifc::qpc;

use super::dynamic::Connections;
use super::ethernet::Ethernet;
use super::rc::Rc;
use super::unreliable::Unreliable;
use crate::object::{Qp, TransportState};

/// State of a queue pair, whatever its service is.
#[derive(Debug, Default)]
pub struct QueuePair {
    /// Requester and responder of a reliable connection.
    pub(super) rc: Rc,
    /// Sender and receiver of an unreliable service.
    pub(super) unreliable: Unreliable,
    /// State of an Ethernet queue.
    pub(super) ethernet: Ethernet,
    /// Connections of a target of dynamic connections.
    pub(super) connections: Connections,
}

impl QueuePair {
    /// Creates the state of a queue pair in Reset.
    pub fn boxed() -> Box<dyn TransportState> {
        Box::<Self>::default()
    }

    /// Lets a stream of an initiator go on that has failed; `false` if it has not.
    pub fn reset_stream(qp: &mut Qp, stream: u16) -> bool {
        Self::of_mut(qp).is_some_and(|state| state.rc.reset_stream(stream))
    }

    /// Makes a stream of an initiator fail, for tests of the behavior after that.
    #[cfg(test)]
    pub(crate) fn fail_stream(qp: &mut Qp, stream: u16) {
        if let Some(state) = Self::of_mut(qp) {
            state.rc.fail_stream(stream);
        }
    }

    /// Returns the state of a queue pair; `None` for one that another transport keeps.
    pub(super) fn of(qp: &Qp) -> Option<&Self> {
        qp.transport.as_any().downcast_ref()
    }

    /// Returns the same, to be changed.
    pub(super) fn of_mut(qp: &mut Qp) -> Option<&mut Self> {
        qp.transport.as_any_mut().downcast_mut()
    }
}

impl TransportState for QueuePair {
    fn describe(&self, context: &mut [u8; qpc::SIZE]) {
        self.rc.describe(context);
        self.unreliable.describe(context);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
