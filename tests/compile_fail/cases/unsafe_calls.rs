//! Calls that only `unsafe` code may make.

/// A reader made of a CQ knows how the CQ compresses.
mod compression {
    use mlx5::{ib::*, ring::*};

    #[cfg(misuse)]
    fn change(reader: &mut CqReader) {
        reader.expect_compression(CqeCompression::Hash);
        //~^ E0133 call to unsafe function expect_compression
    }
}

/// Polls read CQEs in place.
mod overrun {
    use mlx5::verbs::*;

    #[cfg(misuse)]
    fn ignore(builder: CompletionQueueBuilder) -> CompletionQueueBuilder {
        builder.ignore_overrun()
        //~^ E0133 call to unsafe function ignore_overrun
    }
}
