use core::ffi::{CStr, c_int};
use core::ptr::null_mut;

use mlx5::verbs::{CompletionQueue, Context};
use mlx5_model as _;

use super::*;
use crate::completion::Completion;
use crate::cq::{mlx5_cq_abandon, mlx5_cq_give_back, mlx5_cq_poll, mlx5_cq_take};
use crate::error::mlx5_last_error;

#[test]
fn a_panic_ends_the_use_of_a_group_and_does_not_leave_it() {
    let context = Context::open_first().unwrap();
    let cq = CompletionQueue::new(&context, 16).unwrap();
    let mut group = null_mut();
    let mut done = Completion::default();
    // SAFETY: the CQ lives on, and only this test uses it.
    unsafe {
        assert_eq!(mlx5_cq_take(cq.as_raw().as_ptr(), 0, &mut group), Status::Ok);
        assert_eq!(mlx5_cq_poll(group, &mut done, 1), 0);
        let failed = on(group, |_| -> Result { panic!("a defect") }).unwrap_err();
        assert_eq!(failed.status(), Status::Internal);
        let text = CStr::from_ptr(mlx5_last_error()).to_str().unwrap();
        assert!(text.ends_with("a defect"), "{text}");
        assert_eq!(mlx5_cq_poll(group, &mut done, 1), -(Status::Internal as c_int));
        assert_eq!(mlx5_cq_give_back(group), Status::Internal);
        mlx5_cq_abandon(group);
        // The claim ended with the handle.
        assert_eq!(mlx5_cq_take(cq.as_raw().as_ptr(), 0, &mut group), Status::Ok);
        assert_eq!(mlx5_cq_give_back(group), Status::Ok);
    }
}
