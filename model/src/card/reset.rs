//! Reset of the device.

use super::{Card, Registers};
use crate::function::Function;
use crate::object::{Memic, Objects};
use crate::trace::Call;

impl Card {
    /// Resets the function, as power-on and a function-level reset do. Its objects are gone, and its
    /// driver has to start the HCA before other commands are accepted.
    ///
    /// The device keeps its identity, its QP numbers, the state and counters of its port, and
    /// all that watches it or delays its frames.
    pub fn reset(&mut self) {
        self.enter(
            || Call::Reset,
            |card| {
                card.clear();
                card.stopped = false;
                card.function = Function::powered_on();
            },
            |()| false,
        );
    }

    /// Destroys all objects, and with them everything that they have not finished.
    pub(crate) fn clear(&mut self) {
        self.place_all();
        self.objects = Objects::default();
        self.identity.gids.clone_from(&self.own_gids);
        if let Some(bus) = self.memic.bus(Memic::WINDOW) {
            self.memic = Memic::at(bus);
        }
        self.port.clear();
        self.registers = Registers::default();
        self.compressing.clear();
        self.moderating.clear();
        self.outbox.clear();
        self.interrupts.clear();
    }
}
