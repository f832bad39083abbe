//! Tests of opening libraries and finding functions, with the libraries of this machine.

use core::ffi::{CStr, c_int};
use std::thread;

use super::function::{Absent, Function};
use super::{Library, dynamic};

/// The newest versions that the libraries of rdma-core 39 have, the oldest supported one.
const OF_OLDEST: [(&str, u32); 3] = [("IBVERBS", 14), ("MLX5", 22), ("RDMACM", 3)];

/// A function's name and version.
pub type Listed = (&'static CStr, &'static CStr);

/// Checks that the library has all functions of each version, or none of a version that is newer than
/// rdma-core 39.
pub fn has_each(library: Library, functions: &[Listed]) {
    for (name, version) in functions {
        if dynamic::find(library, name, version).is_null() {
            assert!(newer_than_oldest(version), "{name:?} {version:?}");
            let same = functions.iter().filter(|(_, other)| other == version);
            for (other, version) in same {
                assert!(dynamic::find(library, other, version).is_null(), "{other:?} {version:?}");
            }
        }
    }
}

fn newer_than_oldest(version: &CStr) -> bool {
    let (prefix, minor) = version.to_str().unwrap().split_once("_1.").unwrap();
    let oldest = OF_OLDEST.iter().find(|(of, _)| *of == prefix).unwrap().1;
    minor.parse::<u32>().unwrap() > oldest
}

type NoArguments = unsafe extern "C" fn() -> c_int;

/// Names a function of libibverbs by a name or version that no libibverbs has.
fn nowhere(name: &'static CStr, version: &'static CStr) -> Function<NoArguments> {
    // SAFETY: there is no such function, so any type is its type.
    unsafe { Function::new(Library::Verbs, name, version) }
}

#[test]
fn a_function_of_another_name_or_version_is_not_found_and_sets_errno() {
    for (name, version) in
        [(c"ibv_nothing", c"IBVERBS_1.1"), (c"ibv_get_device_list", c"IBVERBS_9.9")]
    {
        // SAFETY: libc gives the address of this thread's errno.
        unsafe { *libc::__errno_location() = 0 };
        assert!(nowhere(name, version).get().is_none(), "{name:?}");
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
    }
}

#[test]
fn results_of_absent_functions_are_failures() {
    assert_eq!(c_int::absent(), -1);
    assert!(<*mut u8>::absent().is_null());
    // SAFETY: the text is a C string that is never freed.
    let text = unsafe { CStr::from_ptr(<*const core::ffi::c_char>::absent()) };
    assert!(text.to_str().unwrap().contains("cannot be opened"));
}

#[test]
fn threads_that_make_the_first_call_find_the_same_function() {
    type Text = unsafe extern "C" fn(c_int) -> *const core::ffi::c_char;
    // SAFETY: `const char *ibv_wc_status_str(enum ibv_wc_status status)` of `verbs.h`.
    static FUNCTION: Function<Text> =
        unsafe { Function::new(Library::Verbs, c"ibv_wc_status_str", c"IBVERBS_1.1") };
    let find = || FUNCTION.get().map(|found| found as usize);
    let found: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(find)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found[0].is_some() && found.iter().all(|it| *it == found[0]), "{found:x?}");
}

#[test]
fn a_library_that_is_open_is_opened_once() {
    let first = dynamic::open(Library::Mlx5);
    assert!(!first.is_null());
    assert_eq!(dynamic::open(Library::Mlx5), first);
}
