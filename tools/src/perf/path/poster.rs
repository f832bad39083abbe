//! Ways to write requests into a send queue: in full, or from a template.

use std::marker::PhantomData;

use mlx5::ib::{Rc, Transport};
use mlx5::ring::variable::{Bytes, Offset};
use mlx5::ring::{PostError, Queues, ReceiveSide, SendQueue, SendSide, Template};
use mlx5::wqe::{InlineBytes, RdmaWrite, SendMessage};

use super::Message;
use super::request::{Requests, Site};

/// Owns a send queue and posts to it. Completions are polled with it directly.
///
/// # Safety of posts
/// Posted requests name memory of `site`, which must outlive the queue. No reference to that memory
/// may exist. Where contents matter, at most as many requests as slots may be outstanding.
pub trait Poster<T: Transport>: Queues + std::marker::Send + Sized {
    /// Posts one request and rings the doorbell.
    ///
    /// # Errors
    /// [`PostError`].
    ///
    /// # Safety
    /// The memory of `site` must outlive the queue, and no reference to it may exist. Where
    /// contents matter, at most as many requests as slots may be outstanding.
    unsafe fn post(
        &mut self,
        id: u64,
        site: &Site,
        queue: usize,
        message: Message,
    ) -> Result<(), PostError>;

    /// Posts requests, each with its id, with one doorbell where this way supports that.
    ///
    /// # Errors
    /// [`PostError`].
    ///
    /// # Safety
    /// For each request, the memory of `site` must outlive the queue, and no reference to it may
    /// exist. Where contents matter, at most as many requests as slots may be outstanding.
    unsafe fn post_batch(
        &mut self,
        site: &Site,
        queue: usize,
        messages: impl Iterator<Item = (u64, Message)>,
    ) -> Result<(), PostError>;

    /// Returns the queue.
    fn queue(&self) -> &SendQueue<T>;

    /// Clears the recorded times of posts.
    #[cfg(feature = "phases")]
    fn clear_timing(&mut self);
}

/// Writes each request in full.
#[derive(Debug)]
pub struct Whole<T: Transport, R> {
    queue: SendQueue<T>,
    requests: PhantomData<fn() -> R>,
}

impl<T: Transport, R> Whole<T, R> {
    /// Creates the poster of a queue.
    #[must_use]
    pub fn new(queue: SendQueue<T>) -> Whole<T, R> {
        Whole { queue, requests: PhantomData }
    }
}

impl<T: Transport, R: Requests<T>> Poster<T> for Whole<T, R> {
    #[inline(always)]
    unsafe fn post(
        &mut self,
        id: u64,
        site: &Site,
        queue: usize,
        message: Message,
    ) -> Result<(), PostError> {
        let request = R::request(site, queue, message);
        // SAFETY: the caller upholds the conditions of `Poster`.
        unsafe { self.queue.post(id, request) }
    }

    #[inline(always)]
    unsafe fn post_batch(
        &mut self,
        site: &Site,
        queue: usize,
        messages: impl Iterator<Item = (u64, Message)>,
    ) -> Result<(), PostError> {
        let mut batch = self.queue.batch();
        for (id, message) in messages {
            batch.append(id, R::request(site, queue, message))?;
        }
        // SAFETY: the caller upholds the conditions of `Poster` for each request.
        unsafe { batch.ring() };
        Ok(())
    }

    fn queue(&self) -> &SendQueue<T> {
        &self.queue
    }

    #[cfg(feature = "phases")]
    fn clear_timing(&mut self) {
        self.queue.clear_timing();
    }
}

impl<T: Transport, R> Queues for Whole<T, R> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queue.send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.queue.likely_send_side()
    }
}

/// Posts from a template: each slot of the ring already contains the request. A post fills in the
/// payload, and for a WRITE also the remote address.
macro_rules! from_template {
    ($(#[$doc:meta])* $name:ident, $request:ty, $fields:ty,
     |$site:ident, $queue:ident, $sequence:ident| $values:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<const N: usize> {
            template: Template<SendQueue<Rc>, $request, $fields>,
        }

        impl<const N: usize> $name<N> {
            /// Creates the poster of a queue. Of the request's values, only the remote address
            /// matters.
            ///
            /// # Errors
            /// [`PostError`]: no such queue takes such a request.
            pub fn new(queue: SendQueue<Rc>, request: $request) -> Result<Self, PostError> {
                Ok(Self { template: Template::new(queue, request)? })
            }
        }

        impl<const N: usize> Poster<Rc> for $name<N> {
            #[inline(always)]
            unsafe fn post(
                &mut self,
                id: u64,
                $site: &Site,
                $queue: usize,
                message: Message,
            ) -> Result<(), PostError> {
                let $sequence = message.sequence;
                let values = $values;
                // SAFETY: the caller upholds the conditions of `Poster`; inline payloads name no
                // memory of this side.
                unsafe {
                    match message.signaled {
                        true => self.template.post_signaled(id, values),
                        false => self.template.post(id, values),
                    }
                }
            }

            #[inline(always)]
            unsafe fn post_batch(
                &mut self,
                site: &Site,
                queue: usize,
                messages: impl Iterator<Item = (u64, Message)>,
            ) -> Result<(), PostError> {
                for (id, message) in messages {
                    // SAFETY: the caller upholds the conditions of `Poster`.
                    unsafe { self.post(id, site, queue, message)? };
                }
                Ok(())
            }

            fn queue(&self) -> &SendQueue<Rc> {
                self.template.queue()
            }

            #[cfg(feature = "phases")]
            fn clear_timing(&mut self) {
                self.template.clear_timing();
            }
        }

        impl<const N: usize> Queues for $name<N> {
            #[inline(always)]
            fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
                self.template.send_side(qpn)
            }

            #[inline(always)]
            fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
                None
            }

            #[inline(always)]
            fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
                self.template.likely_send_side()
            }
        }
    };
}

from_template! {
    /// SENDs of `N` bytes inline, from a template.
    SendTemplate, SendMessage<InlineBytes<N>>, Bytes,
    |site, queue, sequence| site.memory.out_array::<N>(queue, sequence)
}

from_template! {
    /// WRITEs of `N` bytes inline, from a template.
    WriteTemplate, RdmaWrite<InlineBytes<N>>, (Bytes, Offset),
    |site, queue, sequence| (
        site.memory.out_array::<N>(queue, sequence),
        site.targets[queue].offset(sequence),
    )
}
