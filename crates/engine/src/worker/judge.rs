//! Running a hook's programs on a burst and telling each frame's fate.

use std::sync::Arc;

use towpath_xdp::{Action, Burst, Destination, Frame, Worker};

use super::deliver::plain_port;
use super::outbox::Outboxes;
use super::sockets::socket_of;
use super::tap::Copies;
use crate::config::Hook;
use crate::counters::{Counter, Drop, PortCounters};
use crate::hook::{Chain, Link};
use crate::snapshot::{Slot, Snapshot};

/// What a worker needs to run programs, used again for every burst.
pub(super) struct Judge {
    pub(super) xdp: Worker,
    number: usize,
    /// Verdicts of each program of a chain.
    bursts: Vec<Burst>,
    /// For bursts on which the programs of a chain do not agree.
    mixed: Mixed,
    /// For ports with taps: of what arrives, and of what leaves.
    pub(super) copies: Copies,
    pub(super) leaving: Copies,
}

/// Frames of a burst that end at different programs of a chain.
#[derive(Default)]
struct Mixed {
    /// The frames still to be judged, with their places in the burst.
    rest: Vec<Frame>,
    places: Vec<u32>,
    next: Vec<Frame>,
    next_places: Vec<u32>,
    /// The frames that were, by their place, and who decided.
    done: Vec<Option<(Frame, Fate)>>,
}

/// Which program of the chain decided, and the frame's number in its burst.
#[derive(Clone, Copy)]
struct Fate {
    link: usize,
    index: usize,
}

impl Judge {
    pub(super) fn new(number: usize) -> Judge {
        Judge {
            xdp: Worker::new(number as u32),
            number,
            bursts: Vec::new(),
            mixed: Mixed::default(),
            copies: Copies::new(Hook::Rx, number),
            leaving: Copies::new(Hook::Tx, number),
        }
    }

    /// Judges and delivers all frames; they arrived on `slot`.
    #[inline]
    pub(super) fn burst(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frames: &mut Vec<Frame>,
        out: &mut Outboxes,
    ) {
        if slot.member.is_some_and(|member| member.protects) {
            out.take_control(snapshot, slot, frames);
        }
        if !slot.taps.is_empty() {
            self.copies.enter(&slot.taps, frames);
        }
        let Some(chain) = &slot.rx_hook else {
            self.judged(slot, frames, None, out);
            let counters = &slot.opened.counters[self.number];
            counters.actions[Action::Pass as usize].add(frames.len() as u64);
            out.pass_all(snapshot, slot, frames);
            return;
        };
        if slot.linearize && !chain.has_frags() {
            out.linearize(frames);
        }
        let chain: &Chain = chain;
        let mut bursts = std::mem::take(&mut self.bursts);
        bursts.resize_with(bursts.len().max(chain.links().len()), Burst::default);
        self.chain(snapshot, slot, chain, frames, &mut bursts, out);
        self.bursts = bursts;
    }

    fn chain(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        chain: &Chain,
        frames: &mut Vec<Frame>,
        bursts: &mut [Burst],
        out: &mut Outboxes,
    ) {
        let links = chain.links();
        for (place, link) in links.iter().enumerate() {
            let actions = self.run_seen(&slot.taps, Hook::Rx, link, frames, &mut bursts[place]);
            let burst = &bursts[place];
            let is_last = place + 1 == links.len();
            // What comes after the last program is XDP_PASS, which it said itself.
            if is_last && link.chain_call_actions & !PASS == 0 {
                self.judged(slot, frames, Some(burst), out);
                return out.dispatch(snapshot, slot, frames, burst, &actions);
            }
            match goes_on(link, burst) {
                GoesOn::None => {
                    self.judged(slot, frames, Some(burst), out);
                    return out.dispatch(snapshot, slot, frames, burst, &actions);
                }
                GoesOn::All => {}
                GoesOn::Some => {
                    return self.mixed(snapshot, slot, chain, place, frames, bursts, out);
                }
            }
        }
        // libxdp's dispatcher ends with XDP_PASS, whatever the last program said.
        self.judged(slot, frames, None, out);
        let counters = &slot.opened.counters[self.number];
        counters.actions[Action::Pass as usize].add(frames.len() as u64);
        out.pass_all(snapshot, slot, frames);
    }

    /// Carries on where the program at `place` ends some frames and not others, keeping the order.
    #[expect(clippy::too_many_arguments, reason = "the state of one burst")]
    fn mixed(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        chain: &Chain,
        place: usize,
        frames: &mut Vec<Frame>,
        bursts: &mut [Burst],
        out: &mut Outboxes,
    ) {
        let mut mixed = std::mem::take(&mut self.mixed);
        mixed.start(frames);
        mixed.sort_out(&chain.links()[place], place, &bursts[place]);
        for (place, link) in chain.links().iter().enumerate().skip(place + 1) {
            if mixed.rest.is_empty() {
                break;
            }
            self.run_seen(&slot.taps, Hook::Rx, link, &mut mixed.rest, &mut bursts[place]);
            mixed.sort_out(link, place, &bursts[place]);
        }
        let passed = Fate { link: usize::MAX, index: 0 };
        for (frame, place) in mixed.rest.drain(..).zip(mixed.places.drain(..)) {
            mixed.done[place as usize] = Some((frame, passed));
        }
        let counters = &slot.opened.counters[self.number];
        let tx = out.tx_of(slot);
        let has_taps = !slot.taps.is_empty();
        for (place, (mut frame, fate)) in mixed.done.drain(..).flatten().enumerate() {
            let burst = bursts.get(fate.link);
            if slot.borrows {
                out.own(&mut frame);
            }
            if has_taps {
                let judged = burst.map(|burst| (burst, fate.index));
                self.copies.leave_one(&slot.taps, place, &frame, judged);
            }
            let (action, destination) = match burst {
                None => (Action::Pass, None),
                Some(burst) => (burst.action(fate.index), burst.destination(fate.index)),
            };
            counters.actions[action as usize].add(1);
            match action {
                Action::Tx => tx(out, snapshot, slot, frame),
                _ => out.deliver(snapshot, slot, frame, action, destination),
            }
        }
        if has_taps {
            self.copies.finish(&slot.taps);
        }
        self.mixed = mixed;
    }

    /// Shows the port's taps what was decided about a whole burst. What is in an application's
    /// memory leaves it now, or goes to a socket.
    #[inline]
    fn judged(
        &mut self,
        slot: &Slot,
        frames: &mut [Frame],
        burst: Option<&Burst>,
        out: &mut Outboxes,
    ) {
        if !slot.taps.is_empty() {
            self.copies.leave(&slot.taps, frames, burst);
        }
        if slot.borrows {
            out.own_all(frames, burst);
        }
    }

    /// Runs one program on frames and counts; gives how many verdicts there are of each kind.
    #[inline]
    pub(super) fn run(&mut self, link: &Link, frames: &mut [Frame], burst: &mut Burst) -> [u64; 5] {
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

    /// Lets go of what verdicts of programs refer to that may be gone with the next configuration.
    pub(super) fn forget_bursts(&mut self) {
        self.bursts.clear();
    }

    /// The program of a devmap or cpumap entry judges frames on their way.
    pub(super) fn entry(&mut self, program: &towpath_xdp::Program, frames: &mut [Frame]) -> Burst {
        let mut burst = self.bursts.pop().unwrap_or_default();
        // A failing timer is counted where its program is attached.
        let _timers = program.run_burst(&mut self.xdp, frames, &mut burst);
        burst
    }

    /// A program of a `tx` hook judges frames.
    pub(super) fn link(&mut self, slot: &Slot, link: &Link, frames: &mut [Frame]) -> Burst {
        let mut burst = self.bursts.pop().unwrap_or_default();
        self.run_seen(&slot.tx_taps, Hook::Tx, link, frames, &mut burst);
        self.leaving.stop(&slot.tx_taps, frames, &burst);
        burst
    }

    /// Shows a port's taps what is to leave by it.
    pub(super) fn enter_tx(&mut self, slot: &Slot, frames: &[Frame]) {
        if !slot.tx_taps.is_empty() {
            self.leaving.enter(&slot.tx_taps, frames);
        }
    }

    /// Shows them what does.
    pub(super) fn leave_tx(&mut self, slot: &Slot, frames: &[Frame]) {
        if !slot.tx_taps.is_empty() {
            self.leaving.leave_rest(&slot.tx_taps, frames);
        }
    }

    pub(super) fn put_away(&mut self, burst: Burst) {
        self.bursts.push(burst);
    }
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

fn goes_on(link: &Link, burst: &Burst) -> GoesOn {
    let mask = link.chain_call_actions;
    if let Some(returned) = burst.unanimous() {
        return if continues(mask, returned) { GoesOn::All } else { GoesOn::None };
    }
    let count = (0..burst.len()).filter(|&i| continues(mask, burst.returned(i))).count();
    match count {
        0 => GoesOn::None,
        count if count == burst.len() => GoesOn::All,
        _ => GoesOn::Some,
    }
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

    /// Keeps the frames that the next program is to see.
    fn sort_out(&mut self, link: &Link, place: usize, burst: &Burst) {
        for (index, (frame, at)) in self.rest.drain(..).zip(self.places.drain(..)).enumerate() {
            if continues(link.chain_call_actions, burst.returned(index)) {
                self.next.push(frame);
                self.next_places.push(at);
            } else {
                self.done[at as usize] = Some((frame, Fate { link: place, index }));
            }
        }
        std::mem::swap(&mut self.rest, &mut self.next);
        std::mem::swap(&mut self.places, &mut self.next_places);
    }
}

/// The port that the last redirected frame of a burst went to. Frames of one flow follow each
/// other, so most of them need no look at maps and tables.
#[derive(Default)]
struct Door<'a> {
    last: Option<usize>,
    port: Option<&'a Arc<Slot>>,
}

impl<'a> Door<'a> {
    /// The port that a frame goes to as it is; `None` when there is more to it.
    #[inline]
    fn of(&mut self, snapshot: &'a Snapshot, burst: &Burst, index: usize) -> Option<&'a Arc<Slot>> {
        if !self.last.is_some_and(|last| burst.lead_alike(last, index)) {
            self.last = Some(index);
            self.port = burst.destination(index).and_then(|to| plain_port(snapshot, to));
        }
        self.port
    }
}

impl Outboxes {
    /// Delivers a burst by one program's verdicts, of which there are `actions` of each kind.
    #[inline]
    fn dispatch(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frames: &mut Vec<Frame>,
        burst: &Burst,
        actions: &[u64; 5],
    ) {
        let counters: &PortCounters = &slot.opened.counters[self.number()];
        add_actions(&counters.actions, actions);
        let all = frames.len() as u64;
        if actions[Action::Drop as usize] == all {
            return self.discard_all(slot, frames);
        }
        if actions[Action::Tx as usize] > 0 && slot.member.is_some_and(|it| it.is_delegate) {
            let is_all_tx = actions[Action::Tx as usize] == all;
            return self.dispatch_delegated(snapshot, slot, frames, burst, is_all_tx);
        }
        if actions[Action::Tx as usize] == all {
            return self.tx_all(snapshot, slot, frames);
        }
        if actions[Action::Pass as usize] == all {
            return self.pass_all(snapshot, slot, frames);
        }
        let mut door = Door::default();
        if actions[Action::Redirect as usize] == all && burst.lead_to_one() {
            if let Some(to) = door.of(snapshot, burst, 0) {
                return self.redirect_all(snapshot, to, frames);
            }
            if let Some(id) = burst.destination(0).and_then(socket_of)
                && self.socket_all(snapshot, slot, frames, id)
            {
                return;
            }
        }
        let mut burst_of_frames = std::mem::take(frames);
        for (index, frame) in burst_of_frames.drain(..).enumerate() {
            match burst.action(index) {
                Action::Drop => self.discard(frame),
                Action::Tx => self.tx(snapshot, slot, frame),
                Action::Pass => self.pass(snapshot, slot, frame),
                Action::Aborted => self.drop_at(slot, frame, Drop::Aborted),
                Action::Redirect => match door.of(snapshot, burst, index) {
                    Some(to) => self.redirect_to(snapshot, to, frame),
                    None => self.redirect(snapshot, slot, frame, burst.destination(index)),
                },
            }
        }
        *frames = burst_of_frames;
        self.count_discarded(slot);
    }

    /// Delivers one frame.
    pub(super) fn deliver(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frame: Frame,
        action: Action,
        destination: Option<Destination<'_>>,
    ) {
        match action {
            Action::Drop => self.drop_at(slot, frame, Drop::Verdict),
            Action::Tx => self.tx(snapshot, slot, frame),
            Action::Pass => self.pass(snapshot, slot, frame),
            Action::Aborted => self.drop_at(slot, frame, Drop::Aborted),
            Action::Redirect => self.redirect(snapshot, slot, frame, destination),
        }
    }
}
