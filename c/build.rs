//! Gives the shared library its soname, with the number of the binary interface.

/// The number of the binary interface. It grows with each change that breaks programs that were compiled
/// before.
const INTERFACE: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmlx5direct.so.{INTERFACE}");
}
