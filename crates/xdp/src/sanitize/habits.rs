//! Behaviour of a program that shows only over many runs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use rustc_hash::{FxHashMap, FxHashSet};
use towpath_bpf::map::{Keys, MapType};
use towpath_bpf::proto::id;
use towpath_maps::Map;

use super::Sanitizer;
use super::effect::Pending;
use super::layout;
use super::shadow::Place;
use crate::run::Run;
use crate::verdict::Action;

/// Observations since the last transfer into a [`super::Tally`].
#[derive(Debug, Default)]
pub(super) struct Habits {
    pub(super) look_ups: FxHashMap<Place, LookUps>,
    pub(super) updates: FxHashMap<Place, Updates>,
    /// Maps from which elements were deleted.
    pub(super) deleted: FxHashSet<String>,
    /// Counters of less than 64 bits, by address.
    pub(super) counters: FxHashMap<u64, Counter>,
    /// Addresses of values that programs read, or use for more than adding.
    pub(super) used: FxHashSet<u64>,
    /// The most recently used ones.
    recent: [u64; RECENT],
    /// Paths to a drop of a packet, by the last branches: whether the path changed anything.
    pub(super) ways: FxHashMap<(Branches, u8), bool>,
    /// State of the current run: the last branches, whether it changed anything that stays, and
    /// look-ups that found nothing.
    branches: Branches,
    changed: bool,
    missed: Vec<(Place, u64)>,
}

/// The last branch of a run, and the one before.
pub(super) type Branches = [Place; 2];

/// Look-ups of one call.
#[derive(Debug, Clone, Default)]
pub(super) struct LookUps {
    pub(super) map: String,
    pub(super) found: bool,
    /// Number of times that nothing was found although the map had elements.
    pub(super) missed: u32,
    /// A hash of the key that was looked up then, and whether it differed between look-ups.
    pub(super) key: u64,
    pub(super) varies: bool,
    /// Whether a missing element was then added.
    pub(super) adds: bool,
    /// A member of the key that has its bytes in the wrong order.
    pub(super) swapped: Option<String>,
}

/// Updates of a hash map that does not evict elements.
#[derive(Debug, Clone, Default)]
pub(super) struct Updates {
    pub(super) map: String,
    pub(super) max_entries: u32,
    /// Hashes of keys, up to two.
    pub(super) keys: Vec<u64>,
}

/// A counter in a value.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    pub(super) place: Place,
    pub(super) map: String,
    /// Its member in the value, if that has a name.
    pub(super) member: String,
    pub(super) bits: u32,
}

impl Habits {
    /// A run begins.
    pub(super) fn begin(&mut self) {
        (self.branches, self.changed) = (Branches::default(), false);
        self.missed.clear();
    }

    #[inline]
    pub(super) fn branched(&mut self, place: Place) {
        self.branches = [place, self.branches[0]];
    }

    #[inline]
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    /// Notes that a number loaded from an address is examined, or used in a calculation.
    #[inline]
    pub(super) fn used(&mut self, addr: u64) {
        let recent = &mut self.recent[(addr >> 1) as usize % RECENT];
        if *recent != addr {
            *recent = addr;
            self.used.insert(addr);
        }
    }

    /// The run ends.
    pub(super) fn ends(&mut self, action: Action, at: Place) {
        if matches!(action, Action::Drop | Action::Aborted) {
            let is_straight = self.branches == Branches::default();
            let way = if is_straight { [at, at] } else { self.branches };
            *self.ways.entry((way, action as u8)).or_default() |= self.changed;
        }
    }
}

impl Sanitizer {
    /// Notes the effects on maps of a helper that has returned.
    pub(super) fn note_call(&mut self, run: &Run<'_>, helper: u32, pending: &Pending, r0: u64) {
        match helper {
            id::MAP_LOOKUP_ELEM | id::MAP_LOOKUP_PERCPU_ELEM => {
                self.note_look_up(run, pending, r0 != 0);
            }
            id::REDIRECT_MAP => self.note_look_up(run, pending, r0 as u32 == REDIRECTED),
            id::MAP_UPDATE_ELEM => self.note_update(run, pending),
            id::MAP_DELETE_ELEM => {
                self.habits.changed();
                if let Some(map) = run.map_by_handle(pending.args[0]) {
                    self.habits.deleted.insert(map.name().to_owned());
                }
            }
            id::MAP_PUSH_ELEM
            | id::MAP_POP_ELEM
            | id::RINGBUF_OUTPUT
            | id::RINGBUF_SUBMIT
            | id::RINGBUF_SUBMIT_DYNPTR
            | id::PERF_EVENT_OUTPUT
            | id::TRACE_PRINTK
            | id::TRACE_VPRINTK => self.habits.changed(),
            _ => {}
        }
    }

    fn note_look_up(&mut self, run: &Run<'_>, pending: &Pending, found: bool) {
        let known = self.habits.look_ups.get(&pending.place);
        if known.is_some_and(|known| known.found) {
            return;
        }
        let Some(map) = run.map_by_handle(pending.args[0]) else { return };
        let is_map = pending.callee == super::effect::Callee::Helper(id::REDIRECT_MAP);
        // The index is a queue or a port, and slots may well be empty.
        if is_map && map.kind() != MapType::DevmapHash {
            return;
        }
        let seen = self
            .habits
            .look_ups
            .entry(pending.place)
            .or_insert_with(|| LookUps { map: map.name().to_owned(), ..LookUps::default() });
        seen.found = found;
        // An index beyond the end of an array means that there is nothing to do.
        if !found && map.kind().keys() != Keys::Index && has_elements(map) {
            seen.misses(run, map, pending.args[1]);
        }
        if !found {
            self.habits.missed.push((pending.place, pending.args[0]));
        }
    }

    fn note_update(&mut self, run: &Run<'_>, pending: &Pending) {
        self.habits.changed();
        let Some(map) = run.map_by_handle(pending.args[0]) else { return };
        for (place, _) in self.habits.missed.extract_if(.., |it| it.1 == pending.args[0]) {
            if let Some(look_ups) = self.habits.look_ups.get_mut(&place) {
                look_ups.adds = true;
            }
        }
        if !matches!(map.kind(), MapType::Hash | MapType::PercpuHash) {
            return;
        }
        // There is room for all possible keys.
        if u64::from(map.max_entries()) >> (8 * map.key_size()).min(63) != 0 {
            return;
        }
        let Some(key) = key_at(run, map, pending.args[1]) else { return };
        // Keys that are not from the packet may be few: reasons, ports, counters.
        if !run.frame.with_linear(|packet| is_of_packet(&key, packet)) {
            return;
        }
        let key = hash_of(&key);
        let updates = self.habits.updates.entry(pending.place).or_insert_with(|| Updates {
            map: map.name().to_owned(),
            max_entries: map.max_entries(),
            keys: Vec::new(),
        });
        if updates.keys.len() < 2 && !updates.keys.contains(&key) {
            updates.keys.push(key);
        }
    }

    /// Notes that a program added to a number in a value that is too narrow to count packets or
    /// bytes.
    #[cold]
    pub(super) fn note_counter(&mut self, run: &Run<'_>, addr: u64, len: usize) {
        if self.habits.counters.len() >= COUNTERS_MAX || self.habits.counters.contains_key(&addr) {
            return;
        }
        let Some(map) = run.maps.own_at(addr) else { return };
        let start = map.part(addr, len).map_or(addr, |part| part.first);
        let def = map.def();
        let member = def
            .btf
            .as_deref()
            .and_then(|btf| layout::member_at(btf, def.value_type, addr.wrapping_sub(start)));
        let counter = Counter {
            place: self.place,
            map: map.name().to_owned(),
            member: member.unwrap_or_default(),
            bits: len as u32 * 8,
        };
        self.habits.counters.insert(addr, counter);
    }
}

impl LookUps {
    /// Notes a key that is not in a map that has elements.
    fn misses(&mut self, run: &Run<'_>, map: &Map, addr: u64) {
        let Some(key) = key_at(run, map, addr) else { return };
        let hash = hash_of(&key);
        self.varies |= self.missed > 0 && self.key != hash;
        (self.key, self.missed) = (hash, self.missed.saturating_add(1));
        if self.swapped.is_none() && self.missed <= LOOKED_AT {
            self.swapped = swapped(map, &key);
        }
    }
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Whether a key has four bytes of the packet's headers, such as an address, in either byte order.
fn is_of_packet(key: &[u8], packet: &[u8]) -> bool {
    let headers = &packet[..packet.len().min(HEADER_BYTES)];
    key.windows(4).filter(|word| word.iter().filter(|byte| **byte != 0).count() > 1).any(|word| {
        let reversed = [word[3], word[2], word[1], word[0]];
        headers.windows(4).any(|there| there == word || there == reversed)
    })
}

fn has_elements(map: &Map) -> bool {
    match map.count() {
        Some(count) => count > 0,
        None => map.user().keys().next().is_some(),
    }
}

fn key_at(run: &Run<'_>, map: &Map, addr: u64) -> Option<Vec<u8>> {
    let byte = |at: u64| run.get(addr + at, 1).ok().map(|byte| byte as u8);
    (0..u64::from(map.key_size())).map(byte).collect()
}

/// The number in the key with which it would be found if the number had another byte order.
fn swapped(map: &Map, key: &[u8]) -> Option<String> {
    let def = map.def();
    let mut numbers = match def.btf.as_deref() {
        Some(btf) => layout::numbers(btf, def.key_type),
        None => Vec::new(),
    };
    if numbers.is_empty() && matches!(key.len(), 2 | 4 | 8) {
        numbers.push((0, key.len(), String::new()));
    }
    // The first number of an LPM key is the length of the prefix.
    numbers.retain(|number| map.kind() != MapType::LpmTrie || number.0 >= PREFIX_BYTES);
    let user = map.user();
    let is_there = |(at, len, _): &(usize, usize, String)| {
        orders(key.get(*at..at + len).unwrap_or_default()).any(|number| {
            let mut other = key.to_owned();
            other[*at..at + len].copy_from_slice(&number);
            other != key && user.lookup(&other, 0).is_ok()
        })
    };
    let found = numbers.iter().find(|number| is_there(number))?;
    Some(if found.2.is_empty() { "the key".to_owned() } else { format!("`{}`", found.2) })
}

/// A number with its bytes in other orders: reversed, or as after `htonl` in place of `htons`.
fn orders(number: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut reversed = number.to_owned();
    reversed.reverse();
    let mut turned = number.to_owned();
    turned.rotate_left(number.len() / 2);
    let has_halves = number.len() == 4;
    std::iter::once(reversed).chain(has_halves.then_some(turned))
}

const REDIRECTED: u32 = Action::Redirect as u32;
const RECENT: usize = 16;
/// The number of missed keys of one call that are tried in other byte orders.
const LOOKED_AT: u32 = 1000;
const COUNTERS_MAX: usize = 4096;
const PREFIX_BYTES: usize = 4;
const HEADER_BYTES: usize = 128;
