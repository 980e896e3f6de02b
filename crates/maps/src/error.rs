//! Errors of creating a map.

use towpath_bpf::map::Broken;
use towpath_bpf::{Errno, MapDef};

use crate::shape::Difference;

/// A map that cannot be created, or whose first contents cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The definition breaks a rule of its kind (`map_alloc_check` in the kernel).
    #[error(
        "map {map:?} of kind {kind}: {rule} (the kernel answers {errno}); change its definition"
    )]
    Definition {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: &'static str,
        /// The rule that is broken.
        rule: &'static str,
        /// The error of `BPF_MAP_CREATE`.
        errno: Errno,
    },
    /// The object leaves the map's size to a loader, which set none.
    #[error(
        "map {map:?} of kind {kind}: the object leaves its size to its loader (max_entries is 0, \
         for which the kernel answers {errno}); give it with --map-size {map}=N, or map_sizes in a \
         configuration"
    )]
    Unsized {
        /// The map's name.
        map: String,
        /// Its kind.
        kind: &'static str,
        /// The error of `BPF_MAP_CREATE`.
        errno: Errno,
    },
    /// There is no memory for it.
    #[error(
        "map {map:?}: no memory for {bytes} bytes; lower max_entries (limit {limit} bytes a map)"
    )]
    Memory {
        /// The map's name.
        map: String,
        /// The bytes that it needs.
        bytes: u64,
        /// The most bytes that a map may have.
        limit: u64,
    },
    /// A slot that the object file fills can't be filled.
    #[error("map {map:?}, slot {slot}: {problem}; correct the initialiser in the object file")]
    Slot {
        /// The map's name.
        map: String,
        /// The index in `.values`.
        slot: u32,
        /// The mistake.
        problem: String,
    },
    /// An existing map differs from the object's definition.
    #[error("map {map:?}: {difference}")]
    Differs {
        /// The map's name.
        map: String,
        /// The property in which they differ.
        difference: Difference,
    },
    /// An existing map belongs to the workers of another engine.
    #[error("map {map:?} belongs to other workers: maps are shared within one engine")]
    Domain {
        /// The map's name.
        map: String,
    },
    /// A data section holds more bytes than its map.
    #[error("map {map:?}: {bytes} initial bytes do not fit its value of {size} bytes")]
    Initial {
        /// The map's name.
        map: String,
        /// Bytes given.
        bytes: usize,
        /// Bytes of the value.
        size: u32,
    },
}

impl MapError {
    /// The definition breaks a rule.
    pub(crate) fn of(def: &MapDef, broken: Broken) -> MapError {
        let (map, kind, is_unsized) = (def.name.clone(), def.kind.name(), broken.is_unsized());
        let Broken { errno, rule } = broken;
        if is_unsized {
            MapError::Unsized { map, kind, errno }
        } else {
            MapError::Definition { map, kind, rule, errno }
        }
    }

    /// The error number that the kernel gives in this case.
    pub fn errno(&self) -> Errno {
        match self {
            MapError::Definition { errno, .. } | MapError::Unsized { errno, .. } => *errno,
            MapError::Memory { .. } => Errno::ENOMEM,
            MapError::Slot { .. }
            | MapError::Differs { .. }
            | MapError::Domain { .. }
            | MapError::Initial { .. } => Errno::EINVAL,
        }
    }
}
