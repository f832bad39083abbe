//! CQ moderation: fewer events than completions.
//!
//! An armed CQ with a period and a count raises its event after that many completions, or when the
//! period has passed since the first of them. If either is zero there is no moderation: the event
//! for a single completion that no other follows would never come, or would come at once.

use mlx5_sys::ifc::cqc;

use crate::card::Card;
use crate::object::Untold;

impl Card {
    /// So many completions came that an armed CQ is to tell of: at once, or together with others.
    pub(super) fn moderate_cq(&mut self, cqn: u32, completions: u32) {
        let now = self.clock.now();
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let (period, most) = (cq.get(cqc::CQ_PERIOD), cq.get(cqc::CQ_MAX_COUNT));
        if period == 0 || most == 0 {
            return self.fire_cq(cqn);
        }
        let first = Untold { completions: 0, deadline: now + u64::from(period) * 1000 };
        let untold = cq.untold.get_or_insert(first);
        untold.completions = untold.completions.saturating_add(completions);
        if untold.completions >= most {
            return self.fire_cq(cqn);
        }
        if !self.moderating.contains(&cqn) {
            self.moderating.push(cqn);
        }
    }

    /// When the next CQ has waited long enough.
    pub(crate) fn moderation_deadline(&self) -> Option<u64> {
        let untold = |cqn: &u32| Some(self.objects.cqs.get(*cqn)?.untold?.deadline);
        self.moderating.iter().filter_map(untold).min()
    }

    /// Tells of what has waited long enough.
    pub(crate) fn expire_moderation(&mut self) {
        let now = self.clock.now();
        for cqn in std::mem::take(&mut self.moderating) {
            let untold = self.objects.cqs.get(cqn).and_then(|cq| cq.untold);
            match untold {
                Some(untold) if untold.deadline <= now => self.fire_cq(cqn),
                Some(_) => self.moderating.push(cqn),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
