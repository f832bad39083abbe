//! Options for binding `mlx5dv.h`.

use bindgen::Builder;

use crate::verbs;

/// All of `mlx5dv.h`. What is of `verbs.h` is left to the module `verbs`.
pub fn whole(builder: Builder) -> Builder {
    verbs::without_libc(builder)
        .header("wrapper/mlx5dv.h")
        .allowlist_function("_{0,2}mlx5dv_.*")
        .allowlist_type("_?mlx5.*")
        .allowlist_var("MLX5.*")
        .blocklist_item("ibv_.*")
        .blocklist_item("IBV_.*")
        // In `dv::newer`, for all headers.
        .blocklist_function("mlx5dv_devx_uar_export_dmabuf_fd")
        // Packed and aligned to 4 at once, which bindgen turns into 20 bytes.
        .blocklist_item("mlx5_wqe_ctrl_seg")
        .derive_default(true)
}
