//! A software ConnectX.
//!
//! The model is the card's side of the mlx5 interface: firmware commands make objects, doorbells
//! start work, WQEs are fetched from the queues' own memory, packets of the InfiniBand transport
//! travel over a wire, and CQEs and EQEs are written back. It knows no driver; unmodified
//! libibverbs and libmlx5 run on it through [`frontend::uverbs`].
//!
//! # In a program
//!
//! Naming the crate is enough: the linker puts the model's `open`, `ioctl`, `mmap` and the like
//! before those of the C library, and libibverbs finds `mlx5_0` where the machine has no card.
//!
//! ```
//! use mlx5_model as _;
//! use mlx5_sys::verbs::{ibv_free_device_list, ibv_get_device_list};
//!
//! let mut count = 0;
//! // SAFETY: the list is freed once, and not used afterwards.
//! unsafe {
//!     let list = ibv_get_device_list(&mut count);
//!     assert!(!list.is_null() && count >= 1);
//!     ibv_free_device_list(list);
//! }
//! ```
//!
//! Any other program runs on it with `LD_PRELOAD=libmlx5_model.so MLX5_MODEL=always`. Where a
//! program has the model linked in and it is preloaded as well, the one in the executable is in
//! charge.
//!
//! # Environment
//!
//! | variable | values | default |
//! |---|---|---|
//! | `MLX5_MODEL` | `auto`: where the kernel offers no mlx5 device; `always`; `never` | `auto` |
//! | `MLX5_MODEL_LINK` | `infiniband`, `roce` | `infiniband` |
//! | `MLX5_MODEL_MODE` | `trapped`, `polled`, `manual`: see [`Mode`] | `trapped` (x86-64), `polled` |
//! | `MLX5_MODEL_DEVICES` | 1 to 16 | 1 |
//! | `MLX5_MODEL_DEVX` | `allowed`, `refused`: whether firmware takes commands of programs | `allowed` |
//! | `MLX5_MODEL_TRACE` | a file (`%p` is the process), or `unix:` and a socket that somebody listens on: where all that the cards do is written, see [`trace`] | none |
//! | `MLX5_MODEL_TRACE_DETAIL` | `replay`: with what the cards read, so that it can be done again; `story` | `replay` |
//! | `MLX5_MODEL_PORT` | `active`, `disabled`; on InfiniBand also `armed`, `init`, `polling` | `active` |
//! | `MLX5_MODEL_MTU` | 256, 512, 1024, 2048, 4096: the links' MTU | 4096; RoCE 1024 |
//! | `MLX5_MODEL_NODE` | `open`, `missing`, `forbidden`: whether the device's node can be opened | `open` |
//! | `MLX5_MODEL_UAR` | `all`, `noncached`: the kinds of register pages given | `all` |
//!
//! A value that is none of these is reported on stderr, and no device is found. Programs can tell
//! the model from a card: its board id (`board_id` in sysfs and `ibv_devinfo`) is `MLX5-MODEL`.
//!
//! # Inside
//!
//! Lowest first, so that each module uses those before it alone: [`stores`], [`clock`] and [`memory`];
//! [`wire`], packets and frames; [`work`], WQEs, completions and events as values; [`identity`];
//! [`object`], the contexts; [`trace`], recordings; [`card`], the state of one device; [`queue`],
//! which fetches WQEs and writes CQEs; [`transport`], requester and responder of each service;
//! [`command`], firmware commands; [`mod@replay`], recorded calls on fresh cards; [`engine`], which
//! runs cards; [`frontend`], the way in for programs.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "a folder's page explains its private files too"
)]

pub mod card;
pub mod clock;
pub mod command;
pub mod engine;
pub mod frontend;
pub mod identity;
pub mod memory;
pub mod object;
mod private;
pub mod queue;
pub mod replay;
pub mod stores;
pub mod trace;
pub mod transport;
pub mod wire;
pub mod work;

pub use frontend::uverbs::{
    Mode, Unavailable, offered, run, set_mode, set_port, set_service_level,
};
