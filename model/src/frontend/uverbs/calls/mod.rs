//! The functions of the C library that the model interposes: the way in for programs.
//!
//! `files` are those that take a descriptor, `sockets` those on sockets, `paths` those that take a path,
//! `interfaces` those on network interfaces, `signals` those on signals. Each asks whether the call is for the model, and hands all others to
//! the C library. `open` opens, copies and
//! closes the model's files, and `memory` follows what the program does to its mappings.

/// Defines functions that the model interposes.
macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, which the model looks at first.")]
        ///
        /// # Safety
        /// The contract of the C library's function holds: pointers are valid for what the call reads and
        /// writes, descriptors are the caller's to change, and memory that is unmapped is not used any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller keeps the C library's contract, which asks no less than the model.
            unsafe { $body }
        }
    )*};
}
mod files;
mod interfaces;
mod memory;
mod open;
mod paths;
mod signals;
mod sockets;
