//! Options for binding `verbs.h` in the shape that rdma-sys has.

/// Adds the header and the shape of its enums to `builder`.
pub fn builder(builder: bindgen::Builder) -> bindgen::Builder {
    builder.header("wrapper/verbs.h").allowlist_item("ibv_.*")
}
