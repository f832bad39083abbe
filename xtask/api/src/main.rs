//! Prints the public interface of a crate, one item a line, from rustdoc's JSON.

use std::process::ExitCode;

/// Traits that the compiler implements by itself and that readers do not look for. `Send` and
/// `Sync` stay: the threads that may use a queue are part of the interface.
const LEFT_OUT: [&str; 5] = [
    "core::marker::Freeze for",
    "core::marker::Unpin for",
    "core::marker::UnsafeUnpin for",
    "core::panic::unwind_safe::RefUnwindSafe for",
    "core::panic::unwind_safe::UnwindSafe for",
];

fn main() -> ExitCode {
    let Some(json) = std::env::args_os().nth(1) else {
        eprintln!("usage: xtask-api FILE.json");
        return ExitCode::from(2);
    };
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => {
            for item in api.items().map(ToString::to_string) {
                if !LEFT_OUT.iter().any(|name| item.contains(name)) {
                    println!("{item}");
                }
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: cannot read rustdoc's JSON: {error}");
            ExitCode::FAILURE
        }
    }
}
