//! Which worker polls which queue: a new one goes where there is least to do, and one goes to
//! another worker where its own has too much.
//!
//! These are decisions alone: what is known goes in, a place comes out. A queue moves only where
//! that leaves its new worker no busier than its old one, so that no two workers pass a queue back
//! and forth, and what is pinned stays.

use crate::numbers::PortId;

/// A worker, when a queue is to be placed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Seat {
    /// Share of its time, 0 to 1, in which it had something to do lately.
    pub(crate) busy: f64,
    /// Queues that it polls.
    pub(crate) queues: usize,
    /// Queues of the same port among them.
    pub(crate) own: usize,
}

/// A queue, when one is to be moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Polled {
    pub(crate) port: PortId,
    pub(crate) queue: u32,
    pub(crate) worker: usize,
    /// Share of its worker's time, 0 to 1, that its frames took lately.
    pub(crate) share: f64,
    /// It is pinned, or has been moved a short time ago.
    pub(crate) stays: bool,
}

/// A queue goes to another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) port: PortId,
    pub(crate) queue: u32,
    pub(crate) to: usize,
}

/// The worker for a new queue: one that has time, that has none of the same port's queues, as the
/// device spreads flows over those, and that is the least busy; of equals, the one with the fewest
/// queues, so that ports spread before there is any traffic.
pub(crate) fn seat(workers: &[Seat]) -> usize {
    let order = |seat: &Seat| {
        let busy = (seat.busy * 10.0) as u32;
        (seat.busy > BUSY, seat.own, busy, seat.queues)
    };
    let seats = workers.iter().enumerate();
    seats.min_by_key(|&(number, seat)| (order(seat), number)).map_or(0, |(number, _)| number)
}

/// What is to move, when workers are so busy: a queue of one that is above 80 %, to the least busy
/// one if that is below half of it. Of those that fit, the one that takes most of the time.
pub(crate) fn choose(busy: &[f64], queues: &[Polled]) -> Option<Move> {
    let all = || busy.iter().copied().enumerate();
    let (to, least) = all().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let mut hot: Vec<(usize, f64)> =
        all().filter(|&(_, busy)| busy > BUSY && least < busy / 2.0).collect();
    hot.sort_by(|one, other| other.1.total_cmp(&one.1));
    hot.into_iter().find_map(|(from, most)| {
        let fits = |it: &&Polled| {
            it.worker == from
                && !it.stays
                && it.share >= SHARE_MIN
                && least + it.share <= most - it.share
        };
        let best = queues.iter().filter(fits).max_by(|a, b| a.share.total_cmp(&b.share))?;
        Some(Move { port: best.port, queue: best.queue, to })
    })
}

/// A worker with more to do than this share of its time has too much.
const BUSY: f64 = 0.8;
/// To move a queue that takes less of a worker's time helps nobody.
const SHARE_MIN: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues that each need a part of a core, and the workers that have them.
    struct Model {
        workers: usize,
        queues: Vec<(f64, Polled)>,
    }

    impl Model {
        /// Placed one after the other, by number alone.
        fn new(workers: usize, demands: &[f64], pinned: impl Fn(usize) -> Option<usize>) -> Model {
            let mut model = Model { workers, queues: Vec::new() };
            for (number, &demand) in demands.iter().enumerate() {
                let seats: Vec<Seat> = (0..workers)
                    .map(|worker| Seat { queues: model.count(worker), ..Seat::default() })
                    .collect();
                let pin = pinned(number);
                let polled = Polled {
                    port: PortId(number as u32),
                    queue: 0,
                    worker: pin.unwrap_or_else(|| seat(&seats)),
                    share: 0.0,
                    stays: pin.is_some(),
                };
                model.queues.push((demand, polled));
            }
            model
        }

        fn count(&self, worker: usize) -> usize {
            self.queues.iter().filter(|(_, it)| it.worker == worker).count()
        }

        fn demand(&self, worker: usize) -> f64 {
            self.queues.iter().filter(|(_, it)| it.worker == worker).map(|(need, _)| need).sum()
        }

        fn busy(&self) -> Vec<f64> {
            (0..self.workers).map(|worker| self.demand(worker).min(1.0)).collect()
        }

        /// What is measured in an interval: who has more to do than it can shares its time.
        fn measure(&mut self, mut noise: impl FnMut() -> f64) -> Vec<f64> {
            let demands: Vec<f64> = (0..self.workers).map(|it| self.demand(it).max(1.0)).collect();
            for (need, polled) in &mut self.queues {
                polled.share = (*need / demands[polled.worker] * noise()).min(1.0);
            }
            self.busy()
        }

        fn step(&mut self, noise: impl FnMut() -> f64) -> Option<(usize, Move)> {
            let busy = self.measure(noise);
            let queues: Vec<Polled> = self.queues.iter().map(|(_, it)| *it).collect();
            let chosen = choose(&busy, &queues)?;
            let polled = &mut self.queues[chosen.port.0 as usize].1;
            let from = std::mem::replace(&mut polled.worker, chosen.to);
            assert!(busy[from] > BUSY && busy[chosen.to] < busy[from] / 2.0);
            assert!(!polled.stays, "what is pinned stays");
            Some((from, chosen))
        }
    }

    fn random_model(random: &mut fastrand::Rng) -> Model {
        let workers = random.usize(2..9);
        let demands: Vec<f64> =
            (0..random.usize(1..40)).map(|_| random.f64().powi(3) * 1.5).collect();
        let pins: Vec<Option<usize>> = demands
            .iter()
            .map(|_| (random.u8(..4) == 0).then(|| random.usize(..workers)))
            .collect();
        Model::new(workers, &demands, |number| pins[number])
    }

    #[test]
    fn queues_come_to_rest() {
        let mut random = fastrand::Rng::with_seed(31);
        for _ in 0..2000 {
            let mut model = random_model(&mut random);
            let most = model.queues.len() * model.workers;
            let mut moves = 0;
            while let Some((from, moved)) = model.step(|| 1.0) {
                moves += 1;
                assert!(moves <= most, "{moves} moves of {} queues", model.queues.len());
                let after = model.busy();
                assert!(after[moved.to] <= after[from] + 1e-9 || after[from] > BUSY / 2.0);
            }
        }
    }

    /// What is measured is a tenth more or less than what is so, and never the same.
    #[test]
    fn noise_in_what_is_measured_moves_nothing_back() {
        let mut random = fastrand::Rng::with_seed(32);
        for _ in 0..500 {
            let mut model = random_model(&mut random);
            let mut noise = random.fork();
            let mut step = |model: &mut Model| model.step(|| 0.9 + noise.f64() * 0.2);
            let settling = 4 * model.queues.len();
            for _ in 0..settling {
                step(&mut model);
            }
            let late = (0..100).filter_map(|_| step(&mut model)).count();
            assert!(late <= 2, "{late} moves when all should be at rest");
        }
    }

    #[test]
    fn one_moves_and_never_so_that_the_other_has_more() {
        let polled = |number, worker, share| Polled {
            port: PortId(number),
            queue: 0,
            worker,
            share,
            stays: false,
        };
        let halves = [polled(0, 0, 0.5), polled(1, 0, 0.45)];
        let moved = choose(&[0.95, 0.0], &halves);
        assert_eq!(moved, Some(Move { port: PortId(1), queue: 0, to: 1 }));
        assert_eq!(choose(&[0.79, 0.0], &halves), None, "it has time");
        assert_eq!(choose(&[0.95, 0.48], &halves), None, "the other has not much more");
        assert_eq!(choose(&[0.95, 0.1], &halves), None, "it would have more then");
        let alone = [polled(0, 0, 1.0)];
        assert_eq!(choose(&[1.0, 0.0], &alone), None, "it would have as much to do elsewhere");
        let pinned = halves.map(|it| Polled { stays: true, ..it });
        assert_eq!(choose(&[0.95, 0.0], &pinned), None);
        assert_eq!(choose(&[1.0], &halves), None, "there is no other worker");
        // The busiest one has nothing that could go; the next one has.
        let both = [polled(0, 0, 1.0), polled(1, 1, 0.5), polled(2, 1, 0.4)];
        let moved = choose(&[1.0, 0.9, 0.0], &both);
        assert_eq!(moved, Some(Move { port: PortId(2), queue: 0, to: 2 }));
    }

    #[test]
    fn new_queues_go_where_there_is_least() {
        let seats = |all: &[(f64, usize, usize)]| {
            let seats = all.iter().map(|&(busy, queues, own)| Seat { busy, queues, own });
            seat(&seats.collect::<Vec<_>>())
        };
        assert_eq!(seats(&[(0.0, 1, 0), (0.0, 0, 0)]), 1, "by number, without traffic");
        assert_eq!(seats(&[(0.02, 0, 0), (0.01, 0, 0)]), 0, "a little is nothing");
        assert_eq!(seats(&[(0.7, 0, 0), (0.2, 9, 0)]), 1, "by load, with traffic");
        assert_eq!(seats(&[(0.2, 1, 1), (0.7, 9, 0)]), 1, "a port's queues go apart");
        assert_eq!(seats(&[(0.2, 1, 1), (0.9, 9, 0)]), 0, "where there is time");
        let mut model = Model::new(4, &[0.0; 1000], |_| None);
        assert_eq!([0, 1, 2, 3].map(|worker| model.count(worker)), [250; 4]);
        assert_eq!(model.step(|| 1.0), None, "and stay there");
    }
}
