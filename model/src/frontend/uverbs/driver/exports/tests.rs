//! Bus addresses of exported pages, with memory of the test as device memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Two pages of memory, which devices may access.
struct Memories(Box<[AtomicU64]>);

impl Memories {
    fn new() -> Self {
        Self((0..2 * PAGE / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn target(&self) -> Target {
        Target::Memory(self.0.as_ptr() as u64)
    }

    fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }
}

fn memory() -> ProcessMemory {
    // SAFETY: the tests give only addresses of live atomics, and the kernel makes the accesses.
    unsafe { ProcessMemory::new(false) }
}

#[test]
fn a_write_reaches_the_memory_of_its_export_alone() {
    let (one, other) = (Memories::new(), Memories::new());
    let exports = Arc::<Exports>::default();
    let first = Export::new(&exports, one.target(), PAGE);
    let second = Export::new(&exports, other.target(), 2 * PAGE);
    exports.write(memory(), first.bus(8), &7u64.to_ne_bytes()).unwrap();
    exports.write(memory(), second.bus(PAGE), &9u64.to_ne_bytes()).unwrap();
    assert_eq!((one.word(1), other.word(1), other.word(512)), (7, 0, 9));
    let mut read = [0; 8];
    exports.read(memory(), first.bus(8), &mut read).unwrap();
    assert_eq!(u64::from_ne_bytes(read), 7);
    let old = exports.update(memory(), first.bus(8), &mut |_| [0; 8]).unwrap();
    assert_eq!((u64::from_ne_bytes(old), one.word(1)), (7, 0));
}

#[test]
fn an_access_across_the_end_of_an_export_faults() {
    let (one, other) = (Memories::new(), Memories::new());
    let exports = Arc::<Exports>::default();
    let first = Export::new(&exports, one.target(), PAGE);
    let _second = Export::new(&exports, other.target(), PAGE);
    let at = first.bus(PAGE - 4);
    assert_eq!(exports.write(memory(), at, &[1; 8]), Err(Fault(at)));
    assert_eq!((one.word(511), other.word(0)), (0, 0));
    assert_eq!(exports.read(memory(), u64::MAX, &mut [0; 8]), Err(Fault(u64::MAX)));
}

#[test]
fn addresses_of_a_revoked_or_closed_export_fault_and_are_not_used_again() {
    let one = Memories::new();
    let exports = Arc::<Exports>::default();
    let shares = Shares::default();
    let first = Arc::new(Export::new(&exports, one.target(), PAGE));
    shares.add(&first);
    assert!(!first.is_revoked());
    shares.revoke();
    let at = first.bus(0);
    assert!(first.is_revoked());
    assert_eq!(exports.write(memory(), at, &[1; 8]), Err(Fault(at)));
    drop(first);
    let second = Export::new(&exports, one.target(), PAGE);
    assert_ne!(second.bus(0), at);
    assert_eq!(exports.write(memory(), at, &[1; 8]), Err(Fault(at)));
    assert_eq!(one.word(0), 0);
}
