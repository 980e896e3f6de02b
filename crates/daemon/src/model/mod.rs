//! What is wanted, and every word in which it is asked for or answered: documents, validation,
//! identities, settings, messages.
//!
//! Plain data and what can be said of it alone. Nothing here opens, reads or changes anything, and
//! nothing knows the engine's state, or HTTP. Two things look further: a port kind's row names the
//! function that opens its devices, which nothing here calls, and `access` looks up users' names.

pub(crate) mod access;
pub(crate) mod around;
pub mod authors;
pub(crate) mod clock;
pub mod failure;
pub mod globals;
pub(crate) mod identity;
pub mod kinds;
pub(crate) mod layers;
pub(crate) mod map_metric;
pub mod messages;
pub mod natural;
pub(crate) mod offload;
pub(crate) mod reference;
pub mod refusal;
pub mod run_config;
pub(crate) mod saved;
pub(crate) mod settings;
pub mod state;
pub(crate) mod thing;
pub(crate) mod unfit;
pub(crate) mod validate;
