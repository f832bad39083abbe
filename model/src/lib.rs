//! A software ConnectX.
