//! Reliable connection: requester and responder of one queue pair.

/// Transport state of a queue pair: PSNs, requests in flight, timers.
#[derive(Debug, Default)]
pub struct Rc {}
