//! The interfaces of the daemon: the API, metrics, the web page, signals, and the sockets that
//! serve them.
//!
//! A door only translates: a request becomes a call of `control`, and the result becomes an answer.
//! HTTP and its status codes are known only here.

pub mod api;
pub(crate) mod bonds;
pub mod client;
pub mod code;
pub(crate) mod daemon;
pub(crate) mod flows;
pub(crate) mod guests;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod queues;
mod sas;
pub(crate) mod serve;
pub(crate) mod socket;
pub(crate) mod sockets;
pub(crate) mod view;
pub(crate) mod workers;
