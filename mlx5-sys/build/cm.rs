//! Options for binding `rdma_cma.h`, in the shape of rdma-sys 0.3.0 like those of `verbs.h`.
//!
//! Types of `verbs.h` are those of the module `verbs`.

use bindgen::Builder;

use crate::verbs;

/// Sets of bits.
const BITFIELDS: &[&str] = &["rdma_cm_join_mc_attr_mask", "rdma_cm_mc_join_flags"];

/// Alternatives.
const MODULES: &[&str] = &["rdma_cm_event_type", "rdma_port_space"];

/// Structures with unions, which `src/cm/types.rs` writes as rdma-sys does.
const BY_HAND: &[&str] = &["rdma_addr", "rdma_cm_event", "rdma_ib_addr", "rdma_ud_param"];

fn shape(mut builder: Builder) -> Builder {
    builder = verbs::enums(builder).header("wrapper/rdma_cma.h").disable_untagged_union();
    for name in BITFIELDS {
        builder = builder.bitfield_enum(name);
    }
    for name in MODULES {
        builder = builder.constified_enum_module(name);
    }
    builder.allowlist_recursively(false)
}

/// All of `rdma_cma.h` but the types of [`BY_HAND`].
pub fn whole(mut builder: Builder) -> Builder {
    for name in BY_HAND {
        builder = builder.blocklist_type(format!("{name}(__bindgen_ty_.*)?"));
    }
    shape(builder)
        // Of the kernel's interface, which the header includes.
        .blocklist_type("rdma_driver_id")
        .allowlist_function("rdma_.*")
        .allowlist_type("rdma_.*")
        .allowlist_type("ibv_sa_path_rec")
}

/// The types of [`BY_HAND`] as bindgen sees them.
pub fn check(mut builder: Builder) -> Builder {
    for name in BY_HAND {
        builder = builder.allowlist_type(format!("{name}(__bindgen_ty_.*)?"));
    }
    shape(builder)
}

/// Constants that rdma-sys lacks: of unnamed enums and macros.
pub fn supplement(builder: Builder) -> Builder {
    shape(builder)
        .allowlist_var("RDMA_MAX_.*")
        .allowlist_var("RDMA_OPTION_.*")
        .allowlist_var("RDMA_UDP_QKEY")
}
