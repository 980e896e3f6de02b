//! Rates of ports, programs and workers of the last ten minutes, with a point every five seconds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::Flows;

use crate::live::Seen;
use crate::live::traffic::{outer, traffic};
use crate::model::clock::wall_clock;
use crate::model::messages::{HistoryView, TrafficPast, TrafficView, WorkerPast};

/// The recorded points, and the counters at recent moments.
#[derive(Debug)]
pub(crate) struct History {
    start: Arc<Moment>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last: Option<Arc<Moment>>,
    before: Option<Arc<Moment>>,
    points: usize,
    ports: BTreeMap<Arc<str>, [Series; 5]>,
    total: [Series; 5],
    links: BTreeMap<u32, Series>,
    workers: Vec<[Series; 2]>,
}

/// Counters at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    /// Time in seconds since 1970.
    time: f64,
    pub(crate) ports: BTreeMap<Arc<str>, TrafficView>,
    /// Ports whose frames come from outside, or go there.
    outer: BTreeSet<Arc<str>>,
    links: BTreeMap<u32, u64>,
    /// Working time and number of frames of each worker.
    pub(crate) workers: Vec<(Duration, u64)>,
    /// Number of sampled frames by receiving and sending port.
    pub(crate) flows: Flows,
}

/// Values in order, the latest at the back.
type Series = VecDeque<f32>;

impl History {
    pub(crate) fn new() -> History {
        History { start: Arc::new(Moment::nothing(Instant::now())), kept: Mutex::default() }
    }

    /// Adds a point.
    pub(crate) fn note(&self, live: &Seen) {
        let moment = Moment::of(live);
        self.kept.lock().note(moment);
    }

    /// Counters of a recent moment, from which recent rates are computed. At the start of the
    /// daemon, all counters are 0.
    pub(crate) fn lately(&self, now: Instant) -> Arc<Moment> {
        let kept = self.kept.lock();
        let is_past =
            |moment: &&Arc<Moment>| now.saturating_duration_since(moment.at) >= LATELY_MIN;
        let known = kept.last.iter().chain(&kept.before).find(is_past);
        Arc::clone(known.unwrap_or(&self.start))
    }

    /// Points after the given time, in seconds since 1970.
    pub(crate) fn since(&self, since: f64) -> HistoryView {
        let kept = self.kept.lock();
        let time = kept.last.as_ref().map_or(0.0, |moment| moment.time);
        let wanted = ((time - since) / PERIOD.as_secs_f64()).round().max(0.0);
        let points = kept.points.min(wanted as usize);
        let list = |series: &Series| list(series, points);
        let traffic = |all: &[Series; 5]| {
            let [rx, rx_bits, tx, tx_bits, drops] = all.each_ref().map(list);
            TrafficPast { rx, rx_bits, tx, tx_bits, drops }
        };
        let ports = kept.ports.iter().map(|(name, all)| (name.to_string(), traffic(all)));
        let workers = kept
            .workers
            .iter()
            .map(|[busy, frames]| WorkerPast { busy: list(busy), frames: list(frames) });
        HistoryView {
            time,
            period: PERIOD.as_secs_f64(),
            points,
            ports: ports.collect(),
            links: kept.links.iter().map(|(id, series)| (*id, list(series))).collect(),
            workers: workers.collect(),
            total: traffic(&kept.total),
        }
    }
}

impl Moment {
    /// The moment of the start, with all counters at 0.
    fn nothing(at: Instant) -> Moment {
        Moment {
            at,
            time: 0.0,
            ports: BTreeMap::new(),
            outer: BTreeSet::new(),
            links: BTreeMap::new(),
            workers: Vec::new(),
            flows: Flows::new(),
        }
    }

    fn of(live: &Seen) -> Moment {
        let engine = &live.engine;
        let links = live.links.iter().map(|link| {
            let runs = link.link.counters().iter().map(|worker| worker.runs.get());
            (link.id, runs.sum())
        });
        let loads = engine.loads().into_iter();
        Moment {
            at: Instant::now(),
            time: wall_clock().as_secs_f64(),
            ports: engine.read(|_, snapshot| {
                let slots = snapshot.ports.iter().flatten();
                slots.map(|slot| (slot.name.clone(), traffic(snapshot, slot))).collect()
            }),
            outer: outer(live).into_iter().map(Arc::from).collect(),
            links: links.collect(),
            workers: loads.map(|it| (it.worked, it.received + it.taken_over)).collect(),
            flows: engine.flows(),
        }
    }
}

impl Kept {
    fn note(&mut self, now: Moment) {
        if let Some(last) = self.last.take() {
            self.add(&last, &now);
            self.before = Some(last);
        }
        self.last = Some(Arc::new(now));
    }

    /// Adds the rates between two moments.
    fn add(&mut self, last: &Moment, now: &Moment) {
        let seconds = now.at.saturating_duration_since(last.at).as_secs_f64().max(1e-3);
        let rate = |now: u64, last: u64| now.saturating_sub(last) as f64 / seconds;
        self.points = (self.points + 1).min(POINTS);
        self.ports.retain(|name, _| now.ports.contains_key(name));
        self.links.retain(|id, _| now.links.contains_key(id));
        let mut total = [0.0; 5];
        for (name, port) in &now.ports {
            let Some(old) = last.ports.get(name) else { continue };
            let (new, old) = (numbers(port), numbers(old));
            let rates: [f64; 5] = std::array::from_fn(|at| rate(new[at], old[at]));
            push_all(self.ports.entry(Arc::clone(name)).or_default(), rates);
            for (at, rate) in rates.into_iter().enumerate() {
                // Each drop is counted by one port only.
                let counts = at == DROPS || now.outer.contains(name);
                total[at] += if counts { rate } else { 0.0 };
            }
        }
        push_all(&mut self.total, total);
        for (id, runs) in &now.links {
            if let Some(old) = last.links.get(id) {
                push(self.links.entry(*id).or_default(), rate(*runs, *old));
            }
        }
        self.workers.resize_with(now.workers.len(), Default::default);
        for (series, (new, old)) in
            self.workers.iter_mut().zip(now.workers.iter().zip(&last.workers))
        {
            let busy = new.0.saturating_sub(old.0).as_secs_f64() / seconds;
            push_all(series, [busy.min(1.0), rate(new.1, old.1)]);
        }
    }
}

fn numbers(port: &TrafficView) -> [u64; 5] {
    [port.rx_packets, port.rx_bytes * 8, port.tx_packets, port.tx_bytes * 8, port.drops]
}

fn push_all<const N: usize>(all: &mut [Series; N], values: [f64; N]) {
    all.iter_mut().zip(values).for_each(|(series, value)| push(series, value));
}

fn push(series: &mut Series, value: f64) {
    if series.len() >= POINTS {
        series.pop_front();
    }
    // Rounded to the precision of a chart, since it is sent as text.
    let value = if value < 10.0 { (value * 1000.0).round() / 1000.0 } else { value.round() };
    series.push_back(value as f32);
    assert!(series.len() <= POINTS, "memory is bounded");
}

/// The last points of a series; empty if all of them are 0.
fn list(series: &Series, points: usize) -> Vec<f32> {
    let from = series.len().saturating_sub(points);
    let values = series.range(from..);
    if values.clone().all(|value| *value == 0.0) { Vec::new() } else { values.copied().collect() }
}

/// Time between two points.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// Number of points in ten minutes.
const POINTS: usize = 120;
const _: () = assert!(POINTS as u64 * PERIOD.as_secs() == 600, "ten minutes");
/// Shortest period for recent rates.
const LATELY_MIN: Duration = Duration::from_secs(2);
const DROPS: usize = 4;
const _: () = assert!(LATELY_MIN.as_nanos() < PERIOD.as_nanos());

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters after the given number of points: a wire, a bond on it, a pair, and a worker that
    /// is busy for a quarter of the time.
    fn moment(start: Instant, points: u64) -> Moment {
        let port = |frames: u64, drops: u64| TrafficView {
            rx_packets: frames * points,
            rx_bytes: 100 * frames * points,
            tx_packets: 0,
            tx_bytes: 0,
            drops: drops * points,
        };
        let named = [("bond0", 500, 0), ("eth0", 500, 5), ("p0", 50, 0), ("p1", 0, 10)];
        let ports = named.into_iter().map(|(name, rx, drops)| (name.into(), port(rx, drops)));
        Moment {
            at: start + PERIOD * points as u32,
            time: 1000.0 + 5.0 * points as f64,
            ports: ports.collect(),
            outer: ["eth0".into()].into(),
            links: [(7, 10 * points)].into(),
            workers: vec![(PERIOD * points as u32 / 4, 500 * points)],
            flows: Flows::new(),
        }
    }

    #[test]
    fn rates_of_ten_minutes_are_kept_and_no_more() {
        let history = History::new();
        let start = Instant::now();
        assert_eq!(history.since(0.0).points, 0);
        for points in 0..500 {
            history.kept.lock().note(moment(start, points));
        }
        let all = history.since(0.0);
        assert_eq!((all.points, all.time, all.period), (120, 3495.0, 5.0));
        assert_eq!(all.ports["eth0"].rx, vec![100.0; 120]);
        assert_eq!(all.ports["eth0"].rx_bits, vec![80_000.0; 120]);
        assert_eq!(all.ports["eth0"].tx, Vec::<f32>::new());
        assert_eq!(all.links[&7], vec![2.0; 120]);
        assert_eq!(all.workers[0].busy, vec![0.25; 120]);
        assert_eq!(all.workers[0].frames, vec![100.0; 120]);
        // Frames of the bond and of the pair are not added to the total; all drops are.
        assert_eq!((all.total.rx[0], all.total.drops[0]), (100.0, 3.0));
        let some = history.since(3484.0);
        assert_eq!((some.points, some.ports["p0"].rx.len()), (2, 2));
        assert_eq!(history.since(all.time).points, 0);
    }

    #[test]
    fn what_goes_is_forgotten_and_what_comes_begins_there() {
        let history = History::new();
        let start = Instant::now();
        let mut now = moment(start, 0);
        for points in 1..4 {
            history.kept.lock().note(now);
            now = moment(start, points);
            now.ports.remove("p1");
            if points < 3 {
                now.ports.remove("p0");
            }
        }
        history.kept.lock().note(now);
        history.kept.lock().note(moment(start, 4));
        let all = history.since(0.0);
        assert_eq!(
            (all.points, all.ports["p0"].rx.len(), all.ports.contains_key("p1")),
            (4, 1, false)
        );
        // After a reset of counters, the rate is 0.
        history.kept.lock().note(moment(start + PERIOD * 5, 0));
        assert_eq!(history.since(0.0).ports["eth0"].rx.last(), Some(&0.0));
    }

    #[test]
    fn lately_is_some_seconds_ago() {
        let history = History::new();
        let start = history.start.at;
        let lately = |at: Instant| history.lately(at).at;
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!((lately(after(1)), history.lately(after(1)).workers.len()), (start, 0));
        history.kept.lock().note(moment(start, 1));
        assert_eq!((lately(after(6)), lately(after(8))), (start, after(5)));
        history.kept.lock().note(moment(start, 2));
        assert_eq!((lately(after(11)), lately(after(12))), (after(5), after(10)));
    }
}
