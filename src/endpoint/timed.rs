//! Polls that return the time of a completion beside it.

use super::pair::SendHalf;
use super::poll::{Polled, hand_out};
use super::receiver::ReceiveHalf;
use super::{ConnectionKey, Endpoint, EndpointError, Endpoints, Returned};
use crate::cqe::Timestamp;
use crate::ib::Transport;

impl<T: Transport, R: ReceiveHalf, S: SendHalf> Endpoint<T, R, S> {
    /// Returns the next request or receive that is retired, with the time at which the HCA wrote its
    /// CQE: `None` of a failure. An unsignaled request has the time of the later one whose CQE retired
    /// it; `None` if [`poll`](Self::poll) took that CQE.
    ///
    /// Costs more than [`poll_one`](Self::poll_one), which does not load the time.
    ///
    /// ```
    /// # use mlx5_model as _;
    /// use mlx5::prelude::*;
    /// use mlx5::verbs::DeviceClock;
    ///
    /// let context = Context::open_first()?;
    /// let clock = DeviceClock::new(&context)?;
    /// let unconnected = Endpoint::builder(&context).receives(1, 64).build()?;
    /// let own = unconnected.connection_data(); // its own peer
    /// let mut endpoint = unconnected.connect(&own)?;
    /// endpoint.post(7, SendMessage::new(Inline(b"hello")).signaled())?;
    /// let mut times = [None; 2];
    /// while times.contains(&None) {
    ///     let Some((returned, time)) = endpoint.poll_one_timed()? else { continue };
    ///     match returned.outcome {
    ///         Outcome::Received(_) => times[0] = time,
    ///         Outcome::Sent(_) => times[1] = time,
    ///         other => return Err(format!("{other:?}").into()),
    ///     }
    /// }
    /// if let (Some(reading), [Some(received), Some(sent)]) = (clock.read(), times) {
    ///     println!("received at {:?}, sent at {:?}", reading.time(received), reading.time(sent));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EndpointError`].
    #[doc(alias = "ibv_wc_read_completion_ts")]
    #[inline]
    pub fn poll_one_timed(
        &mut self,
    ) -> Result<Option<(Returned, Option<Timestamp>)>, EndpointError> {
        next_timed(self).transpose()
    }
}

impl<T: Transport> Endpoints<T> {
    /// Returns the next request or receive that is retired, with the time at which the HCA wrote its
    /// CQE, see [`Endpoint::poll_one_timed`](super::Endpoint::poll_one_timed).
    ///
    /// # Errors
    /// [`EndpointError`].
    #[doc(alias = "ibv_wc_read_completion_ts")]
    #[inline]
    pub fn poll_one_timed(
        &mut self,
    ) -> Result<Option<(ConnectionKey, Returned, Option<Timestamp>)>, EndpointError> {
        let next = next_timed(self).transpose()?;
        Ok(next.map(|((key, returned), time)| (key, returned, time)))
    }
}

/// Returns the next request that is retired, of any kind, with the time of the CQE that has retired
/// it; `None` if no CQE is left.
fn next_timed<P: Polled>(
    polled: &mut P,
) -> Option<Result<(P::Returned, Option<Timestamp>), EndpointError>> {
    loop {
        if let Some(time) = polled.held_time().map(|held| *held) {
            if let Some(returned) = polled.give_back() {
                return Some(Ok((returned, time)));
            }
        }
        let mut time = None;
        let completion = match polled.take_timed(&mut time) {
            Ok(None) => return None,
            Ok(Some(completion)) => completion,
            Err(error) => return Some(Err(error.into())),
        };
        let returned = hand_out(polled, completion).transpose();
        if let Some(held) = polled.held_time() {
            *held = time;
        }
        if let Some(returned) = returned {
            return Some(returned.map(|returned| (returned, time)));
        }
    }
}
