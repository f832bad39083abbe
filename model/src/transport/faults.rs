//! Faults by rule at a device: sets the rules, and does what they say at their time.

use crate::card::{Card, Port};
use crate::fault::{DeviceEffect, Faults, Impairment, Queues, Strike, Tally, WqeFault};
use crate::private::system;
use crate::queue::{Fetch, Syndrome};
use crate::trace::Call;
use crate::wire::Direction;
use crate::work::CqFailure;

/// Why a command has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The device has not answered in time.
    #[error("no answer in time")]
    TimedOut,
    /// The firmware has stopped.
    #[error("the firmware has stopped")]
    Stopped,
}

impl Card {
    /// Sets the rules for faults of the device with index `device`, and of its frames, in place of
    /// the earlier ones. Times count from now on. Frames that earlier rules delay come through now.
    pub fn set_faults(&mut self, faults: &Faults, device: usize) {
        let now = self.clock.now();
        let mut new = Impairment::new(faults, device, self.identity.link, now);
        if let Some(before) = self.impairment.take() {
            new.inherit(*before);
        }
        let wqes = new.wqe_faults();
        self.impairment = Some(Box::new(new));
        if !(wqes.is_empty() && self.wqe_faults.is_empty()) {
            self.set_wqe_faults(wqes);
        }
        self.expire_faults();
        self.impairment.take_if(|impairment| impairment.is_idle());
    }

    /// Returns what each rule has done so far, in the order of the rules.
    pub fn fault_tallies(&self) -> Vec<Tally> {
        let wqes = self.wqe_faults.iter().map(|(_, tally)| *tally);
        self.impairment.as_ref().map_or_else(Vec::new, |impairment| impairment.tallies(wqes))
    }

    /// Sets the rules for send WQEs that fail, in place of the earlier ones. A call of its own, so that
    /// a recording has it.
    pub(crate) fn set_wqe_faults(&mut self, faults: Vec<WqeFault>) {
        self.enter(
            || Call::WqeFaults(faults.clone().into()),
            |card| {
                let zero = |fault: &WqeFault| (fault.clone(), Tally::default());
                card.wqe_faults = faults.iter().map(zero).collect();
            },
            |()| false,
        );
    }

    /// Takes the next send WQE of a queue pair to execute it, as [`Card::fetch_send`] does. One that a
    /// rule lets fail is not executed.
    pub(super) fn next_send(&mut self, qp: u32) -> Fetch {
        let fetch = self.fetch_send(qp);
        let Fetch::Wqe(wqe) = &fetch else { return fetch };
        let mut codes = None;
        for (fault, tally) in &mut self.wqe_faults {
            if fault.qp.is_none_or(|only| only == qp) {
                tally.matched += 1;
                if codes.is_none() && fault.numbers.contains(&tally.matched) {
                    tally.struck += 1;
                    codes = Some(fault.codes);
                }
            }
        }
        let Some(codes) = codes else { return fetch };
        let (index, opcode, syndrome) = (wqe.index, wqe.opcode, Syndrome::Chosen(codes));
        Fetch::Malformed { index, opcode, syndrome }
    }

    /// Lets the faults and delayed frames happen whose time has come.
    pub(super) fn expire_faults(&mut self) {
        let now = self.clock.now();
        while let Some(strike) = self.impairment.as_mut().and_then(|rules| rules.strike(now)) {
            self.strike(strike);
        }
        if let Some(impairment) = &mut self.impairment {
            impairment.release(now);
        }
        self.deliver_released();
    }

    /// Delivers the frames that have come through the faults of their way in.
    pub(super) fn deliver_released(&mut self) {
        while let Some(frame) =
            self.impairment.as_mut().and_then(|rules| rules.take(Direction::Inbound))
        {
            self.deliver(&frame);
        }
    }

    /// Notes a command that is about to be executed, with its faults.
    ///
    /// # Errors
    /// If the command is not executed and has no answer.
    pub(crate) fn command_faults(&mut self, opcode: u16) -> Result<(), Unanswered> {
        if let Some(impairment) = &mut self.impairment {
            let now = self.clock.now();
            let unanswered = impairment.command(opcode, now);
            self.expire_faults();
            if unanswered {
                tracing::warn!(opcode, "a fault: the command is not answered");
                return Err(Unanswered::TimedOut);
            }
        }
        if self.stopped { Err(Unanswered::Stopped) } else { Ok(()) }
    }

    fn strike(&mut self, strike: Strike) {
        tracing::warn!(?strike, "a fault");
        match strike {
            Strike::LinkUp => self.set_port(true),
            Strike::Begin(DeviceEffect::Flap) => self.set_port(false),
            Strike::Begin(DeviceEffect::Overrun(queues, number)) => self.overrun(queues, number),
            Strike::Begin(DeviceEffect::Fatal) => self.stop(),
            // SAFETY: the calls pass no memory. The process ends.
            Strike::Begin(DeviceEffect::Crash) => unsafe {
                system::kill(system::process(), libc::SIGKILL);
            },
            // The command itself is the fault's time.
            Strike::Begin(DeviceEffect::Timeout) => {}
        }
    }

    /// Lets a CQ or EQ overrun, or all of them, as if the device had found no room in the ring.
    fn overrun(&mut self, queues: Queues, number: Option<u32>) {
        match queues {
            Queues::Completion => self.overrun_cqs(number),
            Queues::Event => self.overrun_eqs(number),
        }
    }

    /// Lets a CQ overrun, or all of them: events tell of each, and its queue pairs fail.
    pub fn overrun_cqs(&mut self, number: Option<u32>) {
        self.enter(
            || Call::OverrunCqs(number),
            |card| {
                let all: Vec<u32> = card.objects.cqs.iter().map(|(cqn, _)| cqn).collect();
                for cqn in all.into_iter().filter(|cqn| number.is_none_or(|one| one == *cqn)) {
                    card.fail_cq(cqn, CqFailure::Overrun);
                }
                card.follow_up();
            },
            |()| false,
        );
    }

    /// Lets an EQ overrun, or all of them: no event reaches them any more.
    pub fn overrun_eqs(&mut self, number: Option<u32>) {
        self.enter(
            || Call::OverrunEqs(number),
            |card| {
                let all: Vec<u32> = card.objects.eqs.iter().map(|(eqn, _)| eqn).collect();
                for eqn in all.into_iter().filter(|eqn| number.is_none_or(|one| one == *eqn)) {
                    if let Some(eq) = card.objects.eqs.get_mut(eqn) {
                        eq.failed = true;
                    }
                }
            },
            |()| false,
        );
    }

    /// Stops the firmware, as after a fatal error: the device does nothing any more. The interrupt of
    /// vector 0 is raised, at which a driver finds it so.
    pub fn stop(&mut self) {
        self.enter(
            || Call::Stop,
            |card| {
                card.stopped = true;
                card.port = Port::default();
                card.outbox.clear();
                card.compressing.clear();
                card.moderating.clear();
                card.interrupts.push_back(0);
            },
            |()| false,
        );
    }
}
