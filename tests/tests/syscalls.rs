//! Programs that users call: what they may do, with the running kernel as arbiter.
//!
//! `tests/data/calls/syscalls.c` has programs that are accepted or refused; here the calls and maps
//! are tried that they may, or may not, use.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::insn::Insn;
use towpath_bpf::map::MapType;
use towpath_bpf::object::{Env, Object};
use towpath_bpf::program::{AttachType, KfuncRef, Linked};
use towpath_bpf::proto;
use towpath_bpf::verifier::{self, Options};
use towpath_kernel::{Kernel, LoadError};
use towpath_tests::{sources, verdict};

/// A program that users call, of these instructions.
fn program(kernel: &Kernel, insns: Vec<Insn>, maps: Vec<MapDef>, kfuncs: &[&str]) -> Linked {
    let kfunc = |name: &&str| KfuncRef { name: (*name).to_owned(), type_id: None, weak: false };
    Linked {
        attach: AttachType::Syscall,
        has_frags: false,
        kfuncs: kfuncs.iter().map(kfunc).collect(),
        ..Linked::of_insns("tried", insns, maps, kernel.btf())
    }
}

/// What both verifiers say: ours, then the kernel's.
fn reasons(kernel: &Kernel, linked: &Linked) -> (String, String) {
    let maps = kernel.load_maps(&linked.maps).expect("maps");
    let theirs = verdict::kernel(kernel, linked, &maps, true);
    (verdict::ours(linked).reason().to_owned(), theirs.reason().to_owned())
}

const EXIT: Insn = Insn::new(0x95, 0, 0, 0, 0);

/// Helpers that the kernel would let them call, and Towpath does not: no argument fits, or the map
/// is one that such programs can't use.
const NO_HELPERS: [&str; 3] = ["bpf_perf_event_output", "bpf_tail_call", "bpf_xdp_get_buff_len"];
/// Kfuncs that the kernel refuses in other words: they ask for a device, or for a context with a
/// type.
const NO_KFUNCS: [&str; 4] = [
    "bpf_xdp_metadata_rx_timestamp",
    "bpf_xdp_metadata_rx_hash",
    "bpf_xdp_metadata_rx_vlan_tag",
    "bpf_cast_to_kern_ctx",
];

#[test]
fn they_call_the_helpers_that_the_kernel_lets_them_call() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut wrong = Vec::new();
    for helper in proto::helpers() {
        let linked = program(
            &kernel,
            vec![Insn::new(0x85, 0, 0, 0, helper.id as i32), EXIT],
            Vec::new(),
            &[],
        );
        let (ours, theirs) = reasons(&kernel, &linked);
        let refused = format!("program of this type cannot use helper {}#", helper.name);
        let said = (ours.contains(&refused), theirs.contains(&refused));
        if said.0 != said.1 && !NO_HELPERS.contains(&helper.name) {
            wrong.push(format!("{}: ours {ours:?}, 6.18: {theirs:?}", helper.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn they_call_the_kfuncs_that_the_kernel_lets_them_call() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for kfunc in proto::kfuncs() {
        if kernel.btf().find_func(kfunc.name).is_none() {
            continue;
        }
        let call = Insn::new(0x85, 0, 2, 0, 0);
        let linked = program(&kernel, vec![call, EXIT], Vec::new(), &[kfunc.name]);
        let (ours, theirs) = reasons(&kernel, &linked);
        let refused = format!("calling kernel function {} is not allowed", kfunc.name);
        let said = (ours.contains(&refused), theirs.contains(&refused));
        compared += 1;
        let is_refused = NO_KFUNCS.contains(&kfunc.name) && !theirs.is_empty();
        if said.0 != said.1 && !is_refused {
            wrong.push(format!("{}: ours {ours:?}, 6.18: {theirs:?}", kfunc.name));
        }
    }
    assert!(compared > 80, "only {compared}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn they_use_the_maps_that_the_kernel_lets_them_use() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for kind in MapType::ALL {
        let sizes: [(u32, u32, u32, u32); 7] = [
            (4, 8, 4, 0),
            (4, 4, 4, 0),
            (8, 8, 4, 1),
            (0, 8, 4, 0),
            (0, 4, 4, 0),
            (0, 0, 4096, 0),
            (0, 0, 1, 1 << 10),
        ];
        let def = |(key, value, entries, flags)| MapDef {
            flags,
            map_extra: if *kind == MapType::Arena { 1 << 32 } else { 0 },
            ..MapDef::new("tried", *kind, key, value, entries)
        };
        let made = sizes
            .map(def)
            .into_iter()
            .find(|def| kernel.load_maps(std::slice::from_ref(def)).is_ok());
        let Some(def) = made.filter(|_| !kind.is_ours()) else { continue };
        let wide = [Insn::new(0x18, 1, 1, 0, 0), Insn::new(0, 0, 0, 0, 0)];
        let insns = wide.into_iter().chain([Insn::new(0xb7, 0, 0, 0, 0), EXIT]).collect();
        let (ours, theirs) = reasons(&kernel, &program(&kernel, insns, vec![def], &[]));
        compared += 1;
        if ours.is_empty() != theirs.is_empty() {
            wrong.push(format!("{}: ours {ours:?}, 6.18: {theirs:?}", kind.name()));
        }
    }
    assert!(compared > 15, "only {compared} kinds");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The programs that are accepted or refused by name: as the kernel does, and with its words.
#[test]
fn they_are_refused_with_the_kernels_words() {
    let (kernel, folder) = match (Kernel::open(), sources::call_objects()) {
        (Ok(kernel), Ok(folder)) => (kernel, folder),
        (Err(why), _) => return eprintln!("skipped: {why}"),
        (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let env = Env::new(Arc::clone(kernel.btf()));
    let bytes = std::fs::read(folder.join("syscalls.o")).expect("it was compiled");
    let object = Object::open(&bytes, "syscalls.o").expect("an object of clang");
    let mut wrong = Vec::new();
    for (index, source) in object.programs().iter().enumerate() {
        let linked = object.link(index, &env).expect("it links");
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        let theirs = kernel.load(&linked, &maps).err();
        let ours = verifier::verify(linked, &Options::default()).err();
        let is_wanted = source.name.starts_with("ok_");
        let log = theirs.as_ref().map_or("", LoadError::log);
        let words = ours.as_ref().map_or("", |rejection| rejection.message.as_str());
        let is_said = words.is_empty() || log.lines().any(|line| line.starts_with(words));
        let is_known = OTHER_WORDS.contains(&source.name.as_str());
        let is_right = (ours.is_none(), theirs.is_none()) == (is_wanted, is_wanted);
        if !is_right || !(is_said || is_known) {
            wrong.push(format!("{}: ours {words:?}, 6.18: {log}", source.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Refused for the same reason in other words: what was released is a number to the kernel, and
/// points to memory.
const OTHER_WORDS: [&str; 1] = ["no_released_twice"];
