//! IPsec ESP (RFC 4303) as a library: security associations, encapsulation and decapsulation of
//! packets, and engines for the cryptography. It does no I/O and starts no threads; the caller
//! provides the packets and the time.
//!
//! The work on a packet has three steps, so that an engine can work on many packets at once:
//!
//! 1. [`Locked::encap`] or [`Locked::decap`] checks the packet, does the work on headers, and makes
//!    a [`Job`]: one operation with a key on ranges of bytes.
//! 2. An [`Engine`] runs jobs, at once or later.
//! 3. [`finish`] checks the result and completes the packet.
//!
//! A refused packet is returned with the reason, a [`Refusal`], which its SA counts.
//!
//! ```
//! use towpath_ipsec::{
//!     Aead, Config, Direct, Engine, Job, Keys, Mode, OwnedBuffer, Suite, Table, TableLimits,
//!     Tunnel, finish,
//! };
//!
//! let table = Table::new(TableLimits::default());
//! let keys = Keys::new(vec![7; 20], Vec::new());
//! let addresses = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
//! let suite = Suite::Aead(Aead::Aes128Gcm);
//! let config = Config::outbound(0x1000, addresses.0, addresses.1, suite, keys);
//! let sa = table.add(Config { mode: Mode::Tunnel(Tunnel::default()), ..config }, 0)?;
//!
//! let mut packet = vec![2; 12];
//! packet.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
//! packet.extend([0x30, 0x39, 0, 53, 0, 8, 0, 0]);
//! let mut jobs: Vec<Job<OwnedBuffer>> = Vec::new();
//! sa.lock(0).encap(OwnedBuffer::new(&packet), &mut jobs).expect("a packet that can be sent");
//!
//! let mut engine = Direct::new(64);
//! engine.submit(&mut jobs);
//! engine.complete(&mut jobs);
//! let sent = finish(jobs.remove(0), 0).expect("the engine did it");
//! assert_eq!(sent.buffer.as_ref()[12..14], [8, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod buffer;
mod engine;
mod esp;
mod refusal;
mod sa;
mod schedule;
mod suite;
mod table;
mod wire;

pub use buffer::{Buffer, OwnedBuffer};
pub use engine::{
    AtOnce, AwsLc, Cryptography, Direct, Engine, Fault, Faults, Nothing, Null, Operation, Status,
    Task, Work, move_front,
};
pub use esp::{Esp, Finished, Job, Refused, finish, finish_all};
pub use refusal::{Counters, Refusal};
pub use sa::{
    Config, ConfigError, Df, Direction, Dscp, Encapsulation, Events, Handle, Lifetime, Limits,
    LocalSa, Locked, Mode, QUIET_SECONDS, Replay, SPI_RESERVED_MAX, Sa, Statistics, Tunnel,
    WINDOW_MIN, Window,
};
pub use schedule::Schedule;
pub use suite::{Aead, Cipher, Hmac, KeyError, Keys, Secret, Suite};
pub use table::{
    Action, Flow, Outbound, Policy, Prefix, Router, Selector, Table, TableError, TableLimits,
    Unrouted, View, Wanted,
};
