//! The SAs and policies that the daemon holds for each port of kind `ipsec`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_ipsec::{Sa, Statistics, Table};
use towpath_ports::ipsec::now;

use super::ike_door::LiveDoor;
use crate::model::ipsec::{DirectionState, LimitsState, PolicyState, SaState};

/// Tables of ports, and what is in them.
#[derive(Debug, Default)]
pub(super) struct Ipsec {
    /// By the names of ports.
    pub(super) tables: BTreeMap<String, Arc<Table>>,
    /// By name.
    pub(super) sas: BTreeMap<String, Arc<LiveSa>>,
    /// Names of outbound SAs by the fingerprints of their keys.
    pub(super) senders: BTreeMap<[u8; 32], String>,
    /// By name.
    pub(super) policies: BTreeMap<String, PolicyState>,
    /// By the names of their ports.
    pub(super) doors: BTreeMap<String, LiveDoor>,
    /// SAs that could not be added or changed, and are tried again. Those that were there stay.
    pub(super) failed: BTreeSet<String>,
    /// Whether the next reconciliation reads all key files.
    pub(super) is_reading: bool,
}

/// An SA in the table of its port.
#[derive(Debug)]
pub struct LiveSa {
    /// The wanted state with which the SA was added.
    pub state: SaState,
    /// The SA.
    pub sa: Arc<Sa>,
    pub(super) keys: [u8; 32],
}

impl LiveSa {
    /// Whether the other description is of the same SA for its peer, which goes on counting.
    pub(super) fn is_continued_by(&self, other: &SaState, keys: [u8; 32]) -> bool {
        fn parts(sa: &SaState) -> impl PartialEq {
            (sa.direction, sa.spi, sa.destination, sa.suite.clone(), sa.mode)
        }
        self.keys == keys && parts(&self.state) == parts(other)
    }

    /// The sequence number from which a successor with the same keys goes on.
    pub(super) fn next_sequence(&self, esn: bool) -> u64 {
        let sequence = self.sa.statistics().sequence;
        let next = match self.state.direction {
            DirectionState::In => sequence,
            // The old SA may still send while the new one is made.
            DirectionState::Out => sequence.saturating_add(SEQUENCE_GAP),
        };
        if esn { next } else { next.min(u32::MAX.into()) }
    }

    /// Why the SA refuses all packets, if it does.
    pub(crate) fn failure(&self) -> Option<String> {
        let Statistics { bytes, packets, added, sequence, .. } = self.sa.statistics();
        let LimitsState { bytes: bytes_max, packets: packets_max, seconds: seconds_max } =
            self.state.hard;
        let reached = |is: u64, limit: Option<u64>| limit.filter(|limit| is >= *limit);
        if self.sa.is_expired() {
            let limits = [
                (reached(bytes, bytes_max), "bytes"),
                (reached(packets, packets_max), "packets"),
                (reached(now().saturating_sub(added), seconds_max), "seconds"),
            ];
            let limit = limits.iter().find_map(|(limit, unit)| Some((*limit.as_ref()?, unit)));
            let limit = limit.map_or(String::new(), |(limit, unit)| format!(" of {limit} {unit}"));
            return Some(format!("it refuses all packets: it reached its hard limit{limit}"));
        }
        let is_out = self.state.direction == DirectionState::Out;
        (is_out && !self.state.esn && sequence >= u32::MAX.into())
            .then(|| "it refuses all packets: its sequence numbers are used up".to_owned())
    }
}

/// Sequence numbers that a successor with the same keys leaves out: more than the old SA sends in
/// the moment of the change. A peer takes them for lost packets.
const SEQUENCE_GAP: u64 = 4096;
