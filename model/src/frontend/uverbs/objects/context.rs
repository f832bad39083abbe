//! The context of an open device.

use std::sync::Arc;

use mlx5_sys::ifc::{
    dealloc_transport_domain_in, dealloc_transport_domain_out, destroy_uctx_in, destroy_uctx_out,
    opcode,
};

use super::super::driver::command::Command;
use super::super::driver::event::EventQueue;
use super::super::driver::function::Function;
use super::super::process::lock;

/// The state that opening a device creates.
pub(crate) struct Context {
    /// The user id that the device holds responsible for objects; 0 if DevX was not requested.
    pub uid: u16,
    /// Version of CQEs that was agreed on.
    pub cqe_version: u8,
    /// Transport domain; queues of Ethernet belong to it.
    pub domain: u32,
    /// The destination of asynchronous events.
    pub events: Option<Arc<EventQueue>>,
}

impl Context {
    /// Takes from the device what it has of the context.
    pub fn destroy(&self, function: &Function) {
        let mut command = Command::new(
            opcode::DEALLOC_TRANSPORT_DOMAIN,
            dealloc_transport_domain_in::SIZE,
            dealloc_transport_domain_out::SIZE,
        );
        command.set(dealloc_transport_domain_in::UID, self.uid);
        command.set(dealloc_transport_domain_in::TRANSPORT_DOMAIN, self.domain);
        let mut gone = function.run(command);
        if self.uid != 0 {
            let mut command =
                Command::new(opcode::DESTROY_UCTX, destroy_uctx_in::SIZE, destroy_uctx_out::SIZE);
            command.set(destroy_uctx_in::UID, self.uid);
            gone = gone.and(function.run(command));
        }
        if let Err(error) = gone {
            tracing::warn!(errno = error.0, "a context of a closed file stays");
        }
        if let Some(events) = &self.events {
            let mut listeners = lock(function.listeners());
            listeners.ports.retain(|queue| !Arc::ptr_eq(queue, events));
        }
    }
}
