//! The cases, by group.

mod atomics;
mod dc;
mod devx;
mod endpoint;
mod errors;
mod ethernet;
mod events;
mod memory;
mod order;
mod queues;
mod rc;
mod recovery;
mod times;
mod uc;
mod ud;
mod xrc;

use crate::case::Case;
pub(crate) use rc::wqe;

/// Returns all cases, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let groups = [
        rc::CASES,
        atomics::CASES,
        memory::CASES,
        uc::CASES,
        ud::CASES,
        xrc::CASES,
        dc::CASES,
        ethernet::CASES,
        errors::CASES,
        recovery::CASES,
        order::CASES,
        queues::CASES,
        events::CASES,
        times::CASES,
        devx::CASES,
        endpoint::CASES,
    ];
    groups.into_iter().flatten()
}
