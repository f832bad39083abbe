//! Values whose `Debug` is their `Display`.

/// Implements `Debug` by `Display`. Errors use it: a `main` that returns an error prints its
/// `Debug`.
macro_rules! debug_as_display {
    ($($type:ty),+ $(,)?) => { $(
        impl ::core::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+ };
}
pub(crate) use debug_as_display;
