//! Functions of `mlx5dv.h` that are newer than the bindings.

use libc::c_int;

use super::generated::mlx5dv_devx_uar;

crate::load::newer_functions! {
    Mlx5;
    "MLX5_1.26" fn mlx5dv_devx_uar_export_dmabuf_fd(devx_uar: *mut mlx5dv_devx_uar) -> c_int;
}
