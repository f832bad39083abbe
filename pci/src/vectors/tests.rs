use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

use super::*;

fn eventfd() -> (OwnedFd, File) {
    // SAFETY: the call passes integers. The descriptor it returns is new.
    let event = unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    (event.try_clone().unwrap().into(), event)
}

/// Returns how often an eventfd was signalled since the last call.
fn signals(event: &mut File) -> u64 {
    let mut count = [0; 8];
    event.read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
}

fn pending(vectors: &Vectors) -> u64 {
    let mut bytes = [0; PENDING];
    vectors.read_pending(0, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[test]
fn a_vector_is_pending_until_somebody_listens() {
    let vectors = Vectors::new().unwrap();
    let (event, mut heard) = eventfd();
    vectors.raise(3);
    assert_eq!(pending(&vectors), 1 << 3);
    vectors.listen(3, vec![Some(event)]).unwrap();
    assert_eq!((signals(&mut heard), pending(&vectors)), (1, 0));
    vectors.raise(3);
    vectors.raise(COUNT as u32);
    assert_eq!((signals(&mut heard), pending(&vectors)), (1, 0));
    vectors.listen(3, vec![None]).unwrap();
    vectors.raise(3);
    assert_eq!((signals(&mut heard), pending(&vectors)), (0, 1 << 3));
}

#[test]
fn masked_vectors_wait() {
    let vectors = Vectors::new().unwrap();
    let (event, mut heard) = eventfd();
    vectors.listen(1, vec![Some(event)]).unwrap();
    let masks: [(&str, &dyn Fn(bool)); 3] = [
        ("message", &|masked| vectors.mask(0, 2, masked).unwrap()),
        ("control register", &|masked| vectors.mask_all(masked)),
        ("table", &|masked| vectors.write_table(ENTRY + CONTROL, &[masked.into()])),
    ];
    for (name, mask) in masks {
        mask(true);
        vectors.raise(1);
        vectors.raise(1);
        assert_eq!((signals(&mut heard), pending(&vectors)), (0, 2), "{name}");
        mask(false);
        assert_eq!((signals(&mut heard), pending(&vectors)), (1, 0), "{name}");
    }
    vectors.reset();
    vectors.raise(1);
    assert_eq!(signals(&mut heard), 1, "the eventfd stays");
    vectors.disconnect();
    vectors.raise(1);
    assert_eq!(signals(&mut heard), 0);
}

#[test]
fn only_eventfds_are_accepted() {
    let vectors = Vectors::new().unwrap();
    let null = || OwnedFd::from(File::open("/dev/null").unwrap());
    assert_eq!(vectors.listen(0, vec![Some(null())]), Err(Refusal::Invalid));
    let last = COUNT - 1;
    assert_eq!(vectors.listen(last, vec![None, None]), Err(Refusal::Invalid));
    assert_eq!(vectors.mask(usize::MAX, 2, true), Err(Refusal::Invalid));
    assert_eq!(vectors.trigger(last, 2), Err(Refusal::Invalid));
    vectors.trigger(last, 1).unwrap();
}
