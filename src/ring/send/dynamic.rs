//! Recovery of send queues of dynamic connections.

use mlx5_sys::verbs::ibv_qp_state;

use crate::error::QueueError;
use crate::ib::Dci;
use crate::ring::SendQueue;
use crate::ring::source::require;

impl SendQueue<Dci> {
    /// Continues posting after requests failed on a [stream](crate::verbs::attr::DciStreams). The queue
    /// stops at the first error completion that it sees, and only the kernel knows whether the
    /// queue pair has failed with it. Makes a system call.
    ///
    /// Requests posted to a failed stream complete as flushed until the stream is
    /// [reset](crate::verbs::QueuePair::reset_stream). Other streams continue by themselves.
    ///
    /// # Errors
    /// [`QueueError::WrongState`]: the queue pair has failed, [`QueueError::QueryQp`]. The queue
    /// stays stopped then.
    pub fn go_on(&mut self) -> Result<(), QueueError> {
        require(self.ring.owner.state()?, &[ibv_qp_state::IBV_QPS_RTS], "RTS")?;
        self.ring.state.resume();
        self.ring.refill();
        Ok(())
    }
}
