//! All maps of an object, as its programs see them: by index, by handle and by address.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::program::SlotInit;

use crate::access::Access;
use crate::error::MapError;
use crate::fields::Field;
use crate::flags::BPF_ANY;
use crate::inner::MapOfMaps;
use crate::map::{CreateOptions, Map};
use crate::qsbr::Domain;
use crate::shape;

/// Options of a set beside the definitions. Start from [`SetOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct SetOptions {
    /// Options of each map, except its special fields.
    pub each: CreateOptions,
    /// Special fields by map index; shorter means none.
    pub fields: Vec<Vec<Field>>,
    /// Existing maps that are used in place of the object's, by map index; shorter means none. They
    /// keep their contents.
    pub existing: Vec<Option<Arc<Map>>>,
}

impl SetOptions {
    /// Options with a domain of `workers` workers and without special fields, where every target
    /// exists.
    pub fn new(workers: usize) -> Self {
        SetOptions {
            each: CreateOptions::new(Domain::new(workers)),
            fields: Vec::new(),
            existing: Vec::new(),
        }
    }
}

/// The maps of one object; the index is the one in `Linked::maps`.
#[derive(Debug)]
pub struct MapSet {
    maps: Vec<Arc<Map>>,
    domain: Arc<Domain>,
    /// First and last address of each span, and the map it belongs to; by address.
    places: Vec<(u64, u64, usize)>,
}

impl MapSet {
    /// Creates every map and fills data sections and slots.
    pub fn create(defs: &[MapDef], options: &SetOptions) -> Result<MapSet, MapError> {
        let maps: Result<Vec<Arc<Map>>, MapError> =
            defs.iter().enumerate().map(|(index, def)| one(index, def, options)).collect();
        let maps = maps?;
        let is_new = |index: usize| options.existing.get(index).is_none_or(Option::is_none);
        for (index, (map, def)) in maps.iter().zip(defs).enumerate() {
            // An existing map of maps keeps its slots, except for new maps.
            fill_slots(map, def, &maps, |inner| is_new(index) || is_new(inner))?;
        }
        Ok(MapSet { places: places(&maps), maps, domain: options.each.domain.clone() })
    }

    /// Maps that were created one by one; all of them have `domain` as readers.
    pub fn of(maps: Vec<Arc<Map>>, domain: &Arc<Domain>) -> MapSet {
        MapSet { places: places(&maps), maps, domain: domain.clone() }
    }

    /// The map at an index of `Linked::maps`.
    pub fn map(&self, index: usize) -> Option<&Arc<Map>> {
        self.maps.get(index)
    }

    /// The map of a name; the first one if several share it.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Map>> {
        self.maps.iter().find(|map| map.name() == name)
    }

    /// All maps, by index.
    pub fn maps(&self) -> &[Arc<Map>] {
        &self.maps
    }

    /// The definition of each map, by index.
    pub fn defs(&self) -> Vec<MapDef> {
        self.maps.iter().map(|map| map.def().clone()).collect()
    }

    /// The readers of these maps.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The map that a handle in a program's register stands for ([`Map::handle`]).
    pub fn by_handle(&self, handle: u64) -> Option<Arc<Map>> {
        self.own_by_handle(handle).cloned().or_else(|| self.inner_by_handle(handle))
    }

    /// As [`MapSet::by_handle`], but none that is in a map of maps.
    pub fn own_by_handle(&self, handle: u64) -> Option<&Arc<Map>> {
        self.maps.iter().find(|map| map.handle() == handle)
    }

    /// As [`MapSet::by_handle`], but only those in maps of maps.
    pub fn inner_by_handle(&self, handle: u64) -> Option<Arc<Map>> {
        self.maps_of_maps().find_map(|maps| maps.by_handle(handle))
    }

    /// The map whose memory holds `addr`.
    pub fn at(&self, addr: u64) -> Option<Arc<Map>> {
        self.own_at(addr).cloned().or_else(|| self.inner_at(addr))
    }

    /// A program's access to `len` bytes at `addr`; `None` when no map has them.
    pub fn owns(&self, addr: u64, len: usize) -> Option<Access> {
        match self.own_at(addr) {
            Some(map) => map.owns(addr, len),
            None => self.inner_at(addr)?.owns(addr, len),
        }
    }

    /// As [`MapSet::at`], but none that is in a map of maps.
    #[inline]
    pub fn own_at(&self, addr: u64) -> Option<&Arc<Map>> {
        let after = self.places.partition_point(|&(first, _, _)| first <= addr);
        let &(_, last, index) = self.places.get(after.checked_sub(1)?)?;
        if addr <= last { self.maps.get(index) } else { None }
    }

    /// As [`MapSet::at`], but only those in maps of maps.
    pub fn inner_at(&self, addr: u64) -> Option<Arc<Map>> {
        self.maps_of_maps().find_map(|maps| maps.at(addr))
    }

    fn maps_of_maps(&self) -> impl Iterator<Item = &MapOfMaps> {
        self.maps.iter().filter_map(|map| map.inner_maps())
    }
}

/// The existing map, if it fits the object's definition, or a new one.
fn one(index: usize, def: &MapDef, options: &SetOptions) -> Result<Arc<Map>, MapError> {
    let fields = options.fields.get(index).cloned().unwrap_or_default();
    let Some(Some(map)) = options.existing.get(index) else {
        return Map::create(def, &CreateOptions { fields, ..options.each.clone() });
    };
    if !Arc::ptr_eq(map.domain(), &options.each.domain) {
        return Err(MapError::Domain { map: def.name.clone() });
    }
    match shape::difference(map, def, &fields) {
        Some(difference) => Err(MapError::Differs { map: def.name.clone(), difference }),
        None => Ok(Arc::clone(map)),
    }
}

/// Puts maps into the slots of a map of maps that the object file fills, those by number that
/// `is_wanted`. Slots of program arrays are left to the loader of programs.
fn fill_slots(
    map: &Map,
    def: &MapDef,
    maps: &[Arc<Map>],
    is_wanted: impl Fn(usize) -> bool,
) -> Result<(), MapError> {
    for (slot, init) in &def.slots {
        let SlotInit::Map(index) = init else { continue };
        if !is_wanted(*index) {
            continue;
        }
        let failed = |problem: String| {
            let map = def.name.clone();
            MapError::Slot { map, slot: *slot, problem }
        };
        let inner = maps.get(*index).ok_or_else(|| failed(format!("there is no map {index}")))?;
        map.insert_inner(&slot.to_ne_bytes(), inner, BPF_ANY).map_err(|errno| {
            failed(format!("map {:?} isn't like the inner map's template: {errno}", inner.name()))
        })?;
    }
    Ok(())
}

fn places(maps: &[Arc<Map>]) -> Vec<(u64, u64, usize)> {
    let mut places: Vec<_> = maps
        .iter()
        .enumerate()
        .flat_map(|(index, map)| map.places().map(move |(first, last)| (first, last, index)))
        .collect();
    places.sort_unstable();
    places
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::{DataSection, MapType};

    use crate::testing::def;
    use crate::user::Value;

    use super::*;

    #[test]
    fn an_address_leads_to_its_map() {
        let mut outer = def(MapType::ArrayOfMaps, 4, 4, 2, 0);
        outer.inner = Some(Box::new(def(MapType::Array, 4, 8, 3, 0)));
        outer.slots = vec![(1, SlotInit::Map(1))];
        let defs = [outer, def(MapType::Array, 4, 8, 3, 0), def(MapType::Hash, 4, 4, 3, 0)];
        let set = MapSet::create(&defs, &SetOptions::new(2)).unwrap();
        let array = set.map(1).unwrap();
        let value = array.lookup(0, &2u32.to_ne_bytes()).unwrap().as_ptr() as u64;
        assert_eq!(set.at(value).unwrap().id(), array.id());
        assert_eq!(set.owns(value, 8), Some(Access::ReadWrite));
        assert_eq!(set.owns(value, 9), None);
        assert_eq!(set.owns(8, 8), None);
        let handle = set.map(0).unwrap().lookup(1, &1u32.to_ne_bytes()).unwrap();
        assert_eq!(set.by_handle(handle.as_ptr() as u64).unwrap().id(), array.id());
    }

    #[test]
    fn a_slot_of_another_shape_is_named() {
        let mut outer = def(MapType::ArrayOfMaps, 4, 4, 2, 0);
        outer.inner = Some(Box::new(def(MapType::Array, 4, 8, 3, 0)));
        outer.slots = vec![(1, SlotInit::Map(1))];
        let defs = [outer, def(MapType::Hash, 4, 4, 3, 0)];
        let error = MapSet::create(&defs, &SetOptions::new(1)).unwrap_err();
        assert!(error.to_string().contains("slot 1"), "{error}");
        assert_eq!(error.errno(), towpath_bpf::Errno::EINVAL);
    }

    #[test]
    fn constant_sections_are_filled_frozen_and_read_only() {
        let mut rodata = def(MapType::Array, 4, 8, 1, 0);
        rodata.initial = Some(b"constant".to_vec());
        rodata.section = Some(DataSection::Rodata);
        let set = MapSet::create(&[rodata], &SetOptions::new(1)).unwrap();
        let map = set.map(0).unwrap();
        let key = 0u32.to_ne_bytes();
        let user = map.user();
        assert_eq!(user.lookup(&key, 0).unwrap().bytes(), b"constant");
        let other = Value::from(&b"otherwis"[..]);
        assert_eq!(user.update(&key, &other, BPF_ANY), Err(towpath_bpf::Errno::EPERM));
        let address = map.lookup(0, &key).unwrap().as_ptr() as u64;
        assert_eq!(set.owns(address, 8), Some(Access::Read));
    }
}
