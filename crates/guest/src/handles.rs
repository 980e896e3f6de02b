//! The objects for which a guest has handles.

use std::collections::{BTreeMap, BTreeSet};

use towpath_bpf::Errno;
use towpath_bpf::map::Values as MapValues;
use towpath_guest_client::wire::{Command, ObjectRecord, What};
use towpath_objects::{Handle, MapUse, Object};

use crate::guest::Owned;
use crate::limits::Used;
use crate::refusal::Refusal;

/// Origin of an object: enough to make the object again on another host.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// The request that made the object.
    pub(crate) command: Command,
    /// The values of that request.
    pub(crate) payload: Vec<u8>,
    /// Handles of other objects that it needs.
    pub(crate) needs: Vec<u32>,
    pub(crate) name: String,
    /// Its share of the limits.
    pub(crate) used: Used,
}

impl Made {
    fn what(&self) -> What {
        match self.command {
            Command::BtfLoad => What::Btf,
            Command::ProgramLoad => What::Program,
            _ => What::Map,
        }
    }
}

impl Owned {
    /// Gives an object the next handle.
    pub(crate) fn keep(&mut self, handle: Handle, made: Made) -> Result<u32, Refusal> {
        use towpath_objects::Caller as _;
        let number = self.memory.install(handle).map_err(no_number)?;
        self.made.insert(number, made);
        Ok(number)
    }

    /// All objects, by handle.
    pub(crate) fn list(&self) -> Vec<ObjectRecord> {
        let record = |(&handle, made): (&u32, &Made)| ObjectRecord {
            handle,
            what: made.what(),
            bytes: made.used.bytes,
            name: made.name.clone(),
        };
        self.made.iter().map(record).collect()
    }

    /// Used amounts of the limits.
    pub(crate) fn used(&self) -> Used {
        self.made.values().fold(Used::default(), |sum, made| sum.and(made.used))
    }

    /// The map with this handle.
    pub(crate) fn map(&self, handle: u32) -> Result<(&Handle, &MapUse), Refusal> {
        let known = self.memory.handles.get(&handle).ok_or_else(|| no_object(handle))?;
        match &known.object {
            Object::Map(map) => Ok((known, map)),
            _ => Err(Refusal::new(Errno::EINVAL, format!("object {handle} is not a map"))),
        }
    }

    /// Handle of the object whose id an element of a map contains.
    pub(crate) fn handle_of(&self, values: MapValues, id: u32) -> Option<u32> {
        let is_it = |object: &Object| match (object, values) {
            (Object::Map(map), MapValues::Map) => map.id() == id,
            (Object::Program(program), MapValues::Program) => program.id() == id,
            _ => false,
        };
        let mut handles = self.memory.handles.iter();
        handles.find(|(_, handle)| is_it(&handle.object)).map(|(&number, _)| number)
    }

    /// Frees an object without references, so that the remaining objects can always be saved. With
    /// `all` it also frees objects that only this one refers to.
    pub(crate) fn close(&mut self, handle: u32, all: bool) -> Result<(), Refusal> {
        if !self.made.contains_key(&handle) {
            return Err(no_object(handle));
        }
        if self.attached.contains(&Some(handle)) {
            return Err(busy(handle, "it runs"));
        }
        let references: BTreeMap<u32, BTreeSet<u32>> =
            self.made.keys().map(|&number| (number, self.references(number))).collect();
        let mut goes = BTreeSet::from([handle]);
        if all {
            goes = reachable(&references, goes);
            let runs = self.attached.iter().flatten().copied();
            let outside = references.keys().copied().filter(|number| !goes.contains(number));
            // Objects that others refer to stay, with all that they refer to themselves.
            let stays = outside.flat_map(|number| references[&number].clone()).chain(runs);
            let stays = reachable(&references, stays.collect());
            goes.retain(|number| !stays.contains(number));
        }
        let by =
            |(number, of): &(&u32, &BTreeSet<u32>)| !goes.contains(number) && of.contains(&handle);
        if let Some((by, _)) = references.iter().find(by) {
            return Err(busy(handle, &format!("object {by} refers to it")));
        }
        for number in goes {
            self.made.remove(&number);
            self.memory.handles.remove(&number);
        }
        Ok(())
    }

    /// Objects that an object needs, or that its elements refer to.
    fn references(&self, number: u32) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> =
            self.made.get(&number).into_iter().flat_map(|made| made.needs.clone()).collect();
        if let Ok((_, map)) = self.map(number) {
            let values = map.map().kind().values();
            if matches!(values, MapValues::Map | MapValues::Program) {
                let ids = self.elements(number);
                found.extend(ids.iter().filter_map(|(_, id)| self.handle_of(values, *id)));
            }
        }
        found.remove(&number);
        found
    }
}

/// These objects, and all that they refer to directly or indirectly.
fn reachable(references: &BTreeMap<u32, BTreeSet<u32>>, from: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut left: Vec<u32> = from.iter().copied().collect();
    let mut found = from;
    while let Some(number) = left.pop() {
        let next = references.get(&number).into_iter().flatten().copied();
        left.extend(next.filter(|&number| found.insert(number)));
    }
    found
}

pub(crate) fn no_object(handle: u32) -> Refusal {
    Refusal::new(Errno::EBADF, format!("there is no object {handle}"))
}

fn no_number(errno: Errno) -> Refusal {
    Refusal::new(errno, "no number is left for another object")
}

fn busy(handle: u32, why: &str) -> Refusal {
    Refusal::new(Errno::EBUSY, format!("object {handle} can't be let go of: {why}"))
}
