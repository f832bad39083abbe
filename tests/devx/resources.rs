//! The resources of queues made by command: UAR pages and memory.

use std::os::fd::{AsFd, FromRawFd};
use std::ptr::NonNull;

use mlx5::Error;
use mlx5::devx::{Uar, UarKind, Umem};
use mlx5::ib::Access;
use mlx5::verbs::{Context, Pages};
use mlx5_model as _;

fn context() -> Context {
    Context::open_first().unwrap()
}

#[test]
fn a_register_is_its_owners_or_everybodys() {
    let context = context();
    let [one, other] = [(); 2].map(|()| Uar::new(&context, UarKind::BlueFlame).unwrap());
    assert_ne!(one.register(), other.register());
    assert_eq!((one.blue_flame(), one.kind()), (256, UarKind::BlueFlame));
    let [first, second] = [(); 2].map(|()| Uar::new(&context, UarKind::NonCached).unwrap());
    assert_eq!(first.register(), second.register());
    assert_ne!(first.page_id(), one.page_id());
    assert_eq!((first.blue_flame(), first.kind()), (0, UarKind::NonCached));
    // One that was given back is given out again; what all share stays.
    let register = other.register();
    drop((other, first));
    assert_eq!(Uar::new(&context, UarKind::BlueFlame).unwrap().register(), register);
    assert_eq!(Uar::new(&context, UarKind::NonCached).unwrap().register(), second.register());
}

#[test]
fn the_first_kind_that_is_to_be_had_is_taken_and_the_others_say_why_not() {
    let context = context();
    let kinds = [UarKind::NonCachedDedicated, UarKind::NonCached, UarKind::BlueFlame];
    let choice = Uar::first_of(&context, &kinds).unwrap();
    match choice.uar.kind() {
        // A libmlx5 that is new enough.
        UarKind::NonCachedDedicated => assert!(choice.refused.is_empty()),
        kind => {
            assert_eq!(kind, UarKind::NonCached);
            let [(UarKind::NonCachedDedicated, error)] = &choice.refused[..] else {
                panic!("{choice:?}")
            };
            let text = error.to_string();
            assert!(text.contains("EOPNOTSUPP") && text.contains("rdma-core 47"), "{text}");
            let none = Uar::first_of(&context, &kinds[..1]).unwrap_err();
            let text = none.to_string();
            assert!(matches!(none, Error::NoUar { .. }), "{text}");
            assert!(text.contains("non-cached, dedicated: mlx5dv_devx_alloc_uar"), "{text}");
        }
    }
    let choice = Uar::first_of(&context, &UarKind::ALL).unwrap();
    assert_eq!((choice.uar.kind(), choice.refused.len()), (UarKind::BlueFlame, 0));
}

#[test]
fn memory_is_registered_where_it_lies() {
    let context = context();
    let pages = Pages::new(3 << 12).unwrap();
    let start = pages.as_ptr();
    let umem = Umem::new(&context, pages).unwrap();
    assert_eq!((umem.start(), umem.len()), (Some(start), 3 << 12));
    let other = Umem::new(&context, Pages::new(100).unwrap()).unwrap();
    assert_ne!(umem.number(), other.number());
    // Memory of the program's own, that it placed itself.
    let mut buffer = vec![0u8; 1 << 16];
    let start = NonNull::from(&mut buffer[..]).cast::<u8>();
    let builder = Umem::builder(&context).access(Access::LOCAL_WRITE | Access::REMOTE_READ);
    // SAFETY: the buffer lives longer, and no code uses it.
    let umem = unsafe { builder.memory(start, buffer.len()) }.unwrap();
    assert_eq!(umem.start(), Some(start));
    drop(umem);
}

#[test]
fn memory_that_cannot_be_registered_is_refused_in_words() {
    let context = context();
    let text = |builder: mlx5::devx::UmemBuilder| {
        builder.pages(Pages::new(4096).unwrap()).unwrap_err().to_string()
    };
    let builder = || Umem::builder(&context);
    for (builder, said) in [
        (builder().access(Access::REMOTE_WRITE), "add LOCAL_WRITE"),
        (builder().access(Access::LOCAL_WRITE | Access::REMOTE_ATOMIC), "keys say the rest"),
        (builder().page_sizes(0xfff), "smallest page has 4096 bytes"),
    ] {
        let text = text(builder);
        assert!(text.contains(said), "{said:?} is missing in {text:?}");
    }
    // Nothing is mapped there.
    let nowhere = NonNull::new(std::ptr::without_provenance_mut(1 << 12)).unwrap();
    // SAFETY: the memory is not there, which registering finds out; nothing touches it.
    let error = unsafe { builder().memory(nowhere, 4096) }.unwrap_err();
    assert_eq!(error.errno().map(|errno| errno.0), Some(libc::EFAULT), "{error}");
    // SAFETY: the memory is not there, which registering finds out; nothing touches it.
    let error = unsafe { builder().memory(nowhere, 0) }.unwrap_err();
    assert!(error.to_string().contains("at least 1 byte"), "{error}");
}

#[test]
fn pages_are_told_to_the_card_as_large_as_was_allowed() {
    let context = context();
    let pages = || Pages::new(1 << 16).unwrap();
    let umem = Umem::builder(&context).page_sizes(1 << 12).pages(pages()).unwrap();
    assert_eq!(umem.len(), 1 << 16);
    // No page of 1 GiB fits in 64 KiB.
    let error = Umem::builder(&context).page_sizes(1 << 30).pages(pages()).unwrap_err();
    assert!(error.to_string().contains("none of the page sizes"), "{error}");
}

#[test]
fn what_is_a_dmabuf_is_registered_as_one_or_refused_in_words() {
    // SAFETY: the name is a C string; the descriptor is new.
    let file = unsafe {
        let fd = libc::memfd_create(c"dmabuf".as_ptr(), libc::MFD_CLOEXEC);
        std::fs::File::from_raw_fd(fd)
    };
    file.set_len(1 << 14).unwrap();
    let context = context();
    let register = |offset, length| {
        // SAFETY: nothing maps the memory.
        unsafe { Umem::builder(&context).dmabuf(file.as_fd(), offset, length) }
    };
    let umem = register(1 << 12, 1 << 13).unwrap();
    assert_eq!((umem.start(), umem.len()), (None, 1 << 13));
    let text = register(1 << 12, 1 << 14).unwrap_err().to_string();
    assert!(text.contains("mlx5dv_devx_umem_reg_ex") && text.contains("Linux 6.1"), "{text}");
}
