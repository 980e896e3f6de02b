//! Objects that clang wrote (sources beside them in `data/`), opened and linked.

use std::sync::Arc;

use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::insn::{PSEUDO_BTF_ID, PSEUDO_CALL, PSEUDO_FUNC, PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};
use towpath_bpf::object::{GlobalError, GlobalValue, POISON_CALL, ProgramKind};
use towpath_bpf::program::{AttachType, DataSection, MapType, SlotInit};
use towpath_bpf::{Env, Insn, Linked, Object};

const LINKER: &[u8] = include_bytes!("data/linker.o");
const LEGACY: &[u8] = include_bytes!("data/legacy.o");
const CORE: &[u8] = include_bytes!("data/core.o");
const CORE_KERNEL: &[u8] = include_bytes!("data/core_kernel.btf");
const FOREIGN: &[u8] = include_bytes!("data/foreign.o");
const WEAK: &[u8] = include_bytes!("data/weak.o");
const MULTI: &[u8] = include_bytes!("data/multi.o");

fn open(bytes: &[u8]) -> Object {
    Object::open(bytes, "test.o").expect("an object that clang wrote")
}

fn link(object: &Object, program: &str, env: &Env) -> Linked {
    let program = object.select(Some(program), None).expect("the object has it");
    object.link(program, env).expect("it links")
}

#[test]
fn every_program_is_listed_whatever_its_section_is_called() {
    let object = open(LINKER);
    let listed: Vec<_> = object
        .programs()
        .iter()
        .map(|p| (p.name.as_str(), p.section.as_str(), p.kind, p.attach, p.has_frags))
        .collect();
    assert_eq!(
        listed,
        [
            ("leaf", "xdp/devmap", ProgramKind::Xdp, AttachType::Devmap, false),
            ("entry", "xdp.frags", ProgramKind::Xdp, AttachType::Xdp, true),
            ("externs", "?weird.name", ProgramKind::Unknown, AttachType::Xdp, false),
        ]
    );
    assert_eq!(object.license(), "GPL");
}

#[test]
fn btf_maps_have_their_types_flags_and_slots() {
    let object = open(LINKER);
    let map = |name: &str| object.maps().iter().find(|map| map.name == name).unwrap();
    let flows = map("flows");
    assert_eq!((flows.kind, flows.key_size, flows.value_size), (MapType::Hash, 4, 16));
    assert_eq!((flows.max_entries, flows.flags, flows.pin_by_name), (64, 1, true));
    let btf = flows.btf.as_ref().unwrap();
    assert_eq!(btf.c_name(flows.value_type), "struct counter");
    let inner = map("outer").inner.as_ref().unwrap();
    assert_eq!((inner.kind, inner.value_size, inner.max_entries), (MapType::Array, 8, 4));
    let index = |name: &str| object.maps().iter().position(|map| map.name == name).unwrap();
    let slots = [(1, SlotInit::Map(index("inner_a"))), (5, SlotInit::Map(index("inner_b")))];
    assert_eq!(map("outer").slots, slots);
    assert_eq!(map("jumps").slots, [(2, SlotInit::Program("leaf".to_owned()))]);
    assert_eq!(map(".data.tables").section, Some(DataSection::Data));
    assert_eq!(map(".rodata").initial.as_deref(), Some(&[7, 0, 0, 0, 0][..]));
}

#[test]
fn functions_of_all_sections_follow_the_program_that_calls_them() {
    let linked = link(&open(LINKER), "entry", &Env::builtin());
    let functions: Vec<_> = linked.functions.iter().map(|f| (f.name.as_str(), f.linkage)).collect();
    assert_eq!(
        functions,
        [
            ("entry", Linkage::Global),
            ("each", Linkage::Static),
            ("shared", Linkage::Global),
            ("in_hot", Linkage::Global),
            ("in_text", Linkage::Static),
            ("overridable", Linkage::Global),
        ]
    );
    let starts: Vec<usize> = linked.functions.iter().map(|f| f.start as usize).collect();
    let mut reached = Vec::new();
    for (at, insn) in linked.insns.iter().enumerate() {
        if insn.is_pseudo_call() || insn.is_func_ref() {
            assert!(insn.src == PSEUDO_CALL || insn.src == PSEUDO_FUNC);
            let target = (at as i64 + 1 + i64::from(insn.imm)) as usize;
            reached.push(starts.iter().position(|&start| start == target).unwrap());
        }
    }
    reached.sort_unstable();
    assert_eq!(reached, [1, 2, 3, 4, 4, 5]);
}

#[test]
fn instructions_refer_to_maps_by_index_and_to_data_by_offset() {
    let object = open(LINKER);
    let linked = link(&object, "entry", &Env::builtin());
    let mut maps = Vec::new();
    for (at, insn) in linked.insns.iter().enumerate().filter(|(_, insn)| insn.is_ld_imm64()) {
        let second = linked.insns[at + 1];
        match insn.src {
            PSEUDO_MAP_FD => maps.push((linked.maps[insn.imm as usize].name.as_str(), None)),
            PSEUDO_MAP_VALUE => {
                maps.push((linked.maps[insn.imm as usize].name.as_str(), Some(second.imm)));
            }
            _ => {}
        }
    }
    for expected in [
        ("flows", None),
        ("jumps", None),
        (".rodata", Some(0)),
        (".rodata", Some(4)),
        (".data", Some(0)),
        (".data.tables", Some(0)),
    ] {
        assert!(maps.contains(&expected), "{expected:?} in {maps:?}");
    }
}

#[test]
fn source_lines_follow_their_instructions() {
    let linked = link(&open(LINKER), "entry", &Env::builtin());
    for (name, text) in [
        ("overridable", "return x + 1;"),
        ("in_text", "hidden_state += x;"),
        ("in_hot", "return x * 3 + in_text(x);"),
    ] {
        let function = linked.functions.iter().position(|f| f.name == name).unwrap();
        let start = linked.functions[function].start;
        let end = linked.functions.get(function + 1).map_or(linked.insns.len() as u32, |f| f.start);
        let texts: Vec<_> = (start..end)
            .filter_map(|insn| linked.line_of(insn as usize))
            .map(|line| line.text.to_string())
            .collect();
        assert!(texts.iter().any(|line| line == text), "{name}: {texts:?}");
    }
    assert!(linked.lines.is_sorted_by_key(|line| line.insn));
}

#[test]
fn externs_take_their_values_from_the_environment() {
    let object = open(LINKER);
    let linked = link(&object, "leaf", &Env::builtin());
    let config = linked.maps.iter().find(|m| m.section == Some(DataSection::Kconfig)).unwrap();
    let bytes = config.initial.as_deref().unwrap();
    // Two 4-byte values by name, then the bool: CONFIG_MISSING, LINUX_KERNEL_VERSION, CONFIG_BPF.
    assert_eq!(bytes, [0, 0, 0, 0, 0, 18, 6, 0, 1]);

    let mut env = Env::builtin();
    env.config.remove("CONFIG_BPF");
    let error = object.link(0, &env).unwrap_err().to_string();
    assert!(error.contains("CONFIG_BPF") && error.contains("__weak"), "{error}");

    let linked = link(&object, "externs", &Env::builtin());
    let names: Vec<_> =
        linked.kfuncs.iter().map(|kfunc| (kfunc.name.as_str(), kfunc.weak)).collect();
    assert_eq!(names, [("bpf_rcu_read_lock", false), ("no_such_kfunc", true)]);
    assert!(linked.insns.iter().any(|insn| insn.is_kfunc_call() && insn.imm == 1));
    let zeroes = linked.insns.iter().enumerate().filter(|(at, insn)| {
        insn.is_ld_imm64() && insn.src == 0 && insn.imm == 0 && linked.insns[at + 1].imm == 0
    });
    assert_eq!(zeroes.count(), 3);
    assert!(!linked.insns.iter().any(|insn| insn.is_ld_imm64() && insn.src == PSEUDO_BTF_ID));
}

#[test]
fn globals_are_set_by_name_within_their_type() {
    let mut object = open(LINKER);
    let limit = object.globals().iter().find(|global| global.name == "limit").unwrap();
    assert_eq!(limit.declaration, "const volatile __u32 limit");
    object.set_global("limit", &GlobalValue::Int(0xffff_fffe)).unwrap();
    object.set_global("enabled", &GlobalValue::Int(1)).unwrap();
    object.set_global("table", &GlobalValue::Bytes(vec![9; 16])).unwrap();
    let linked = link(&object, "entry", &Env::builtin());
    let initial = |name: &str| {
        linked.maps.iter().find(|map| map.name == name).unwrap().initial.clone().unwrap()
    };
    assert_eq!(initial(".rodata"), [0xfe, 0xff, 0xff, 0xff, 1]);
    assert_eq!(initial(".data.tables"), [9; 16]);

    let set = |object: &mut Object, name: &str, value| object.set_global(name, &value).unwrap_err();
    for (name, value) in [
        ("limit", GlobalValue::Int(-1)),
        ("limit", GlobalValue::Int(1 << 32)),
        ("enabled", GlobalValue::Int(2)),
        ("table", GlobalValue::Int(1)),
    ] {
        let error = set(&mut object, name, value);
        assert!(matches!(error, GlobalError::Value { .. }), "{error}");
    }
    let error = set(&mut object, "table", GlobalValue::Bytes(vec![0; 3]));
    assert_eq!(error.to_string(), "global table (__u8 table[16]) has 16 bytes, 3 were given");
    assert!(set(&mut object, "no", GlobalValue::Int(0)).to_string().contains("limit"));
}

#[test]
fn legacy_maps_of_iproute2_keep_their_inner_maps_and_tail_calls() {
    let object = open(LEGACY);
    let maps = object.maps();
    let names: Vec<_> = maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["jumps", "template", "outer"]);
    assert_eq!(maps[0].slots, [(0, SlotInit::Program("tail".to_owned()))]);
    assert_eq!(maps[2].slots, [(2, SlotInit::Map(1))]);
    assert!(maps[2].pin_by_name);
    assert_eq!(maps[2].inner.as_ref().unwrap().value_size, 8);
    assert_eq!(link(&object, "entry", &Env::builtin()).license, "Dual BSD/GPL");
}

#[test]
fn static_functions_outside_of_text_are_programs_unless_they_are_called() {
    let object = open(FOREIGN);
    let listed: Vec<_> = object.programs().iter().map(|p| (&*p.name, &*p.section)).collect();
    let expected = [
        ("first", "2/1"),
        ("second", "2/2"),
        ("entry", "xdp"),
        ("byte_order", "xdp"),
        ("nowhere", "xdp"),
    ];
    assert_eq!(listed, expected);
    let first = link(&object, "first", &Env::builtin());
    let names: Vec<_> = first.functions.iter().map(|f| (&*f.name, f.linkage)).collect();
    assert_eq!(names, [("first", Linkage::Static), ("helper", Linkage::Static)]);
}

#[test]
fn pins_of_other_loaders_are_no_pins_by_name() {
    let object = open(FOREIGN);
    let pinned: Vec<_> = object.maps().iter().map(|map| (&*map.name, map.pin_by_name)).collect();
    assert_eq!(pinned, [("calls", false), ("totals", true)]);
}

#[test]
fn functions_that_nobody_defines_are_named_with_what_to_use() {
    let object = open(FOREIGN);
    let refusal = |program: &str| {
        let program = object.select(Some(program), None).unwrap();
        object.link(program, &Env::builtin()).expect_err("it calls what is nowhere").to_string()
    };
    let text = refusal("byte_order");
    assert!(text.contains("symbol ntohl: ") && text.contains("defined nowhere"), "{text}");
    assert!(text.ends_with("use bpf_ntohl() of <bpf/bpf_endian.h>"), "{text}");
    let text = refusal("nowhere");
    assert!(text.contains("of_no_library") && text.contains("bpftool gen object"), "{text}");
    assert!(object.link(2, &Env::builtin()).is_ok(), "a program that calls none is linked");
}

#[test]
fn weak_legacy_maps_are_as_long_as_their_symbols() {
    let object = open(WEAK);
    let maps: Vec<_> = object.maps().iter().map(|map| (&*map.name, map.max_entries)).collect();
    assert_eq!(maps, [("shared", 1), ("first", 16), ("second", 16)]);
    for program in ["one", "two"] {
        link(&object, program, &Env::builtin());
    }
}

#[test]
fn jump_tables_are_refused_with_the_flag_that_avoids_them() {
    let object = open(include_bytes!("data/jump_table.o"));
    let refusal = object.link(0, &Env::builtin()).unwrap_err().to_string();
    assert!(refusal.contains("-fno-jump-tables"), "{refusal}");
}

#[test]
fn sources_and_names_in_other_encodings_are_read() {
    let mut bytes = LINKER.to_vec();
    let line = b"return x * 3 + in_text(x);";
    let at = bytes.windows(line.len()).position(|window| window == line).unwrap();
    bytes[at + 7] = 0xe4;
    let linked = link(&open(&bytes), "entry", &Env::builtin());
    assert!(linked.lines.iter().any(|line| &*line.text == "return \u{fffd} * 3 + in_text(x);"));
}

#[test]
fn statically_linked_files_keep_functions_of_one_name_apart() {
    let linked = link(&open(MULTI), "entry", &Env::builtin());
    let names: Vec<_> = linked.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["entry", "local", "from_library", "local"]);
    // The library's multiplies, the program's own adds.
    let body = |from: usize, to: usize| &linked.insns[from..to];
    let multiplies = |insns: &[Insn]| {
        insns.iter().any(|insn| insn.code & 0xf7 == 0x27 || insn.code & 0xf7 == 0x24)
    };
    let start = |function: usize| linked.functions[function].start as usize;
    assert!(!multiplies(body(start(1), start(2))));
    assert!(multiplies(body(start(3), linked.insns.len())));
    let maps: Vec<_> = linked.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(maps, ["shared_map", "library_map", ".data"]);
}

/// The number that a program of `core.c` returns after relocation.
fn answer(insns: &[Insn]) -> u64 {
    let at =
        insns.iter().position(|insn| insn.dst == 0 && (insn.code == 0xb7 || insn.is_ld_imm64()));
    let at = at.unwrap_or_else(|| panic!("no constant result: {insns:?}"));
    let low = insns[at].imm;
    if insns[at].is_ld_imm64() {
        u64::from(low as u32) | u64::from(insns[at + 1].imm as u32) << 32
    } else {
        i64::from(low) as u64
    }
}

#[test]
fn core_relocations_of_every_kind() {
    let object = open(CORE);
    let kernel = Arc::new(Btf::parse(CORE_KERNEL).unwrap());
    let env = Env::new(Arc::clone(&kernel));
    let ops = |btf: &Btf| u64::from(btf.find_composite("ops").unwrap());
    let expected = [
        ("offset_nested", 64),
        ("offset_flexible", 188),
        ("size_array", 32),
        ("size_grown", 8),
        ("exists_no", 0),
        ("exists_yes", 1),
        ("exists_flavour", 0),
        ("signed_yes", 1),
        ("signed_no", 0),
        ("bitfield_offset", 132),
        ("bitfield_lshift", 56),
        ("bitfield_rshift", 59),
        ("type_exists", 1),
        ("type_absent", 0),
        ("type_size", 24),
        ("type_local", ops(object.btf().unwrap())),
        ("type_target", ops(&kernel)),
        ("type_matches", 1),
        ("type_matches_not", 0),
        ("enum_exists", 1),
        ("enum_gone", 0),
        ("enum_value", 9),
        ("enum_wide", 0x0123_4567_89ab_cdef),
    ];
    for (program, value) in expected {
        assert_eq!(answer(&link(&object, program, &env).insns), value, "{program}");
    }
}

#[test]
fn loads_take_the_width_of_the_kernels_field_and_missing_ones_are_poisoned() {
    let object = open(CORE);
    let env = Env::new(Arc::new(Btf::parse(CORE_KERNEL).unwrap()));
    let load = |program: &str| {
        let linked = link(&object, program, &env);
        let load = linked.insns.iter().find(|insn| insn.class() == 1).copied().unwrap();
        (load.access_bytes(), load.off)
    };
    assert_eq!(load("load_grown"), (8, 120));
    assert_eq!(load("load_shrunk"), (4, 128));
    let mut unresolved = Vec::new();
    for program in ["load_gone", "value_gone"] {
        let linked = link(&object, program, &env);
        let poisoned = |insn: &Insn| insn.is_helper_call() && insn.imm == POISON_CALL;
        assert!(linked.insns.iter().any(poisoned), "{program}");
        for unresolved in &linked.unresolved {
            assert!(poisoned(&linked.insns[unresolved.insn as usize]), "{unresolved:?}");
        }
        unresolved.extend(linked.unresolved.iter().map(|it| it.what.clone()));
    }
    let load = "FieldByteOffset of struct thing.gone (access 0:";
    assert!(unresolved[0].starts_with(load), "{unresolved:?}");
    assert!(unresolved[1].starts_with("EnumeratorValue of enum mode"), "{unresolved:?}");
    assert!(unresolved[1].contains("::MODE_GONE "), "{unresolved:?}");
}

#[test]
fn files_of_other_kinds_are_refused_by_name() {
    let refusal = |bytes: &[u8]| Object::open(bytes, "x.o").unwrap_err().to_string();
    assert!(refusal(b"#include").starts_with("x.o: not an ELF file"));
    assert!(refusal(&LINKER[..40]).contains("damaged ELF"));
    let with = |at: usize, byte: u8| {
        let mut bytes = LINKER.to_vec();
        bytes[at] = byte;
        refusal(&bytes)
    };
    assert!(with(5, 2).contains("big-endian"));
    assert!(with(4, 1).contains("32-bit"));
    assert!(with(18, 62).contains("x86-64"));
    assert!(with(16, 2).contains("executable"));
    assert!(with(16, 3).contains("shared library"));
}

#[test]
fn a_section_of_34_terabytes_is_a_sentence_and_no_allocation() {
    let mut bytes = LINKER.to_vec();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let bss = (headers..bytes.len())
        .step_by(64)
        .find(|&at| bytes[at + 4] == 8)
        .expect("there is a .bss section");
    bytes[bss + 32..bss + 40].copy_from_slice(&(34u64 << 40).to_le_bytes());
    let error = Object::open(&bytes, "x.o").unwrap_err().to_string();
    assert!(error.contains("data sections, with .bss: 373"), "{error}");
}
