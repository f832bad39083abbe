//! A software ConnectX.
//!
//! The model is the device's side of the mlx5 interface. Firmware commands create objects, and
//! doorbells start work. The model fetches WQEs from the queues' own memory, sends packets of the
//! InfiniBand transport, and writes back CQEs and EQEs. It does not depend on any driver.
//! Unmodified libibverbs and libmlx5 run on it through [`frontend::uverbs`].
//!
//! # In a program
//!
//! Name the crate, and that is enough: the linker puts the model's `open`, `ioctl`, `mmap` and the
//! like before those of the C library. libibverbs then finds `mlx5_0` if the machine has no device.
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
//! Any other program runs on the model with `LD_PRELOAD=libmlx5_model.so MLX5_MODEL=always`. If a
//! program has the model linked in and it is preloaded as well, the linked-in one is used.
//!
//! # Environment
//!
//! | variable | values | default |
//! |---|---|---|
//! | `MLX5_MODEL` | `auto`: where the kernel offers no mlx5 device; `always`; `never` | `auto` |
//! | `MLX5_MODEL_LINK` | `infiniband`, `roce` | `infiniband` |
//! | `MLX5_MODEL_NETWORK` | `machine`; `machine:` and an interface or address for each device, whose addresses the ports then have; `udp:` and the same, whose ports then send RoCEv2 over UDP | `machine` |
//! | `MLX5_MODEL_MODE` | `trapped`, `polled`, `manual`: see [`Mode`] | `trapped`; under valgrind `polled` |
//! | `MLX5_MODEL_TIME` | `real`; `virtual`: the devices' clocks say what the work would cost in a model of a device (docs/model.md, "Virtual time") | `real` |
//! | `MLX5_MODEL_DEVICES` | 1 to 16 | 1 |
//! | `MLX5_MODEL_DEVX` | `allowed`, `refused`: whether firmware accepts commands from programs | `allowed` |
//! | `MLX5_MODEL_COUNTER_SETS` | `refused`, `allowed`: whether programs get sets of queue counters of their own (see [`CounterSets`]) | `refused` |
//! | `MLX5_MODEL_TRACE` | the output of the recording of all that the devices do (see [`trace`]): a file (`%p` is the process), or `unix:` and a listening socket | none |
//! | `MLX5_MODEL_TRACE_DETAIL` | `replay`: includes what the devices read, for a replay; `story` | `replay` |
//! | `MLX5_MODEL_OBSERVE` | as `MLX5_MODEL_TRACE`: the output of a recording of what the process does with the kernel's devices, without the model | none |
//! | `MLX5_MODEL_TIMEOUTS` | the law of transport timers (see [`Timeouts`]): `measured`, `floor-off`, `specification`, `specification:CODE` with the code of the shortest timeout, 0 to 31 | `measured` |
//! | `MLX5_MODEL_CAPTURE` | a new file (`%p` is the process) for the frames that pass the ports, in pcapng (see [`capture`]) | none |
//! | `MLX5_MODEL_REASONS` | `none`; `stderr`: a line on standard error for each cause of a refusal, failure or loss, with the values that decided it | `none` |
//! | `MLX5_MODEL_PORT` | `active`, `disabled`; on InfiniBand also `armed`, `init`, `polling` | `active` |
//! | `MLX5_MODEL_MTU` | 256, 512, 1024, 2048, 4096: the links' MTU | 4096; RoCE 1024 |
//! | `MLX5_MODEL_PROFILE` | `complete`, `cx5`, `cx6`, `cx6dx` (RoCE alone), `cx7`: the generation of ConnectX (docs/model.md, "Profiles") | `complete` |
//! | `MLX5_MODEL_FAULTS` | rules for faults of frames and devices (see docs/model.md, "Faults"), or the path of a file of rules, with at least one slash | none |
//! | `MLX5_MODEL_PREFETCH` | a seed, 0 to 2^64 - 1: send WQEs that change behind their doorbell are executed as they were, or as they are when their turn comes, as the seed decides | as they are |
//! | `MLX5_MODEL_PLACEMENT` | a seed, 0 to 2^64 - 1: data that arrives becomes visible in an order that the seed draws, among those that the specification allows | the order of arrival |
//! | `MLX5_MODEL_PRIVILEGE` | `granted`; `checked`: raw packet queue pairs and flows fail without `CAP_NET_RAW`, as on Linux | `granted` |
//! | `MLX5_MODEL_NODE` | `open`, `missing`, `forbidden`: whether the device's node can be opened | `open` |
//! | `MLX5_MODEL_UAR` | `all`, `noncached`: the kinds of register pages given | `all` |
//!
//! Any other value, and any other variable that begins with `MLX5_MODEL_`, is reported on stderr, and
//! no device is found ([`refusal`]). Programs can recognize the model
//! by its board id, `MLX5-MODEL` (`board_id` in sysfs and `ibv_devinfo`).
//!
//! # Inside
//!
//! The modules, lowest first; each uses only those before it:
//!
//! - [`stores`], [`clock`], [`cost`] and [`memory`].
//! - [`wire`] – packets and frames.
//! - [`fault`] – faults by rule: of frames and of a device.
//! - [`management`] – datagrams of the communication manager.
//! - [`work`] – WQEs, completions and events as values.
//! - [`identity`].
//! - [`function`] – the life cycle of the HCA.
//! - [`object`] – the contexts.
//! - [`trace`] – recordings.
//! - [`capture`] – the frames that pass a port, as pcapng.
//! - [`card`] – the state of one device.
//! - [`queue`] – fetches WQEs and writes CQEs.
//! - [`transport`] – requester and responder of each service.
//! - [`command`] – firmware commands.
//! - [`mod@replay`] – replays recorded calls on fresh devices.
//! - [`fabric`] – carries frames between ports.
//! - [`engine`] – runs devices.
//! - [`frontend`] – the interface for programs.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "a folder's page explains its private files too"
)]

pub mod capture;
pub mod card;
pub mod clock;
pub mod command;
mod cost;
pub mod engine;
mod fabric;
pub mod fault;
pub mod frontend;
pub mod function;
pub mod identity;
pub mod management;
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
    FixedAddresses, Mode, Unavailable, fault_tallies, offered, profile, refusal, run,
    set_addresses, set_counter_sets, set_faults, set_mode, set_port, set_timeouts,
    set_vlan_addresses,
};
pub use identity::{CounterSets, Timeouts};
