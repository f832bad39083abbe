//! Which libraries there are, and the error of a missing one.

use core::fmt;

/// A C library whose functions this crate binds.
///
/// ```
/// use mlx5_sys::load::Library;
///
/// if let Err(missing) = Library::Verbs.open() {
///     eprintln!("{missing}"); // with the package to install
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Library {
    /// libibverbs: the module [`verbs`](crate::verbs).
    Verbs,
    /// libmlx5: the module [`dv`](crate::dv).
    Mlx5,
    /// librdmacm: the module `cm`.
    #[cfg(feature = "cm")]
    Cm,
}

impl Library {
    /// Returns the name of its file, as the loader knows it.
    pub const fn file(self) -> &'static str {
        match self {
            Library::Verbs => "libibverbs.so.1",
            Library::Mlx5 => "libmlx5.so.1",
            #[cfg(feature = "cm")]
            Library::Cm => "librdmacm.so.1",
        }
    }

    /// Returns the package of Debian and Ubuntu that has it.
    pub const fn package(self) -> &'static str {
        match self {
            Library::Verbs => "libibverbs1",
            Library::Mlx5 => "ibverbs-providers",
            #[cfg(feature = "cm")]
            Library::Cm => "librdmacm1",
        }
    }

    /// Returns the package of Fedora that has it.
    const fn package_of_fedora(self) -> &'static str {
        match self {
            Library::Verbs | Library::Mlx5 => "libibverbs",
            #[cfg(feature = "cm")]
            Library::Cm => "librdmacm",
        }
    }

    /// Opens the library, if it is not open yet. It stays open.
    ///
    /// With the feature `link` it is open from the start.
    ///
    /// # Errors
    /// The machine has no such library, or the loader cannot use it.
    pub fn open(self) -> Result<(), MissingLibrary> {
        #[cfg(not(feature = "link"))]
        if super::dynamic::open(self).is_null() {
            return Err(MissingLibrary { library: self, reason: super::dynamic::last_error() });
        }
        Ok(())
    }
}

/// The error of a library that cannot be opened. Its text names the package to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingLibrary {
    library: Library,
    reason: String,
}

impl MissingLibrary {
    /// Returns the library.
    pub fn library(&self) -> Library {
        self.library
    }

    /// Returns the loader's own words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, reason } = self;
        write!(
            f,
            "{} cannot be opened: install {} (Debian, Ubuntu) or {} (Fedora); the loader says: {reason}",
            library.file(),
            library.package(),
            library.package_of_fedora(),
        )
    }
}

impl core::error::Error for MissingLibrary {}
