//! The kernel types that ship with Towpath, for machines that publish none.
//!
//! Structures come from `builtin/kernel.c`, compiled. The helpers, kfuncs and map types of
//! Towpath's own tables are added, so that `bpf_core_enum_value_exists(enum bpf_func_id,
//! BPF_FUNC_...)` and `bpf_ksym_exists(kfunc)` tell what really can be called.

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
    // The file is part of the binary; a test parses it.
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
    add_kfuncs(&mut btf);
    btf
}

/// A kernel's types with every kfunc that Towpath has and this kernel lacks: those that no kernel
/// has (`bpf_fdb_lookup`), and those of modules and of other versions.
pub(super) fn with_kfuncs(kernel: Arc<Btf>) -> Btf {
    let mut btf = Btf::on_top_of(kernel);
    add_kfuncs(&mut btf);
    btf
}

/// Adds missing kfuncs without parameters: the verifier has their prototypes, here they only have
/// to exist.
fn add_kfuncs(btf: &mut Btf) {
    let missing = proto::kfuncs().filter(|kfunc| btf.find_func(kfunc.name).is_none());
    let missing: Vec<&str> = missing.map(|kfunc| kfunc.name).collect();
    let kind = Kind::FuncProto { ret: 0, params: Box::default() };
    let proto = btf.push(Type { name: Name::from(""), kind });
    for name in missing {
        let kind = Kind::Func { proto, linkage: Linkage::Static };
        btf.push(Type { name: Name::from(name), kind });
    }
}

fn enumeration(name: &str, values: impl Iterator<Item = (String, u32)>) -> Type {
    let values = values.map(|(name, value)| (Name::from(name), i64::from(value))).collect();
    let kind = Kind::Enum { size: 4, signed: false, wide: false, values };
    Type { name: Name::from(name), kind }
}

/// Largest helper number, with room for new ones: the kernel stopped at 211 in favour of kfuncs.
const HELPER_ID_MAX: u32 = 255;
/// Largest number in `enum bpf_map_type`, with room for new ones.
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

    #[test]
    fn a_kernel_without_a_kfunc_of_ours_gets_it_and_keeps_its_own() {
        let mut kernel = Btf::default();
        let kind = Kind::FuncProto { ret: 0, params: Box::default() };
        let proto = kernel.push(Type { name: Name::from(""), kind });
        let kind = Kind::Func { proto, linkage: Linkage::Static };
        let own = kernel.push(Type { name: Name::from("bpf_xdp_pull_data"), kind });
        let types = with_kfuncs(Arc::new(kernel));
        assert_eq!(types.find_func("bpf_xdp_pull_data"), Some(own));
        for kfunc in proto::kfuncs() {
            assert!(types.find_func(kfunc.name).is_some(), "{}", kfunc.name);
        }
    }
}
