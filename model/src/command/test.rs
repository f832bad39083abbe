//! Commands for tests.
