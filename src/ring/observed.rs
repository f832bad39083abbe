//! The queries of the features `timing` and `flight-recorder`, which all queues and readers have.

/// Implements them for a type, whose recorders `timing` and `flight` are in the field at the path.
macro_rules! observed {
    ([$($generics:tt)*] $type:ty $(, $field:ident)*) => {
        impl<$($generics)*> $type {
            /// Returns how long the phases of its posts or polls took so far. A send queue also
            /// reports how long its WQEs were in flight.
            #[cfg(feature = "timing")]
            pub fn timing(&self) -> crate::watch::timing::Report {
                self$(.$field)*.timing.report()
            }

            /// Clears the times recorded so far.
            #[cfg(feature = "timing")]
            pub fn clear_timing(&mut self) {
                self$(.$field)*.timing.clear();
            }

            /// Returns its last events, up to its last failure, if there was one. See
            /// [`flight`](crate::watch::flight). Allocates. The first call in a process takes
            /// 10 ms.
            #[cfg(feature = "flight-recorder")]
            pub fn flight_record(&self) -> mlx5_diag::flight::Record {
                self$(.$field)*.flight.record()
            }

            /// Clears the recorded events, and the failure.
            #[cfg(feature = "flight-recorder")]
            pub fn clear_flight(&mut self) {
                self$(.$field)*.flight.clear();
            }

            /// Clears the recorded events, and applies `config` from now on. Allocates.
            #[cfg(feature = "flight-recorder")]
            pub fn set_flight(&mut self, config: crate::watch::flight::Config) {
                self$(.$field)*.flight.configure(config);
            }
        }
    };
}

pub(super) use observed;
