//! The wanted state, and the data in which it is requested and reported: documents, validation,
//! identities, settings, messages.
//!
//! Plain data, and functions of that data alone. Nothing here performs I/O or changes anything, and
//! nothing depends on the engine's state or on HTTP. There are two exceptions: a port kind contains
//! the function that opens its devices, which nothing here calls, and `access` looks up names of
//! users.

pub(crate) mod access;
pub(crate) mod around;
pub mod authors;
pub(crate) mod clock;
pub mod failure;
pub mod globals;
pub(crate) mod identity;
pub(crate) mod ipsec;
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
