//! Sets the machine up.
fn main() {}
