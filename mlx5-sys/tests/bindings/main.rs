//! The bindings in `src/bindings`, compared with those that the build script has made of the
//! installed headers.
//!
//! The former have what rdma-core 44 has. A newer version may have more: more functions, constants and
//! fields at the end of structures. An older one may have less. All else has to be the same, so that a
//! program with these bindings is right on every version.
//!
//! With the variable `MLX5_SYS_BINDINGS=write`, the files are written instead.

mod compare;
mod listing;
mod versions;

use std::path::Path;
use std::{env, fs};

use compare::differences;
use listing::Listing;
use mlx5_sys::load::Library;

/// A file of `src/bindings`, the library of its functions, and what the build script has made.
type Source = (&'static str, Library, &'static str);

macro_rules! source {
    ($name:literal, $library:ident) => {
        ($name, Library::$library, include_str!(concat!(env!("OUT_DIR"), "/", $name, ".rs")))
    };
}

const SOURCES: [Source; 5] = [
    source!("verbs", Verbs),
    source!("verbs_supplement", Verbs),
    source!("mlx5dv", Mlx5),
    source!("cm", Cm),
    source!("cm_supplement", Cm),
];

/// The major version of the rdma-core that the bindings are of.
const OF_BINDINGS: u32 = 44;

/// The same for the installed headers.
fn of_headers() -> u32 {
    let version = env!("MLX5_SYS_HEADERS");
    version.split('.').next().and_then(|major| major.parse().ok()).expect(version)
}

#[test]
fn headers_of_an_older_or_newer_rdma_core_have_less_or_more_and_nothing_else() {
    let write = env::var_os("MLX5_SYS_BINDINGS").is_some_and(|value| value == "write");
    let installed = of_headers();
    assert!(
        !write || installed == OF_BINDINGS,
        "the installed headers are of rdma-core {installed}, and the bindings are written from those \
         of rdma-core {OF_BINDINGS}: use Debian 12, or let PKG_CONFIG_PATH name such a version"
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings");
    for (name, library, generated) in SOURCES {
        let header = Listing::of_bindgen(generated);
        let path = folder.join(name).with_extension("rs");
        if write {
            fs::write(path, header.text(library)).unwrap();
            continue;
        }
        let listed = Listing::of_file(&fs::read_to_string(path).unwrap());
        let mut found = Vec::new();
        if installed <= OF_BINDINGS {
            found.extend(differences(&header, &listed));
        }
        if installed >= OF_BINDINGS {
            found.extend(differences(&listed, &header));
        }
        assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
    }
}
