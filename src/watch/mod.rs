//! What watches the data path, where a feature asks for it: stamps of phases ([`timing`]), the
//! flight recorder ([`flight`]), and the lint that stands before each doorbell ([`lint`]). Without
//! the features each is a type without size whose methods are empty.

pub mod flight;
pub(crate) mod lint;
pub mod timing;
