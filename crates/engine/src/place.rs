//! Placement of queues on workers: a new queue goes to the least busy worker, and a queue of an
//! overloaded worker moves to another.
//!
//! The functions here are pure: load figures go in, a decision comes out. A queue moves only if
//! that leaves its new worker no busier than its old one, so that two workers never pass a queue
//! back and forth. Pinned queues stay.

use crate::numbers::PortId;

/// Load of a worker, for the placement of a new queue.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Seat {
    /// Share of its time, 0 to 1, in which it had something to do lately.
    pub(crate) busy: f64,
    /// Queues that it polls.
    pub(crate) queues: usize,
    /// Queues among them that belong to the new queue's port.
    pub(crate) own: usize,
}

/// A polled queue, as a candidate for a move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Polled {
    pub(crate) port: PortId,
    pub(crate) queue: u32,
    pub(crate) worker: usize,
    /// Share of its worker's time, 0 to 1, that its frames took lately.
    pub(crate) share: f64,
    /// The queue is pinned, or moved recently.
    pub(crate) stays: bool,
}

/// A decision to move a queue to another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) port: PortId,
    pub(crate) queue: u32,
    pub(crate) to: usize,
}

/// Chooses the worker for a new queue. Preferred, in this order, are workers that are not
/// overloaded, with the fewest queues of the same port (a device spreads its flows over its
/// queues), the least busy (in steps of 10 %), and those with the fewest queues, so that ports
/// spread before there is any traffic.
pub(crate) fn seat(workers: &[Seat]) -> usize {
    let order = |seat: &Seat| {
        let busy = (seat.busy * 10.0) as u32;
        (seat.busy > BUSY, seat.own, busy, seat.queues)
    };
    let seats = workers.iter().enumerate();
    seats.min_by_key(|&(number, seat)| (order(seat), number)).map_or(0, |(number, _)| number)
}

/// Chooses a queue to move, given each worker's load: from a worker busy above 80 % to the least
/// busy one, if that is busy less than half as much. Of the queues that fit, the one with the
/// largest share moves.
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

/// Share of its time above which a worker is overloaded.
const BUSY: f64 = 0.8;
/// Smallest share of a worker's time that makes a queue worth moving.
const SHARE_MIN: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulation of queues that each need a part of a core, and of the workers that poll them.
    struct Model {
        workers: usize,
        queues: Vec<(f64, Polled)>,
    }

    impl Model {
        /// Places queues one after the other by [`seat`], without load.
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

        /// Simulates the measurements of an interval; queues share an overloaded worker's time in
        /// proportion to demand.
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

    /// Measured shares deviate at random from the true ones by up to 10 %.
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
        // The busiest worker has no queue that could move; the next one has.
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
