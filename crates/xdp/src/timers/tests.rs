//! Timers beside a list of when each is due.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use fastrand::Rng;
use towpath_bpf::btf::Btf;
use towpath_bpf::program::MapType;
use towpath_maps::AnyEnvironment;

use super::*;
use crate::LoadOptions;
use crate::memory::Grant;
use crate::program::Shared;
use crate::program::testing::{self, map_def};

/// The parts of timers; a test chooses the function's number, to find the timer again.
struct Parts {
    map: Arc<Map>,
    code: Arc<Code>,
    maps: Arc<MapSet>,
}

impl Parts {
    fn new() -> Parts {
        let exit = towpath_bpf::insn::Insn::new(0x95, 0, 0, 0, 0);
        let program = testing::load(testing::linked(&[exit], &[]));
        let shared = Shared::new(&LoadOptions::default());
        let def = map_def(MapType::Array, 4, 16, 1);
        let map = shared.create_map(&def, &Btf::default(), Arc::new(AnyEnvironment)).unwrap();
        Parts { map, code: Arc::clone(program.code()), maps: Arc::clone(program.maps()) }
    }

    fn callback(&self, function: u64) -> Callback {
        Callback { code: Arc::clone(&self.code), maps: Arc::clone(&self.maps), function }
    }

    fn init(&self, timers: &Timers, word: Word) {
        let place = word.place();
        timers.init(word, Arc::clone(&self.map), 0).unwrap();
        timers.set_callback(place, self.callback(place)).unwrap();
    }
}

/// Values with a timer each: their words, by address.
fn words(count: usize, stride: usize) -> Vec<Word> {
    let values = Grant::leaked(count * stride);
    (0..count).map(|at| Word::new(values.part((at * stride) as u64, 8))).collect()
}

fn places(due: &[Due]) -> Vec<u64> {
    due.iter().map(|due| due.place).collect()
}

/// Number of looks to come, over all shards.
fn looks(timers: &Timers) -> usize {
    timers.shards.iter().map(|shard| shard.0.lock().looks.len()).sum()
}

#[test]
fn those_that_are_due_come_in_order() {
    let (timers, parts, words) = (Timers::default(), Parts::new(), words(100, 16));
    for (&word, number) in words.iter().zip(0..) {
        parts.init(&timers, word);
        timers.start(word, 1000 - number, true, 0).unwrap();
    }
    let wanted = [99, 98, 97].map(|at: usize| words[at].place());
    assert_eq!(timers.next_ns(), Some(901));
    assert!(timers.take_due(900, usize::MAX).is_empty());
    assert_eq!(places(&timers.take_due(903, usize::MAX)), wanted);
    assert_eq!(timers.next_ns(), Some(904));
    assert_eq!(timers.take_due(u64::MAX - 1, usize::MAX).len(), 97);
    assert_eq!((timers.next_ns(), looks(&timers)), (None, 0));
}

/// A round looks at a limited number of due timers; each timer comes once.
#[test]
fn a_round_takes_no_more_than_it_is_to() {
    let (timers, parts) = (Timers::default(), Parts::new());
    for word in words(16_384, 72) {
        parts.init(&timers, word);
        timers.start(word, 5, false, 0).unwrap();
    }
    let (mut rounds, mut seen) = (0, HashSet::new());
    while timers.next_ns().is_some_and(|next| next <= 10) {
        let due = timers.take_due(10, 32);
        assert!(due.len() <= 32);
        due.iter().for_each(|due| assert!(seen.insert(due.place)));
        rounds += 1;
    }
    assert_eq!((seen.len(), rounds), (16_384, 16_384 / 32));
}

#[test]
fn one_that_is_pushed_back_is_looked_at_once_more() {
    let (timers, parts, word) = (Timers::default(), Parts::new(), words(1, 8)[0]);
    parts.init(&timers, word);
    (0..1000).for_each(|now| timers.start(word, 1000, false, now).unwrap());
    assert_eq!((looks(&timers), timers.next_ns()), (1, Some(1000)));
    assert!(timers.take_due(1500, usize::MAX).is_empty());
    assert_eq!((looks(&timers), timers.next_ns()), (1, Some(1999)));
    // Sooner than its place among the looks: it moves at once.
    timers.start(word, 1600, false, 0).unwrap();
    assert_eq!((looks(&timers), timers.next_ns()), (1, Some(1600)));
    assert_eq!(places(&timers.take_due(1600, usize::MAX)), [word.place()]);
    assert_eq!(looks(&timers), 0);
}

/// A program may still have the address of a value that was deleted.
#[test]
fn one_that_is_gone_cannot_be_started() {
    let (timers, parts, word) = (Timers::default(), Parts::new(), words(1, 8)[0]);
    assert_eq!(timers.start(word, 5, false, 0), Err(Errno::EINVAL), "it is none yet");
    parts.init(&timers, word);
    timers.start(word, 5, false, 0).unwrap();
    timers.forget(word.place());
    assert_eq!(timers.start(word, 9, false, 0), Err(Errno::EINVAL));
    assert_eq!((looks(&timers), timers.take_due(100, usize::MAX).len()), (0, 0));
}

/// Four push their timers back while two take what is due: a timer fires as often as its owner
/// found that it no longer waited and started it again.
#[test]
fn one_that_is_pushed_back_meanwhile_fires_once() {
    let (timers, parts) = (Timers::default(), Parts::new());
    let (is_over, now) = (AtomicBool::new(false), AtomicU64::new(2));
    let (started, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let takers = || {
            while !is_over.load(SeqCst) {
                let due = timers.take_due(now.fetch_add(1, SeqCst), 7).len() as u64;
                taken.fetch_add(due, SeqCst);
            }
        };
        (0..2).for_each(|_| _ = scope.spawn(takers));
        let starter = || {
            let own = words(8, 24);
            own.iter().for_each(|&word| parts.init(&timers, word));
            for turn in 0..40_000 {
                let word = own[turn % own.len()];
                let due = now.load(SeqCst) + 3;
                if !word.push_back(due) {
                    // No other thread starts it, so it is no longer waiting, or waits for a later
                    // time.
                    started.fetch_add(u64::from(word.due().is_none()), SeqCst);
                    timers.start(word, due, true, 0).unwrap();
                }
            }
        };
        let starters: Vec<_> = (0..4).map(|_| scope.spawn(starter)).collect();
        starters.into_iter().for_each(|starter| starter.join().unwrap());
        is_over.store(true, SeqCst);
    });
    let left = timers.take_due(u64::MAX - 1, usize::MAX).len() as u64;
    assert_eq!(taken.load(SeqCst) + left, started.load(SeqCst));
}

/// Random operations on timers, compared with a map of the time when each is due.
#[test]
fn at_random_they_come_as_from_a_list() {
    for seed in 0..50 {
        let (timers, parts, mut random) = (Timers::default(), Parts::new(), Rng::with_seed(seed));
        let (mut model, mut now) = (BTreeMap::<u64, Option<u64>>::new(), 2);
        let words = words(64, 48);
        for step in 0..4000 {
            let word = words[random.usize(..64)];
            let place = word.place();
            let is_there = model.contains_key(&place);
            match random.u32(..8) {
                0 if !is_there => {
                    parts.init(&timers, word);
                    model.insert(place, None);
                }
                1 => {
                    timers.forget(place);
                    model.remove(&place);
                }
                2 if is_there => {
                    let was_waiting = model.insert(place, None).flatten().is_some();
                    assert_eq!(timers.cancel(place), Ok(was_waiting), "{seed} {step}");
                    timers.set_callback(place, parts.callback(place)).unwrap();
                }
                3..=6 if is_there => {
                    let after = random.u64(..500);
                    timers.start(word, after, false, now).unwrap();
                    model.insert(place, Some(now + after));
                }
                _ => {
                    now += random.u64(..100);
                    let mut wanted: Vec<_> = model
                        .iter_mut()
                        .filter_map(|(&place, due)| {
                            due.take_if(|at| *at <= now).map(|at| (at, place))
                        })
                        .collect();
                    wanted.sort_unstable();
                    let wanted: Vec<u64> = wanted.into_iter().map(|(_, place)| place).collect();
                    let taken = timers.take_due(now, usize::MAX);
                    assert_eq!(places(&taken), wanted, "{seed} {step}");
                }
            }
            let first = model.values().flatten().min();
            assert!(first.is_none_or(|first| timers.next_ns().unwrap() <= *first), "{seed} {step}");
            assert!(looks(&timers) <= model.len());
        }
    }
}

/// Four start timers while two take them: each start is taken once, and none is forgotten.
#[test]
fn none_is_lost_between_workers() {
    const EACH: u64 = 3000;
    let (timers, parts) = (Timers::default(), Parts::new());
    let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let takers = || {
            while !is_over.load(SeqCst) || timers.next_ns().is_some() {
                taken.fetch_add(timers.take_due(u64::MAX - 1, 7).len() as u64, SeqCst);
            }
        };
        (0..2).for_each(|_| _ = scope.spawn(takers));
        let (timers, parts) = (&timers, &parts);
        let starters: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    for (word, number) in words(EACH as usize, 40).into_iter().zip(0..) {
                        parts.init(timers, word);
                        timers.start(word, number, true, 0).unwrap();
                    }
                })
            })
            .collect();
        starters.into_iter().for_each(|starter| starter.join().unwrap());
        is_over.store(true, SeqCst);
    });
    // A taking thread may have seen nothing while the other one looked.
    let left = timers.take_due(u64::MAX - 1, usize::MAX).len() as u64;
    assert_eq!(taken.load(SeqCst) + left, 4 * EACH);
}
