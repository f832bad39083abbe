//! The table of methods: which function serves which request.

pub(super) mod methods;
