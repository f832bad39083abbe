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
//! | [`load`] | the libraries, opened at run time | |
//!
//! The PRM is NVIDIA's Adapters Programmer's Reference Manual. What the header lacks is from the
//! named file of rdma-core, Linux or DPDK.
//!
//! Layouts of WQEs and CQEs have big-endian fields and alignment 1. Wherever `mlx5dv.h` has the same
//! structure or constant, the build compares size, offset and width of each field with it, and stops if
//! they differ. Nothing here moves data or follows a pointer on its
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
//! A C linker. The bindings are in this package: those of rdma-core 44. Newer versions of rdma-core only
//! add to them, which tests compare with the headers. A program opens the libraries of rdma-core 39 or
//! newer at its first call, see [`load`]. Versions before 44 lack ten functions of `dv`, whose calls fail. Two
//! functions are newer than the bindings, from rdma-core 62: those that export UARs and device memory as dma-bufs.
//!
//! # What a program needs
//! Debian and Ubuntu: `ibverbs-providers`, with the feature `cm` also `librdmacm1`; Fedora: `libibverbs`,
//! `librdmacm`. [`Library::open`](load::Library::open) tells which is missing.
//!
//! # Features
//! | feature | adds | a build needs |
//! |---|---|---|
//! | `cm` | the module `cm`, of librdmacm | – |
//! | `link` | the linker finds the libraries, by the names of their files (`libmlx5.so`) | `libibverbs-dev`, with `cm` also `librdmacm-dev` |
//! | `bindgen` | bindings of the installed headers, with all that they have. Links | besides, libclang 9 or newer (`libclang-dev`) |
//! | `rdma-sys` | types and library functions of [`verbs`] are those of the rdma-sys crate, for programs that use that crate too. Links | besides, libclang 15 or older, `librdmacm-dev` and `pkg-config` |
//!
//! With these features pkg-config finds the libraries. On a machine without it, the build reads libmlx5's
//! `.pc` file in `/usr/lib`, `/usr/lib64` or Debian's multiarch folder. A build says what is missing.
//!
//! A program with the target feature `crt-static` cannot open libraries, and needs `link`: they are then
//! linked as `-lmlx5 -libverbs`. A library that is preloaded to replace functions of libibverbs sees the
//! calls of a program that is linked with it, and not those of one that opens it.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "mlx5-sys can be built for Linux only: libibverbs and libmlx5 drive ConnectX devices there; build \
     on Linux, or in a virtual machine or container with it"
);

#[cfg(feature = "cm")]
pub mod cm;
pub mod cqe;
pub mod doorbell;
pub mod dv;
pub mod ifc;
mod layout;
pub mod load;
pub mod verbs;
pub mod wqe;
