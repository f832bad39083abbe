//! The table form in which the layouts of this crate are written, and their compile-time checks.

/// Size of the type that a projection from `T` leads to.
#[allow(dead_code, reason = "Rust 1.85 overlooks calls from anonymous constants")]
pub(crate) const fn field_size<T, F>(_: fn(*const T) -> *const F) -> usize {
    size_of::<F>()
}

/// Declares structures that the HCA reads or writes.
///
/// `Name size = c_struct { field: Type = offset, c.path; … }` makes a `#[repr(C)]` structure of
/// alignment 1 and refuses to compile unless every field lies at its offset, no byte is left
/// between fields, the size is `size`, and, where the header has the structure, `dv::c_struct` has
/// the same size and has the field `c.path` at the same offset with the same width. A field
/// without `c.path` is one that the header does not name, or divides otherwise.
macro_rules! layouts {
    ($(
        $(#[$meta:meta])*
        $name:ident $size:literal $(= $c:ident)? {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $offset:literal $(, $($path:ident).+)?;)*
        }
    )*) => {
        $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            /// All bytes zero.
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        impl $name {
            /// Size in bytes.
            pub const SIZE: usize = $size;
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            let mut end = 0;
            $(
                assert!(core::mem::offset_of!($name, $field) == $offset);
                assert!(end == $offset);
                end += size_of::<$type>();
            )*
            assert!(end == $size);
        };

        $crate::layout::layouts!(@c $name $($c)? { $($field: $type $(= $($path).+)?;)* });
        )*

        /// The same as at compile time, but a failure here says which field and where it lies.
        #[cfg(test)]
        #[test]
        fn fields_lie_where_the_table_and_the_header_have_them() {
            $($(
                let span = memoffset::span_of!($name, $field);
                assert_eq!(
                    span,
                    $offset..$offset + size_of::<$type>(),
                    concat!(stringify!($name), "::", stringify!($field))
                );
            )*)*
            $($crate::layout::layouts!(@span $name $($c)? { $($field $(= $($path).+)?;)* });)*
        }
    };

    (@span $name:ident { $($rest:tt)* }) => {};
    (@span $name:ident $c:ident { $($field:ident $(= $($path:ident).+)?;)* }) => {
        $($(
            let start = core::mem::offset_of!($crate::dv::$c, $($path).+);
            let size = $crate::layout::field_size(|c: *const $crate::dv::$c| {
                // SAFETY: never called; only the type of the projection is looked at.
                unsafe { &raw const (*c).$($path).+ }
            });
            assert_eq!(
                memoffset::span_of!($name, $field),
                start..start + size,
                concat!(stringify!($c), "::", stringify!($($path).+))
            );
        )?)*
    };

    (@c $name:ident { $($rest:tt)* }) => {};
    (@c $name:ident $c:ident { $($field:ident: $type:ty $(= $($path:ident).+)?;)* }) => {
        const _: () = {
            assert!(size_of::<$crate::dv::$c>() == size_of::<$name>());
            $($(
                assert!(
                    core::mem::offset_of!($crate::dv::$c, $($path).+)
                        == core::mem::offset_of!($name, $field)
                );
                assert!(
                    $crate::layout::field_size(|c: *const $crate::dv::$c| {
                        // SAFETY: never called; only the type of the projection is looked at.
                        unsafe { &raw const (*c).$($path).+ }
                    }) == size_of::<$type>()
                );
            )?)*
        };
    };
}
pub(crate) use layouts;

/// Declares constants that must equal those of `mlx5dv.h`: `NAME: type = value, C_NAME;`. One
/// without `C_NAME` is not in that header; its own comment says where it comes from.
macro_rules! constants {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $value:expr $(, $c:ident)?;)*) => { $(
        $(#[$meta])*
        pub const $name: $type = $value;
        $(const _: () = assert!($name as u64 == $crate::dv::$c as u64, stringify!($c));)?
    )* };
}
pub(crate) use constants;
