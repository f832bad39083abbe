//! Userspace mlx5.
