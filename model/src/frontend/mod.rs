//! The ways software reaches a card.
pub mod uverbs;
