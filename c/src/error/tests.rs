use super::*;

fn last() -> String {
    // SAFETY: the function returns a text, and this thread does not call it again before the copy.
    unsafe { CStr::from_ptr(mlx5_last_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn a_panic_becomes_a_status_with_its_text() {
    let result: Result = caught(|| panic!("entry {} of 3", 4));
    assert_eq!(finish(result), Status::Internal);
    assert_eq!(last(), "a defect of libmlx5direct: entry 4 of 3");
}

#[test]
fn each_thread_has_its_own_last_error() {
    std::thread::spawn(|| {
        assert_eq!(last(), "no call of this thread has failed");
        assert_eq!(finish(Err(Failed::argument("count is 0: pass more"))), Status::InvalidArgument);
        assert_eq!(last(), "count is 0: pass more");
        assert_eq!(finish(Ok(())), Status::Ok);
        assert_eq!(last(), "count is 0: pass more");
    })
    .join()
    .unwrap();
    std::thread::spawn(|| assert_eq!(last(), "no call of this thread has failed")).join().unwrap();
}

#[test]
fn texts_of_the_data_path_name_numbers_and_words_of_the_header() {
    let full = Failed::from(PostError::CqFull { slots: 7 });
    assert_eq!(full.status, Status::QueueFull);
    assert!(full.to_string().contains("all 7 requests"), "{full}");
    let silent = Failed::from(PostError::NothingSignaled { outstanding: 3 });
    assert!(silent.to_string().contains("MLX5_SIGNALED"), "{silent}");
    let small = Failed::from(QueueError::CqFull { cqes: 64, free: 2, needed: 8 });
    assert_eq!(small.status, Status::CqTooSmall);
    assert!(small.to_string().contains("64 entries has 2 free"), "{small}");
    // The words of Rust do not come out.
    for error in [QueueError::RegisterShared, QueueError::CqMismatch, QueueError::NoQueue] {
        let text = Failed::from(error).to_string();
        assert!(!text.contains("SendConfig") && !text.contains("RegisterUse"), "{text}");
    }
    let stopped = Failed::from(PostError::WrongState).to_string();
    assert!(stopped.contains("mlx5_sq_recover"), "{stopped}");
}
