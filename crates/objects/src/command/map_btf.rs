//! The types of a map's keys and values.
//!
//! Kernel counterpart: `map_check_btf` and the `map_check_btf` of each kind.

use std::sync::Arc;

use towpath_bpf::btf::{Btf, Kind, TypeId};
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use super::Call;
use crate::attr::map_create as field;
use crate::object::btf::BtfObject;

impl Call<'_> {
    /// The types that a map is made with.
    pub(super) fn map_btf(&self) -> Result<Option<Arc<BtfObject>>, Errno> {
        let [key, value] =
            [field::BTF_KEY_TYPE_ID, field::BTF_VALUE_TYPE_ID].map(|at| self.u32(at));
        if key == 0 && value == 0 {
            return Ok(None);
        }
        let handle = self.caller.handle(self.u32(field::BTF_FD))?;
        Ok(Some(Arc::clone(handle.btf()?)))
    }
}

/// Whether the types of a definition fit its sizes and its kind.
pub(super) fn check_types(def: &MapDef) -> Result<(), Errno> {
    let Some(btf) = &def.btf else { return Ok(()) };
    let rule = Rule::of(def.kind);
    if def.key_type != 0 {
        check_size(btf, def.key_type, def.key_size)?;
    } else if rule == Rule::Any {
        // Such a kind has no check of its own, which would allow for keys without type.
        return Err(Errno::EINVAL);
    }
    check_size(btf, def.value_type, def.value_size)?;
    match rule {
        Rule::Any => Ok(()),
        Rule::NoTypes => Err(Errno::ENOTSUPP),
        Rule::Index if def.key_type == 0 => {
            let section = matches!(btf.kind(def.value_type), Kind::Datasec { .. });
            let fits = def.kind == MapType::Array && def.max_entries == 1 && section;
            if fits { Ok(()) } else { Err(Errno::EINVAL) }
        }
        Rule::Index => match btf.kind(def.key_type) {
            Kind::Int { bits: 32, offset: 0, .. } => Ok(()),
            _ => Err(Errno::EINVAL),
        },
        Rule::Struct => match btf.kind(def.key_type) {
            Kind::Composite { union: false, .. } => Ok(()),
            _ => Err(Errno::EINVAL),
        },
        Rule::NoKey if def.key_type == 0 => Ok(()),
        Rule::NoKey => Err(Errno::EINVAL),
    }
}

/// What a kind wants of its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Sizes only.
    Any,
    /// A 32-bit number as key.
    Index,
    /// A struct as key.
    Struct,
    /// No key.
    NoKey,
    /// No types at all.
    NoTypes,
}

impl Rule {
    fn of(kind: MapType) -> Rule {
        match kind {
            MapType::Array | MapType::PercpuArray => Rule::Index,
            MapType::LpmTrie => Rule::Struct,
            MapType::BloomFilter => Rule::NoKey,
            MapType::Devmap
            | MapType::DevmapHash
            | MapType::Cpumap
            | MapType::Xskmap
            | MapType::Arena
            | MapType::PerfEventArray
            | MapType::CgroupArray
            | MapType::ArrayOfMaps
            | MapType::HashOfMaps
            | MapType::StackTrace => Rule::NoTypes,
            _ => Rule::Any,
        }
    }
}

/// `btf_type_id_size` gives the size of the map's keys or values.
fn check_size(btf: &Btf, id: TypeId, size: u32) -> Result<(), Errno> {
    let known = btf.get(id).is_some();
    if known && btf.size_of(id) == Some(size.into()) { Ok(()) } else { Err(Errno::EINVAL) }
}
