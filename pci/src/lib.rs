//! A software ConnectX as a PCI function: a vfio-user server.
//!
//! A virtual machine monitor connects to a socket and finds a PCI function behind it. It passes on
//! what its guest does to the configuration space and the BAR. The function reaches the guest's
//! memory through the mappings that the monitor shares, and raises interrupts by eventfds. So the
//! guest's own driver runs the device: no part of the guest knows of the model.
//!
//! The monitor and its guest are not trusted. Whatever they send, the server answers with an error or
//! closes the connection. It keeps serving other functions and the next connection.
//!
//! # Inside
//!
//! The modules, lowest first; each uses only those before it:
//!
//! - [`options`] – the command line.
//! - [`protocol`] – messages of vfio-user as values.
//! - [`socket`] – messages with descriptors on a socket.
//! - [`signals`] – recovers from faults of accesses to guest memory.
//! - [`guest`] – the guest's memory as the device sees it.
//! - [`signaller`] – signals of eventfds.
//! - [`vectors`] – MSI-X.
//! - [`mailbox`] – entries of the command queue and their mailboxes.
//! - [`left`] – what a driver leaves at the function.
//! - [`commands`] – executes commands of the command queue.
//! - [`bar`] – the BAR: initialization segment, MSI-X tables, UAR pages, device memory.
//! - [`combine`] – stores to BlueFlame registers, which arrive in pieces.
//! - [`config`] – the configuration space.
//! - [`function`] – one function, and its answers to requests.
//! - [`server`] – serves functions on sockets.

pub mod bar;
pub mod combine;
pub mod commands;
pub mod config;
pub mod function;
pub mod guest;
pub mod left;
pub mod mailbox;
pub mod options;
pub mod protocol;
pub mod server;
pub mod signaller;
pub mod signals;
pub mod socket;
pub mod vectors;
