//! Types of functions that take and give nothing in particular: the kernel wants to know of each
//! function what it is called and whether it is static.

use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::program::Function;

const KIND_INT: u32 = 1;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// Types 1 and 2 are `int` and `int (void)`, then comes one of each function.
pub(super) fn of_functions(functions: &mut [Function]) -> Btf {
    let mut strings = b"\0int\0".to_vec();
    let mut types = Vec::new();
    types.extend([1, KIND_INT << 24, 4, 1 << 24 | 32]);
    types.extend([0, KIND_FUNC_PROTO << 24, 1]);
    for (index, function) in functions.iter_mut().enumerate() {
        let linkage = u32::from(function.linkage == Linkage::Global);
        types.extend([strings.len() as u32, KIND_FUNC << 24 | linkage, 2]);
        strings.extend(function.name.bytes().chain([0]));
        function.type_id = Some(index as u32 + 3);
    }
    let type_bytes = types.len() as u32 * 4;
    let mut blob = vec![0x9f, 0xeb, 1, 0];
    let header = [24, 0, type_bytes, type_bytes, strings.len() as u32];
    blob.extend(header.iter().chain(&types).flat_map(|word| word.to_le_bytes()));
    blob.extend(strings);
    Btf::parse(&blob).unwrap_or_default()
}
