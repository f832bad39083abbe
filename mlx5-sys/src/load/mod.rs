//! The C libraries, opened at run time.
//!
//! A program that is built without the feature `link` names no C library. The first call of a function
//! opens the function's library with `dlopen`, and finds the function with `dlvsym`, by the version of
//! its interface that the bindings have. So one binary runs on machines with the libraries and without.
//!
//! A call whose library is missing does nothing and sets `errno` to `ELIBACC`, and one whose library is too old
//! to have the function `ENOSYS`. It returns null, −1,
//! `false`, 0 for an unsigned number, or a sentence for a text. [`Library::open`] names
//! the library and the package that has it. A program asks it before the first call.
//!
//! | property | why it holds |
//! |---|---|
//! | A function that was not found is never called | its address is checked at each call |
//! | Several threads may make the first call | each finds the same address, and stores it atomically |
//! | A forked child may make the first call | this module has no lock that another thread could hold. The loader has one: no other thread may have been in it at the fork |
//! | An address stays valid | no library is ever closed |
//!
//! With the feature `link`, the linker finds the functions, and every library is there from the start. Functions
//! that are newer than the bindings are still found at their first call, in the libraries that are linked.

mod dynamic;
mod function;
mod library;

#[cfg(not(feature = "bindgen"))]
pub(crate) use function::functions;
pub(crate) use function::{Absent, Function, newer_functions};
pub use library::{Library, MissingLibrary};

#[cfg(all(test, not(feature = "link")))]
pub(crate) mod tests;
