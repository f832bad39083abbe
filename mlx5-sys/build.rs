//! Finds the C libraries.

fn main() {}
