//! Reliable connection: requester and responder of one queue pair.

/// Transport state of a queue pair: PSNs, requests in flight, timers.
#[derive(Debug, Default)]
pub struct Rc {}

impl Rc {
    /// Puts what moves by itself into a context that QUERY_QP is about to return: next send and
    /// receive PSN, last acknowledged PSN, SSN, current retry counts.
    pub fn describe(&self, _context: &mut [u8; mlx5_sys::ifc::qpc::SIZE]) {}
}
