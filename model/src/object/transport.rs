//! The transport's state of a queue pair.

use std::any::Any;
use std::fmt::Debug;

use mlx5_sys::ifc::qpc;

/// State that the transport keeps of one queue pair: PSNs, requests in flight, timers.
///
/// The transport alone knows the type and takes the state back by it. An object only owns the
/// state, so that it goes when the queue pair goes, and asks it to complete the context.
pub trait TransportState: Any + Debug + Send {
    /// Fills in the fields that change by themselves, in a context that QUERY_QP is about to
    /// return.
    fn describe(&self, context: &mut [u8; qpc::SIZE]);

    /// Returns the state for the transport to look at.
    fn as_any(&self) -> &dyn Any;

    /// Returns the state for the transport to change.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}
