//! The promise of who posts.

/// The promise that the memory of a request or receive is the HCA's until it is retired, as
/// [`ring`](crate::ring#the-memory-of-requests) says for requests and
/// [for receives](crate::ring#the-memory-of-receives).
///
/// Every way to ring for requests takes one, and so does every function that leads there. The public
/// posts are `unsafe`, and make it of their contract; owners of memory make it because nothing else
/// reaches that memory. Between these two ends no function is `unsafe` for the sake of memory.
#[derive(Clone, Copy)]
pub(crate) struct Lent(());

impl Lent {
    /// Makes the promise.
    ///
    /// # Safety
    /// It holds for all that is posted with the result.
    #[inline(always)]
    pub(crate) const unsafe fn promised() -> Self {
        Self(())
    }
}
