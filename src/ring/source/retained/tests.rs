use std::sync::Arc;

use super::Retained;

#[test]
fn memory_is_leaked_unless_it_is_freed() {
    let memory = Arc::new(());
    let retained = Retained::default();
    retained.add(Box::new(Arc::clone(&memory)));
    retained.add(Box::new(Arc::clone(&memory)));
    // SAFETY: no HCA works on it.
    unsafe { retained.free() };
    assert_eq!(Arc::strong_count(&memory), 1);
    retained.add(Box::new(Arc::clone(&memory)));
    drop(retained);
    assert_eq!(Arc::strong_count(&memory), 2);
}
