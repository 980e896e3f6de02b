//! The kernel's verifier test tables, loaded as XDP programs.
//!
//! `scripts/verifier-tables.sh` writes them as JSON lines; here a line becomes a [`Linked`] with
//! the maps that the kernel's runner would have made for it (`do_test_fixup`). Tests of other
//! program types are kept apart; tests without a type are type-independent and count as XDP's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::insn::{BPF_LDX, BPF_MEM, BPF_W};
use towpath_bpf::program::{AttachType, Function, KfuncRef, MapType};
use towpath_bpf::{Insn, Linked, MapDef};
use towpath_workload::plain_map;

use crate::sources::SourceError;

/// One test of the tables.
#[derive(Debug)]
pub struct TableTest {
    /// Its description in the table.
    pub name: String,
    /// The program.
    pub linked: Linked,
    /// What the table expects.
    pub accept: bool,
    /// What the log must say when it expects a refusal.
    pub error: String,
    /// Meant for strict alignment, which XDP programs on this machine don't have: the table's
    /// expectation says nothing here.
    pub strict_alignment: bool,
    /// Written for another program type. Loaded as XDP all the same, as one more program that both
    /// verifiers must judge alike, but outside of the tables' own bars.
    pub foreign: bool,
    /// Uses types of the kernel's test module (`bpf_testmod`).
    pub needs_module: bool,
}

/// Reads a dump: tests for XDP, those for any program type, and the rest as `foreign`.
pub fn read(path: &Path, kernel_btf: &Arc<Btf>) -> Result<Vec<TableTest>, SourceError> {
    let invalid = |source| SourceError::File { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(invalid)?;
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Record>(line).map_err(|error| invalid(error.into())));
    let map_btf = match lines.next() {
        Some(header) => header?.btf().map(Arc::new),
        None => None,
    };
    let mut tests = Vec::new();
    for record in lines {
        tests.push(record?.into_test(map_btf.as_ref(), kernel_btf));
    }
    Ok(tests)
}

/// A line of the dump.
#[derive(Debug, Deserialize)]
struct Record {
    #[serde(default)]
    name: String,
    #[serde(default)]
    prog_type: u32,
    #[serde(default)]
    flags: u32,
    #[serde(default)]
    result: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    insns: String,
    /// Map name to the instruction slots that load it.
    #[serde(default)]
    maps: BTreeMap<String, Vec<usize>>,
    #[serde(default)]
    kfuncs: Vec<(String, usize)>,
    /// Instruction slot and type id of each function.
    #[serde(default)]
    func_info: Vec<(u32, u32)>,
    #[serde(default)]
    btf_types: String,
    #[serde(default)]
    btf_strings: String,
}

impl Record {
    fn into_test(self, map_btf: Option<&Arc<Btf>>, kernel_btf: &Arc<Btf>) -> TableTest {
        let foreign = self.prog_type != 0 && self.prog_type != PROG_TYPE_XDP;
        let mut insns = self.instructions();
        if foreign {
            insns.iter_mut().for_each(as_xdp);
        }
        let (mut maps, mut kfuncs) = (Vec::new(), Vec::new());
        for (name, slots) in &self.maps {
            for &slot in slots {
                insns[slot].imm = maps.len() as i32;
            }
            maps.push(table_map(name, map_btf));
        }
        for (name, slot) in &self.kfuncs {
            insns[*slot].imm = kfuncs.len() as i32;
            kfuncs.push(KfuncRef { name: name.clone(), type_id: None, weak: false });
        }
        // Calls that stay unresolved on purpose: no kernel function has an empty name.
        let patched: Vec<usize> = self.kfuncs.iter().map(|(_, slot)| *slot).collect();
        for (slot, insn) in insns.iter_mut().enumerate() {
            if insn.is_kfunc_call() && !patched.contains(&slot) {
                insn.imm = kfuncs.len() as i32;
                kfuncs.push(KfuncRef { name: String::new(), type_id: None, weak: true });
            }
        }
        let btf = self.btf().map(Arc::new);
        let linked = Linked {
            name: "table_test".to_owned(),
            section: "xdp".to_owned(),
            attach: AttachType::Xdp,
            has_frags: self.flags & F_XDP_HAS_FRAGS != 0,
            license: "GPL".to_owned(),
            functions: functions(&insns, &self.func_info),
            insns,
            lines: Vec::new(),
            maps: maps.into(),
            unresolved: Vec::new(),
            kfuncs,
            btf,
            kernel_btf: Arc::clone(kernel_btf),
        };
        TableTest {
            name: self.name,
            linked,
            accept: self.result == "accept",
            error: self.error,
            strict_alignment: self.flags & F_STRICT_ALIGNMENT != 0,
            foreign,
            needs_module: self.maps.contains_key("kptr"),
        }
    }

    /// The instructions, with map references that the runner would not patch made invalid.
    fn instructions(&self) -> Vec<Insn> {
        let bytes = unhex(&self.insns);
        let mut insns: Vec<Insn> = bytes
            .chunks_exact(8)
            .map(|b| Insn::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect();
        let mut second_slot = false;
        for insn in &mut insns {
            let is_first = !second_slot && insn.is_ld_imm64();
            if is_first && (1..=2).contains(&insn.src) {
                insn.imm = i32::MAX;
            }
            second_slot = is_first;
        }
        insns
    }

    /// The types that a test brings along.
    fn btf(&self) -> Option<Btf> {
        if self.btf_types.is_empty() {
            return None;
        }
        let (types, strings) = (unhex(&self.btf_types), unhex(&self.btf_strings));
        let mut blob = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len(), types.len(), strings.len()] {
            blob.extend_from_slice(&(word as u32).to_le_bytes());
        }
        blob.extend(types);
        blob.extend(strings);
        Btf::parse(&blob).ok()
    }
}

/// Turns loads of `__sk_buff.data`, `data_end` and `data_meta` from r1 into those of `xdp_md`.
fn as_xdp(insn: &mut Insn) {
    if insn.code == (BPF_LDX | BPF_MEM | BPF_W) && insn.src == 1 {
        insn.off = match insn.off {
            76 => 0,
            80 => 4,
            140 => 8,
            other => other,
        };
    }
}

/// The functions that calls and function references reach; the first is the entry.
pub fn functions(insns: &[Insn], func_info: &[(u32, u32)]) -> Vec<Function> {
    let mut starts = std::collections::BTreeSet::from([0]);
    let mut second_slot = false;
    for (at, insn) in insns.iter().enumerate() {
        if !second_slot && (insn.is_pseudo_call() || insn.is_func_ref()) {
            let target = at as i64 + 1 + i64::from(insn.imm);
            starts.extend(u32::try_from(target).ok().filter(|t| (*t as usize) < insns.len()));
        }
        second_slot = !second_slot && insn.is_ld_imm64();
    }
    let type_of = |start| func_info.iter().find(|(at, _)| *at == start).map(|(_, id)| *id);
    starts
        .into_iter()
        .map(|start| Function {
            start,
            name: format!("f{start}"),
            linkage: if start == 0 { Linkage::Global } else { Linkage::Static },
            type_id: type_of(start),
        })
        .collect()
}

/// The map that the kernel's runner makes under this name (`do_test_fixup`).
fn table_map(name: &str, btf: Option<&Arc<Btf>>) -> MapDef {
    use MapType as T;
    const VAL: u32 = 48;
    let (kind, key_size, value_size, max_entries, flags) = match name {
        "hash_8b" => (T::Hash, 8, 8, 1, F_NO_PREALLOC),
        "hash_48b" => (T::Hash, 8, VAL, 1, F_NO_PREALLOC),
        "hash_16b" => (T::Hash, 8, 16, 1, F_NO_PREALLOC),
        "array_48b" => (T::Array, 4, VAL, 1, 0),
        "array_ro" => (T::Array, 4, VAL, 1, F_RDONLY_PROG),
        "array_wo" => (T::Array, 4, VAL, 1, F_WRONLY_PROG),
        "array_small" => (T::Array, 4, 1, 1, 0),
        "sockmap" => (T::Sockmap, 4, 4, 1, 0),
        "sockhash" => (T::Sockhash, 4, 4, 1, 0),
        "xskmap" => (T::Xskmap, 4, 4, 1, 0),
        "stacktrace" => (T::StackTrace, 4, 8, 1, 0),
        "prog1" => (T::ProgArray, 4, 4, 4, 0),
        "prog2" => (T::ProgArray, 4, 4, 8, 0),
        "map_in_map" => (T::ArrayOfMaps, 4, 4, 1, 0),
        "cgroup_storage" => (T::CgroupStorage, 16, 64, 0, 0),
        "percpu_cgroup_storage" => (T::PercpuCgroupStorage, 16, 64, 0, 0),
        "spin_lock" => (T::Array, 4, 8, 1, 0),
        "sk_storage" => (T::SkStorage, 4, 8, 0, F_NO_PREALLOC),
        "event_output" => (T::PerfEventArray, 4, 4, 1, 0),
        "reuseport_array" => (T::ReuseportSockarray, 4, 8, 1, 0),
        "ringbuf" => (T::Ringbuf, 0, 0, 4096, 0),
        "timer" => (T::Array, 4, 16, 1, 0),
        _ => (T::Array, 4, 24, 1, 0),
    };
    let mut map = plain_map(name, kind, (key_size, value_size, max_entries));
    map.flags = flags;
    // Type ids in the runner's own BTF: `struct val` and `struct timer`.
    let value_type = match name {
        "spin_lock" | "sk_storage" => 3,
        "timer" => 5,
        _ => 0,
    };
    if value_type != 0 {
        (map.key_type, map.value_type, map.btf) = (1, value_type, btf.cloned());
    }
    if kind == T::ArrayOfMaps {
        map.inner = Some(Box::new(plain_map("inner", T::Array, (4, 4, 1))));
    }
    if matches!(name, "array_48b" | "array_ro" | "array_wo") {
        map.initial = Some(test_value());
    }
    map
}

/// `struct test_val`: an index of 28, and 0xabcdef12 in the seventh of eleven integers.
fn test_value() -> Vec<u8> {
    let mut value = vec![0; 48];
    value[0] = 28;
    value[28..32].copy_from_slice(&0xabcd_ef12_u32.to_le_bytes());
    value
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

const PROG_TYPE_XDP: u32 = 6;
const F_STRICT_ALIGNMENT: u32 = 1 << 1;
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
const F_NO_PREALLOC: u32 = 1;
const F_RDONLY_PROG: u32 = 1 << 7;
const F_WRONLY_PROG: u32 = 1 << 8;
