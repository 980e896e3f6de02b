//! Security associations and policies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::authors::Author;
use crate::model::ipsec::{PolicyState, SaState};

/// A security association, without its keys.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SaView {
    /// The SA's wanted state.
    #[serde(flatten)]
    pub state: SaState,
    /// Authors of the SA: `file`, `api`, `saved`; none for one that an IKE daemon made.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Number by which programs know the SA; 0 if it could not be added.
    pub id: u32,
    /// Whether packets can use the SA.
    pub status: SaStatus,
    /// Why the SA is missing, expired, or not as it is wanted.
    pub failure: Option<String>,
    /// IP packets encapsulated or decapsulated.
    pub packets: u64,
    /// Bytes of these packets, without what ESP adds.
    pub bytes: u64,
    /// The last sequence number sent, or the highest one received.
    pub sequence: u64,
    /// Seconds since the SA was added.
    pub age: Option<u64>,
    /// Seconds since its last packet; unset if it had none.
    pub idle: Option<u64>,
    /// Address and port from which the peer's packets come, if they come in UDP.
    pub peer: Option<String>,
    /// Packets that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// Whether packets can use an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SaStatus {
    /// The SA is in use.
    Active,
    /// The SA reached a soft limit: it needs new keys soon.
    Dying,
    /// The SA reached a hard limit and refuses all packets.
    Expired,
    /// The SA could not be added.
    Missing,
}

impl SaStatus {
    /// The status in JSON.
    pub fn name(self) -> &'static str {
        match self {
            SaStatus::Active => "active",
            SaStatus::Dying => "dying",
            SaStatus::Expired => "expired",
            SaStatus::Missing => "missing",
        }
    }
}

/// A policy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// The policy's wanted state.
    #[serde(flatten)]
    pub state: PolicyState,
    /// Authors of the policy: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Why the policies of the port are not as they are wanted, if so.
    pub failure: Option<String>,
}
