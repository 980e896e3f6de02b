//! Maps and programs made one by one, as by `bpf(2)`, which may be combined freely.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::verifier::Verified;
use towpath_maps::{CreateOptions, Domain, Environment, Map, MapError, MapSet};

use super::load::{finish_verified, map_fields, surroundings};
use super::{LoadError, LoadOptions, Program, Surroundings};

/// State shared by these maps and programs: the workers that run them, program ids, timers,
/// objects, printed lines.
#[derive(Debug, Clone)]
pub struct Shared {
    domain: Arc<Domain>,
    surroundings: Arc<Surroundings>,
    options: LoadOptions,
}

impl Shared {
    /// Shared state for programs loaded with `options`, on the number of workers there.
    pub fn new(options: &LoadOptions) -> Shared {
        Shared {
            domain: Domain::new(options.workers.max(1)),
            surroundings: Arc::new(surroundings(options)),
            options: options.clone(),
        }
    }

    /// Creates a map whose access flags are checked by the code that hands out its descriptors.
    ///
    /// # Errors
    ///
    /// Fails with the rule of `BPF_MAP_CREATE` that the definition breaks.
    pub fn create_map(
        &self,
        def: &MapDef,
        kernel: &Btf,
        environment: Arc<dyn Environment>,
    ) -> Result<Arc<Map>, MapError> {
        let mut options = CreateOptions::new(Arc::clone(&self.domain));
        options.fields = map_fields(def, kernel);
        options.release = Some(self.surroundings.releaser());
        options.environment = environment;
        options.access_by_handle = true;
        Map::create(def, &options)
    }

    /// Prepares a verified program over `maps`, which are in the order of its definitions and were
    /// made by [`Shared::create_map`]. Call [`Shared::forget`] when it is unloaded.
    ///
    /// # Errors
    ///
    /// Fails if a reference of the program cannot be resolved.
    pub fn load(&self, verified: Verified, maps: Vec<Arc<Map>>) -> Result<Program, LoadError> {
        let maps = Arc::new(MapSet::of(maps, &self.domain));
        let surroundings = Arc::clone(&self.surroundings);
        finish_verified(verified, maps, surroundings, &self.options, self.options.exec)
    }

    /// Removes a program of [`Shared::load`] or a [`Loader`](super::Loader) as a target of tail
    /// calls.
    pub fn forget(&self, program: &Program) {
        if Arc::ptr_eq(program.surroundings(), &self.surroundings) {
            self.surroundings.programs.remove(program.id(), &self.domain);
        }
    }

    /// The workers: the CPUs of per-CPU maps.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// State shared by all programs, besides maps.
    pub fn surroundings(&self) -> &Arc<Surroundings> {
        &self.surroundings
    }

    /// Options for loading programs.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }
}
