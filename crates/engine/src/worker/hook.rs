//! Runs a hook's programs on a burst, and sends each frame to the target of its verdict.

use towpath_xdp::{Action, Burst, Frame, Worker};

use super::graph::BurstSummary;
use super::nodes::{Nodes, bond};
use super::redirect::Resolved;
use super::scatter::{ACTIONS, Scatter, Ways};
use super::tap::{Copies, Watched};
use crate::chain::{Chain, Link};
use crate::counters::Counter;
use crate::hook::HookSpec;
use crate::offload::complete_checksums;
use crate::snapshot::{Port, Snapshot};
use crate::target::TargetId;

/// A worker's state for running programs, reused for every burst.
pub(super) struct HookRunner {
    pub(super) xdp: Worker,
    pub(super) number: usize,
    /// Verdicts of a burst, by program of the chain.
    bursts: Vec<Burst>,
    /// Buffers for bursts with different verdicts.
    scatter: Scatter,
    /// Buffers for bursts of which only some frames go on to the chain's next program.
    mixed: Mixed,
    /// Copies for taps.
    copies: Copies,
}

/// Buffers for a burst whose frames end at different programs of a chain.
#[derive(Default)]
struct Mixed {
    /// The frames still to be judged, with their indexes in the burst.
    rest: Vec<Frame>,
    places: Vec<u32>,
    next: Vec<Frame>,
    next_places: Vec<u32>,
    /// The judged frames, by index in the burst, with the deciding program.
    done: Vec<Option<(Frame, Decision)>>,
}

/// The program of the chain that decided on a frame, and the frame's index in that program's burst.
#[derive(Clone, Copy)]
struct Decision {
    link: usize,
    index: usize,
}

impl HookRunner {
    pub(super) fn new(number: usize) -> HookRunner {
        HookRunner {
            xdp: Worker::new(number as u32),
            number,
            bursts: Vec::new(),
            scatter: Scatter::default(),
            mixed: Mixed::default(),
            copies: Copies::new(number),
        }
    }

    /// Runs the first hook of a port on frames that arrived there. `known` is the burst's summary,
    /// if the caller has it; it is used if there are no programs.
    #[inline(always)]
    pub(super) fn judge(
        &mut self,
        snapshot: &Snapshot,
        port: &Port,
        frames: &mut Vec<Frame>,
        known: Option<BurstSummary>,
        nodes: &mut Nodes,
    ) {
        if port.has_rx_programs() && port.features.rx_checksum {
            complete_checksums(frames);
        }
        self.run(snapshot, port.first_hook(), frames, known, nodes);
    }

    /// Runs the hook's programs and sends all frames to the targets of their verdicts; `frames` is
    /// empty afterwards. `known` is the burst's summary, if the caller has it; it is used if there
    /// are no programs.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
        mut known: Option<BurstSummary>,
        nodes: &mut Nodes,
    ) {
        if hook.control.is_some() {
            known = None;
            self.pass_control(snapshot, hook, frames, nodes);
        }
        if !hook.taps.is_empty() {
            self.copies.enter(hook.point, &hook.taps, frames);
        }
        let Some(chain) = &hook.chain else {
            return self.pass_all(snapshot, hook, frames, known, nodes);
        };
        if hook.linearize {
            nodes.graph.linearize(frames);
        }
        if hook.egress != 0 {
            frames.iter_mut().for_each(|frame| frame.egress_ifindex = hook.egress);
        }
        let mut bursts = std::mem::take(&mut self.bursts);
        bursts.resize_with(bursts.len().max(chain.links().len()), Burst::default);
        self.run_chain(snapshot, hook, chain, frames, &mut bursts, nodes);
        self.bursts = bursts;
        assert!(frames.is_empty(), "every frame goes somewhere");
    }

    /// Passes control frames of a bond without running a program on them.
    #[cold]
    fn pass_control(
        &self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
        nodes: &mut Nodes,
    ) {
        let Some(bond) = hook.control else { return };
        for frame in bond::take_control(snapshot, bond, frames).into_iter().flatten() {
            if let Some(verdicts) = hook.verdicts(self.number) {
                verdicts[Action::Pass as usize].add(1);
            }
            nodes.push(snapshot, hook.target(Action::Pass), frame);
        }
    }

    #[inline]
    fn run_chain(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        chain: &Chain,
        frames: &mut Vec<Frame>,
        bursts: &mut [Burst],
        nodes: &mut Nodes,
    ) {
        let links = chain.links();
        for (place, link) in links.iter().enumerate() {
            let actions = self.run_link(hook, link, frames, &mut bursts[place]);
            let burst = &bursts[place];
            let is_last = place + 1 == links.len();
            // After the last program the verdict is XDP_PASS, which this program returned itself.
            if is_last && link.chain_call_actions & !PASS == 0 {
                return self.route(snapshot, hook, frames, (burst, &actions), nodes);
            }
            match self.goes_on(link, burst) {
                GoesOn::None => {
                    return self.route(snapshot, hook, frames, (burst, &actions), nodes);
                }
                GoesOn::All => {}
                GoesOn::Some if self.shed(snapshot, hook, frames, nodes) => {}
                GoesOn::Some => {
                    self.run_mixed(hook, chain, place, frames, bursts);
                    return self.route_mixed(snapshot, hook, bursts, nodes);
                }
            }
        }
        // libxdp's dispatcher ends with XDP_PASS, whatever the last program returned.
        self.pass_all(snapshot, hook, frames, None, nodes);
    }

    /// Passes all frames.
    fn pass_all(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
        known: Option<BurstSummary>,
        nodes: &mut Nodes,
    ) {
        if !hook.taps.is_empty() {
            self.copies.leave(hook.point, &hook.taps, frames, None);
        }
        if let Some(counters) = hook.verdicts(self.number) {
            counters[Action::Pass as usize].add(frames.len() as u64);
        }
        let to = hook.target(Action::Pass);
        send_all(snapshot, hook, to, frames, known, nodes);
    }

    /// Sends a burst to the targets of one program's verdicts, in one piece if there is one target.
    /// `actions` has the number of verdicts of each kind.
    #[inline]
    fn route(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
        (burst, actions): (&Burst, &[u64; 5]),
        nodes: &mut Nodes,
    ) {
        assert_eq!(burst.len(), frames.len(), "a verdict for each frame");
        if !hook.taps.is_empty() {
            self.copies.leave(hook.point, &hook.taps, frames, Some(burst));
        }
        if let Some(counters) = hook.verdicts(self.number) {
            add_actions(counters, actions);
        }
        let mut resolved = Resolved::new(hook);
        if let Some(to) = resolved.common(snapshot, burst, nodes) {
            return send_alike(snapshot, hook, to, frames, (burst, 0), nodes);
        }
        self.route_apart(snapshot, hook, frames, (burst, actions), nodes);
    }

    /// Sends a burst with different verdicts, the frames of each verdict in one piece.
    fn route_apart(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
        (burst, actions): (&Burst, &[u64; 5]),
        nodes: &mut Nodes,
    ) {
        self.scatter.deal(frames, burst, actions);
        let Scatter { lanes, redirected, ways, .. } = &mut self.scatter;
        for (action, lane) in ACTIONS.into_iter().zip(lanes).filter(|(_, lane)| !lane.is_empty()) {
            let to = hook.target(action);
            if to == TargetId::AS_FRAME_SAYS {
                redirect(snapshot, hook, lane, (burst, redirected), ways, nodes);
            } else {
                send_all(snapshot, hook, to, lane, None, nodes);
            }
        }
    }

    /// How many frames the next program sees; `self.scatter` notes which, if only some.
    #[inline]
    fn goes_on(&mut self, link: &Link, burst: &Burst) -> GoesOn {
        let mask = link.chain_call_actions;
        if let Some(returned) = burst.unanimous() {
            return if continues(mask, returned) { GoesOn::All } else { GoesOn::None };
        }
        match self.scatter.part(burst, |returned| continues(mask, returned)) {
            0 => GoesOn::None,
            count if count == burst.len() => GoesOn::All,
            _ => GoesOn::Some,
        }
    }

    /// Removes the frames that the next program does not see, if all of them are to be dropped, so
    /// that the rest stays one burst. Otherwise returns `false` and leaves the frames.
    fn shed(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
        nodes: &mut Nodes,
    ) -> bool {
        let scatter = &mut self.scatter;
        let is_kept = |action| scatter.some_go(action) && !nodes.graph.is_drop(hook.target(action));
        // Copies for taps use indexes in the whole burst.
        if !hook.taps.is_empty() || ACTIONS.into_iter().any(is_kept) {
            return false;
        }
        scatter.take_out(frames);
        let lanes = ACTIONS.into_iter().zip(&mut scatter.lanes);
        for (action, lane) in lanes.filter(|(_, lane)| !lane.is_empty()) {
            if let Some(counters) = hook.verdicts(self.number) {
                counters[action as usize].add(lane.len() as u64);
            }
            send_all(snapshot, hook, hook.target(action), lane, None, nodes);
        }
        true
    }

    /// Runs the rest of the chain after the program at `place` ended some frames and not others.
    #[cold]
    fn run_mixed(
        &mut self,
        hook: &HookSpec,
        chain: &Chain,
        place: usize,
        frames: &mut Vec<Frame>,
        bursts: &mut [Burst],
    ) {
        let mut mixed = std::mem::take(&mut self.mixed);
        mixed.start(frames);
        mixed.sort_out(&chain.links()[place], place, &bursts[place]);
        for (place, link) in chain.links().iter().enumerate().skip(place + 1) {
            if mixed.rest.is_empty() {
                break;
            }
            self.run_link(hook, link, &mut mixed.rest, &mut bursts[place]);
            mixed.sort_out(link, place, &bursts[place]);
        }
        mixed.pass_rest();
        self.mixed = mixed;
    }

    /// Sends the frames after [`HookRunner::run_mixed`], in their original order.
    #[cold]
    fn route_mixed(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        bursts: &[Burst],
        nodes: &mut Nodes,
    ) {
        let mut done = std::mem::take(&mut self.mixed.done);
        for (place, (frame, fate)) in done.drain(..).flatten().enumerate() {
            let burst = bursts.get(fate.link);
            let judged = burst.map(|burst| (burst, fate.index));
            if !hook.taps.is_empty() {
                self.copies.leave_one(hook.point, &hook.taps, place, &frame, judged);
            }
            let action = burst.map_or(Action::Pass, |burst| burst.action(fate.index));
            if let Some(counters) = hook.verdicts(self.number) {
                counters[action as usize].add(1);
            }
            let to = match burst {
                Some(burst) => Resolved::new(hook).target(snapshot, burst, fate.index, nodes),
                None => hook.target(Action::Pass),
            };
            send(snapshot, hook, to, frame, judged, nodes);
        }
        self.mixed.done = done;
        if !hook.taps.is_empty() {
            self.copies.finish(&hook.taps);
        }
    }

    /// Runs one program on frames and counts; returns the number of verdicts of each kind.
    #[inline]
    fn run_link(
        &mut self,
        hook: &HookSpec,
        link: &Link,
        frames: &mut [Frame],
        burst: &mut Burst,
    ) -> [u64; 5] {
        if hook.taps.is_empty() {
            return self.run_program(link, frames, burst);
        }
        self.run_tapped(hook, link, frames, burst)
    }

    /// Runs one program, with copies for its hook's taps.
    #[cold]
    fn run_tapped(
        &mut self,
        hook: &HookSpec,
        link: &Link,
        frames: &mut [Frame],
        burst: &mut Burst,
    ) -> [u64; 5] {
        let watched = Watched::enter(&self.copies, hook.point, &hook.taps, link.id, frames);
        let actions = self.run_program(link, frames, burst);
        watched.leave(frames, burst);
        actions
    }

    #[inline]
    fn run_program(&mut self, link: &Link, frames: &mut [Frame], burst: &mut Burst) -> [u64; 5] {
        let counters = &link.counters()[self.number];
        if link.program.run_burst(&mut self.xdp, frames, burst).is_err() {
            counters.faults.add(1);
        }
        counters.runs.add(frames.len() as u64);
        if !burst.faults().is_empty() {
            counters.faults.add(burst.faults().len() as u64);
        }
        let actions = burst.actions();
        add_actions(&counters.actions, &actions);
        actions
    }

    /// Drops references held by verdicts, such as to maps that the next configuration may no longer
    /// have.
    pub(super) fn forget_bursts(&mut self) {
        self.bursts.clear();
    }
}

/// Sends a burst; copies zero-copy frames unless the target is a socket or a drop. Clears the
/// egress ifindex, which egress hooks set; they redirect nothing, so that no rank is lost.
#[inline]
fn send_all(
    snapshot: &Snapshot,
    hook: &HookSpec,
    to: TargetId,
    frames: &mut Vec<Frame>,
    known: Option<BurstSummary>,
    nodes: &mut Nodes,
) {
    if hook.egress != 0 {
        frames.iter_mut().for_each(|frame| frame.egress_ifindex = 0);
    }
    if hook.zero_copy {
        frames.iter_mut().for_each(|frame| nodes.graph.own(to, frame));
    }
    nodes.push_all(snapshot, to, frames, known);
}

/// Sends redirected frames, with these indexes in their burst, to the targets of their own
/// verdicts; each target's frames go in one piece, unless there are too many targets.
fn redirect(
    snapshot: &Snapshot,
    hook: &HookSpec,
    frames: &mut Vec<Frame>,
    (burst, numbers): (&Burst, &[u32]),
    ways: &mut Ways,
    nodes: &mut Nodes,
) {
    assert_eq!(frames.len(), numbers.len(), "each has a number");
    let mut resolved = Resolved::new(hook);
    let numbers = || numbers.iter().map(|number| *number as usize);
    ways.find(numbers().map(|number| resolved.way(snapshot, burst, number, nodes)));
    if let Some(targets) = resolved.targets() {
        if targets.iter().any(|to| nodes.graph.is_queue(*to)) {
            for ((frame, number), way) in frames.iter_mut().zip(numbers()).zip(ways.places()) {
                if nodes.graph.is_queue(targets[way]) {
                    frame.set_rank(burst.rank(number));
                }
            }
        }
        ways.deal(frames);
        for (to, lane) in targets.iter().zip(&mut ways.lanes) {
            send_all(snapshot, hook, *to, lane, None, nodes);
        }
        return;
    }
    let mut resolved = Resolved::new(hook);
    for (number, frame) in numbers().zip(frames.drain(..)) {
        let to = resolved.target(snapshot, burst, number, nodes);
        send(snapshot, hook, to, frame, Some((burst, number)), nodes);
    }
}

/// Sends frames with equal verdicts, those of the frame `index` in the burst.
#[inline]
fn send_alike(
    snapshot: &Snapshot,
    hook: &HookSpec,
    to: TargetId,
    frames: &mut Vec<Frame>,
    (burst, index): (&Burst, usize),
    nodes: &mut Nodes,
) {
    if nodes.graph.is_queue(to) {
        let rank = burst.rank(index);
        frames.iter_mut().for_each(|frame| frame.set_rank(rank));
    }
    send_all(snapshot, hook, to, frames, None, nodes);
}

/// Sends one frame; `judged` is its burst and its index there, if a program judged it.
#[inline]
fn send(
    snapshot: &Snapshot,
    hook: &HookSpec,
    to: TargetId,
    mut frame: Frame,
    judged: Option<(&Burst, usize)>,
    nodes: &mut Nodes,
) {
    if let Some((burst, index)) = judged.filter(|_| nodes.graph.is_queue(to)) {
        frame.set_rank(burst.rank(index));
    }
    if hook.egress != 0 {
        frame.egress_ifindex = 0;
    }
    if hook.zero_copy {
        nodes.graph.own(to, &mut frame);
    }
    nodes.push(snapshot, to, frame);
}

#[inline]
fn add_actions(counters: &[Counter; 5], actions: &[u64; 5]) {
    for (counter, &count) in counters.iter().zip(actions) {
        if count > 0 {
            counter.add(count);
        }
    }
}

/// `1 << XDP_PASS`
const PASS: u32 = 1 << 2;

/// How many frames of a burst the next program sees.
enum GoesOn {
    None,
    Some,
    All,
}

/// libxdp: `(1 << ret) & chain_call_actions`
fn continues(mask: u32, returned: u32) -> bool {
    returned < 32 && mask >> returned & 1 == 1
}

impl Mixed {
    fn start(&mut self, frames: &mut Vec<Frame>) {
        self.done.clear();
        self.done.resize_with(frames.len(), || None);
        self.places.clear();
        self.places.extend(0..frames.len() as u32);
        self.rest.append(frames);
    }

    /// Keeps the frames that the next program sees, and stores the others as done.
    fn sort_out(&mut self, link: &Link, place: usize, burst: &Burst) {
        for (index, (frame, at)) in self.rest.drain(..).zip(self.places.drain(..)).enumerate() {
            if continues(link.chain_call_actions, burst.returned(index)) {
                self.next.push(frame);
                self.next_places.push(at);
            } else {
                self.done[at as usize] = Some((frame, Decision { link: place, index }));
            }
        }
        std::mem::swap(&mut self.rest, &mut self.next);
        std::mem::swap(&mut self.places, &mut self.next_places);
    }

    /// Marks the frames that no program ended as passed.
    fn pass_rest(&mut self) {
        let passed = Decision { link: usize::MAX, index: 0 };
        for (frame, place) in self.rest.drain(..).zip(self.places.drain(..)) {
            self.done[place as usize] = Some((frame, passed));
        }
        debug_assert!(self.done.iter().all(Option::is_some), "each frame has a fate");
    }
}
