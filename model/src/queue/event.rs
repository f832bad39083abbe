//! Event queues: EQEs, their causes, and the interrupts that announce them.

use mlx5_sys::ifc::{cqc, eqc};

use super::{QpEvent, SrqEvent, TargetEvent};
use crate::card::{Card, PortState, Tapping};
use crate::function::Notice;
use crate::object::Role;
use crate::trace::{Call, Observed};
use crate::work::CqFailure;

/// Counters of CQs and EQs have 24 bits.
pub(super) const COUNTER: u32 = 0x00ff_ffff;

/// Event types that are not of queue pairs (`device.h`).
const COMPLETION: u8 = 0x00;
const CQ_ERROR: u8 = 0x04;
const PORT_CHANGE: u8 = 0x09;
const PAGE_REQUEST: u8 = 0x0b;
const GENERAL: u8 = 0x22;
/// The number of the port.
const PORT: u8 = 1;
/// Subtypes of a change of the port.
const PORT_DOWN: u8 = 1;
const PORT_ACTIVE: u8 = 4;

impl Card {
    /// Writes the EQE of an asynchronous event of a queue pair, to the EQ that listens for its
    /// type. Where none does, it is lost, as on a card.
    pub fn qp_event(&mut self, qp: u32, event: QpEvent) {
        let mut data = [0; 28];
        // Byte 0x14 tells the kind of queue: 0 is a QP, 1 an RQ, 2 an SQ (`mlx5_ifc.h`, qp_events).
        data[0x14] = match self.objects.qps.get(&qp).map(|qp| &qp.role) {
            None | Some(Role::Pair | Role::Special(_) | Role::Target(_)) => 0,
            Some(Role::EthernetReceive(..)) => 1,
            Some(Role::EthernetSend(_)) => 2,
        };
        data[0x18..].copy_from_slice(&(qp & COUNTER).to_be_bytes());
        self.asynchronous(event as u8, 0, data);
    }

    /// The same of a shared receive queue.
    pub(super) fn srq_event(&mut self, srq: u32, event: SrqEvent) {
        let mut data = [0; 28];
        // `device.h`, mlx5_eqe_qp_srq: the number alone.
        data[0x18..].copy_from_slice(&(srq & COUNTER).to_be_bytes());
        self.asynchronous(event as u8, 0, data);
    }

    /// The same of a target of dynamic connections.
    pub fn target_event(&mut self, target: u32, event: TargetEvent) {
        let mut data = [0; 28];
        // `mlx5_ifc.h`, dct_events.
        data[0x18..].copy_from_slice(&(target & COUNTER).to_be_bytes());
        self.asynchronous(event as u8, 0, data);
    }

    pub(super) fn cq_error_event(&mut self, cq: u32, failure: CqFailure) {
        let mut data = [0; 28];
        data[..4].copy_from_slice(&(cq & COUNTER).to_be_bytes());
        data[11] = failure as u8;
        self.asynchronous(CQ_ERROR, 0, data);
    }

    /// Tells the EQ of a CQ that it has completions.
    pub(super) fn completion_event(&mut self, cq: u32) {
        let Some(eq) = self.objects.cqs.get(cq).map(|cq| cq.get(cqc::C_EQN_OR_APU_ELEMENT)) else {
            return;
        };
        let mut data = [0; 28];
        data[0x18..].copy_from_slice(&(cq & COUNTER).to_be_bytes());
        self.post_eqe(eq, COMPLETION, 0, data);
    }

    /// The cable is plugged in or pulled. While the port is down, packets are lost.
    pub fn set_port(&mut self, up: bool) {
        self.enter(|| Call::Port(up), |card| card.port_changed(up), |()| false);
    }

    /// A port that is switched off stays off, whatever happens to its cable.
    fn port_changed(&mut self, up: bool) {
        self.plugged = up;
        if self.port_state == PortState::Disabled || self.port_up() == up {
            return;
        }
        self.move_port(self.linked_state());
    }

    /// Switches the port on or off, as its administrator does.
    pub(crate) fn switch_port(&mut self, on: bool) {
        match (on, self.port_state) {
            (true, PortState::Disabled) => self.move_port(self.linked_state()),
            (false, state) if state != PortState::Disabled => self.move_port(PortState::Disabled),
            _ => {}
        }
    }

    /// Returns the state of a port that is switched on.
    fn linked_state(&self) -> PortState {
        if self.plugged { PortState::Active } else { PortState::Polling }
    }

    /// Changes the state of the port, and reports whether it is up if that has changed.
    fn move_port(&mut self, state: PortState) {
        let (before, up) = (self.port_up(), state == PortState::Active);
        self.port_state = state;
        self.configured |= up;
        if up == before {
            return;
        }
        let mut data = [0; 28];
        // The port's number, in the upper half.
        data[8] = PORT << 4;
        self.asynchronous(PORT_CHANGE, if up { PORT_ACTIVE } else { PORT_DOWN }, data);
    }

    /// Returns the EQ that listens for completed commands.
    pub fn command_queue(&self) -> Option<u32> {
        self.listener(Notice::COMMANDS)
    }

    /// Reports an event of the function itself.
    pub fn notify(&mut self, notice: Notice) {
        self.enter(|| Call::Notice(notice), |card| card.report(notice), |()| false);
    }

    fn report(&mut self, notice: Notice) {
        let mut data = [0; 28];
        // `device.h`: mlx5_eqe_cmd, mlx5_eqe_page_req, mlx5_eqe_port_state.
        match notice {
            Notice::Commands { eq, slots } => {
                data[..4].copy_from_slice(&slots.to_be_bytes());
                self.post_eqe(eq, Notice::COMMANDS, 0, data);
            }
            Notice::Pages(count) => {
                self.function.pages.want(count);
                data[4..8].copy_from_slice(&count.to_be_bytes());
                self.asynchronous(PAGE_REQUEST, 0, data);
            }
            Notice::Port(change) => {
                data[8] = PORT << 4;
                self.asynchronous(PORT_CHANGE, change as u8, data);
            }
            Notice::General(subtype) => self.asynchronous(GENERAL, subtype, data),
        }
    }

    fn listener(&self, kind: u8) -> Option<u32> {
        self.objects.eqs.iter().find(|(_, eq)| eq.listens(kind)).map(|(number, _)| number)
    }

    fn asynchronous(&mut self, kind: u8, subtype: u8, data: [u8; 28]) {
        match self.listener(kind) {
            Some(eq) => self.post_eqe(eq, kind, subtype, data),
            None => tracing::debug!(kind, "no EQ listens for an event"),
        }
    }

    fn post_eqe(&mut self, number: u32, kind: u8, subtype: u8, data: [u8; 28]) {
        let Some(eq) = self.objects.eqs.get_mut(number) else { return };
        if eq.failed {
            return;
        }
        let used = eq.producer.wrapping_sub(eq.consumer) & COUNTER;
        if used >= eq.entries && eq.get(eqc::OI) == 0 {
            tracing::error!(eq = number, "an EQ overran");
            eq.failed = true;
            return;
        }
        let mut eqe = [0; 64];
        eqe[1] = kind;
        eqe[3] = subtype;
        eqe[0x20..0x3c].copy_from_slice(&data);
        eqe[0x3f] = u8::from(eq.producer & eq.entries != 0);
        let slot = (eq.producer & (eq.entries - 1)) as usize * eqe.len();
        if let Err(fault) = eq.pages.publish(&*self.memory, slot, &eqe) {
            tracing::error!(eq = number, %fault, "the ring of an EQ is not there");
            self.complaints.unmapped_queues += 1;
            eq.failed = true;
            return;
        }
        if let Some(Tapping { tap, .. }) = &self.tapping {
            tap.observe(Observed::Eqe { eq: number, index: eq.producer, bytes: (&eqe).into() });
        }
        eq.producer = (eq.producer + 1) & COUNTER;
        if eq.armed {
            eq.armed = false;
            let vector = eq.get(eqc::INTR);
            self.interrupts.push_back(vector);
        }
    }

    /// Handles a store to an EQ register. Software has taken events up to `consumer`. With `arm`,
    /// it wants the interrupt for events from there on, present or future.
    pub(super) fn update_eq(&mut self, uar: u32, number: u32, consumer: u32, arm: bool) {
        let Some(eq) = self.objects.eqs.get_mut(number).filter(|eq| eq.get(eqc::UAR_PAGE) == uar)
        else {
            tracing::warn!(uar, eq = number, "a doorbell for an EQ that is not on this UAR page");
            self.complaints.stray_doorbells += 1;
            return;
        };
        eq.consumer = consumer & COUNTER;
        if arm {
            eq.armed = eq.producer == eq.consumer;
            if !eq.armed {
                let vector = eq.get(eqc::INTR);
                self.interrupts.push_back(vector);
            }
        }
    }
}

#[cfg(test)]
mod tests;
