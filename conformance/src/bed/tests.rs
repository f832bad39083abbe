use super::*;

#[test]
fn a_kernel_that_tells_the_board_id_of_the_model_runs_in_a_virtual_machine() {
    assert_eq!(bed(Front::Kernel, Some("MLX5-MODEL")), Bed::Guest);
    assert_eq!(bed(Front::Model("profile complete"), Some("MLX5-MODEL")), Bed::Model);
    assert_eq!(bed(Front::Kernel, Some("MT_0000000223")), Bed::Device);
    assert_eq!(bed(Front::Kernel, None), Bed::Device);
}

#[test]
fn the_version_of_rdma_core_is_in_the_name_of_its_library() {
    assert_eq!(version("/usr/lib/libmlx5.so.1.24.44.0").as_deref(), Some("44.0"));
    assert_eq!(version("/usr/lib/libmlx5.so.1"), None);
}
