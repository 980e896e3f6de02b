//! How the daemon is asked and answers: the API, metrics, the page, signals, and the sockets that
//! they come by.
//!
//! A door translates and does nothing else: a request becomes a call of `control`, and what there
//! is becomes an answer. HTTP and its status codes are known here only.

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
pub(crate) mod serve;
pub(crate) mod socket;
pub(crate) mod sockets;
pub(crate) mod view;
pub(crate) mod workers;
