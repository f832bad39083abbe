//! Telling why something was refused, failed or dropped: to the recording, and to standard error.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5_sys::ifc::{mkc, opcode, qpc};

use super::{Card, Tapping};
use crate::object::{Mkey, Service, State};
use crate::private::complain;
use crate::trace::{Call, Observed};
use crate::work::{Access, Denied, Domain, Reason, Refusal, Region};

/// Most lines of a process. A program that meets more has read the first ones.
const MOST: usize = 1000;

/// Writes reasons to standard error: one of each kind for a queue pair, command or call.
#[derive(Debug, Default)]
pub(crate) struct Explaining(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    told: BTreeSet<Line>,
    count: usize,
}

/// A line that was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// About a queue pair of a card, by number and name of the reason.
    Queue(usize, u32, &'static str),
    /// About a command of a card, by opcode and syndrome.
    Command(usize, u16, u32),
    /// About a call, by where it is refused and what is.
    Call(&'static Location<'static>, String),
}

impl Explaining {
    /// Writes a line that was not written yet.
    fn write(&self, line: Line, text: fmt::Arguments<'_>) {
        let mut lines = self.lines();
        if lines.count == MOST || !lines.told.insert(line) {
            return;
        }
        lines.count += 1;
        complain!("{text}");
        if lines.count == MOST {
            complain!("that was the last of {MOST} lines of reasons; recordings have all of them");
        }
    }

    /// Tells why a call is refused: `REQUEST refused: WHY`.
    pub fn call(&self, place: &'static Location<'static>, why: &str, errno: &str) {
        let request = why.split(" refused").next().unwrap_or_default();
        let line = Line::Call(place, request.to_owned());
        self.write(line, format_args!("{why} ({errno})"));
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A card's own share of it: which card of the process it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    explaining: &'static Explaining,
    card: usize,
}

impl Card {
    /// Writes reasons to standard error from now on.
    pub(crate) fn explain_to(&mut self, explaining: &'static Explaining, card: usize) {
        self.told = Some(Told { explaining, card });
    }

    /// Tells why something of a queue pair was refused, failed or dropped.
    pub(crate) fn explain(&self, qp: u32, reason: &Reason) {
        tracing::debug!(qp, %reason);
        if let Some(Tapping { tap, .. }) = &self.tapping {
            let text = reason.to_string();
            tap.observe(Observed::Reason { qp, text: text.as_bytes().into() });
        }
        let Some(Told { explaining, card }) = self.told else { return };
        let service = self.objects.qps.get(&qp).map_or(Service::Ud, |qp| qp.service);
        if !is_final(reason, service) {
            return;
        }
        let line = Line::Queue(card, qp, reason.name());
        match self.connected(qp) {
            Some(peer) => explaining.write(
                line,
                format_args!("mlx5_{card}: queue pair {qp:#x}, connected to {peer:#x}: {reason}"),
            ),
            None => {
                explaining.write(line, format_args!("mlx5_{card}: queue pair {qp:#x}: {reason}"))
            }
        }
    }

    /// Tells why a command is refused. Recordings have the reply, whose syndrome names the cause.
    pub(crate) fn explain_command(
        &self,
        opcode: u16,
        (status, syndrome): (u8, u32),
        why: &dyn fmt::Display,
    ) {
        let command = opcode::name(opcode).unwrap_or("unknown");
        tracing::debug!(command, status, %why, "refused");
        let Some(Told { explaining, card }) = self.told else { return };
        explaining.write(
            Line::Command(card, opcode, syndrome),
            format_args!(
                "mlx5_{card}: command {command} ({opcode:#x}) refused, status {status:#x}, syndrome \
                 {syndrome:#x}: {why}"
            ),
        );
    }

    /// The driver has refused a request: tells why, to the recording.
    pub(crate) fn refused(&mut self, request: &[u8], errno: i32) {
        self.enter(|| Call::Refused { request: request.into(), errno }, |_| (), |()| false);
    }

    /// The program asked for room for so many requests in a send queue.
    pub(crate) fn expect_requests(&mut self, qp: u32, most: u32) {
        if let Some(qp) = self.objects.qps.get_mut(&qp) {
            qp.sq.unsignaled = (most > 0).then_some((most, most));
        }
    }

    /// Forgets what was told of a queue pair, which is reset or gone.
    pub(crate) fn forget_reasons(&self, qp: u32) {
        let Some(Told { explaining, card }) = self.told else { return };
        explaining.lines().told.retain(
            |line| !matches!(line, Line::Queue(its, number, _) if (*its, *number) == (card, qp)),
        );
    }

    /// The queue pair that another one is connected to.
    fn connected(&self, qp: u32) -> Option<u32> {
        let qp = self.objects.qps.get(&qp)?;
        let is_connected = matches!(qp.service, Service::Rc | Service::Uc | Service::Xrc);
        Some(qp.get(qpc::REMOTE_QPN)).filter(|peer| is_connected && *peer != 0)
    }

    /// Tells that a key did not allow an access. Returns why.
    pub(crate) fn explain_denied(
        &self,
        domain: Domain,
        key: u32,
        (address, length): (u64, u64),
        access: Access,
        denied: Denied,
    ) -> Denied {
        if self.tapping.is_some() || self.told.is_some() {
            let region = self.objects.mkeys.get(key >> 8).map(|mkey| region(key, mkey));
            let domain_of = domain.pd;
            let refusal =
                Refusal { access, key, address, length, denied, domain: domain_of, region };
            self.explain(domain.qp, &Reason::Denied(refusal));
        }
        denied
    }
}

/// Returns whether something of a queue pair of this service fails or is lost for good. Reliable ones repeat a packet,
/// and what comes to a queue pair in ERR may be of a peer that does not know yet.
fn is_final(reason: &Reason, service: Service) -> bool {
    let repeats = matches!(service, Service::Rc | Service::Xrc | Service::Dc);
    match reason {
        Reason::State(state) => !repeats && *state != State::Error.name(),
        Reason::Transport => !repeats,
        _ => true,
    }
}

fn region(key: u32, mkey: &Mkey) -> Region {
    let rights =
        [Access::LocalWrite, Access::RemoteRead, Access::RemoteWrite, Access::RemoteAtomic];
    let grants = |access: &Access| access.right().is_some_and(|right| mkey.get(right) == 1);
    Region {
        key: key & !0xff | mkey.get(mkc::MKEY_7_0),
        is_free: mkey.get(mkc::FREE) == 1,
        domain: mkey.get(mkc::PD),
        bound: mkey.bound_to(),
        start: mkey.start(),
        length: (mkey.get(mkc::LENGTH64) == 0).then(|| mkc::LEN.get(&mkey.context[..])),
        rights: rights.into_iter().filter(grants).collect(),
    }
}
