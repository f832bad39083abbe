//! Checks the machine while the crates that need its headers are still being compiled.

#[path = "src/lib.rs"]
#[allow(dead_code, reason = "the build script does not link")]
mod probe;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/lib.rs");
    probe::libraries().unwrap_or_else(|sentence| probe::stop(&sentence));
    #[cfg(feature = "libclang")]
    {
        println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
        probe::libclang().unwrap_or_else(|sentence| probe::stop(&sentence));
    }
}
