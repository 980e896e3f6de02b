//! The kernel types that ship with Towpath, for machines that publish none.
//!
//! Structures come from `builtin/kernel.c`, compiled. What Towpath's own tables know is added from
//! these, so that `bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_...)` and
//! `bpf_ksym_exists(kfunc)` say what really can be called.

use std::sync::{Arc, LazyLock};

use crate::btf::{Btf, Kind, Linkage, Name, Type};
use crate::program::MapType;
use crate::proto;

/// The types, parsed once.
pub(super) fn kernel_btf() -> Arc<Btf> {
    static PARSED: LazyLock<Arc<Btf>> = LazyLock::new(|| Arc::new(build()));
    Arc::clone(&PARSED)
}

fn build() -> Btf {
    // The file is part of the program; a test parses it.
    let mut btf = Btf::parse(include_bytes!("builtin/kernel.btf")).unwrap_or_default();
    let helpers = (1..=HELPER_ID_MAX).filter_map(|id| {
        let name = proto::helper_name(id)?;
        Some((format!("BPF_FUNC_{}", name.strip_prefix("bpf_").unwrap_or(name)), id))
    });
    btf.push(enumeration("bpf_func_id", helpers));
    let maps = (1..=MAP_TYPE_MAX).filter_map(|number| {
        let name = MapType::from_number(number)?.name().to_ascii_uppercase();
        Some((format!("BPF_MAP_TYPE_{name}"), number))
    });
    btf.push(enumeration("bpf_map_type", maps));
    // How a kfunc is called, the verifier knows; here it only has to exist.
    let proto = btf.push(Type {
        name: Name::from(""),
        kind: Kind::FuncProto { ret: 0, params: Box::default() },
    });
    for kfunc in proto::kfuncs() {
        let kind = Kind::Func { proto, linkage: Linkage::Static };
        btf.push(Type { name: Name::from(kfunc.name), kind });
    }
    btf
}

fn enumeration(name: &str, values: impl Iterator<Item = (String, u32)>) -> Type {
    let values = values.map(|(name, value)| (Name::from(name), i64::from(value))).collect();
    let kind = Kind::Enum { size: 4, signed: false, wide: false, values };
    Type { name: Name::from(name), kind }
}

/// Room for helpers to come: the kernel stopped at 211 in favour of kfuncs.
const HELPER_ID_MAX: u32 = 255;
/// As above, for `enum bpf_map_type`.
const MAP_TYPE_MAX: u32 = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_programs_ask_for_are_there() {
        let btf = kernel_btf();
        let size = |name| btf.size_of(btf.find_composite(name).unwrap());
        assert_eq!(size("xdp_md"), Some(24));
        assert_eq!(size("bpf_fib_lookup"), Some(64));
        assert_eq!(size("bpf_ct_opts"), Some(16));
        assert_eq!(size("iphdr"), Some(20));
        assert_eq!(size("ipv6hdr"), Some(40));
        assert_eq!(size("tcphdr"), Some(20));
        assert_eq!(size("ethhdr"), Some(14));
        assert_eq!(size("bpf_sock"), Some(80));
        let functions = btf.find("bpf_func_id", |kind| matches!(kind, Kind::Enum { .. })).unwrap();
        let Kind::Enum { values, .. } = btf.kind(functions) else { unreachable!() };
        assert!(values.iter().any(|(name, id)| &**name == "BPF_FUNC_xdp_adjust_head" && *id == 44));
        assert!(btf.find_func("bpf_xdp_pull_data").is_some());
    }
}
