//! Programs by id: the one registry of them. Program arrays and maps of targets hold these ids, the
//! set of objects (`crates/objects`) shows them, and the engine's programs for map entries are
//! found by them.
//!
//! Compiled code reads a table of them at each tail call, without a lock. So what leaves the table
//! lives on until no worker can be in it any more, as what leaves a map does.

#![expect(
    unsafe_code,
    reason = "lends what the lock holds for as long as workers are not quiescent"
)]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use towpath_bpf::interp::Code;
use towpath_bpf::program::AttachType;
use towpath_jit::TailCallTarget;
use towpath_maps::{Domain, MapSet};

use crate::compiled::{self, Compiled};
use crate::printed::Streams;

/// All programs that maps may name, by id. Ids start at 1 and are never reused.
///
/// A map holds only ids, because `crates/maps` knows no programs.
#[derive(Debug)]
pub struct Programs {
    held: RwLock<Held>,
    /// The last of the tables.
    table: AtomicPtr<Table>,
}

/// A program in the forms it can run in: where tail calls land.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Landing {
    /// What compiled code reads: it takes a landing's address for this one's.
    target: TailCallTarget,
    attach: AttachType,
    pub(crate) code: Arc<Code>,
    pub(crate) compiled: Option<Arc<Compiled>>,
    pub(crate) maps: Arc<MapSet>,
    pub(crate) streams: Arc<Streams>,
}

#[derive(Debug)]
struct Held {
    /// By id; empty once it was removed.
    landings: Vec<Option<Arc<Landing>>>,
    /// Each twice as large as the one before. A burst uses the one there was when it started, so
    /// they stay: together they are no larger than one more.
    tables: Vec<Arc<Table>>,
    /// What was removed, at which tag of the domain.
    retired: Vec<(u64, Arc<Landing>)>,
}

/// The landings by id, null where there is none.
#[derive(Debug)]
struct Table(Box<[AtomicPtr<Landing>]>);

impl Default for Programs {
    fn default() -> Self {
        let table = Arc::new(Table::new(TABLE_ENTRIES));
        let current = AtomicPtr::new(Arc::as_ptr(&table).cast_mut());
        // No program has id 0: a slot without one is like the slot of one that is gone.
        let held = Held { landings: vec![None], tables: vec![table], retired: Vec::new() };
        Programs { held: RwLock::new(held), table: current }
    }
}

impl Programs {
    /// Gives a program an id.
    pub(crate) fn add(&self, landing: Landing) -> u32 {
        let domain = Arc::clone(landing.maps.domain());
        let landing = Arc::new(landing);
        let mut held = self.write();
        held.reclaim(&domain);
        let id = held.landings.len();
        let grows = id >= self.table().0.len();
        if grows {
            let table = Arc::new(self.table().grown());
            self.table.store(Arc::as_ptr(&table).cast_mut(), Ordering::Release);
            held.tables.push(table);
        }
        self.table().0[id].store(Arc::as_ptr(&landing).cast_mut(), Ordering::Release);
        held.landings.push(Some(landing));
        drop(held);
        if grows {
            wait_for_bursts(&domain);
        }
        id as u32
    }

    /// Forgets a program: tail calls no longer lead to it, and it goes when no worker of `domain`
    /// can still be in it; at once if none runs, else when another one comes or goes.
    pub(crate) fn remove(&self, id: u32, domain: &Domain) {
        let mut held = self.write();
        if let Some(landing) = held.landings.get_mut(id as usize).and_then(Option::take) {
            self.table().0[id as usize].store(std::ptr::null_mut(), Ordering::Release);
            held.retired.push((domain.tag(), landing));
            domain.advance();
        }
        held.reclaim(domain);
    }

    /// Has tail calls that lead to a program go to its interpreted form from now on.
    pub(crate) fn divert(&self, program: &Arc<Compiled>) {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |landing: &&Arc<Landing>| {
            landing.compiled.as_ref().is_some_and(|compiled| Arc::ptr_eq(compiled, program))
        };
        for landing in held.landings.iter().flatten().filter(is_it) {
            landing.target.entry.store(compiled::bridge(), Ordering::Relaxed);
        }
    }

    /// The program with an id.
    pub fn get(&self, id: u32) -> Option<Arc<Code>> {
        Some(Arc::clone(&self.landing(id)?.code))
    }

    /// What the program with an id was made for; `None` when there is none.
    pub fn attach(&self, id: u32) -> Option<AttachType> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        Some(held.landings.get(id as usize)?.as_ref()?.attach)
    }

    /// The same in all its forms.
    pub(crate) fn landing(&self, id: u32) -> Option<Arc<Landing>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.landings.get(id as usize)?.clone()
    }

    /// The program whose interpreted form this is.
    pub(crate) fn of_code(&self, code: &Arc<Code>) -> Option<Arc<Landing>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        // The newest are those that run.
        let known = held.landings.iter().rev().flatten();
        let retired = held.retired.iter().map(|(_, landing)| landing);
        known.chain(retired).find(|landing| Arc::ptr_eq(&landing.code, code)).cloned()
    }

    /// The table for compiled code, and how many ids are in it. Worker and table must belong
    /// together: what is in it may be used until the worker is quiescent.
    #[inline]
    pub(crate) fn targets(&self) -> (*const *const TailCallTarget, u32) {
        let Table(landings) = self.table();
        // A landing starts with its target, and an atomic pointer is a pointer.
        (landings.as_ptr().cast(), landings.len() as u32)
    }

    #[inline]
    fn table(&self) -> &Table {
        // SAFETY: one of the tables, which stay as long as `self`.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Gives up what no worker can be in any more.
    fn reclaim(&mut self, domain: &Domain) {
        self.retired.retain(|(tag, _)| !domain.passed(*tag));
    }
}

impl Table {
    fn new(entries: usize) -> Table {
        Table((0..entries).map(|_| AtomicPtr::default()).collect())
    }

    /// The same with room for as many again. Nobody changes it meanwhile.
    fn grown(&self) -> Table {
        let table = Table::new(2 * self.0.len());
        for (to, from) in table.0.iter().zip(&self.0) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        table
    }
}

impl Landing {
    /// A program in its forms, with what it prints into.
    pub(crate) fn new(
        attach: AttachType,
        code: Arc<Code>,
        compiled: Option<Arc<Compiled>>,
        maps: Arc<MapSet>,
        streams: Arc<Streams>,
    ) -> Landing {
        let entry = compiled.as_deref().map_or_else(compiled::bridge, Compiled::entry);
        let target = TailCallTarget { entry: AtomicU64::new(entry) };
        Landing { target, attach, code, compiled, maps, streams }
    }

    /// The landing that compiled code is in, as [`towpath_jit::Machine::target`] says; `None` when
    /// no tail call was made.
    ///
    /// # Safety
    ///
    /// `target` is null or from [`Programs::targets`], and the worker was not quiescent since.
    #[inline]
    pub(crate) unsafe fn of<'a>(target: *const TailCallTarget) -> Option<&'a Landing> {
        // SAFETY: the caller's promise; a target is the first field of its landing.
        unsafe { target.cast::<Landing>().as_ref() }
    }

    /// Its address for compiled code. A program that a worker found lives until the worker is
    /// quiescent.
    pub(crate) fn target(&self) -> *const TailCallTarget {
        std::ptr::from_ref(self).cast()
    }
}

/// Waits for the end of the bursts that run, for which a new id would lie outside of the table: a
/// slot that is filled with it is not to look empty to them. Workers that do not run for long, or
/// are stopped, need not be waited for.
fn wait_for_bursts(domain: &Domain) {
    let (tag, started) = (domain.tag(), Instant::now());
    domain.advance();
    while !domain.passed(tag) && started.elapsed() < BURST_TIME_MAX {
        std::thread::yield_now();
    }
}

/// Longer than a burst takes.
const BURST_TIME_MAX: Duration = Duration::from_millis(10);
/// Ids in the first table.
const TABLE_ENTRIES: usize = 64;

const _: () = assert!(std::mem::offset_of!(Landing, target) == 0);
const _: () = assert!(size_of::<AtomicPtr<Landing>>() == size_of::<*const TailCallTarget>());
