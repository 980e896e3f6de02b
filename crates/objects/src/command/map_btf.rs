//! The types of a map's keys and values.
//!
//! Kernel counterpart: `map_check_btf` and the `map_check_btf` of each kind.

use towpath_bpf::btf::{Btf, Kind, TypeId};
use towpath_bpf::map::Types;
use towpath_bpf::{Errno, MapDef};

/// Whether the types of a definition fit its sizes and its kind.
pub(super) fn check_types(def: &MapDef) -> Result<(), Errno> {
    let Some(btf) = &def.btf else { return Ok(()) };
    let wanted = def.kind.spec().types;
    if def.key_type != 0 {
        check_size(btf, def.key_type, def.key_size)?;
    } else if wanted == Types::Any {
        // The kind has no check of its own that would allow keys without a type.
        return Err(Errno::EINVAL);
    }
    check_size(btf, def.value_type, def.value_size)?;
    // Typedefs and qualifiers are other names of a type.
    let key = btf.resolved(def.key_type);
    let has_key = def.key_type != 0;
    let is_index = has_key && matches!(key, Kind::Int { bits: 32, offset: 0, .. });
    let is_section = matches!(btf.resolved(def.value_type), Kind::Datasec { .. });
    let fits = match wanted {
        Types::Any => true,
        Types::Refused => return Err(Errno::ENOTSUPP),
        Types::Index => is_index || !has_key && def.max_entries == 1 && is_section,
        Types::IndexOnly => is_index,
        Types::Struct => has_key && matches!(key, Kind::Composite { union: false, .. }),
        Types::NoKey => !has_key,
    };
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `btf_type_id_size` gives the size of the map's keys or values.
fn check_size(btf: &Btf, id: TypeId, size: u32) -> Result<(), Errno> {
    let known = btf.get(id).is_some();
    if known && btf.size_of(id) == Some(size.into()) { Ok(()) } else { Err(Errno::EINVAL) }
}
