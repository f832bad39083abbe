//! Proof that a caller is this crate.

/// An argument of methods that programs must not call.
///
/// Methods of sealed traits can be called through a generic bound, although the traits cannot be
/// named. Programs can make no value of this type, so they cannot call the methods that take one.
#[derive(Clone, Copy, Debug)]
pub struct Internal(());

/// The value.
pub(crate) const INTERNAL: Internal = Internal(());
