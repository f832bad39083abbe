//! User memory that commands name by number instead of listing its pages.

use std::sync::Arc;

use super::Pages;

/// Says that something stands on a [`Umem`], as long as it lives.
#[derive(Clone, Debug)]
pub struct Hold(#[expect(dead_code, reason = "it is there to be counted")] Arc<()>);

/// Memory of a user.
#[derive(Debug)]
pub struct Umem {
    /// User context that made it.
    pub uid: u16,
    /// Its pages.
    pub pages: Pages,
    holds: Arc<()>,
}

impl Umem {
    /// Memory on `pages`.
    pub fn new(uid: u16, pages: Pages) -> Self {
        Self { uid, pages, holds: Arc::default() }
    }

    /// Keeps the number from being freed while the result lives.
    pub fn hold(&self) -> Hold {
        Hold(Arc::clone(&self.holds))
    }

    /// Whether anything stands on it.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.holds) > 1
    }
}
