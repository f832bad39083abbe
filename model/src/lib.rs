//! A software ConnectX.
//!
//! The model is the card's side of the mlx5 interface: firmware commands make objects, doorbells
//! start work, WQEs are fetched from the queues' own memory, packets of the InfiniBand transport
//! travel over a wire, and CQEs and EQEs are written back. It knows no driver; unmodified
//! libibverbs and libmlx5 run on it through [`frontend::uverbs`].
//!
//! From the wire inwards: [`wire`] carries packets, [`transport`] is the requester and responder
//! of each service, [`queue`] fetches WQEs and writes CQEs, [`object`] keeps the contexts,
//! [`command`] executes firmware commands, [`card`] holds them together, [`engine`] runs cards.

pub mod card;
pub mod clock;
pub mod command;
pub mod engine;
pub mod frontend;
pub mod memory;
pub mod object;
pub mod queue;
pub mod stores;
pub mod transport;
pub mod wire;

pub use frontend::uverbs::{Mode, Unavailable, offered, run, set_mode};
