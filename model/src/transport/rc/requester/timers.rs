//! The requester's timers: waits for answers and after RNR NAKs, repetition, and the end of retries.

use mlx5_sys::ifc::query_q_counter_out as counter;

use super::Requester;
use crate::card::Card;
use crate::queue::Syndrome;
use crate::transport::Parameters;
use crate::transport::timing::{self, Kind as Timeout, Schedule};
use crate::work::Reason;

/// RNR retry count that means unlimited retries.
const FOR_EVER: u8 = 7;

impl Requester {
    /// Stops every timer.
    pub(in crate::transport) fn quiet(&mut self) {
        self.rnr_until = None;
        self.ack_until = None;
        self.cursor = 0;
        self.sent = 0;
    }

    pub(in crate::transport) fn deadline(&self) -> Option<u64> {
        self.rnr_until.or(self.ack_until).or_else(|| self.idle_deadline())
    }

    /// Returns whether an answer is overdue.
    pub(in crate::transport) fn is_late(&self, now: u64) -> bool {
        self.rnr_until.is_none() && self.ack_until.is_some_and(|until| until <= now)
    }

    /// Restarts every limit after an answer.
    pub(in crate::transport) fn progress(&mut self, own: &Parameters, now: u64) {
        self.start_again(own);
        self.rnr_retries = own.rnr_retries;
        self.rewound = false;
        self.foreign = None;
        let outstanding = self.high != self.unacknowledged;
        self.ack_until = if outstanding { self.next_timeout(own, now) } else { None };
    }

    /// Returns why no answer came.
    pub(in crate::transport) fn silence(&self) -> Reason {
        match self.foreign {
            Some(shown) => Reason::OtherPsn { own: self.unacknowledged.get(), shown: shown.get() },
            None => Reason::Silent(self.timed_out + 1),
        }
    }

    /// Lets requests be sent as often as if they were new.
    pub(in crate::transport) fn start_again(&mut self, own: &Parameters) {
        self.retries = own.retries;
        self.timed_out = 0;
    }

    /// Returns the time of the next time-out of a request that is sent or repeated now.
    pub(super) fn next_timeout(&self, own: &Parameters, now: u64) -> Option<u64> {
        own.schedule.map(|schedule| now + schedule.wait(self.timed_out, self.retries))
    }

    /// Goes back to the oldest packet that is not acknowledged.
    pub(in crate::transport) fn rewind(&mut self) {
        self.cursor = 0;
        self.sent = match self.requests.front() {
            Some(front) if !front.kind.is_fetch() && front.packets > 0 => {
                self.unacknowledged.after(front.first)
            }
            _ => 0,
        };
        self.ack_until = None;
    }

    /// Sends unacknowledged packets again, unless the retries are used up.
    pub(in crate::transport) fn retry(&mut self) -> Result<(), Syndrome> {
        self.retries = self.retries.checked_sub(1).ok_or(Syndrome::TransportRetriesExceeded)?;
        self.rewind();
        Ok(())
    }

    /// Retries after a skipped answer or a sequence NAK, but only once until a request is answered or
    /// a time-out is over: every later acknowledge shows the same gap, and so does each copy of a
    /// NAK. Returns whether it did.
    pub(in crate::transport) fn retry_once(&mut self) -> Result<bool, Syndrome> {
        if self.rewound {
            return Ok(false);
        }
        self.rewound = true;
        self.retry()?;
        Ok(true)
    }

    /// Waits as long as the timer code of an RNR NAK says: the peer has no receive posted. Without a
    /// retry left, the error follows.
    pub(in crate::transport) fn not_ready(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        timer: u8,
        now: u64,
    ) -> Result<(), Syndrome> {
        card.count(own.number, counter::RNR_NAK_RETRY_ERR);
        if self.rnr_until.is_some() {
            return Ok(());
        }
        let link = card.identity.link;
        let mut wait = timing::rnr_wait(own.timeouts, link, timer);
        if self.rnr_retries != FOR_EVER {
            match self.rnr_retries.checked_sub(1) {
                Some(left) => self.rnr_retries = left,
                None => {
                    wait = timing::never_ready(own.timeouts, link);
                    if wait == 0 {
                        return Err(Syndrome::RnrRetriesExceeded);
                    }
                    self.never_ready = true;
                }
            }
        }
        self.rewind();
        self.rnr_until = Some(now + wait);
        Ok(())
    }

    /// Handles a timer that may be due. Returns whether there are packets to send now.
    ///
    /// While the peer is slow no packet counts as lost: the time-out starts again.
    pub(in crate::transport) fn expire(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        now: u64,
    ) -> Result<bool, Syndrome> {
        if let Some(until) = self.rnr_until {
            if until > now {
                return Ok(false);
            }
            self.rnr_until = None;
            // Other streams of an initiator go on after the error.
            return match std::mem::take(&mut self.never_ready) {
                true => Err(Syndrome::RnrRetriesExceeded),
                false => Ok(true),
            };
        }
        if self.ack_until.is_some_and(|until| until <= now) {
            let peer = self.toward(own);
            if card.port.is_slow(&peer.route, peer.remote) {
                self.ack_until = self.next_timeout(own, now);
                return Ok(false);
            }
            self.rewound = false;
            self.ack_until = None;
            if let (true, Some(schedule)) = (self.high != self.unacknowledged, own.schedule) {
                return self.time_out(card, own, &schedule, now);
            }
        }
        Ok(false)
    }

    /// Handles a time-out: repeats the packets in flight, or gives up. Returns whether there are packets
    /// to send now.
    fn time_out(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        schedule: &Schedule,
        now: u64,
    ) -> Result<bool, Syndrome> {
        let kind = schedule.kind(self.timed_out);
        let gives_up = schedule.gives_up(self.timed_out, self.retries);
        if schedule.is_roce() || !gives_up {
            card.count(
                own.number,
                match kind {
                    Timeout::Adaptive | Timeout::LastAdaptive => counter::ROCE_ADP_RETRANS,
                    Timeout::Regular | Timeout::Silent => counter::LOCAL_ACK_TIMEOUT_ERR,
                },
            );
        }
        if gives_up {
            return Err(Syndrome::TransportRetriesExceeded);
        }
        self.timed_out += 1;
        if kind == Timeout::Silent {
            self.ack_until = self.next_timeout(own, now);
            return Ok(false);
        }
        if kind != Timeout::Adaptive {
            self.retries = self.retries.saturating_sub(1);
        }
        if schedule.is_roce() {
            // Measured on ConnectX-6: slow restart counts each repetition as a notification of
            // congestion that was handled (evidence E056).
            card.count(own.number, counter::ROCE_SLOW_RESTART_CNPS);
            card.congestion.handled += 1;
        }
        self.rewind();
        Ok(true)
    }
}
