//! The shared library of the model, or of another package, as bytes.
//!
//! cargo builds a dependency's `cdylib` beside its `rlib`, and installs only executables. So a program
//! that preloads the model has to carry the library inside. The alternatives:
//!
//! - A build script runs before the dependencies of its package are built. It would have to build the
//!   model and all its dependencies a second time.
//! - Artifact dependencies, which name the path of the library, are not in stable cargo.
//! - glibc does not preload an executable, even if that exports the symbols.
//!
//! A macro is expanded by the rustc that compiles the program, after cargo has built the model. The
//! arguments of that rustc name the model's `rlib` as `--extern mlx5_model=…`.

#![warn(missing_docs)]

use std::path::Path;

use proc_macro::{Literal, TokenStream, TokenTree};

mod find;
#[cfg(test)]
mod tests;

/// The bytes of the shared library of `mlx5-model`, of type `&'static [u8; N]`, or of the crate that is
/// named: `bytes!(mlx5_monitor)`.
///
/// The package that uses the macro depends on that crate. If rustc makes no machine code, as for
/// `cargo check` and rustdoc, the library does not exist yet, and there are no bytes.
///
/// # Errors
/// Compilation stops if cargo built no shared library of the crate.
#[proc_macro]
pub fn bytes(name: TokenStream) -> TokenStream {
    let name = if name.is_empty() { "mlx5_model".to_owned() } else { name.to_string() };
    match find::library(&name, std::env::args_os(), Path::is_file) {
        Ok(Some(path)) => call("include_bytes", &path),
        Ok(None) => TokenTree::from(Literal::byte_string(b"")).into(),
        Err(sentence) => call("compile_error", &sentence),
    }
}

/// A call of a macro of `core` with one string.
fn call(name: &str, argument: &str) -> TokenStream {
    let argument = Literal::string(argument);
    format!("::core::{name}!({argument})").parse().expect("it is an expression")
}
