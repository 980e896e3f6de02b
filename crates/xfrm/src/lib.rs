//! The kernel's IPsec interface for IKE daemons, XFRM over netlink (`linux/xfrm.h`), in front of a
//! [`Table`](towpath_ipsec::Table) of security associations.
//!
//! An IKE daemon such as strongSwan's charon manages SAs and policies by messages of netlink family
//! `NETLINK_XFRM`. A [`Door`] answers these messages as the kernel does; a [`Server`] serves the
//! door at a unix socket of type `SOCK_SEQPACKET`, which keeps messages apart as netlink does. The
//! crate `towpath-supervise` gives an unmodified IKE daemon such a socket where it asks for one of
//! netlink.
//!
//! As in the kernel, SAs stay when the IKE daemon ends, until their hard limits of time.

#![forbid(unsafe_code)]

mod algorithms;
mod answer;
mod door;
mod policies;
mod refused;
mod server;
mod states;
mod wire;

pub use door::{Client, Door};
pub use server::Server;
