//! Functions of the C libraries: found at the first call, or by the linker.

mod found {
    use core::ffi::{CStr, c_char, c_int, c_void};
    use core::marker::PhantomData;
    use core::ptr::null_mut;
    use core::sync::atomic::{AtomicPtr, Ordering};

    use crate::load::{Library, dynamic};

    /// A function of a library, found at its first call. `F` is its type.
    pub struct Function<F> {
        library: Library,
        name: &'static CStr,
        version: &'static CStr,
        /// Its address, or null until it is found.
        address: AtomicPtr<c_void>,
        kind: PhantomData<F>,
    }

    impl<F: Copy> Function<F> {
        /// Names a function.
        ///
        /// # Safety
        /// `F` is a function pointer of the type that the library's function of this name has in
        /// this version.
        pub const unsafe fn new(
            library: Library,
            name: &'static CStr,
            version: &'static CStr,
        ) -> Self {
            const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
            Self { library, name, version, address: AtomicPtr::new(null_mut()), kind: PhantomData }
        }

        /// Returns the function, or `None` and sets `errno` if the library does not have it.
        ///
        /// One load, after the first call.
        #[inline]
        pub fn get(&self) -> Option<F> {
            let mut address = self.address.load(Ordering::Acquire);
            if address.is_null() {
                address = self.find();
            }
            // SAFETY: `F` has the size of a pointer, and the address is that of a function of type
            // `F`, as the caller of `new` promised. It stays valid, since no library is closed.
            (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
        }

        #[cold]
        fn find(&self) -> *mut c_void {
            let address = dynamic::find(self.library, self.name, self.version);
            if address.is_null() {
                let is_open = self.library.open().is_ok();
                // SAFETY: libc gives the address of this thread's errno.
                unsafe {
                    *libc::__errno_location() = if is_open { libc::ENOSYS } else { libc::ELIBACC };
                }
            } else {
                self.address.store(address, Ordering::Release);
            }
            address
        }
    }

    /// The text that functions return whose library is missing.
    const UNAVAILABLE: &CStr = c"the C library of this text cannot be opened";

    /// The result of a function that was not found.
    pub trait Absent {
        /// Returns it: a failure, where the type has one.
        fn absent() -> Self;
    }

    macro_rules! absent {
        ($($type:ty = $value:expr;)*) => { $(
            impl Absent for $type {
                #[inline]
                fn absent() -> Self {
                    $value
                }
            }
        )* };
    }

    absent! {
        () = ();
        bool = false;
        // A failure, both of functions that return an errno and of functions that set it.
        c_int = -1;
        isize = -1;
        u16 = 0;
        u32 = 0;
        u64 = 0;
        *const c_char = UNAVAILABLE.as_ptr();
    }

    impl<T> Absent for *mut T {
        #[inline]
        fn absent() -> Self {
            null_mut()
        }
    }
}

pub use found::{Absent, Function};

/// Declares functions of a [`Library`](crate::load::Library): `"VERSION" fn name(…) -> …;`.
///
/// With the feature `link` they are foreign functions, which the linker finds.
#[cfg(all(feature = "link", not(feature = "bindgen")))]
macro_rules! functions {
    ($library:ident; $($version:literal fn $name:ident($($arguments:tt)*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" { $(
            pub fn $name($($arguments)*) $(-> $result)?;
        )* }
    };
}

/// Declares functions that only newer versions of a [`Library`](crate::load::Library) than that of the bindings
/// have: `"VERSION" fn name(…) -> …;`.
///
/// Each finds the library's function at its first call, also with the feature `link`: the linker would refuse
/// a library without it.
macro_rules! newer_functions {
    ($library:ident; $(
        $version:literal fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;
    )*) => {
        $(
            /// The C function of this name. Its library's documentation says what it does.
            ///
            /// # Safety
            /// The arguments are as the library wants them.
            #[inline]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                use $crate::load::{Absent, Function, Library};

                const NAME: &::core::ffi::CStr = $crate::load::newer_functions!(@c stringify!($name));
                const VERSION: &::core::ffi::CStr = $crate::load::newer_functions!(@c $version);
                static FUNCTION: Function<unsafe extern "C" fn($($type),*) $(-> $result)?> =
                    // SAFETY: the declaration has the type of the header, and the version that was its
                    // default in the library.
                    unsafe { Function::new(Library::$library, NAME, VERSION) };
                match FUNCTION.get() {
                    // SAFETY: the caller keeps the library's contract.
                    Some(function) => unsafe { function($($argument),*) },
                    None => Absent::absent(),
                }
            }
        )*

        #[cfg(all(test, not(feature = "link")))]
        #[test]
        fn the_library_has_each_function_in_its_version() {
            const FUNCTIONS: &[$crate::load::tests::Listed] = &[$((
                $crate::load::newer_functions!(@c stringify!($name)),
                $crate::load::newer_functions!(@c $version),
            )),*];
            $crate::load::tests::has_each($crate::load::Library::$library, FUNCTIONS);
        }
    };
    (@c $text:expr) => {
        match ::core::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("a name has no zero byte"),
        }
    };
}
pub(crate) use newer_functions;

/// Declares functions of a [`Library`](crate::load::Library): `"VERSION" fn name(…) -> …;`.
///
/// Without the feature `link`, each finds the library's function at its first call.
#[cfg(not(feature = "link"))]
macro_rules! functions {
    ($($declarations:tt)*) => {
        $crate::load::newer_functions! { $($declarations)* }
    };
}
#[cfg(not(feature = "bindgen"))]
pub(crate) use functions;
