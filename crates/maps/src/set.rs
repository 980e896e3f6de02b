//! All maps of an object, as its programs see them: by index, by handle and by address.

use std::sync::Arc;

use towpath_bpf::MapDef;

use crate::access::Access;
use crate::environment::{AnyEnvironment, Environment};
use crate::error::MapError;
use crate::fields::{Field, ReleaseField};
use crate::map::{CreateOptions, Map};
use crate::qsbr::Domain;

/// What a set needs beside the definitions. Start from [`SetOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct SetOptions {
    /// The readers of all maps; see [`CreateOptions::domain`].
    pub domain: Arc<Domain>,
    /// Special fields by map index; shorter means none.
    pub fields: Vec<Vec<Field>>,
    /// Who takes over what special fields own.
    pub release: Option<Arc<dyn ReleaseField>>,
    /// Which devices, CPUs, programs and sockets exist.
    pub environment: Arc<dyn Environment>,
}

impl SetOptions {
    /// A domain of `workers` workers, no special fields, and every target exists.
    pub fn new(workers: usize) -> Self {
        SetOptions {
            domain: Domain::new(workers),
            fields: Vec::new(),
            release: None,
            environment: Arc::new(AnyEnvironment),
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
        let mut maps = Vec::with_capacity(defs.len());
        for (index, def) in defs.iter().enumerate() {
            let fields = options.fields.get(index).cloned().unwrap_or_default();
            let options = CreateOptions {
                domain: options.domain.clone(),
                fields,
                release: options.release.clone(),
                environment: options.environment.clone(),
            };
            maps.push(Map::create(def, &options)?);
        }
        Ok(MapSet { places: places(&maps), maps, domain: options.domain.clone() })
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

    /// The readers of these maps.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The map that a handle in a program's register stands for ([`Map::handle`]).
    pub fn by_handle(&self, handle: u64) -> Option<&Map> {
        self.maps.iter().find(|map| map.handle() == handle).map(Arc::as_ref)
    }

    /// The map whose memory holds `addr`.
    pub fn at(&self, addr: u64) -> Option<&Arc<Map>> {
        let after = self.places.partition_point(|&(first, _, _)| first <= addr);
        let &(_, last, index) = self.places.get(after.checked_sub(1)?)?;
        if addr <= last { self.maps.get(index) } else { None }
    }

    /// What a program may do with `len` bytes at `addr`; `None` when no map has them.
    pub fn owns(&self, addr: u64, len: usize) -> Option<Access> {
        self.at(addr)?.owns(addr, len)
    }
}

fn places(maps: &[Arc<Map>]) -> Vec<(u64, u64, usize)> {
    let mut places: Vec<_> = maps
        .iter()
        .enumerate()
        .flat_map(|(index, map)| map.spans().iter().map(move |span| (index, span)))
        .map(|(index, span)| (span.base, span.base + (span.bytes - 1), index))
        .collect();
    places.sort_unstable();
    places
}
