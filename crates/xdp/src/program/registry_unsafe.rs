//! The registry of programs by id. Program arrays and maps of targets contain these ids, the set of
//! objects (`crates/objects`) shows them, and the engine finds programs of map entries by them.
//!
//! Compiled code reads addresses of programs from the slots of program arrays ([`ProgramSlots`])
//! without a lock. So removed programs are kept until no worker can be in them any more, like
//! removed elements of a map.

#![expect(
    unsafe_code,
    reason = "takes addresses from compiled code for what they were given to it as"
)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use towpath_bpf::interp::Code;
use towpath_bpf::program::AttachType;
use towpath_jit::TailCallTarget;
use towpath_maps::{Domain, Map, MapSet, ProgramIndex, ProgramSlots};

use crate::compiled::{self, Compiled};
use crate::printed::Streams;
use crate::standing::Standing;

/// All programs that maps may refer to, by id. Ids start at 1 and are never reused.
///
/// A map contains only ids, because `crates/maps` does not depend on programs.
#[derive(Debug, Default)]
pub struct Programs(Arc<Registry>);

/// The target of tail calls to a program: the program in all its forms.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TailCallee {
    /// The part that compiled code reads, at the same address as the callee.
    target: TailCallTarget,
    attach: AttachType,
    pub(crate) code: Arc<Code>,
    pub(crate) compiled: Option<Arc<Compiled>>,
    pub(crate) maps: Arc<MapSet>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) standing: Arc<Standing>,
}

#[derive(Debug, Default)]
struct Registry {
    held: RwLock<Held>,
}

#[derive(Debug)]
struct Held {
    /// Programs by id; `None` once removed.
    callees: Vec<Option<Arc<TailCallee>>>,
    /// The program arrays of compiled programs.
    arrays: Vec<Weak<ProgramSlots>>,
    /// Removed callees, each with its grace-period tag of the domain.
    retired: Vec<(u64, Arc<TailCallee>)>,
}

impl Default for Held {
    fn default() -> Self {
        // No program has id 0, so an empty slot looks like that of a removed program.
        Held { callees: vec![None], arrays: Vec::new(), retired: Vec::new() }
    }
}

impl Programs {
    /// Assigns an id to a program.
    pub(crate) fn add(&self, callee: TailCallee) -> u32 {
        let domain = Arc::clone(callee.maps.domain());
        let mut held = self.0.held.write();
        held.reclaim(&domain);
        let id = held.callees.len() as u32;
        held.callees.push(Some(Arc::new(callee)));
        let arrays = held.arrays();
        drop(held);
        // A slot may have the id already.
        arrays.iter().for_each(|slots| slots.refresh(id));
        id
    }

    /// Removes a program: tail calls no longer lead to it, and it is freed when no worker of
    /// `domain` can be in it any more; at once if no worker runs, else when another program is
    /// added or removed.
    pub(crate) fn remove(&self, id: u32, domain: &Domain) {
        let mut held = self.0.held.write();
        let removed = held.callees.get_mut(id as usize).and_then(Option::take);
        let arrays = held.arrays();
        drop(held);
        // Arrays look up programs while they are locked, so this lock is not held here.
        arrays.iter().for_each(|slots| slots.refresh(id));
        let mut held = self.0.held.write();
        if let Some(callee) = removed {
            held.retired.push((domain.tag(), callee));
            domain.advance();
        }
        held.reclaim(domain);
    }

    /// The slots of program arrays among `maps` for compiled programs, by the maps' indexes.
    /// Without memory for it there is none, and programs call the runtime.
    pub(crate) fn slots(&self, maps: &[Arc<Map>]) -> Vec<Option<Arc<ProgramSlots>>> {
        maps.iter().map(|map| self.slots_of(map)).collect()
    }

    fn slots_of(&self, map: &Arc<Map>) -> Option<Arc<ProgramSlots>> {
        let known = self.0.held.write().arrays();
        if let Some(slots) = known.into_iter().find(|slots| Arc::ptr_eq(slots.array(), map)) {
            return Some(slots);
        }
        let index: Weak<Registry> = Arc::downgrade(&self.0);
        let slots = ProgramSlots::new(map, index).ok().flatten()?;
        self.0.held.write().arrays.push(Arc::downgrade(&slots));
        Some(slots)
    }

    /// Makes tail calls to a program lead to its interpreted form from now on.
    pub(crate) fn divert(&self, program: &Arc<Compiled>) {
        let held = self.0.held.read();
        let is_it = |callee: &&Arc<TailCallee>| {
            callee.compiled.as_ref().is_some_and(|compiled| Arc::ptr_eq(compiled, program))
        };
        for callee in held.callees.iter().flatten().filter(is_it) {
            callee.target.entry.store(compiled::bridge(), Ordering::Relaxed);
        }
    }

    /// The program with an id.
    pub fn get(&self, id: u32) -> Option<Arc<Code>> {
        Some(Arc::clone(&self.callee(id)?.code))
    }

    /// The attach type of the program with an id; `None` if there is none.
    pub fn attach(&self, id: u32) -> Option<AttachType> {
        Some(self.0.held.read().callees.get(id as usize)?.as_ref()?.attach)
    }

    /// The program with an id, in all its forms.
    pub(crate) fn callee(&self, id: u32) -> Option<Arc<TailCallee>> {
        self.0.held.read().callees.get(id as usize)?.clone()
    }

    /// The program whose interpreted form this is.
    pub(crate) fn of_code(&self, code: &Arc<Code>) -> Option<Arc<TailCallee>> {
        let held = self.0.held.read();
        // The newest programs are the most likely ones to run.
        let known = held.callees.iter().rev().flatten();
        let retired = held.retired.iter().map(|(_, callee)| callee);
        known.chain(retired).find(|callee| Arc::ptr_eq(&callee.code, code)).cloned()
    }
}

impl ProgramIndex for Registry {
    fn address(&self, id: u32) -> u64 {
        let held = self.held.read();
        let callee = held.callees.get(id as usize).and_then(Option::as_ref);
        callee.map_or(0, |callee| callee.target().expose_provenance() as u64)
    }
}

impl Held {
    /// Frees programs that no worker can be in any more.
    fn reclaim(&mut self, domain: &Domain) {
        self.retired.retain(|(tag, _)| !domain.passed(*tag));
    }

    /// The program arrays that are still in use.
    fn arrays(&mut self) -> Vec<Arc<ProgramSlots>> {
        self.arrays.retain(|slots| slots.strong_count() > 0);
        self.arrays.iter().filter_map(Weak::upgrade).collect()
    }
}

impl TailCallee {
    /// A program in its forms, with its output streams.
    pub(crate) fn new(
        attach: AttachType,
        code: Arc<Code>,
        compiled: Option<Arc<Compiled>>,
        maps: Arc<MapSet>,
        streams: Arc<Streams>,
        standing: Arc<Standing>,
    ) -> TailCallee {
        let entry = compiled.as_deref().map_or_else(compiled::bridge, Compiled::entry);
        let target = TailCallTarget { entry: AtomicU64::new(entry) };
        TailCallee { target, attach, code, compiled, maps, streams, standing }
    }

    /// The callee that compiled code is in, according to [`towpath_jit::Machine::target`]; `None`
    /// if no tail call was made.
    ///
    /// # Safety
    ///
    /// `target` is null or from a [`ProgramSlots`] of this module's, and the worker was not
    /// quiescent since.
    #[inline]
    pub(crate) unsafe fn of<'a>(target: *const TailCallTarget) -> Option<&'a TailCallee> {
        // SAFETY: the caller's promise; a target is the first field of its callee.
        unsafe { target.cast::<TailCallee>().as_ref() }
    }

    /// Its address for compiled code. A program that a worker found lives until the worker is
    /// quiescent.
    pub(crate) fn target(&self) -> *const TailCallTarget {
        std::ptr::from_ref(self).cast()
    }
}

const _: () = assert!(std::mem::offset_of!(TailCallee, target) == 0);
