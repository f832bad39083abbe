//! `mlx5 perf`: how fast messages go, and what of that the CPU has to do.
//!
//! A measurement ends in a [`result::Run`], which is all that outputs know: it says on what it was
//! measured ([`environment`]) and how, and has a [`distribution`] of times per point.

pub mod distribution;
pub mod environment;
pub mod result;
