//! A bond as workers see it: for each frame, which member?

use std::sync::Arc;

use towpath_xdp::Frame;

use super::control::{Mailbox, Taps};
use super::{Bond, BondMode, XmitPolicy, hash};
use crate::snapshot::PortId;

/// What of a bond matters for frames, made when something changes.
#[derive(Debug, Clone)]
pub struct View {
    /// Its members, in the order in which they joined.
    pub members: Box<[PortId]>,
    /// How one of them is chosen.
    pub(crate) choice: Choice,
    /// The member all frames leave by, if that is so: there is nothing to choose.
    pub(crate) only: Option<PortId>,
    /// Frames that the control side wants to see.
    pub(crate) taps: Taps,
    /// Where it gets them.
    pub(crate) mailbox: Arc<Mailbox>,
}

/// How a member is chosen (`bond_xdp_get_xmit_slave`).
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// There is none.
    Nobody,
    /// Always this one.
    Always(PortId),
    /// In turn.
    InTurn {
        /// For each member, it or the next one that can be used.
        turns: Box<[PortId]>,
        /// The one for IGMP, which must not be spread.
        igmp: PortId,
        /// Frames in a row for one.
        packets: u32,
    },
    /// By a hash of the frame.
    ByHash(XmitPolicy, Box<[PortId]>),
    /// All of these.
    All(Box<[PortId]>),
}

/// Whose turn it is, for one worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    counter: u32,
    random: u32,
}

impl View {
    pub(crate) fn new(bond: &Bond, is_up: impl Fn(PortId) -> bool) -> View {
        let can_tx = |member: &&super::Member| {
            is_up(member.port) && member.state.link_up && !bond.is_backup(member)
        };
        let usable = bond.members.iter().filter(can_tx);
        let choice = match bond.options.mode {
            BondMode::ActiveBackup => bond.active.map_or(Choice::Nobody, Choice::Always),
            BondMode::BalanceRr => {
                Choice::in_turn(bond, &usable.map(|it| it.port).collect::<Vec<_>>())
            }
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
            choice,
            taps: bond.options.taps,
            mailbox: Arc::clone(&bond.mailbox),
        }
    }

    /// The member a frame leaves by; none can be used when there is none. Of several that all get
    /// it, the first.
    #[inline]
    pub(crate) fn select(&self, frame: &Frame, turn: &mut Turn) -> Option<PortId> {
        match &self.choice {
            Choice::Nobody => None,
            Choice::Always(member) => Some(*member),
            Choice::InTurn { turns, igmp, packets } => {
                if is_igmp(frame.linear()) {
                    return Some(*igmp);
                }
                turns.get(remainder(turn.next(*packets), turns.len())).copied()
            }
            Choice::ByHash(policy, usable) => {
                usable.get(remainder(hash(*policy, frame.linear()), usable.len())).copied()
            }
            Choice::All(members) => members.first().copied(),
        }
    }

    /// Chooses a member for each frame of a burst, and puts the frames into one lane for each of
    /// the members that it gives: those among which there is something to choose.
    #[inline]
    pub(crate) fn sort(
        &self,
        frames: &mut Vec<Frame>,
        turn: &mut Turn,
        lanes: &mut Vec<Vec<Frame>>,
    ) -> &[PortId] {
        let members: &[PortId] = match &self.choice {
            Choice::InTurn { turns, .. } => turns,
            Choice::ByHash(_, usable) => usable,
            _ => return &[],
        };
        lanes.resize_with(lanes.len().max(members.len()), Vec::new);
        let lanes = &mut lanes[..members.len()];
        match &self.choice {
            Choice::InTurn { igmp, packets, .. } => {
                for frame in frames.drain(..) {
                    let lane = if is_igmp(frame.linear()) {
                        members.iter().position(|member| member == igmp).unwrap_or(0)
                    } else {
                        remainder(turn.next(*packets), lanes.len())
                    };
                    lanes[lane].push(frame);
                }
            }
            Choice::ByHash(policy, _) => {
                for frame in frames.drain(..) {
                    let lane = remainder(hash(*policy, frame.linear()), lanes.len());
                    lanes[lane].push(frame);
                }
            }
            _ => {}
        }
        members
    }

    /// Counts frames for which there was nothing to choose.
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
    fn in_turn(bond: &Bond, usable: &[PortId]) -> Choice {
        let Some(&first) = usable.first() else { return Choice::Nobody };
        let count = bond.members.len();
        let next = |index: usize| {
            let from_here = (0..count).map(|step| bond.members[(index + step) % count].port);
            from_here.into_iter().find(|port| usable.contains(port)).unwrap_or(first)
        };
        let igmp = bond.active.filter(|active| usable.contains(active)).unwrap_or(first);
        Choice::InTurn {
            turns: (0..count).map(next).collect(),
            igmp,
            packets: bond.options.packets_per_slave,
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
            Choice::InTurn { turns: members, .. }
            | Choice::ByHash(_, members)
            | Choice::All(members) => {
                let first = *members.first()?;
                members.iter().all(|&member| member == first).then_some(first)
            }
        }
    }
}

impl Turn {
    /// For a worker: workers that choose at random don't choose the same.
    pub(crate) fn new(worker: usize) -> Turn {
        Turn { counter: 0, random: (worker as u32).wrapping_mul(0x9e37_79b9) | 1 }
    }

    /// `bond_rr_gen_slave_id`: the counter's value after it was counted up, so the first is 1.
    #[inline]
    fn next(&mut self, packets: u32) -> u32 {
        if packets == 0 {
            // xorshift32 (Marsaglia, "Xorshift RNGs", 2003).
            self.random ^= self.random << 13;
            self.random ^= self.random >> 17;
            self.random ^= self.random << 5;
            return self.random;
        }
        self.counter = self.counter.wrapping_add(1);
        if packets == 1 { self.counter } else { self.counter / packets }
    }
}

/// `number % count`; most bonds have two or four members, and dividing is slow.
#[inline]
fn remainder(number: u32, count: usize) -> usize {
    let count = count as u32;
    let rest = if count.is_power_of_two() { number & (count - 1) } else { number % count };
    rest as usize
}

/// Untagged IPv4 with protocol 2 (`bond_xdp_xmit_roundrobin_slave_get`).
#[inline]
fn is_igmp(packet: &[u8]) -> bool {
    packet.len() >= 34 && packet[12..14] == [0x08, 0x00] && packet[23] == 2
}
