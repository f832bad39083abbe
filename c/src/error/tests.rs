use mlx5::ring::Excess;

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
    let text = |failed: Failed, status: Status| {
        assert_eq!(failed.status(), status);
        last()
    };
    let full = text(PostError::CqFull { slots: 7 }.into(), Status::QueueFull);
    assert!(full.contains("all 7 requests"), "{full}");
    let none = text(PostError::NothingPrepared.into(), Status::NothingPrepared);
    assert!(none.contains("mlx5_sq_prepare"), "{none}");
    let silent = PostError::NothingSignaled { outstanding: 3 };
    let silent = text(silent.into(), Status::NothingSignaled);
    assert!(silent.contains("MLX5_SIGNALED"), "{silent}");
    let small = QueueError::CqFull { cqes: 64, free: 2, needed: 8 };
    let small = text(small.into(), Status::CqTooSmall);
    assert!(small.contains("64 entries has 2 free"), "{small}");
    // The words of Rust do not come out.
    for (error, status) in [
        (QueueError::RegisterShared, Status::RegisterShared),
        (QueueError::CqMismatch, Status::WrongCq),
        (QueueError::NoQueue, Status::NoQueue),
        (QueueError::UnknownIndex, Status::InvalidArgument),
        (QueueError::IndexTaken, Status::InvalidArgument),
    ] {
        let text = text(error.into(), status);
        for word in ["SendConfig", "RegisterUse", "user_index"] {
            assert!(!text.contains(word), "{text}");
        }
    }
    for error in [
        PostError::NoMultiPacket,
        PostError::TooManyPackets(Excess::new(59, 58)),
        PostError::TooManyEntries,
        PostError::ListLength { bytes: 16 },
        PostError::ReceiveTooShort { needed: 512 },
    ] {
        let text = text(error.into(), Status::InvalidArgument);
        assert!(!text.contains("Eth") && !text.contains("wqe_bytes"), "{text}");
    }
    let stopped = text(PostError::WrongState.into(), Status::QueueStopped);
    assert!(stopped.contains("mlx5_sq_recover"), "{stopped}");
}
