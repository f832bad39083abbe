//! The control path: objects and their states, completion events, the exchange of addresses, and the text
//! of errors.

mod connect;
mod errors;
mod events;
mod verbs;
