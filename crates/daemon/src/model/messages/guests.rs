//! Guests (virtual machines) whose programs run in the host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A guest, and its programs and objects in the host.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestView {
    /// The guest's port.
    pub port: String,
    /// Whether an agent is connected to the guest's channel.
    pub connected: bool,
    /// Programs that are attached.
    pub programs: Vec<GuestProgramView>,
    /// All objects of the guest.
    pub objects: Vec<GuestObjectView>,
    /// The guest's limits.
    pub limits: Vec<GuestLimitView>,
    /// Requests received.
    pub requests: u64,
    /// Requests refused.
    pub refused: u64,
    /// Invalid messages received.
    pub damaged: u64,
    /// Number of resets, each of which removed all of the guest's objects.
    pub resets: u64,
    /// The last refusal.
    pub refusal: Option<String>,
}

/// An attached program of a guest.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestProgramView {
    /// `ingress`: frames for the guest. `egress`: frames from the guest.
    pub direction: String,
    /// The guest's handle for the program.
    pub handle: u32,
    /// The program's name.
    pub name: String,
    /// A hash of its instructions, in hexadecimal.
    pub tag: String,
    /// Frames that the program judged.
    pub runs: u64,
    /// Verdicts in this order: `XDP_ABORTED`, `DROP`, `PASS`, `TX`, `REDIRECT`.
    pub actions: [u64; 5],
    /// Runs that were ended because they took too long or broke a rule.
    pub faults: u64,
    /// Why the program was halted, if it was: every frame is aborted until it is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
}

/// An object of a guest.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestObjectView {
    /// The guest's handle for the object.
    pub handle: u32,
    /// `btf`, `map` or `program`.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// Bytes of memory that the object takes.
    pub bytes: u64,
}

/// A limit of a guest, and the amount used.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GuestLimitView {
    /// The limit's name in configuration.
    pub name: String,
    /// The largest amount allowed.
    pub limit: u64,
    /// The amount in use.
    pub used: u64,
}
