//! Guests that have their host run programs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A guest, and what its host runs for it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestView {
    /// Its port.
    pub port: String,
    /// Whether somebody is at the other end of its channel.
    pub connected: bool,
    /// Programs that run.
    pub programs: Vec<GuestProgramView>,
    /// Everything that it has.
    pub objects: Vec<GuestObjectView>,
    /// Its limits.
    pub limits: Vec<GuestLimitView>,
    /// Requests so far.
    pub requests: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Messages that were none.
    pub damaged: u64,
    /// How often it lost everything, as it began anew.
    pub resets: u64,
    /// The last refusal.
    pub refusal: Option<String>,
}

/// A guest's program that runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestProgramView {
    /// `ingress`: what is to reach the guest. `egress`: what it sends.
    pub direction: String,
    /// The guest's number for it.
    pub handle: u32,
    /// Its name.
    pub name: String,
    /// A hash of its instructions, in hexadecimal.
    pub tag: String,
    /// Frames that it judged.
    pub runs: u64,
    /// Its verdicts: `XDP_ABORTED`, `DROP`, `PASS`, `TX`, `REDIRECT`.
    pub actions: [u64; 5],
    /// Runs that were ended: out of time, or a rule was broken.
    pub faults: u64,
    /// Why it runs no more, if it doesn't: every frame is aborted until it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
}

/// Something that a guest has.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestObjectView {
    /// The guest's number for it.
    pub handle: u32,
    /// `btf`, `map` or `program`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Memory that it takes.
    pub bytes: u64,
}

/// A limit and how much of it is used.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestLimitView {
    /// As in the configuration.
    pub name: String,
    /// Most there may be.
    pub limit: u64,
    /// How much there is.
    pub used: u64,
}
