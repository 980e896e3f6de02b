//! The workers' view of a bond: choice of a member for each frame.

use std::sync::Arc;

use fastrand::Rng;
use towpath_xdp::Frame;
use towpath_xdp::frame::scatter;

use super::control::{Mailbox, Taps};
use super::{Bond, BondMode, XmitPolicy, hash};
use crate::numbers::PortId;

/// The workers' view of a bond, made at each change of configuration.
#[derive(Debug, Clone)]
pub struct View {
    /// Its members, in the order in which they joined.
    pub members: Box<[PortId]>,
    /// How a member is chosen.
    pub(crate) choice: Choice,
    /// The member by which all frames leave, if there is only one choice.
    pub(crate) only: Option<PortId>,
    /// Members that all send ARP and IPv6 neighbour messages (`broadcast_neighbor`).
    pub(crate) neighbours: Option<Box<[PortId]>>,
    /// Frames that the control plane wants to see.
    pub(crate) taps: Taps,
    /// The control plane's queue.
    pub(crate) mailbox: Arc<Mailbox>,
}

/// How a member is chosen (`bond_xdp_get_xmit_slave`).
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// No member is usable.
    Nobody,
    /// Always this member.
    Always(PortId),
    /// Round robin.
    InTurn {
        /// Usable members.
        members: Box<[PortId]>,
        /// For each member of the bond: the index, among the usable ones, of this member or the
        /// next usable one.
        turns: Box<[u8]>,
        /// The index of the member for IGMP, which must not be spread.
        igmp: u8,
        /// Consecutive frames per member; 0 chooses at random.
        packets: u32,
    },
    /// By a hash of the frame.
    ByHash(XmitPolicy, Box<[PortId]>),
    /// All of these members.
    All(Box<[PortId]>),
}

impl Choice {
    /// The members that a frame may leave by.
    pub(crate) fn members(&self) -> &[PortId] {
        match self {
            Choice::Nobody => &[],
            Choice::Always(member) => std::slice::from_ref(member),
            Choice::InTurn { members, .. } | Choice::ByHash(_, members) | Choice::All(members) => {
                members
            }
        }
    }
}

/// Round-robin state of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    counter: u32,
    random: Rng,
}

impl View {
    pub(crate) fn new(bond: &Bond, is_up: impl Fn(PortId) -> bool) -> View {
        let can_tx = |member: &&super::Member| {
            is_up(member.port) && member.state.link_up && !bond.is_backup(member)
        };
        let usable = bond.members.iter().filter(can_tx);
        let choice = match bond.options.mode {
            BondMode::ActiveBackup => bond.active.map_or(Choice::Nobody, Choice::Always),
            BondMode::BalanceRr => Choice::in_turn(bond, usable.map(|it| it.port).collect()),
            BondMode::Broadcast => {
                let all: Box<[PortId]> = usable.map(|it| it.port).collect();
                if all.is_empty() { Choice::Nobody } else { Choice::All(all) }
            }
            BondMode::BalanceXor => {
                Choice::by_hash(bond.options.policy, usable.map(|it| it.port).collect())
            }
            BondMode::Lacp => {
                let usable = usable.filter(|it| it.state.aggregated);
                Choice::by_hash(bond.options.policy, usable.map(|it| it.port).collect())
            }
        };
        View {
            members: bond.members.iter().map(|it| it.port).collect(),
            only: choice.only(),
            neighbours: match &choice {
                Choice::ByHash(_, usable) if bond.options.broadcast_neighbor => {
                    Some(usable.clone())
                }
                _ => None,
            },
            choice,
            taps: bond.options.taps,
            mailbox: Arc::clone(&bond.mailbox),
        }
    }

    /// The member a frame leaves by; `None` if no member is usable. For broadcast, the first
    /// member.
    #[inline]
    pub(crate) fn select(&self, frame: &Frame, turn: &mut Turn) -> Option<PortId> {
        match &self.choice {
            Choice::Nobody => None,
            Choice::Always(member) => Some(*member),
            Choice::InTurn { members, turns, igmp, packets } => {
                let place = match frame.with_linear(is_igmp) {
                    true => *igmp,
                    false => turns[remainder(turn.next(*packets), turns.len())],
                };
                members.get(usize::from(place)).copied()
            }
            Choice::ByHash(policy, usable) => {
                let hash = frame.with_linear(|packet| hash(*policy, packet));
                usable.get(remainder(hash, usable.len())).copied()
            }
            Choice::All(members) => members.first().copied(),
        }
    }

    /// Chooses a member for each frame of a burst, and moves the frame to the lane with the
    /// member's index in the returned slice. Returns an empty slice and leaves the frames if there
    /// is no choice.
    #[inline]
    pub(crate) fn spread(
        &self,
        frames: &mut Vec<Frame>,
        turn: &mut Turn,
        lanes: &mut Vec<Vec<Frame>>,
    ) -> &[PortId] {
        let (Choice::InTurn { members, .. } | Choice::ByHash(_, members)) = &self.choice else {
            return &[];
        };
        lanes.resize_with(lanes.len().max(members.len()), Vec::new);
        let lanes = &mut lanes[..members.len()];
        match &self.choice {
            Choice::InTurn { turns, igmp, packets: 1, .. } => {
                turn.spread(turns, *igmp, frames, lanes);
            }
            Choice::InTurn { turns, igmp, packets, .. } => {
                let next = |frame: &Frame| match frame.with_linear(is_igmp) {
                    true => *igmp,
                    false => turns[remainder(turn.next(*packets), turns.len())],
                };
                scatter(frames, lanes, next);
            }
            // Specialised code for the most frequent policy.
            Choice::ByHash(XmitPolicy::Layer34, _) => {
                spread_by_hash(frames, lanes, |frame| hash(XmitPolicy::Layer34, frame));
            }
            Choice::ByHash(policy, _) => {
                spread_by_hash(frames, lanes, |frame| hash(*policy, frame));
            }
            _ => {}
        }
        members
    }

    /// Advances the round-robin counter by frames that needed no choice.
    #[inline]
    pub(crate) fn skip(&self, frames: usize, turn: &mut Turn) {
        if let Choice::InTurn { packets, .. } = self.choice
            && packets != 0
        {
            turn.counter = turn.counter.wrapping_add(frames as u32);
        }
    }
}

impl Choice {
    fn in_turn(bond: &Bond, usable: Vec<PortId>) -> Choice {
        if usable.is_empty() {
            return Choice::Nobody;
        }
        let place = |port| usable.iter().position(|&it| it == port).map(|place| place as u8);
        let count = bond.members.len();
        let next = |index: usize| {
            let from_here = (0..count).map(|step| bond.members[(index + step) % count].port);
            from_here.into_iter().find_map(place).unwrap_or(0)
        };
        Choice::InTurn {
            turns: (0..count).map(next).collect(),
            igmp: bond.active.and_then(place).unwrap_or(0),
            packets: bond.options.packets_per_slave,
            members: usable.into(),
        }
    }

    fn by_hash(policy: XmitPolicy, usable: Box<[PortId]>) -> Choice {
        match *usable {
            [] => Choice::Nobody,
            [member] => Choice::Always(member),
            _ => Choice::ByHash(policy, usable),
        }
    }

    fn only(&self) -> Option<PortId> {
        match self {
            Choice::Nobody => None,
            Choice::Always(member) => Some(*member),
            Choice::InTurn { members, .. } | Choice::ByHash(_, members) | Choice::All(members) => {
                match **members {
                    [only] => Some(only),
                    _ => None,
                }
            }
        }
    }
}

impl Turn {
    /// State for a worker; each worker's random sequence is different.
    pub(crate) fn new(worker: usize) -> Turn {
        Turn { counter: 0, random: Rng::with_seed(worker as u64) }
    }

    /// Deals one frame to each member in turn; IGMP goes to one member.
    #[inline]
    fn spread(
        &mut self,
        turns: &[u8],
        igmp: u8,
        frames: &mut Vec<Frame>,
        lanes: &mut [Vec<Frame>],
    ) {
        let (mut at, mut taken) = (remainder(self.counter.wrapping_add(1), turns.len()), 0);
        // When the counter wraps, the turns start at the first member.
        let wraps_at = u32::MAX - self.counter;
        scatter(frames, lanes, |frame| {
            if frame.with_linear(is_igmp) {
                return igmp;
            }
            if taken == wraps_at {
                at = 0;
            }
            let place = turns[at];
            taken += 1;
            at = if at + 1 == turns.len() { 0 } else { at + 1 };
            place
        });
        self.counter = self.counter.wrapping_add(taken);
    }

    /// The next round-robin number (`bond_rr_gen_slave_id`), from the incremented counter, which
    /// starts at 1.
    #[inline]
    fn next(&mut self, packets: u32) -> u32 {
        if packets == 0 {
            return self.random.u32(..);
        }
        self.counter = self.counter.wrapping_add(1);
        if packets == 1 { self.counter } else { self.counter / packets }
    }
}

/// Deals each frame to the lane selected by its hash.
#[inline(always)]
fn spread_by_hash(frames: &mut Vec<Frame>, lanes: &mut [Vec<Frame>], hash: impl Fn(&[u8]) -> u32) {
    let count = lanes.len();
    scatter(frames, lanes, |frame| remainder(frame.with_linear(&hash), count) as u8);
}

/// `number % count`, without a slow division for powers of two: most bonds have two or four
/// members.
#[inline]
fn remainder(number: u32, count: usize) -> usize {
    let count = count as u32;
    let rest = if count.is_power_of_two() { number & (count - 1) } else { number % count };
    rest as usize
}

/// Whether a packet is IGMP: untagged IPv4 with protocol 2 (`bond_xdp_xmit_roundrobin_slave_get`).
#[inline]
fn is_igmp(packet: &[u8]) -> bool {
    let start = packet.first_chunk::<34>();
    start.is_some_and(|start| (start[12] == 0x08) & (start[13] == 0x00) & (start[23] == 2))
}
