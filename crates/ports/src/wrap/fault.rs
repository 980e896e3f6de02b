//! A faulty wire: loss, delay, reordering, duplication and corruption, reproducible by a seed
//! (`tc qdisc ... netem`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;
use towpath_xdp::{Frame, Pool};

use super::{Layer, Stage};

/// Faults of the wire. Shares are from 0.0 to 1.0.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share of frames with one bit inverted.
    pub corrupt: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames that overtake the previous one.
    pub reorder: f64,
    /// Delay of each frame.
    pub delay: Duration,
    /// Largest random addition to the delay.
    pub jitter: Duration,
    /// The same seed makes the same faults.
    pub seed: u64,
    /// Most frames in flight at a time; more are lost.
    pub limit: usize,
    /// Whether received frames have faults.
    pub on_rx: bool,
    /// Whether sent frames have faults.
    pub on_tx: bool,
}

impl Default for Fault {
    fn default() -> Fault {
        Fault {
            loss: 0.0,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            seed: 1,
            limit: 1000,
            on_rx: true,
            on_tx: false,
        }
    }
}

impl Layer for Fault {
    fn rx(&self, queue: u32) -> Box<dyn Stage> {
        self.stage(self.on_rx, u64::from(queue))
    }

    fn tx(&self, worker: u32) -> Box<dyn Stage> {
        self.stage(self.on_tx, 1 << 32 | u64::from(worker))
    }

    fn details(&self) -> (&'static str, String) {
        let Fault { loss, corrupt, duplicate, reorder, delay, .. } = self;
        let shares = format!("loss {loss}, corrupt {corrupt}, duplicate {duplicate}");
        ("fault", format!("{shares}, reorder {reorder}, delay {delay:?}"))
    }
}

impl Fault {
    fn stage(&self, is_bad: bool, number: u64) -> Box<dyn Stage> {
        let fault = if is_bad { self.clone() } else { Fault::default() };
        let random = Rng::with_seed(self.seed.wrapping_add(number));
        Box::new(Wire { fault, random, under_way: VecDeque::new(), removed: 0 })
    }

    fn has_delay(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero()
    }
}

/// One direction of one queue.
struct Wire {
    fault: Fault,
    random: Rng,
    /// Frames in flight, by time of arrival.
    under_way: VecDeque<(Instant, Frame)>,
    removed: u64,
}

impl Wire {
    /// Decides at random whether a fault with this share happens.
    fn happens(&mut self, share: f64) -> bool {
        self.random.f64() < share
    }

    fn invert_a_bit(&mut self, frame: &mut Frame) {
        let bit = self.random.usize(..frame.len() * 8);
        let mut byte = [0];
        frame.copy_from(bit / 8, &mut byte);
        frame.copy_to(bit / 8, &[byte[0] ^ 1 << (bit % 8)]);
    }

    /// Delays a frame, or adds it to `arrived` at once.
    fn travel(&mut self, frame: Frame, arrived: &mut Vec<Frame>, start: usize, pool: &mut Pool) {
        if !self.fault.has_delay() {
            let overtakes = arrived.len() > start && self.happens(self.fault.reorder);
            let place = arrived.len() - usize::from(overtakes);
            return arrived.insert(place, frame);
        }
        if self.under_way.len() >= self.fault.limit {
            self.removed += 1;
            return pool.give(frame);
        }
        let jitter = match self.fault.jitter.as_nanos() as u64 {
            0 => 0,
            most => self.random.u64(..most),
        };
        let early = self.happens(self.fault.reorder);
        let delay = if early { Duration::ZERO } else { self.fault.delay };
        let due = Instant::now() + delay + Duration::from_nanos(jitter);
        let place = self.under_way.partition_point(|(other, _)| *other <= due);
        self.under_way.insert(place, (due, frame));
    }
}

impl Stage for Wire {
    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, pool: &mut Pool) {
        if frames.len() == start && self.under_way.is_empty() {
            return;
        }
        let coming: Vec<Frame> = frames.drain(start..).collect();
        for mut frame in coming {
            if self.happens(self.fault.loss) {
                self.removed += 1;
                pool.give(frame);
                continue;
            }
            if self.happens(self.fault.corrupt) {
                self.invert_a_bit(&mut frame);
            }
            let twin = if self.happens(self.fault.duplicate) { pool.copy(&frame) } else { None };
            self.travel(frame, frames, start, pool);
            if let Some(twin) = twin {
                self.travel(twin, frames, start, pool);
            }
        }
        let now = Instant::now();
        while let Some((_, frame)) = self.under_way.pop_front_if(|(due, _)| *due <= now) {
            frames.push(frame);
        }
    }

    fn holds(&self) -> bool {
        self.fault.has_delay() || self.fault.duplicate > 0.0
    }

    fn due(&self) -> Option<Instant> {
        self.under_way.front().map(|(due, _)| *due)
    }

    fn take_removed(&mut self) -> u64 {
        std::mem::take(&mut self.removed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towpath_xdp::Arena;

    use super::*;

    fn run(fault: &Fault, count: usize) -> (Vec<Vec<u8>>, u64) {
        let arena = Arena::new(64).unwrap();
        let mut pool = Pool::new(&Arc::clone(&arena));
        let mut stage = fault.rx(0);
        let mut out = Vec::new();
        for number in 0..count {
            let mut frames = Vec::new();
            for part in 0..4 {
                let packet = [number as u8, part].repeat(10);
                frames.push(pool.frame(&packet).unwrap().unwrap());
            }
            stage.pass(&mut frames, 0, &mut pool);
            out.extend(frames.iter().map(|frame| frame.to_vec()));
            pool.give_all(&mut frames);
        }
        let removed = stage.take_removed();
        drop((stage, pool));
        assert_eq!(arena.free(), 64);
        (out, removed)
    }

    #[test]
    fn a_seed_repeats_its_faults() {
        let fault =
            Fault { loss: 0.2, corrupt: 0.2, duplicate: 0.1, reorder: 0.2, ..Fault::default() };
        let (first, lost) = run(&fault, 50);
        assert_eq!((first.clone(), lost), run(&fault, 50));
        assert!((10..80).contains(&lost), "{lost}");
        assert_ne!(first, run(&Fault { seed: 2, ..fault }, 50).0);
        assert_eq!(run(&Fault::default(), 50).0.len(), 200);
        assert_eq!(run(&Fault { loss: 1.0, ..Fault::default() }, 50), (Vec::new(), 200));
    }

    #[test]
    fn delayed_frames_arrive_later() {
        let arena = Arena::new(8).unwrap();
        let mut pool = Pool::new(&arena);
        let delay = Duration::from_millis(3);
        let mut stage = Fault { delay, ..Fault::default() }.rx(0);
        let mut frames = vec![pool.frame(&[1; 20]).unwrap().unwrap()];
        stage.pass(&mut frames, 0, &mut pool);
        assert!(frames.is_empty() && stage.due().is_some());
        std::thread::sleep(delay);
        stage.pass(&mut frames, 0, &mut pool);
        assert_eq!((frames.len(), stage.due()), (1, None));
    }
}
