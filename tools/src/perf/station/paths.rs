//! The paths of all threads of a side, from their queue pairs to the first receive.

use super::counters::Counters;
use super::{Connector, Connects, Endpoint, Role, Side, Unconnected};
use crate::outcome::{Error, Result};
use crate::perf::loops::Runner;
use crate::perf::path::request::Requested;
use crate::perf::path::{self, Stamping};
use crate::perf::plan::{Direction, Plan};

/// The path of each thread, and the counters of all.
pub type Connected = (Vec<Box<dyn Runner>>, Counters);

/// Creates the objects of each thread.
///
/// # Errors
/// Those of [`Unconnected::new`].
pub fn unconnected<T: Connects>(
    side: &Side,
    plan: &Plan,
    role: Role,
) -> Result<Vec<Unconnected<T>>> {
    (0..plan.threads).map(|_| Unconnected::new(side, plan, role)).collect()
}

/// Connects the queue pairs of each thread, by `connector` if there is one, and makes a path of them.
/// Receives are posted if the peer sends before this side does.
///
/// # Errors
/// Those of [`Unconnected::connect`] and [`path::made`].
pub fn connected<T: Requested>(
    side: &Side,
    plan: &Plan,
    stamping: Stamping,
    role: Role,
    threads: Vec<Unconnected<T>>,
    theirs: &[Vec<Endpoint>],
    mut connector: Option<&mut (dyn Connector + '_)>,
) -> Result<Connected> {
    let mut counters = Counters::new(&side.context, side.port.attributes().port);
    let mut paths = Vec::with_capacity(threads.len());
    for (thread, theirs) in threads.into_iter().zip(theirs) {
        let station = thread.connect(side, plan, theirs, connector.as_deref_mut())?;
        counters.count(&station.links);
        let mut path = path::made(station, plan, stamping)?;
        if role == Role::Server || plan.direction == Direction::BothWays {
            path.prepare(plan).map_err(|stop| Error::Told(stop.to_string()))?;
        }
        paths.push(path);
    }
    Ok((paths, counters))
}
