//! How requests get into a send queue: each written as a whole, or from a template.

use std::marker::PhantomData;

use mlx5::ib::{Rc, Transport};
use mlx5::ring::variable::{Bytes, Offset};
use mlx5::ring::{PostError, Queues, ReceiveSide, SendQueue, SendSide, Template};
use mlx5::wqe::{InlineBytes, Send, Write};

use super::Message;
use super::request::{Requests, Site};

/// Has a send queue, and posts to it. Completions are polled with it as it is.
///
/// # Safety of posts
/// What posts name is memory of `site`, which outlives the queue; nobody holds a reference to it, and
/// loops keep at most as many requests outstanding as there are slots where contents matter.
pub trait Poster<T: Transport>: Queues + std::marker::Send + Sized {
    /// Posts one request and rings.
    ///
    /// # Errors
    /// [`PostError`].
    ///
    /// # Safety
    /// See [`Poster`].
    unsafe fn post(
        &mut self,
        id: u64,
        site: &Site,
        queue: usize,
        message: Message,
    ) -> Result<(), PostError>;

    /// Posts requests, each with its id, with one doorbell where this way has that.
    ///
    /// # Errors
    /// [`PostError`].
    ///
    /// # Safety
    /// See [`Poster`].
    unsafe fn post_batch(
        &mut self,
        site: &Site,
        queue: usize,
        messages: impl Iterator<Item = (u64, Message)>,
    ) -> Result<(), PostError>;

    /// The queue.
    fn queue(&self) -> &SendQueue<T>;

    /// Forgets what posts took so far.
    #[cfg(feature = "phases")]
    fn clear_timing(&mut self);
}

/// Writes each request as a whole.
#[derive(Debug)]
pub struct Whole<T: Transport, R> {
    queue: SendQueue<T>,
    requests: PhantomData<fn() -> R>,
}

impl<T: Transport, R> Whole<T, R> {
    /// Of that queue.
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
        // SAFETY: passed on.
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
        // SAFETY: passed on, for each.
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

/// Posts from a template: the request lies in each slot of the ring, and a post fills in the payload,
/// and of a WRITE where it goes.
macro_rules! from_template {
    ($(#[$doc:meta])* $name:ident, $request:ty, $fields:ty,
     |$site:ident, $queue:ident, $sequence:ident| $values:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<const N: usize> {
            template: Template<SendQueue<Rc>, $request, $fields>,
        }

        impl<const N: usize> $name<N> {
            /// Of that queue; the request's values do not matter, but for the remote address.
            ///
            /// # Errors
            /// [`PostError`]: no queue like this takes such a request.
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
                // SAFETY: passed on; an inline payload names no memory of this side.
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
                    // SAFETY: passed on.
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
    SendTemplate, Send<InlineBytes<N>>, Bytes,
    |site, queue, sequence| site.memory.out_array::<N>(queue, sequence)
}

from_template! {
    /// WRITEs of `N` bytes inline, from a template.
    WriteTemplate, Write<InlineBytes<N>>, (Bytes, Offset),
    |site, queue, sequence| (
        site.memory.out_array::<N>(queue, sequence),
        site.targets[queue].offset(sequence),
    )
}
