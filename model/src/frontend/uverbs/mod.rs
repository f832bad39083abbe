//! The kernel's verbs interface, in the process.
mod instruction;
