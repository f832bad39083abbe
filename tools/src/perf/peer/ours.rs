//! A point with `mlx5 perf server` as the other side.

use super::Met;
use crate::outcome::Result;
use crate::perf::cm::Asks;
use crate::perf::loops::{Measured, Runner};
use crate::perf::plan::{Direction, Plan};
use crate::perf::progress::Progress;
use crate::perf::server;
use crate::perf::session::{self, Account, Say, Session};
use crate::perf::station::threads::Crew;
use crate::perf::station::{Connects, Side, Unconnected};
use crate::perf::talk::Talk;

/// Tells the plan, and exchanges endpoints.
pub(super) fn meet<'a, T: Connects>(
    session: &'a mut Session,
    plan: &Plan,
    side: &'a Side,
    mine: &[Unconnected<T>],
) -> Result<Met<'a>> {
    session.tell(&Say::Plan { plan: Box::new(plan.clone()) })?;
    let (theirs, invitation) = match session.hear("queue pairs")? {
        Say::Ends { threads, cm } => {
            (session::endpoints(&threads, plan)?, session::invitation(cm, plan)?)
        }
        other => return Err(session::unexpected(&other, "its queue pairs")),
    };
    session.tell(&server::ends(mine, None))?;
    let asks = invitation.map(|invitation| Asks::new(invitation, side, session));
    Ok(Met { theirs, asks })
}

/// Waits until the server is ready for messages.
pub(super) fn is_ready(session: &mut Session) -> Result<()> {
    match session.hear("readiness")? {
        Say::Ready {} => Ok(()),
        other => Err(session::unexpected(&other, "that it is ready")),
    }
}

/// Has the threads measure, one way or both.
pub(super) fn measure(
    session: &mut Session,
    crew: &Crew<'_>,
    paths: &mut [Box<dyn Runner>],
    progress: &Progress,
    samples: usize,
) -> Result<(Vec<Measured>, Account)> {
    let talk = Talk::new(session, crew.plan, crew.signals);
    match crew.plan.direction {
        Direction::OneWay => talk.one_way(crew, paths, progress, samples),
        Direction::BothWays => talk.both_ways(crew, paths, progress, samples),
    }
}
