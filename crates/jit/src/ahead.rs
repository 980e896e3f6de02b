//! Prefetching for a whole burst before it runs: the compiled slices of [`crate::passes::slice`].

use std::sync::Arc;

use towpath_maps::Map;

use crate::clif::{self, Layout};
use crate::environment::Environment;
use crate::error::CompileError;
use crate::passes;
use crate::xir::{Module, Stage};

/// Size from which tables are no longer in a core's caches between two bursts: half of a usual
/// second-level cache.
const COLD_BYTES: u64 = 1 << 20;

/// The slices of one program, each run over all frames before the next. Both tiers use the same:
/// there is little to optimise in them.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) stages: [Layout; 2],
    /// The tables that they prefetch from.
    maps: Vec<Arc<Map>>,
}

impl Ahead {
    /// Compiles the slices; `None` if the program has no use for them.
    pub(crate) fn compile(
        module: &Module,
        context: passes::Context<'_>,
        environment: &Environment<'_>,
        code_bytes_max: usize,
    ) -> Result<Option<Ahead>, CompileError> {
        let slice = |stage| passes::slice(module, context, stage);
        let Some((bucket, maps)) = slice(Stage::Bucket) else { return Ok(None) };
        let Some((element, _)) = slice(Stage::Element) else { return Ok(None) };
        let load = |module| clif::load(&clif::compile(module, environment)?, code_bytes_max);
        let stages = [load(&bucket)?, load(&element)?];
        let maps = maps.iter().filter_map(|&map| environment.maps.get(map as usize).cloned());
        Ok(Some(Ahead { stages, maps: maps.collect() }))
    }

    /// Whether one of the tables is too large to be in the caches.
    pub(crate) fn pays(&self) -> bool {
        self.maps.iter().any(|map| {
            let element = u64::from(map.key_size()) + u64::from(map.value_size());
            map.count().unwrap_or(0).saturating_mul(element) > COLD_BYTES
        })
    }
}
