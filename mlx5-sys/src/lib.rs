//! FFI to libmlx5 and the raw layouts of ConnectX HCAs.
//!
//! | module | is | from |
//! |---|---|---|
//! | [`verbs`] | libibverbs: devices, PDs, MRs, CQs, QPs, … | `infiniband/verbs.h` |
//! | `cm` | librdmacm, with the feature `cm` | `rdma/rdma_cma.h` |
//! | [`dv`] | libmlx5: mlx5dv and DevX | `infiniband/mlx5dv.h` |
//! | [`wqe`] | segments of work queue elements, opcodes, flags | `mlx5dv.h`, PRM |
//! | [`cqe`] | completion queue elements, opcodes, syndromes | `mlx5dv.h`, PRM |
//! | [`doorbell`] | doorbell records and UAR registers | `mlx5dv.h`, PRM |
//! | [`ifc`] | firmware commands and contexts, bit by bit | `mlx5_ifc.h` |
//!
//! The PRM is NVIDIA's Adapters Programmer's Reference Manual. What the header lacks is from the
//! named file of rdma-core, Linux or DPDK.
//!
//! Layouts of WQEs and CQEs have big-endian fields and alignment 1. Wherever the installed
//! `mlx5dv.h` has the same structure or constant, the build compares size, offset and width of each
//! field with it, and stops if they differ. Nothing here moves data or follows a pointer on its
//! own.
//!
//! ```
//! use mlx5_sys::wqe::{CE_ALWAYS, CtrlSeg, opcode};
//! use zerocopy::IntoBytes;
//!
//! let (qpn, index, ds) = (0x1234, 7, 3);
//! let ctrl = CtrlSeg {
//!     opmod_idx_opcode: (index << 8 | u32::from(opcode::RDMA_WRITE)).into(),
//!     qpn_ds: (qpn << 8 | ds).into(),
//!     fm_ce_se: CE_ALWAYS,
//!     ..CtrlSeg::default()
//! };
//! assert_eq!(ctrl.as_bytes(), [0, 0, 7, 8, 0, 0x12, 0x34, 3, 0, 0, 0, 8, 0, 0, 0, 0]);
//! ```
//!
//! # What a build needs
//! The headers and libraries of rdma-core 39 or newer, and libclang 9 or newer, which reads the
//! headers. Debian and Ubuntu: `libibverbs-dev libclang-dev gcc`; Fedora: `rdma-core-devel
//! pkgconf-pkg-config clang-devel gcc`. A build without them says which is missing.
//!
//! The bindings are made at build time, not checked in. Structures, constants and functions of
//! rdma-core grow with its versions, and a program is linked with the installed one. So the headers
//! of the machine decide.
//!
//! pkg-config finds the libraries. On a machine without it, the build reads libmlx5's `.pc` file in
//! `/usr/lib`, `/usr/lib64` or Debian's multiarch folder. The libraries are linked by their files'
//! names (`libmlx5.so`), so crates that bring a `libmlx5.a` of their own, such as sideway, do not
//! get in the way. With the target feature `crt-static`, they are linked as `-lmlx5 -libverbs`.
//!
//! # Features
//! `cm`: the module `cm`. Needs librdmacm (Debian and Ubuntu: `librdmacm-dev`), and links it.
//!
//! `rdma-sys`: types and library functions of [`verbs`] are those of the rdma-sys crate, for programs
//! that use that crate too. Its version 0.3.0 cannot be built with libclang 16 or newer, and needs
//! librdmacm and pkg-config.

#[cfg(feature = "cm")]
pub mod cm;
pub mod cqe;
pub mod doorbell;
pub mod dv;
pub mod ifc;
mod layout;
pub mod verbs;
pub mod wqe;
