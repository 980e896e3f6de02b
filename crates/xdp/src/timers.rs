//! Timers and work queues: functions of programs that run later, between frames.
//!
//! The kernel runs them in interrupt or workqueue context. Here they run on the worker that next
//! asks for due ones (before it runs a program), in the interpreter; a work item is a timer that is
//! due at once. A worker takes a few at a time, so that many timers that are due together do not
//! hold up a frame for long.
//!
//! Most timers are pushed back again and again, by each packet of a flow. This moves no timer: a
//! timer stays at its place in the order of checks, and moves to its new place when it is checked
//! there. Its due time is in the value itself ([`Word`]), so no other memory is touched for that.

mod word;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use towpath_bpf::Errno;
use towpath_bpf::interp::Code;
use towpath_maps::{Map, MapSet};

use crate::memory::Block;

pub(crate) use word::Word;

/// All timers of the programs of one object file, by the address of their `struct bpf_timer`.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Each shard has the timers of some addresses, so that workers seldom contend.
    shards: [Shard; SHARDS],
    first: First,
    /// The shard with which the next check begins, so that no shard is always the last.
    turn: AtomicUsize,
}

/// Time at which the first of all timers is checked, in monotonic nanoseconds; a worker reads it
/// before each burst. It lies apart from data that is written more often.
#[derive(Debug)]
#[repr(align(128))]
struct First(AtomicU64);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    timers: HashMap<u64, Timer, FxBuildHasher>,
    /// The time at which each timer is checked, and its address.
    looks: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Timer {
    map: Arc<Map>,
    /// Difference from the timer's clock to monotonic time.
    to_monotonic_ns: i64,
    callback: Option<Callback>,
    /// When it is due. The map keeps its memory.
    word: Word,
    /// Its place in the order of checks: no later than its due time, if it waits.
    look_ns: Option<u64>,
}

/// A function of a program, which keeps the code and maps that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    pub(crate) code: Arc<Code>,
    pub(crate) maps: Arc<MapSet>,
    /// The function, as programs refer to it.
    pub(crate) function: u64,
}

/// A callback that is due.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    /// Address of the timer: it lies in the value the callback gets.
    pub(crate) place: u64,
    pub(crate) map: Arc<Map>,
    pub(crate) callback: Callback,
}

impl Due {
    /// The element whose value the timer lies in: a copy of its key, and the value's address.
    pub(crate) fn element(&self) -> Option<(Block, u64)> {
        self.map.element_at(self.place, |element| {
            let mut key = Block::new(element.key.len());
            key.bytes_mut().copy_from_slice(element.key);
            (key, element.value.as_ptr() as u64)
        })
    }
}

impl Default for Timers {
    fn default() -> Self {
        let first = First(AtomicU64::new(u64::MAX));
        let shards = std::array::from_fn(|_| Shard::default());
        Timers { shards, first, turn: AtomicUsize::default() }
    }
}

impl Timers {
    /// `bpf_timer_init`: `EBUSY` when there is a timer already.
    pub(crate) fn init(
        &self,
        word: Word,
        map: Arc<Map>,
        to_monotonic_ns: i64,
    ) -> Result<(), Errno> {
        let place = word.place();
        let mut places = self.shard(place).lock();
        if places.timers.contains_key(&place) {
            return Err(Errno::EBUSY);
        }
        word.stop();
        let timer = Timer { map, to_monotonic_ns, callback: None, word, look_ns: None };
        places.timers.insert(place, timer);
        Ok(())
    }

    /// `bpf_timer_set_callback`
    pub(crate) fn set_callback(&self, place: u64, callback: Callback) -> Result<(), Errno> {
        let mut places = self.shard(place).lock();
        places.timers.get_mut(&place).ok_or(Errno::EINVAL)?.callback = Some(callback);
        Ok(())
    }

    /// `bpf_timer_start`: at `when_ns` of its own clock, or `when_ns` after `now_ns` (monotonic).
    #[inline]
    pub(crate) fn start(
        &self,
        word: Word,
        when_ns: u64,
        absolute: bool,
        now_ns: u64,
    ) -> Result<(), Errno> {
        if !absolute && word.push_back(now_ns.saturating_add(when_ns)) {
            return Ok(());
        }
        self.start_locked(word.place(), when_ns, absolute, now_ns)
    }

    #[inline(never)]
    fn start_locked(
        &self,
        place: u64,
        when_ns: u64,
        absolute: bool,
        now_ns: u64,
    ) -> Result<(), Errno> {
        let mut places = self.shard(place).lock();
        let Places { timers, looks } = &mut *places;
        let timer = timers.get_mut(&place).ok_or(Errno::EINVAL)?;
        if timer.callback.is_none() {
            return Err(Errno::EINVAL);
        }
        let due = if absolute {
            when_ns.saturating_add_signed(timer.to_monotonic_ns)
        } else {
            now_ns.saturating_add(when_ns)
        };
        // A worker that takes due timers waits for the shard's lock, and finds this entry as well.
        timer.word.wait(due);
        if timer.look_ns.is_some_and(|look| look <= due) {
            return Ok(());
        }
        timer.look_at(place, due, looks);
        // With the shard's lock, so that the thread that takes due timers finds either this or the
        // timer.
        if due < self.first.0.load(Relaxed) {
            self.first.0.fetch_min(due, Relaxed);
        }
        Ok(())
    }

    /// `bpf_timer_cancel`: whether it was waiting.
    pub(crate) fn cancel(&self, place: u64) -> Result<bool, Errno> {
        let mut places = self.shard(place).lock();
        let timer = places.timers.get_mut(&place).ok_or(Errno::EINVAL)?;
        timer.callback = None;
        Ok(timer.word.stop())
    }

    /// Forgets a timer whose value is gone.
    pub(crate) fn forget(&self, place: u64) {
        let mut places = self.shard(place).lock();
        let Some(timer) = places.timers.remove(&place) else { return };
        timer.word.clear();
        if let Some(look) = timer.look_ns {
            places.looks.remove(&(look, place));
        }
    }

    /// The time at which the first timer is due, or a little earlier: one load.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        Some(self.first.0.load(Relaxed)).filter(|&next| next != u64::MAX)
    }

    /// Whether some timer may be due.
    pub(crate) fn may_be_due(&self) -> bool {
        self.next_ns().is_some()
    }

    /// Checks at most `most` timers whose time has come and takes out their callbacks, in the order
    /// in which they were due.
    pub(crate) fn take_due(&self, now_ns: u64, most: usize) -> Vec<Due> {
        if now_ns < self.first.0.load(Relaxed) {
            return Vec::new();
        }
        // Timers started from here on are counted again; those started before are found.
        self.first.0.store(u64::MAX, Relaxed);
        let (mut due, mut left) = (Vec::new(), most);
        let (behind, before) = self.shards.split_at(self.turn.fetch_add(1, Relaxed) % SHARDS);
        for Shard(places) in before.iter().chain(behind) {
            let mut places = places.lock();
            places.take_due(now_ns, &mut left, &mut due);
            if let Some(&(next, _)) = places.looks.first() {
                self.first.0.fetch_min(next, Relaxed);
            }
        }
        due.sort_by_key(|(at, due)| (*at, due.place));
        due.into_iter().map(|(_, due)| due).collect()
    }

    fn shard(&self, place: u64) -> &Mutex<Places> {
        // Values lie at multiples of something: the product's high bits depend on all of them.
        let mixed = place.wrapping_mul(GOLDEN) >> (u64::BITS - SHARDS.ilog2());
        &self.shards[mixed as usize].0
    }
}

impl Places {
    fn take_due(&mut self, now_ns: u64, left: &mut usize, due: &mut Vec<(u64, Due)>) {
        while let Some(&(look, place)) = self.looks.first()
            && look <= now_ns
            && *left > 0
        {
            *left -= 1;
            self.looks.pop_first();
            let Some(timer) = self.timers.get_mut(&place) else { continue };
            timer.look_ns = None;
            while let Some(at) = timer.word.due() {
                if at > now_ns {
                    timer.look_at(place, at, &mut self.looks);
                    break;
                }
                if !timer.word.fire(at) {
                    // It was pushed back just now.
                    continue;
                }
                if let Some(callback) = &timer.callback {
                    let (map, callback) = (Arc::clone(&timer.map), callback.clone());
                    due.push((at, Due { place, map, callback }));
                }
                break;
            }
        }
    }
}

impl Timer {
    /// Inserts it into the order of checks, at time `due`.
    fn look_at(&mut self, place: u64, due: u64, looks: &mut BTreeSet<(u64, u64)>) {
        if let Some(earlier) = self.look_ns.replace(due) {
            looks.remove(&(earlier, place));
        }
        looks.insert((due, place));
    }
}

/// Number of shards, a power of two: of 10^6 timers each has 8,000, and finds room for more in a
/// tenth of a millisecond.
const SHARDS: usize = 128;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests;
