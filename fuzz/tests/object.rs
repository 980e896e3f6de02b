//! No bytes make the object loader, the linker or the BTF parser panic, hang or take unbounded
//! memory.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::object::GlobalValue;
use towpath_bpf::{Env, Object};
use towpath_fuzz::corpus;

/// Real objects, small ones, that together have every part the loader knows.
const OBJECTS: [&[u8]; 4] = [
    include_bytes!("../../crates/bpf/tests/data/linker.o"),
    include_bytes!("../../crates/bpf/tests/data/legacy.o"),
    include_bytes!("../../crates/bpf/tests/data/core.o"),
    include_bytes!("../../crates/bpf/tests/data/multi.o"),
];
const TYPES: &[u8] = include_bytes!("../../crates/bpf/tests/data/core_kernel.btf");

#[test]
fn what_went_wrong_before_and_each_part_of_it() {
    let environments = environments();
    for object in known() {
        (0..=object.len()).for_each(|len| open_and_link(&object[..len], &environments));
    }
}

#[test]
fn objects_with_bytes_changed() {
    let environments = environments();
    let objects = [OBJECTS.map(<[u8]>::to_vec).to_vec(), known()].concat();
    bolero::check!().with_type::<(u8, Vec<(u16, u8)>)>().for_each(|(choice, changes)| {
        let object = &objects[usize::from(*choice) % objects.len()];
        open_and_link(&with_changes(object, changes), &environments);
    });
}

/// Objects of `corpus/`.
fn known() -> Vec<Vec<u8>> {
    let files = corpus("object", &["o"]).expect("they are committed");
    assert!(!files.is_empty());
    files
}

#[test]
fn types_with_bytes_changed() {
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let Ok(btf) = Btf::parse(&with_changes(TYPES, changes)) else { return };
        look_at_types(&btf);
        let env = Env::new(Arc::new(btf));
        open_and_link(OBJECTS[2], &[env]);
    });
}

#[test]
fn any_bytes() {
    let environments = environments();
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        open_and_link(bytes, &environments);
        if let Ok(btf) = Btf::parse(bytes) {
            look_at_types(&btf);
        }
    });
}

fn environments() -> [Env; 2] {
    let kernel = Btf::parse(TYPES).expect("the file as committed parses");
    [Env::builtin(), Env::new(Arc::new(kernel))]
}

fn with_changes(bytes: &[u8], changes: &[(u16, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, value) in changes.iter().take(8) {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *value;
    }
    bytes
}

fn open_and_link(bytes: &[u8], environments: &[Env]) {
    let Ok(mut object) = Object::open(bytes, "fuzzed.o") else { return };
    for global in object.globals().to_vec() {
        let bytes = vec![1; global.size as usize];
        let set = object.set_global(&global.name, &GlobalValue::Int(1));
        assert!(set.is_ok() || global.size != 4 || global.ty != 0);
        // Of two variables of one name, the first is set.
        let _ = object.set_global(&global.name, &GlobalValue::Bytes(bytes));
    }
    for program in 0..object.programs().len() {
        for env in environments {
            let Ok(linked) = object.link(program, env) else { continue };
            let count = linked.insns.len();
            assert!(
                linked.functions.iter().all(|function| (function.start as usize) < count.max(1))
            );
            assert!(linked.functions.is_sorted_by_key(|function| function.start));
            assert!(linked.lines.is_sorted_by_key(|line| line.insn));
            for insn in linked.insns.iter().filter(|insn| insn.is_kfunc_call()) {
                assert!((insn.imm as usize) < linked.kfuncs.len());
            }
        }
    }
    if let Some(btf) = object.btf() {
        look_at_types(btf);
    }
}

/// Every accessor ends on every type.
fn look_at_types(btf: &Btf) {
    for (id, ty) in btf.iter() {
        let _ = (btf.size_of(id), btf.member(id, "no such member"), btf.c_name(id));
        assert!(ty.name.is_empty() || btf.find(&ty.name, |_| true).is_some());
    }
}
