use super::*;

#[test]
fn statuses_are_numbered_without_gaps() {
    for (number, status) in Status::ALL.iter().enumerate() {
        assert_eq!(*status as usize, number);
    }
}

#[test]
fn each_status_but_success_names_a_cure_or_what_names_it() {
    for status in &Status::ALL[1..] {
        let text = status.text().to_str().unwrap();
        assert!(text.contains(": ") || text.contains("timeout"), "{status:?}: {text}");
        assert!(!text.contains("  "), "{status:?}: {text}");
    }
}

#[test]
fn an_unknown_status_has_a_text() {
    // SAFETY: the text lives for ever.
    let text = unsafe { CStr::from_ptr(mlx5_status_text(u32::MAX)) };
    assert_eq!(text, c"unknown status");
}
